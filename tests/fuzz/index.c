// SPDX-License-Identifier: Apache-2.0
/* Any bytes as a segment: opened, looked up, listed (from places that are and from others), walked.  Nothing outside of it is read, loops end, and what cannot be
   is an error.  Checksums would stop nearly every input at the door, so each is tried as it is and with checksums made
   right; bytes after the segment's end by its header are paths to look up. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/index.h"
#include "kernels/index_format.h"
#include "kernels/listing.h"
#include "kernels/view.h"

enum { BLOCK = PENSTOCK_BLOCK_BYTES, SIZE_MAX_TRIED = 64 * BLOCK, VISITS_MAX = 2000, PATHS_MAX = 4096 };

static void must(int claim) {
  if (!claim)
    abort();
}

/* Gives the bytes a begin, a size, and checksums where the header says that they are. */
static void make_right(uint8_t *p, size_t size) {
  struct penstock_index_header h;
  memcpy(&h, p, sizeof h);
  memcpy(h.magic, PENSTOCK_INDEX_MAGIC, sizeof h.magic);
  h.version = PENSTOCK_INDEX_VERSION;
  h.file_bytes = size;
  h.header_check = 0;
  bool fits = h.checks_at % BLOCK == 0 && h.checks_at >= BLOCK && h.checks_at < size && h.blocks == h.checks_at / BLOCK &&
              h.tops_at == h.checks_at + 4 * h.blocks && h.tops == (4 * h.blocks + BLOCK - 1) / BLOCK && h.tops_at < size &&
              4 * h.tops <= size - h.tops_at;
  for (uint64_t b = 1; fits && b < h.blocks; b++) {
    uint32_t check = penstock_index_check(p + b * BLOCK, BLOCK, b);
    memcpy(p + h.checks_at + 4 * b, &check, 4);
  }
  for (uint64_t t = 0; fits && t < h.tops; t++) {
    uint64_t at = h.checks_at + t * BLOCK, left = h.tops_at - at;
    uint32_t check = penstock_index_check(p + at, left < BLOCK ? (size_t)left : BLOCK, h.blocks + t);
    memcpy(p + h.tops_at + 4 * t, &check, 4);
  }
  if (fits)
    h.tops_check = penstock_index_check(p + h.tops_at, 4 * (size_t)h.tops, h.id);
  memcpy(p, &h, sizeof h);
  h.header_check = penstock_index_check(p, BLOCK, 0);
  memcpy(p, &h, sizeof h);
}

struct visits {
  unsigned count;
  size_t bytes;
};

static enum penstock_walk visit(void *state, const struct penstock_visit *it) {
  struct visits *v = state;
  char room[64];
  must(it->path[it->path_size] == 0 && it->name_at <= it->path_size);
  for (int kind = PENSTOCK_PART_TARGET; kind <= PENSTOCK_PART_SUMS; kind++)
    must(penstock_index_part(it->in, it->entry, (enum penstock_part)kind, room, sizeof room) <= PENSTOCK_PART_MAX);
  v->bytes += it->path_size;
  return ++v->count < VISITS_MAX && v->bytes < 1 << 20 ? PENSTOCK_WALK_ON : PENSTOCK_WALK_STOP;
}

static void bad(void *state, int err, const char *path, size_t size) {
  (void)path;
  (void)size;
  must(err < 0);
  ((struct visits *)state)->count++;
}

/* Looks up every path of a walk's form: cut at zeros. */
static void look_up(const struct penstock_index *ix, const uint8_t *paths, size_t size) {
  for (size_t at = 0; at < size && at < PATHS_MAX;) {
    size_t length = strnlen((const char *)paths + at, size - at);
    struct penstock_entry e;
    int64_t found = penstock_index_find(ix, (const char *)paths + at, length);
    char name[32];
    if (found >= 0 && penstock_index_entry(ix, (uint64_t)found, &e) == 0)
      must(penstock_index_name(ix, &e, name, sizeof name) <= PENSTOCK_NAME_MAX);
    at += length + 1;
  }
}

/* From the begin on, and from wherever the bytes say. */
static void list(const struct penstock_index *ix, const char *path, size_t size, const uint8_t *places, size_t room) {
  struct penstock_listing l;
  struct dirent64 e;
  uint64_t place = 0;
  if (penstock_listing_open(&l, ix, path, size) < 0)
    return;
  for (unsigned i = 0; i < VISITS_MAX && penstock_listing_next(&l, ix, place, &e, &place) == 1; i++)
    must(strlen(e.d_name) <= 255);
  for (size_t at = 0; at + 8 <= room && at < PATHS_MAX; at += 8) {
    memcpy(&place, places + at, 8);
    if (penstock_listing_next(&l, ix, place, &e, &place) == 1)
      must(strlen(e.d_name) <= 255);
  }
}

static void ask(int fd, uint64_t resident_bytes, const uint8_t *paths, size_t size) {
  struct penstock_index ix;
  if (penstock_index_open(&ix, fd, resident_bytes) < 0)
    return;
  struct penstock_view v = {.count = 2, .segment = {&ix, &ix}};
  struct visits seen = {0};
  struct penstock_row row;
  look_up(&ix, paths, size);
  look_up(&ix, (const uint8_t *)"\0a\0a/b\0a/b/c\0file", 18);
  for (uint32_t i = 0; i < 4; i++) penstock_index_row(&ix, i, &row);
  list(&ix, "", 0, paths, size);
  list(&ix, "a", 1, paths, size);
  list(&ix, "a/b", 3, paths, size);
  penstock_view_walk(&v, "", 0, 64, visit, bad, &seen);
  penstock_index_verify(&ix, NULL, NULL);
  penstock_index_close(&ix);
}

static void try(const uint8_t *bytes, size_t size, const uint8_t *paths, size_t paths_size, uint64_t resident_bytes) {
  int fd = memfd_create("segment", 0);
  must(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
  ask(fd, resident_bytes, paths, paths_size);
  close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < BLOCK || size > SIZE_MAX_TRIED) {
    try(data, size, data, size < 64 ? size : 64, 0);
    return 0;
  }
  uint64_t file_bytes;
  memcpy(&file_bytes, data + offsetof(struct penstock_index_header, file_bytes), 8);
  size_t end = file_bytes >= BLOCK && file_bytes <= size ? (size_t)file_bytes : size;
  uint8_t *own = malloc(end);
  must(own != NULL);
  memcpy(own, data, end);
  try(own, end, data + end, size - end, 0);
  make_right(own, end);
  try(own, end, data + end, size - end, size % 2 ? UINT64_MAX : 0);
  free(own);
  return 0;
}
