// SPDX-License-Identifier: Apache-2.0
/* Several segments as one catalog: what the newest says holds.

   Rules of merging, newest segment first, for a path:
   1. An entry is the answer; a tombstone means: not there.  A placeholder says nothing.
   2. A segment that does not have the path, but has the nearest folder above it that it knows complete, as something else
      than a folder, or as a tombstone, means: not there.
   3. A folder with another identity (inode and generation) in a newer segment hides what older ones hold below it.

   Invariants: looking up and listing allocate nothing (see index.h); walking does.  Errors of one segment (damage) are
   given for what cannot be read, and only for that. */
#pragma once
#include "kernels/index.h"

enum { PENSTOCK_VIEW_MAX = 64 };

struct penstock_view {
  unsigned count;
  const struct penstock_index *segment[PENSTOCK_VIEW_MAX]; /* newest first */
};

/* The entry of a path and the segment that holds it.  -ENOENT: not there; -ENODATA: not known. */
int penstock_view_find(const struct penstock_view *v, const char *path, size_t size, struct penstock_entry *ret,
                       const struct penstock_index **in);

/* A folder as all segments see it. */
struct penstock_folder {
  uint32_t row[PENSTOCK_VIEW_MAX]; /* of each segment; PENSTOCK_NO_ROW */
  uint32_t flags;                  /* of the newest row that was listed; else 0 */
  int64_t learnt_ns;
  unsigned segments; /* those that count: up to the newest listing */
};
int penstock_view_folder(const struct penstock_view *v, const char *path, size_t size, struct penstock_folder *ret);

struct penstock_visit {
  const char *path; /* relative to the root; NUL at its end */
  size_t path_size, name_at;
  unsigned depth; /* below where the walk began */
  const struct penstock_index *in;
  const struct penstock_entry *entry;
  const struct penstock_folder *folder; /* its own, when it is a folder; else NULL */
};

enum penstock_walk { PENSTOCK_WALK_ON, PENSTOCK_WALK_PAST, PENSTOCK_WALK_STOP }; /* PAST: not into this folder */

/* Visits what is at a path and below, in path order; `depth_max` 1: a folder and its names.  0, or what stopped it.
   A folder that cannot be read calls `bad` and is passed by. */
int penstock_view_walk(const struct penstock_view *v, const char *path, size_t size, unsigned depth_max,
                       enum penstock_walk (*visit)(void *state, const struct penstock_visit *it),
                       void (*bad)(void *state, int err, const char *path, size_t size), void *state);
