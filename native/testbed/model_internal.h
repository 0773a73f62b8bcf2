// SPDX-License-Identifier: Apache-2.0
/* What the files of the service model share.
 *
 *   model.c           life, the clock, the threads that answer, model_finish
 *   model_settings.c  the settings as numbers
 *   model_queue.c     virtual time: events, stations, disks
 *   model_net.c       requests: windows of clients, the way through servers, who waits for them
 *   model_locks.c     what clients hold: locks, names, what a thread asked last
 *   model_calls.c     which requests a metadata call causes
 *   model_cache.c     which requests reads, writes and fsync cause: the clients' caches
 *   model_jobs.c      whose call it is: job ids
 *   model_stats.c     counters, in all and for each job
 *   model_text.c      the text forms of Lustre's statistics
 *   model_tree.c      the files of statistics, get_param and set_param
 *   model_metrics.c   how busy the servers are: for Prometheus, and as their /proc
 *   model_faults.c    commands: set, fail, heal, fill, ...
 *
 * Invariants:
 * 1. One lock, `lock`, guards everything but the atomics and the job cache.  It is never held while an answer, `waits`
 *    or a look into /proc runs.
 * 2. A plan is what a call waits for: phases, one after the other, each a number of requests at the same time.
 * 3. Requests without a plan run in the background; they load servers and nobody waits for them. */
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "testbed/model.h"
#include "testbed/model_queue.h"
#include "testbed/model_settings.h"

/* ---- statistics ---- */

struct stat_line {
  uint64_t count, min, max, sum, sumsq;
};
void stat_add(struct stat_line *s, uint64_t value);

enum { /* names in model_stats.c */
  MD_OPEN, MD_CLOSE, MD_MKNOD, MD_LINK, MD_UNLINK, MD_MKDIR, MD_RMDIR, MD_RENAME, MD_GETATTR, MD_SETATTR, MD_GETXATTR,
  MD_SETXATTR, MD_STATFS, MD_SYNC, MD_SAMEDIR, MD_CROSSDIR, MD_RENAME_FILE, MD_RENAME_DIR, MD_TRYLOCKS, MD_READ, MD_WRITE,
  MD_READ_BYTES, MD_WRITE_BYTES, MD_PUNCH, MD_FALLOCATE,
  MD_STATS
};
enum { OB_READ_BYTES, OB_WRITE_BYTES, OB_READ, OB_WRITE, OB_SETATTR, OB_PUNCH, OB_SYNC, OB_DESTROY, OB_CREATE, OB_STATFS,
       OB_PREALLOC, OB_STATS };
enum { MAX_STATS = MD_STATS };
enum { BUCKETS = 32 }; /* powers of two */

struct histogram {
  uint64_t count[2][BUCKETS]; /* read, write */
};

/* A job, known by its id; never freed before the model, so that requests can point to it. */
struct jobid {
  struct jobid *next;
  uint64_t used;
  uint32_t number;
  char name[32];
};

/* What one job did at one target. */
struct jobstat {
  struct jobstat *next;
  struct jobid *job;
  uint64_t started, last;
  struct stat_line line[MAX_STATS];
  uint64_t sizes[2][BUCKETS]; /* of read_bytes and write_bytes */
};

struct stats {
  struct stat_line line[MAX_STATS];
  struct jobstat *jobs;
  uint64_t cleared; /* when, virtual */
  bool changed;
};

/* ---- requests ---- */

