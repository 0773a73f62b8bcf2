// SPDX-License-Identifier: Apache-2.0
/* What the files of the scan share: scan.c (threads and the folders that wait), scan_folder.c (reading one folder),
   scan_known.c (comparing with what is known already). */
#pragma once
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "kernels/scan.h"

enum { LIST_BYTES = 1 << 17, VALUE_BYTES = 1 << 16, STEP_BYTES = 2048, PROBLEMS_MAX = 1 << 16 };

/* A folder kept open for those in it that wait. */
struct held {
  int fd;
  _Atomic unsigned users;
};

struct item {
  struct item *next;
  struct held *from;   /* NULL: open from the root */
  uint32_t name_at;    /* where the last name begins */
  uint32_t size;
  bool known;          /* times and device stand */
  bool left_out;
  bool check; /* list it only if its times are not these */
  struct penstock_time mtime, ctime;
  uint64_t dev;
  char path[];
};

/* A folder that was listed again because it changed: its own entry, for its parent's. */
struct changed {
  struct changed *next;
  struct penstock_entry attrs;
  uint32_t size, name_at;
  char path[];
};

struct problem {
  struct problem *next;
  enum penstock_problem what;
  int err;
  uint32_t size;
  char path[];
};

struct worker {
  struct penstock_scan *scan;
  unsigned id;
  pthread_t thread;
  struct penstock_batch *batch;
  char *list, *value, *path, *parts;
  size_t path_room;
  uint64_t calls, waited_ns;
};

struct penstock_scan {
  struct penstock_scan_options o;
  int root;
  uint64_t root_dev;
  pthread_mutex_t mutex;
  pthread_cond_t work, rest; /* there is work; a thread came to rest */
  struct item *stack;
  uint64_t waiting;
  unsigned working, active, threads;
  _Atomic bool stop;
  bool pause;
  int err;
  struct problem *problems;
  uint64_t problem_count;
  const struct penstock_view *view; /* what is known already */
  int64_t tick_ns;
  bool full;
  struct changed *changed;
  struct worker *worker;
  _Atomic uint64_t entries, folders, calls, told, moved, waited_ns;
  _Atomic unsigned held;
  _Atomic int64_t next_call_ns;
};

/* What one folder's listing knows. */
struct listing {
  struct item *it;
  int fd;
  struct held *held;
  struct item *first, *last; /* folders found, in order */
  uint64_t found, count;
  uint64_t dev;
  bool lost, excluded;
};

static inline int64_t now_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline struct penstock_time time_of(const struct statx_timestamp *t) { return (struct penstock_time){t->tv_sec, t->tv_nsec}; }

static inline bool same_time(struct penstock_time a, struct penstock_time b) { return a.s == b.s && a.ns == b.ns; }

static inline uint64_t dev_of(const struct statx *x) { return makedev(x->stx_dev_major, x->stx_dev_minor); }

static inline uint32_t generation_of(const struct statx *x) {
  return x->stx_mask & STATX_BTIME ? penstock_generation(x->stx_btime.tv_sec, x->stx_btime.tv_nsec) : 0;
}

static inline uint32_t mode_of_type(unsigned char type) {
  return type == DT_UNKNOWN ? 0 : (uint32_t)DTTOIF(type);
}

/* A draft of a name; its attributes are set next, all of them. */
static inline void penstock_scan_begin(struct penstock_draft *d, const char *name) {
  d->name = name;
  d->name_size = strlen(name);
  d->has_learnt = false;
  d->target = d->layout = d->sums = NULL;
  d->target_size = d->layout_size = d->sums_size = 0;
}

/* scan.c: folders that wait, and what is told. */
void penstock_scan_tell(struct penstock_scan *s, enum penstock_problem what, int err, const char *path, size_t size,
                        const char *name, size_t name_size);
void penstock_scan_let_go(struct penstock_scan *s, struct held *h);
struct item *penstock_scan_new_item(const char *path, size_t size, const char *name, size_t name_size);
struct item *penstock_scan_item(const char *path, size_t size); /* of a whole path */
void penstock_scan_push_chain(struct penstock_scan *s, struct item *first, struct item *last, uint64_t count);
void penstock_scan_drop_items(struct penstock_scan *s, struct item *it);

/* scan_folder.c: one folder.  0, or a negative errno of ours. */
int penstock_scan_folder(struct worker *w, struct item *it);
int penstock_scan_stat(struct worker *w, int fd, const char *name, struct statx *x);
bool penstock_scan_path(struct worker *w, const struct listing *l, const char *name, size_t name_size); /* into w->path */

/* scan_known.c: what is known already. */
int penstock_scan_take_known(struct worker *w, struct listing *l, const struct dirent64 *de, struct penstock_draft *d);
void penstock_scan_keep_sums(struct worker *w, struct listing *l, struct penstock_draft *d);
bool penstock_scan_is_known(struct worker *w, const struct listing *l, const char *name, const struct statx *x);
bool penstock_scan_must_list(struct worker *w, struct item *it);
int penstock_scan_note_changed(struct worker *w, struct item *it, int fd);
int penstock_scan_write_changed(struct changed *first, struct penstock_batch *b);
void penstock_scan_drop_changed(struct changed *c);
