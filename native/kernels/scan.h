// SPDX-License-Identifier: Apache-2.0
/* Reading a tree's metadata with many threads: getdents64 and statx, each folder by one thread, into batches of a segment.

   Invariants:
   1. Folders are opened from their parent's descriptor while that is held, else step by step from the root's: paths of
      any length work, symlinks are never followed, and no more than `held_max` descriptors wait for their children.
   2. A folder's entries are asked for in the order of readdir while it is open: Lustre's client then looks ahead.
   3. A tree that changes meanwhile is no error: names that vanish are left out, and a folder whose times moved while it
      was listed is marked, as is one that lost a name in between.
   4. Whatever else cannot be read is recorded as far as it is known, and told (penstock_scan_problems).
   5. atime is left alone where the system allows it.
   6. Calls go through libc's functions, so that limits and records of the job hold for them.
   7. penstock_scan_take and _pending wait until no folder is half done. */
#pragma once
#include "kernels/index_write.h"
#include "kernels/view.h"

struct penstock_scan;

struct penstock_scan_options {
  unsigned threads_max;
  unsigned held_max;
  bool one_file_system;
  bool lazy;                /* AT_STATX_DONT_SYNC: what the client knows will do */
  double rate_per_s;        /* calls; 0: no limit */
  const char *layout;       /* the extended attribute with a file's layout; NULL: none here */
  const char *const *exclude; /* patterns, NULL at the end: with a slash of the path, else of the name */
  uint64_t own_dev, own_ino; /* a folder that is left out: the catalog being written */
};

struct penstock_scan_stats {
  uint64_t entries, folders, calls, problems, moved;
  uint64_t pending;   /* folders waiting */
  uint64_t waited_ns; /* time in calls, of all threads */
  uint32_t active;    /* threads that may work */
};

enum penstock_problem { PENSTOCK_PROBLEM_LIST = 1, PENSTOCK_PROBLEM_STAT, PENSTOCK_PROBLEM_LAYOUT, PENSTOCK_PROBLEM_MOVED };

/* The attributes that statx gave, asked for STATX_BASIC_STATS and STATX_BTIME. */
struct statx;
void penstock_entry_fill(struct penstock_entry *e, const struct statx *x);

/* Is a path, relative to the root, one of those that the patterns leave out? */
bool penstock_excluded(const char *const *patterns, const char *path);

/* Starts the threads, with nothing to do yet.  NULL: errno says why the root cannot be scanned. */
struct penstock_scan *penstock_scan_open(const char *root, const struct penstock_scan_options *o);
void penstock_scan_close(struct penstock_scan *s);

/* A folder to be scanned with all that is below it; "" is the root, which adds the root's own entry. */
int penstock_scan_push(struct penstock_scan *s, const char *path, size_t size);

/* What is known already: entries of listed folders whose inode and type are still those are taken from it and not asked
   for, unless `full`; then their checksums are kept where size and times are the same.  Within `tick_ns` of its learning
   an entry may have changed without a trace, and is asked for.  Folders that the view has are not gone into.
   Before the first push; the view must live as long as the scan. */
void penstock_scan_known(struct penstock_scan *s, const struct penstock_view *v, int64_t tick_ns, bool full);

/* Every folder of the view, to be listed again only if its times are not those that the view knows.  Needs
   penstock_scan_known.  Blocks of changed folders' own entries are added by the next take. */
int penstock_scan_push_known(struct penstock_scan *s);

/* 1: nothing is left to do; 0: the time is over; negative: out of memory. */
int penstock_scan_wait(struct penstock_scan *s, int timeout_ms);

void penstock_scan_threads(struct penstock_scan *s, unsigned active);
void penstock_scan_get(struct penstock_scan *s, struct penstock_scan_stats *ret);

/* All that was read since the last time: batches that are now the caller's; how many of them. */
size_t penstock_scan_take(struct penstock_scan *s, struct penstock_batch **ret, size_t room);

/* Takes a folder that waits from the list: its path, to be freed by the caller, or NULL. */
char *penstock_scan_pending(struct penstock_scan *s, size_t *size);

/* Calls `say` for each problem since the last time. */
void penstock_scan_problems(struct penstock_scan *s, void (*say)(void *state, enum penstock_problem what, int err, const char *path, size_t size), void *state);
