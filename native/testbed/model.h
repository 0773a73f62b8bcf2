// SPDX-License-Identifier: Apache-2.0
/* The service model of the emulated file system: what a call costs on Lustre's servers, when it may be answered, what
 * the statistics say about it, and which faults it meets.  It knows nothing of FUSE and nothing of the stored data.
 *
 * How a handler uses it:
 *
 *     struct closure c = {req, ...};                  // on the stack; the model copies it if the answer must wait
 *     struct model_call call = {.op = MODEL_OPEN, .client = mount, .pid = ctx->pid, .uid = ctx->uid, .ino = ino, ...};
 *     int err = model_refuses(model, &call);          // dead, full OST and the like: before the work, for data calls
 *     ... do the work on the store at once ...
 *     call.result = -errno or 0;                      // what came of it decides what Lustre would have sent
 *     model_finish(model, &call, answer, &c, sizeof c);
 *
 *     static void answer(void *closure, int err) { ... fuse_reply_...(c->req, ...); }
 *
 * Invariants:
 * 1. `answer` is called exactly once for each model_finish: inside it when nothing has to be waited for (model off, a
 *    call that a client's locks or cache make free), else later from a thread of the model's pool.  The caller does not
 *    touch the request after model_finish.
 * 2. A handler thread never sleeps here.  No lock of the model is held while `answer` or `waits` runs.
 * 3. `err` is 0, or -EINTR (the caller was killed while it waited) or -EIO (its client was evicted); the work is done
 *    already, only the answer changes.
 * 4. Everything kept for clients (locks, caches, processes, directories, jobs) is bounded by a setting; what is
 *    forgotten only makes a later call cold.
 * 5. All functions may be called from any thread.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct model;

enum {
  MODEL_MAX_OSTS = 2048,
  MODEL_MAX_CLIENTS = 1024,
  MODEL_MAX_STRIPES = 2048,
};

/* Calls as the handlers see them.  Say what FUSE said; the model finds out what Lustre's client would have sent.
 * [p] = parent and name are needed; [s] = osts, the file's stripes, are needed; [x] = extents are needed. */
enum model_op {
  MODEL_LOOKUP,      /* [p][s] ino of what was found; result -ENOENT otherwise; is_dir */
  MODEL_FORGET_NAME, /* the kernel asked again for a name it had: nothing is charged */
  MODEL_GETATTR,     /* [s]; internal = true when FUSE itself wants it (libfuse gives fi != NULL) */
  MODEL_SETATTR,     /* [s] chmod, chown, utime: flags = MODEL_SET_* */
  MODEL_TRUNCATE,    /* [s] truncate, ftruncate, the SETATTR of O_TRUNC; size = new size */
  MODEL_READLINK,
  MODEL_CREATE,   /* [p][s] open that made the file; flags = open's; s = stripes it got (none: delayed) */
  MODEL_OPEN,     /* [s] open of what exists; flags = open's */
  MODEL_CLOSE,    /* the last RELEASE of a handle; flags = open's */
  MODEL_FLUSH,    /* close(2) of any duplicate: FUSE's FLUSH */
  MODEL_MKNOD,    /* [p] mknod, mkfifo, and files without objects */
  MODEL_SYMLINK,  /* [p] */
  MODEL_MKDIR,    /* [p] */
  MODEL_LINK,     /* [p] ino = what gets the new name */
  MODEL_UNLINK,   /* [p][s] ino = what lost a name; last = true when its objects go (s = them) */
  MODEL_RMDIR,    /* [p] */
  MODEL_RENAME,   /* [p] ino, parent2, name2; ino2 = what was replaced (0: nothing), s = its objects; is_dir */
  MODEL_OPENDIR,  /* ino = the directory */
  MODEL_READDIR,  /* offset 0 = from the beginning; size = number of entries in the answer */
  MODEL_CLOSEDIR,
  MODEL_GETXATTR,  /* layout = true for lustre.lov and trusted.lov */
  MODEL_LISTXATTR,
  MODEL_SETXATTR,
  MODEL_REMOVEXATTR,
  MODEL_SETSTRIPE, /* [s] a layout set on a file (or a directory: is_dir) by xattr; flags = 1 when by ioctl */
  MODEL_GETSTRIPE, /* GETFILESTRIPE by name on a directory: never cached; plain LL_IOC_LOV_GETSTRIPE is GETXATTR layout */
  MODEL_STATFS,
  MODEL_LOCK,      /* flock, fcntl: lock, unlock, test */
  MODEL_FSYNC,     /* [s] */
  MODEL_FSYNCDIR,
  MODEL_READ,      /* [x][s] offset, size as asked; file_size; flags = open's (O_DIRECT) */
  MODEL_WRITE,     /* [x][s] offset, size as asked; file_size after; flags = open's (O_DIRECT, O_SYNC, O_APPEND) */
  MODEL_FALLOCATE, /* [x][s] */
  MODEL_LSEEK,     /* [s] SEEK_DATA, SEEK_HOLE */
  MODEL_INSTANTIATE, /* [s] a component got its objects by the first write into it (charged beside that write) */
  MODEL_OPS
};

enum { MODEL_SET_MODE = 1, MODEL_SET_OWNER = 2, MODEL_SET_TIMES = 4 };

/* A piece of one object: stripe = index of the object in the file's layout (over all components). */
struct model_extent {
  uint32_t ost;
  uint32_t stripe;
  uint64_t offset; /* in the object */
  uint64_t size;   /* bytes */
};