/* kind, name in `counters`, where it goes, cost, whether the narrower window of opens and changes holds. */
#define MODEL_REQUESTS(R) \
  R(OPEN, "enq:open", MDS, mds_cost_open, true) \
  R(CREATE, "enq:open", MDS, mds_cost_create, true) \
  R(GETATTR, "enq:getattr", MDS, mds_cost_getattr, false) \
  R(LOOKUP, "enq:lookup", MDS, mds_cost_getattr, false) \
  R(LAYOUT, "enq:layout", MDS, mds_cost_layout, false) \
  R(GETXATTR, "enq:getxattr", MDS, mds_cost_getxattr, false) \
  R(READDIR, "enq:readdir", MDS, mds_cost_readdir, false) \
  R(READPAGE, "readpage", MDS, mds_cost_readdir, false) \
  R(MAKE, "reint", MDS, mds_cost_make, true) \
  R(UNLINK, "reint", MDS, mds_cost_unlink, true) \
  R(RENAME, "reint", MDS, mds_cost_rename, true) \
  R(SETATTR, "reint", MDS, mds_cost_setattr, true) \
  R(CLOSE, "close", MDS, mds_cost_close, false) \
  R(GETATTR_FD, "getattr", MDS, mds_cost_getattr, false) \
  R(BATCH, "batch", MDS, mds_cost_batch, false) \
  R(STATFS, "statfs", MDS, mds_cost_statfs, false) \
  R(SYNC, "sync", MDS, mds_cost_sync, false) \
  R(FLOCK, "flock", MDS, mds_cost_flock, true) \
  R(CANCEL, "cancel", MDS, mds_cost_cancel, false) \
  R(MDS_WRITE, "mds:write", MDS, mds_cost_data, false) \
  R(GLIMPSE, "glimpse", OSS, oss_cost, false) \
  R(EXT, "ext", OSS, oss_cost, false) \
  R(OST_CANCEL, "ost:cancel", OSS, oss_cost, false) \
  R(SEEK, "seek", OSS, oss_cost, false) \
  R(READ, "read", OST, ost_latency, false) \
  R(WRITE, "write", OST, ost_latency, false) \
  R(PUNCH, "punch", OST, ost_cost, false) \
  R(OST_SETATTR, "ost:setattr", OST, ost_cost, false) \
  R(OST_SYNC, "ost:sync", OST, ost_cost, false) \
  R(FALLOC, "falloc", OST, ost_cost, false) \
  R(DESTROY, "destroy", OST, ost_cost, false) \
  R(PRECREATE, "precreate", OST, ost_cost, false) \
  R(CHOWN, "mds:ost:setattr", OST, ost_cost, false)
enum request_kind {
#define R(kind, ...) R_##kind,
  MODEL_REQUESTS(R)
#undef R
  R_CB, /* a server's callback: only counted */
  REQUEST_KINDS
};
enum request_where { MDS, OSS, OST };
struct request_row {
  const char *name;
  enum request_where where;
  int cost;
  bool narrow;
};
extern const struct request_row request_rows[REQUEST_KINDS];

struct plan;
struct held;
struct object;

struct waiter {
  struct waiter *next;
  struct plan *plan;
  uint32_t phase;
};

struct request {
  struct job job;  /* at the MDS, or the OSS's processors and the disk */
  struct job wire; /* at the same time as the disk */
  uint8_t kind;
  uint8_t parts;   /* of disk and wire, not done yet */
  bool buffered;   /* a write of what lay in the client's cache */
  bool uncounted;  /* what it was in the end is said by the thread's next call */
  uint32_t client;
  uint32_t server; /* MDT or OST */
  uint32_t md;     /* its lines in md_stats, as bits */
  uint64_t dir;    /* whose lock finding the name needs; 0 = none */
  uint64_t bytes;
  uint64_t times;  /* entries of a batch */
  uint64_t less;   /* ns of its cost that another request paid already */
  uint64_t more;   /* ns that callbacks to other clients add */
  uint64_t process;
  uint64_t came;   /* at the server */
  struct jobid *who;
  struct waiter *waiters;
  struct request *next; /* in a phase, then in a window */
  struct window *window;
  struct object *object; /* what it moves bytes of */
  uint64_t from, to;     /* which */
  struct request *flight; /* next in flight of that object */
  LIST_ENTRY(request) all;
};

struct window {
  uint32_t under_way;
  struct request *first, *last;
};

enum { PHASES = 6 };
struct phase {
  struct request *first, *last; /* sent when the phase begins */
  uint32_t left;
};
struct plan {
  struct model *model;
  uint64_t token;
  struct plan *next_token; /* in its chain */
  struct plan *next;       /* among those to be answered */
  uint32_t client, pid;
  uint32_t phase, phases;
  bool begun, watched;
  bool over;     /* its answer is fixed */
  bool answered; /* and given */
  bool done;     /* all its phases are through: it may be freed once answered */
  int err;
  struct phase at[PHASES];
  model_fn fn;
  void *closure;
  LIST_ENTRY(plan) all;
};

/* ---- servers ---- */

