// SPDX-License-Identifier: Apache-2.0
/* What the files that write segments share: batch.c (gathering records), folders.c (their order), index_write.c (bytes out).

   A closed folder is a `struct folder` with its records as they will stand in the file, sorted by name, in memory of the
   batch; only the numbers of folders and rows in them are filled in at the end, when the order of folders is known. */
#pragma once
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/index_format.h"
#include "kernels/index_write.h"

enum { BLOCK = PENSTOCK_BLOCK_BYTES };

/* Memory that only grows. */
struct arena {
  struct arena *before;
  size_t used, room;
  uint8_t bytes[];
};
void *penstock_arena_take(struct arena **a, size_t size);
void penstock_arena_free(struct arena *a);

/* Mode, owner and group, each three once. */
struct owners {
  struct penstock_raw_owner *row;
  size_t count, room, most;
  uint16_t *slot; /* number + 1 */
  uint16_t last;
};
int penstock_owner_number(struct owners *o, struct penstock_raw_owner want); /* PENSTOCK_OWNERS_MAX: the table is full */
void penstock_owners_free(struct owners *o);

struct folder {
  const char *path;
  uint8_t *records;
  size_t bytes;
  const uint16_t *owner; /* numbers of its batch's owners in the file; NULL: none to change */
  int64_t learnt_ns;
  uint32_t path_size, count, flags;
  uint32_t row, record, children; /* filled in by writing */
  uint64_t path_hash;             /* the same */
  bool owned;                     /* records were made while writing */
};

struct penstock_batch {
  struct arena *arena;
  struct owners owners;
  struct folder *folder;
  size_t folders, folders_room;
  uint8_t *scratch; /* records of the folder being added to, in the order of adding */
  size_t used, room;
  struct place *place;
  size_t places, places_room;
  uint8_t *root;
  size_t root_bytes, entries, bytes;
};

struct writer {
  int fd;
  struct folder **folder;
  size_t folders, room;
  uint32_t *slot; /* a hash table of folders by path: number + 1 */
  size_t slots;
  struct owners owners;
  struct arena *arena;
  struct penstock_index_header h;
  struct penstock_raw_bucket *bucket;
  uint16_t **map; /* of each batch: its owners' numbers here */
  struct penstock_batch *const *batches;
  size_t batch_count;
  /* what goes out */
  uint8_t *sink;
  size_t sunk;
  uint64_t out_at;
  uint32_t *checks;
  int err;
};

/* folders.c: entering folders into the table of paths, their ancestors, and their order. */
int penstock_folders_enter_all(struct writer *w);
int penstock_folders_enter(struct writer *w, struct folder *f);
int penstock_folders_add_ancestors(struct writer *w);
int penstock_folders_complete(struct writer *w);
struct folder *penstock_folder_of(const struct writer *w, const char *path, size_t size);
size_t penstock_record_size(const uint8_t *p);
size_t penstock_put_place(uint8_t *p, const char *name, size_t size); /* the record of a folder without entry */

/* Makes room for one more of `unit` bytes. */
static inline int grow(void *list, size_t *room, size_t count, size_t unit) {
  if (count < *room)
    return 0;
  size_t next = *room ? *room * 2 : 64;
  void *p = realloc(*(void **)list, next * unit);
  if (!p)
    return -ENOMEM;
  *(void **)list = p;
  *room = next;
  return 0;
}