struct model_call {
  enum model_op op;
  uint32_t client; /* number of the mount */
  uint32_t pid;    /* of the calling thread, as FUSE gives it; 0 = the kernel itself */
  uint32_t uid;
  uint32_t gid;
  int flags;
  int result;      /* 0 or negative errno: what came of the work */
  bool is_dir;
  bool internal;   /* sent by FUSE's kernel side, not by a call */
  bool layout;
  bool last;
  bool dom;        /* the bytes of this read or write lie on the MDT: extents empty */
  uint64_t ino;    /* a number that is never used twice */
  uint64_t parent;
  uint64_t name;   /* model_name() of the name; 0 = none */
  uint64_t ino2;
  uint64_t parent2;
  uint64_t name2;
  uint64_t offset;
  uint64_t size;
  uint64_t file_size;
  const struct model_extent *extents;
  uint32_t extent_count;
  const uint32_t *osts; /* the OST of each stripe of `ino` */
  uint32_t ost_count;
  /* Called before the answer is put off, in the caller's thread, with the closure that was given: the place to call
   * fuse_req_interrupt_func(req, on_interrupt, (void *)token), where on_interrupt calls model_interrupt. */
  void (*waits)(void *closure, uint64_t token);
};

typedef void (*model_fn)(void *closure, int err);

/* ---- life ---- */

/* What the server must say about itself.  `settings` is the flat text that Python made of the TOML: lines `key=value`,
 * keys as in settings.py, times in ns, sizes in bytes (NULL = defaults).  `state_dir`: sys/fs/lustre/ appears in it. */
struct model_config {
  const char *fsname; /* at most 8 characters, as on Lustre */
  uint32_t mdt_count;
  uint32_t oss_count;
  uint32_t ost_count; /* in all; OST i is on OSS i % oss_count unless oss_of says otherwise */
  const uint32_t *oss_of; /* NULL, or the OSS of each OST */
  const char *settings;
  const char *state_dir; /* NULL = no tree of statistics */
};

/* NULL and a sentence in `why` if a setting is unknown or impossible. */
struct model *model_new(const struct model_config *config, char *why, size_t why_size);
/* Starts the threads (after any fork).  0 or -errno. */
int model_start(struct model *m);
/* Answers everything that waits at once, ends the threads, frees. */
void model_free(struct model *m);

/* Clients see a pool of these OSTs, below lov/.../pools.  Before the start.  False: there are too many. */
bool model_pool(struct model *m, const char *name, const uint32_t *osts, uint32_t count);

/* A mount came or went (its locks and cache go with it). */
void model_client_up(struct model *m, uint32_t client);
void model_client_down(struct model *m, uint32_t client);

/* ---- calls ---- */

/* Charges the call and has `fn(closure, err)` called when its answer is due.  `size` bytes at `closure` are copied. */
void model_finish(struct model *m, const struct model_call *call, model_fn fn, void *closure, size_t size);
/* The process behind a waiting call got a signal; if it is being killed, the call is answered now with -EINTR. */
void model_interrupt(struct model *m, uint64_t token);
/* Before the work of READ, WRITE, FALLOCATE, TRUNCATE, FSYNC: 0, -EIO (dead OST), -EROFS.  Costs a few loads. */
int model_refuses(struct model *m, const struct model_call *call);
uint64_t model_name(const char *name);

/* ---- targets ---- */

/* The states of an OST that the allocator must look at (lustre-like answers: INACTIVE -EREMOTEIO, NO_CREATE -ENOBUFS,
 * FULL -ENOSPC, READ_ONLY -EROFS; DEGRADED is used last). */
enum {
  MODEL_OST_INACTIVE = 1,   /* osp.*.active=0 */
  MODEL_OST_NO_CREATE = 2,  /* obdfilter.*.no_create=1 or max_create_count=0 */
  MODEL_OST_FULL = 4,       /* free below reserved_mb_low, in the MDS's opinion */
  MODEL_OST_DEGRADED = 8,
  MODEL_OST_READ_ONLY = 16,
  MODEL_OST_DEAD = 32,      /* data calls answer EIO; the MDS counts it as inactive */
  MODEL_OST_DOWN = 64,      /* does not answer (its OSS is down): calls wait; creating goes on from precreated objects */
};
uint32_t model_ost_state(struct model *m, uint32_t ost);
/* Space in bytes and objects of one OST, with what `fill` put there. */
struct model_space {
  uint64_t total_bytes;
  uint64_t free_bytes; /* below reserved_bytes the MDS takes it for full */
  uint64_t reserved_bytes;
  uint64_t total_objects;
  uint64_t free_objects;
};
void model_ost_space(struct model *m, uint32_t ost, struct model_space *ret);
/* An object grew or shrank by `bytes`, and `objects` were made or destroyed.  -ENOSPC (and nothing changes) when it
 * does not fit, unless `force` (counting what the store holds at start). */
int model_ost_use(struct model *m, uint32_t ost, int64_t bytes, int64_t objects, bool force);
uint32_t model_oss_of(struct model *m, uint32_t ost);
/* The number of objects that lay on the MDT's side: files and directories, for df -i and mdt statistics. */
void model_mdt_use(struct model *m, int64_t inodes);

/* ---- operating it: what the control socket passes on ---- */

/* One line: `set KEY=VALUE`, `get [PREFIX]`, `fail ost.3`, `fail oss.1`, `fail mds`, `fail client.2`, `heal ...`,
 * `fill ost.4 95%`, `trouble` (what is not well), `drop [CLIENT]` (all locks and caches), `flush [CLIENT]` (write back all dirty data, wait for it with
 * `dirty`), `counters [CLIENT]`, `stats` (write the tree now), `prometheus`, `param NAME` (one file of the tree),
 * `write NAME VALUE` (set_param).  Text goes to `out`; 0 or -errno (then `out` has a sentence). */
int model_command(struct model *m, const char *line, FILE *out);