struct mdt {
  struct station threads;
  double v[SETTINGS];
  struct { uint64_t dir, until; } *dirs; /* directory locks: DIR_SLOTS */
  uint64_t rename_until; /* the file system's lock for moving folders */
  struct event wakes;    /* the end of a pause */
  bool failed;
  struct stats stats;
  int64_t inodes;
  uint64_t random;
};
enum { DIR_SLOTS = 4096 };

struct oss {
  struct station cpus, in, out;
  double v[SETTINGS];
  bool failed;
};

struct ost {
  struct disk disk;
  double v[SETTINGS];
  uint32_t oss;
  atomic_uint state; /* MODEL_OST_* without FULL */
  uint64_t used, objects, ballast;
  bool full;
  uint32_t precreated;
  struct stats stats;
  struct histogram pages, sizes, in_flight, times;
  uint64_t cleared; /* of these histograms */
};

/* ---- clients ---- */

struct osc {
  struct window window;
  uint64_t dirty, grant;
  uint32_t reading, writing;
  struct object *dirty_first, *dirty_last;
  struct waiter *space, *space_last; /* writes that wait until dirty data went out */
  struct histogram pages, in_flight, times;
  struct stat_line bytes[2], took[2];
  uint64_t cleared;
};

struct client {
  bool up, cut;
  bool in_tree; /* its files were written */
  uint64_t cut_at;
  struct window *mdc;  /* two for each MDT: all, narrow */
  struct osc **oscs;   /* one for each OST, made on first use */
  uint64_t counters[REQUEST_KINDS];
  uint64_t statfs_at;
  uint64_t cached;     /* read bytes kept */
};

/* What a client has of one stripe of a file. */
struct object {
  struct held *held;
  uint32_t ost;
  uint8_t lock;             /* EXT_* */
  uint32_t glimpsed;        /* the number of the call that got the lock by a glimpse */
  uint64_t have_from, have_to; /* read and kept, or on its way */
  uint64_t run_from, run_to;   /* the last contiguous piece written and not sent */
  uint64_t dirty;              /* bytes not sent */
  uint64_t end;                /* the highest byte known */
  struct request *flights;
  struct object *next, *prev;  /* dirty ones of one osc */
  uint64_t process;
  struct jobid *who;
};
enum { EXT_NONE, EXT_READ, EXT_WRITE };

/* What a client holds of a file or folder. */
enum {
  HELD_NAME = 1,      /* its name and */
  HELD_ATTR = 2,      /* its attributes are known */
  HELD_LAYOUT = 4,    /* the layout's lock */
  HELD_STRIPES = 8,   /* the layout itself */
  HELD_XATTR = 16,    /* all extended attributes */
  HELD_SECURITY = 32, /* security.capability */
  HELD_LIST = 64,     /* the folder's listing */
  HELD_LINK = 128,    /* the symbolic link's text */
  HELD_OPEN = 256,    /* an open lock: opening and closing for reading costs nothing */
  HELD_CHANGED = 512, /* this client changed metadata that may not be committed */
};
struct open_count {
  uint32_t opens;   /* handles */
  uint32_t flushed; /* of these, whose close was charged at FLUSH */
  bool owed;        /* the MDS has it open for this client */
};
struct held {
  struct model *model;
  struct node *node;
  struct held *next;              /* of the node */
  struct held *older, *younger;   /* of the model */
  uint32_t client;
  uint32_t bits;
  uint64_t used;
  struct open_count open[2];      /* for reading, for writing */
  uint32_t recent_opens;
  uint64_t recent_since, closed_at;
  uint64_t read_end;              /* where the last read of the file ended */
  uint64_t listed;                /* entries of a folder given so far */
  uint32_t object_count;
  struct object **objects; /* by stripe; NULL = nothing known */
  struct event writeback;
};
struct node {
  struct node *next;
  uint64_t ino;
  struct held *holders;
};

