// SPDX-License-Identifier: Apache-2.0
/* See listing.h. */
#include "kernels/listing.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "kernels/index_format.h"

enum { NUMBER_SHIFT = 32, DOTS = 2, NAME_BYTES_MAX = 255 };

int penstock_listing_open(struct penstock_listing *ret, const struct penstock_index *ix, const char *path, size_t size) {
  struct penstock_entry e;
  struct penstock_row row;
  int64_t at = penstock_index_find(ix, path, size);
  int err = at < 0 ? (int)at : penstock_index_entry(ix, (uint64_t)at, &e);
  if (err < 0)
    return err;
  if (e.row == PENSTOCK_NO_ROW || e.flags & (PENSTOCK_GONE | PENSTOCK_PLACE))
    return -ENOENT;
  err = penstock_index_row(ix, e.row, &row);
  if (err < 0)
    return err;
  if (!(row.flags & PENSTOCK_COMPLETE) || row.children > INT32_MAX - DOTS)
    return -ENOENT;
  *ret = (struct penstock_listing){e.ino, e.ino, row.children_at, row.children, e.row};
  return 0;
}

static uint64_t place_of(const struct penstock_index *ix, uint64_t number, uint64_t at) {
  return number << NUMBER_SHIFT | (uint32_t)((at - ix->h.records_at) / PENSTOCK_PLACE_UNIT);
}

static int give(struct dirent64 *ret, uint64_t ino, uint32_t mode, uint64_t next, size_t name_size) {
  ret->d_ino = ino;
  ret->d_off = (off64_t)next;
  ret->d_reclen = (unsigned short)((offsetof(struct dirent64, d_name) + name_size + 1 + 7) & ~(size_t)7);
  ret->d_type = (unsigned char)IFTODT(mode);
  ret->d_name[name_size] = 0;
  return 1;
}

int penstock_listing_next(const struct penstock_listing *l, const struct penstock_index *ix, uint64_t place,
                          struct dirent64 *ret, uint64_t *ret_place) {
  uint64_t number = place >> NUMBER_SHIFT;
  if (number < DOTS) {
    *ret_place = place_of(ix, number + 1, l->children_at);
    ret->d_name[0] = ret->d_name[1] = '.';
    return give(ret, number ? l->above_ino : l->ino, S_IFDIR, *ret_place, number + 1);
  }
  for (uint64_t at = ix->h.records_at + (uint64_t)(uint32_t)place * PENSTOCK_PLACE_UNIT; number - DOTS < l->children; number++) {
    struct penstock_entry e;
    int err = penstock_index_entry(ix, at, &e);
    if (err < 0)
      return err;
    if (e.folder != l->row)
      return -EBADMSG;
    at += e.record_size;
    *ret_place = place_of(ix, number + 1, at);
    if (e.flags & (PENSTOCK_GONE | PENSTOCK_PLACE))
      continue;
    if (e.name_size == 0 || e.name_size > NAME_BYTES_MAX)
      return -EBADMSG;
    ssize_t size = penstock_index_name(ix, &e, ret->d_name, NAME_BYTES_MAX);
    return size < 0 ? (int)size : give(ret, e.ino, e.mode, *ret_place, (size_t)size);
  }
  return 0;
}
