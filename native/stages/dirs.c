// SPDX-License-Identifier: Apache-2.0
/* See dirs.h. */
#include "stages/dirs.h"
#include <errno.h>
#include <stdatomic.h>
#include "kernels/listing.h"

enum { PLACES = 256, TRIES = 8, RACES_MAX = 64 };

struct penstock_dir {
  _Atomic(DIR *) dir;      /* NULL: nothing is here */
  atomic_bool taken;       /* whoever set it fills the rest in, then `dir` */
  int fd;
  _Atomic(uint64_t) place;
  const struct penstock_index *in;
  struct penstock_listing listing;
  struct dirent64 entry;   /* what readdir gave last */
};
static struct penstock_dir table[PLACES];
_Atomic(uint32_t) penstock_dirs;

static struct penstock_dir *place(const DIR *dir, unsigned i) {
  uint64_t hash = (uintptr_t)dir * UINT64_C(0x9e3779b97f4a7c15);
  return &table[((hash >> 32) + i) % PLACES];
}

struct penstock_dir *penstock_dir_search(DIR *dir) {
  for (unsigned i = 0; dir && i < TRIES; i++)
    if (atomic_load_explicit(&place(dir, i)->dir, memory_order_acquire) == dir)
      return place(dir, i);
  return NULL;
}

void penstock_dir_forget(struct penstock_dir *it) {
  if (!it)
    return;
  atomic_store(&it->dir, NULL);
  atomic_store(&it->taken, false);
  atomic_fetch_sub(&penstock_dirs, 1);
}

bool penstock_dir_answer(DIR *dir, int fd, const struct penstock_index *in, const struct penstock_listing *listing) {
  for (unsigned i = 0; i < TRIES; i++) {
    struct penstock_dir *it = place(dir, i);
    if (atomic_exchange(&it->taken, true))
      continue;
    it->fd = fd;
    it->in = in;
    it->listing = *listing;
    atomic_store(&it->place, 0);
    atomic_fetch_add(&penstock_dirs, 1);
    atomic_store_explicit(&it->dir, dir, memory_order_release);
    return true;
  }
  return false;
}

void penstock_dir_read_past(int fd) {
  for (unsigned i = 0; atomic_load(&penstock_dirs) && i < PLACES; i++)
    if (atomic_load(&table[i].dir) && table[i].fd == fd && !atomic_load(&table[i].place))
      penstock_dir_forget(&table[i]);
}

/* readdir_r may be called by several threads on one DIR: each name goes to one of them. */
struct dirent64 *penstock_dir_next(struct penstock_dir *it, struct dirent64 *ret, int *ret_error) {
  struct dirent64 *into = ret ? ret : &it->entry;
  for (int i = 0;; i++) {
    uint64_t now = atomic_load(&it->place), after = now;
    int got = penstock_listing_next(&it->listing, it->in, now, into, &after);
    *ret_error = got < 0 ? EIO : 0;
    if (got <= 0)
      return NULL;
    if (i == RACES_MAX || atomic_compare_exchange_strong(&it->place, &now, after))
      return into;
  }
}

long penstock_dir_tell(const struct penstock_dir *it) { return (long)atomic_load(&it->place); }
void penstock_dir_seek(struct penstock_dir *it, long there) { atomic_store(&it->place, (uint64_t)there); }