/* What a thread asked last, and how it walks through a folder: makes one Lustre request of two of FUSE's. */
enum { ASKED_NOTHING, ASKED_COLD, ASKED_WARM, ASKED_MISSING, ASKED_CREATED };
struct asked {
  uint32_t client, pid;
  uint8_t what;
  bool uncounted;
  uint32_t kind, md, mdt;
  uint64_t ino, parent, name;
  uint64_t took;     /* at the server */
  uint64_t at;
  uint64_t paid;     /* ns of MDS work */
  uint32_t glimpses; /* not counted yet */
  uint32_t glimpse_call;
  struct jobid *who;
  uint64_t scanned;  /* folder that it has open and listed */
  uint32_t stats;    /* names of it that it asked for in a row */
  bool walked;       /* the last GETATTR was counted as one of these */
  uint32_t ahead;    /* entries that the last batch still covers */
  uint32_t batches;
};
enum { ASKED_SLOTS = 4096, MISSING_SLOTS = 65536, NODE_CHAINS = 65536, TOKEN_CHAINS = 1024 };

/* ---- the model ---- */

struct model {
  pthread_mutex_t lock;
  pthread_cond_t lead, follow;
  bool led, ending;
  uint64_t led_until;
  pthread_t *threads;
  uint32_t thread_count;
  bool manual;       /* a test sets the time */
  uint64_t base_virtual, base_real;
  struct engine engine;
  struct settings set;
  atomic_uint mode;  /* MODEL_OFF, MODEL_COUNT, MODEL_ON */
  char fsname[16];
  char *state_dir;
  uint32_t mdt_count, oss_count, ost_count;
  struct mdt *mdts;
  struct oss *osss;
  struct ost *osts;
  struct client *clients; /* MODEL_MAX_CLIENTS */
  struct pool_seen {
    char name[16];
    char *text; /* a line a target */
  } pools[64];
  uint32_t pool_count;
  struct node **nodes;
  struct held *oldest, *youngest;
  uint32_t held_count;
  uint64_t *missing;      /* names that clients know to be missing, as hashes */
  struct asked *asked;
  uint32_t calls;
  struct plan *ready, *ready_last;
  struct plan **tokens;
  LIST_HEAD(, plan) plans;
  LIST_HEAD(, request) requests;
  uint64_t next_token;
  struct event background; /* watched calls */
  uint32_t watched;
  uint64_t destroyed;
  struct jobs *jobs;
  uint64_t born_s;    /* seconds since 1970 at virtual time 0 */
  pthread_mutex_t writing;   /* of the tree: one at a time */
  pthread_cond_t write_next; /* with `lock` */
  struct written *written;
};

static inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccd;
  return x ^ x >> 32;
}
static inline uint64_t process_of(const struct model_call *call) {
  return (uint64_t)call->client << 32 | call->pid;
}
static inline uint64_t least(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}
void *model_alloc(size_t size); /* zeroed; ends the server when there is no memory */

/* A call on its way through the rules. */
struct build {
  struct model *m;
  const struct model_call *call;
  struct plan *plan;   /* NULL until something has to be waited for */
  struct held *held;
  struct asked *asked;
  struct jobid *who;
  uint64_t process;
  uint32_t mdt;
};

/* model_net.c */
void servers_init(struct model *m, const uint32_t *oss_of);
void servers_free(struct model *m);
void servers_set(struct model *m); /* after settings changed */
struct osc *osc_of(struct model *m, uint32_t client, uint32_t ost);
struct request *request_new(struct build *b, enum request_kind kind, uint32_t server);
struct request *request_make(struct model *m, enum request_kind kind, uint32_t client, uint32_t server);
/* Sends it in this phase of the call; phase < 0: now, in the background. */
void request_add(struct build *b, int phase, struct request *r);
void request_send(struct model *m, struct request *r);
/* In the background, after `delay`. */
void request_later(struct build *b, struct request *r, uint64_t delay);
/* The phase also waits for a request that is under way. */
void wait_for(struct build *b, int phase, struct request *r);
void wait_for_space(struct build *b, int phase, struct osc *osc);
void osc_wake(struct model *m, struct osc *osc);
struct plan *plan_of(struct build *b);
void plan_begin(struct model *m, struct plan *p);
void plan_end(struct model *m, struct plan *p, int err);
void windows_kick(struct model *m, uint32_t client);
void count(struct model *m, uint32_t client, enum request_kind kind, uint64_t times);

