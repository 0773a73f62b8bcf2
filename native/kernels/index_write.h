// SPDX-License-Identifier: Apache-2.0
/* Writing a segment: whole folders are handed over, in any order and by many threads, then the file is written once.

   A batch is one thread's: entries of a folder are added, then the folder is closed, which sorts them.
   All batches together are written as one segment.

   Invariants:
   1. Of a folder that is closed twice over all batches, the listed one stays, else the later: nothing is merged.
      Of two entries of one name in a folder the later added stays.
   2. Folders whose own entry nobody gave get a placeholder, up to the root: every path in the segment can be found.
   3. Writing the same entries gives the same answers whatever the order of threads was.
   4. Errors are negative errno; after one, and after writing, a batch can only be freed. */
#pragma once
#include "kernels/index.h"
#include "kernels/view.h"

struct penstock_batch;

/* An entry to be written; `mode` with its type.  What does not fit a record's head becomes a part by itself. */
struct penstock_draft {
  const char *name;
  size_t name_size;
  struct penstock_entry attrs; /* its places (at, folder, row, parts) are not looked at; flags: those of how it was learnt */
  bool has_learnt;             /* attrs.learnt_ns stands, and is not the folder's */
  const void *target, *layout, *sums;
  size_t target_size, layout_size, sums_size;
};

struct penstock_batch *penstock_batch_new(void);

/* One of so many that are written as one segment: together they name no more owners than its table holds.  Records of
   further owners keep theirs themselves, and are larger by 20 bytes. */
struct penstock_batch *penstock_batch_of(size_t batches);
void penstock_batch_free(struct penstock_batch *b);
size_t penstock_batch_entries(const struct penstock_batch *b); /* in closed folders */
size_t penstock_batch_bytes(const struct penstock_batch *b);

int penstock_batch_add(struct penstock_batch *b, const struct penstock_draft *d);

/* Closes the folder: what was added since the last one was in it. */
int penstock_batch_close(struct penstock_batch *b, const char *path, size_t size, uint32_t flags, int64_t learnt_ns);

/* Forgets what was added since the last close. */
void penstock_batch_forget(struct penstock_batch *b);

/* The entry of the root, which lies in no folder. */
int penstock_batch_root(struct penstock_batch *b, const struct penstock_draft *d);

/* Adds all that a view holds, merged (view.h); an error for damage, which must not become a whole catalog. */
int penstock_batch_merge(struct penstock_batch *b, const struct penstock_view *v);

/* Adds the folders that the segments of a view listed, where none was listed twice: parts of one scan, in any order. */
int penstock_batch_join(struct penstock_batch *b, const struct penstock_view *v);

/* Writes one segment of all batches, from the descriptor's begin, without fsync.  `id` and `seed` are to be random. */
int penstock_index_write(int fd, struct penstock_batch *const *batches, size_t count, uint64_t id, uint64_t seed,
                         struct penstock_index_header *ret);

/* The generation of an inode by its birth time; 0: not known. */
static inline uint32_t penstock_generation(int64_t s, uint32_t ns) {
  uint64_t mixed = ((uint64_t)s * 1000000007u + ns) * UINT64_C(0x9e3779b97f4a7c15);
  uint32_t folded = (uint32_t)(mixed >> 32) ^ (uint32_t)mixed;
  return s == 0 && ns == 0 ? 0 : folded ? folded : 1;
}