/* model_locks.c */
void locks_init(struct model *m);
void locks_free(struct model *m);
struct held *held_of(struct model *m, uint32_t client, uint64_t ino);
struct held *held_find(struct model *m, uint32_t client, uint64_t ino);
void held_drop(struct model *m, struct held *h);
void client_drop(struct model *m, uint32_t client);
struct node *node_find(struct model *m, uint64_t ino);
/* Other clients lose these bits of the inode: a callback and a cancel each; how many. */
uint32_t locks_revoke(struct model *m, uint64_t ino, uint32_t but_client, uint32_t bits);
struct object *object_of(struct held *h, uint32_t stripe, uint32_t ost);
bool missing_known(struct model *m, const struct model_call *call);
void missing_note(struct model *m, const struct model_call *call);
struct asked *asked_of(struct model *m, uint32_t client, uint32_t pid);
/* What was put off is counted as what it was when it was sent. */
void asked_settle(struct model *m, struct asked *a);
void asked_settle_all(struct model *m, uint64_t older_than);

/* model_calls.c, model_cache.c */
void rules(struct build *b);
void rule_read(struct build *b);
void rule_write(struct build *b);
void rule_fsync(struct build *b);
void rule_fallocate(struct build *b);
void rule_truncate_data(struct build *b, int phase);
void rule_glimpse(struct build *b, int phase);
void ext_lock(struct build *b, int phase, struct object *o, uint8_t lock);
void object_done(struct model *m, struct request *r);
void object_forget(struct model *m, struct object *o, bool discard);
void object_flush(struct model *m, struct object *o);
void client_flush(struct model *m, uint32_t client);
void held_flush_event(struct event *event);
uint64_t client_dirty(struct model *m, uint32_t client);

/* model_faults.c */
int model_set_one(struct model *m, int row, long index, const char *value, char *why, size_t why_size);
uint64_t ost_total(const struct ost *ost);
uint64_t ost_free(const struct ost *ost);
uint64_t ost_reserved(const struct ost *ost);
int model_set_all(struct model *m, int row, const char *value, char *why, size_t why_size);
int model_set_state(struct model *m, uint32_t ost, const char *name, bool on);

/* model_jobs.c */
struct jobs *jobs_new(void);
void jobs_free(struct jobs *j);
/* The job of a call; looks into /proc, so the lock must not be held.  NULL = not counted. */
struct jobid *job_of(struct model *m, const struct model_call *call);
void jobs_forget(struct model *m);

/* model_stats.c */
extern const char *const md_names[MD_STATS];
extern const char *const ob_names[OB_STATS];
void stats_count(struct model *m, struct stats *s, struct jobid *who, int line, uint64_t value);
void stats_request(struct model *m, const struct request *r, uint64_t took);
void stats_clear(struct model *m, struct stats *s);
void stats_free(struct stats *s);
void bucket_add(struct histogram *h, bool write, uint64_t value);

/* model_text.c: the text forms of Lustre's statistics */
void text_stats(struct model *m, const struct stats *s, bool mdt, FILE *out);
void text_job_stats(struct model *m, const struct stats *s, bool mdt, FILE *out);
void text_osc_stats(struct model *m, const struct osc *osc, FILE *out);
void text_rpc_stats(struct model *m, const struct osc *osc, FILE *out);
void text_brw_stats(struct model *m, const struct ost *ost, FILE *out);

/* model_tree.c */
/* Writes what changed below state_dir.  The lock must not be held. */
int tree_write(struct model *m);
void tree_free(struct model *m);
void *stats_thread(void *model);
/* With the lock held. */
int tree_param(struct model *m, const char *pattern, FILE *out);
int tree_set_param(struct model *m, const char *pattern, const char *value, FILE *out);

/* model_metrics.c: figures of servers */
void metrics_prometheus(struct model *m, FILE *out);
/* Files as in /proc of a server: "stat", "meminfo", "cpu", "io", "memory" (the latter of pressure). */
bool metrics_proc(struct model *m, bool mds, uint32_t number, const char *file, FILE *out);

/* model.c */
uint64_t model_now(struct model *m);
/* The lock, with the time brought up to now; and what became due by what was done under it. */
void model_enter(struct model *m);
void model_leave(struct model *m);
void model_rescale(struct model *m, double old_scale);
/* For tests, before model_start (which is not called then): the time is what is given here.  Answers are given at their
 * virtual times; returns the time reached, before `until` if `once` and something was answered. */
void model_manual(struct model *m);
uint64_t model_manual_run(struct model *m, uint64_t until, bool once);
