// SPDX-License-Identifier: Apache-2.0
/* Segments for tests, in memory: entries of folders in, an index out. */
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "kernels/index.h"
#include "kernels/index_write.h"
#include "kernels/view.h"

enum { KEPT = 1 << 30, PAGED = 0 };

static inline struct penstock_draft draft_of(const char *name, uint32_t mode, uint64_t ino) {
  return (struct penstock_draft){
    .name = name,
    .name_size = strlen(name),
    .attrs = {.ino = ino, .size = ino * 1000, .blocks = 8, .mode = mode, .uid = 7, .gid = 8, .nlink = 1, .mtime = {1000 + (int64_t)ino, 5}, .generation = 3},
  };
}

static inline void add_entry(struct penstock_batch *b, const char *name, uint32_t mode, uint64_t ino) {
  struct penstock_draft d = draft_of(name, mode, ino);
  CHECK_EQ(0, penstock_batch_add(b, &d));
}

static inline void close_folder(struct penstock_batch *b, const char *path, uint32_t flags, int64_t learnt_ns) {
  CHECK_EQ(0, penstock_batch_close(b, path, strlen(path), flags, learnt_ns));
}

static inline void add_root(struct penstock_batch *b, uint64_t ino) {
  struct penstock_draft d = draft_of("", S_IFDIR | 0755, ino);
  CHECK_EQ(0, penstock_batch_root(b, &d));
}

/* A file in memory with the batches, which are freed. */
static inline int segment_file(struct penstock_batch **batches, size_t count) {
  int fd = memfd_create("segment", MFD_ALLOW_SEALING);
  CHECK(fd >= 0);
  CHECK_EQ(0, penstock_index_write(fd, batches, count, 42, 4711, NULL));
  for (size_t i = 0; i < count; i++) penstock_batch_free(batches[i]);
  return fd;
}

static inline struct penstock_index *opened(int fd, uint64_t resident_bytes) {
  struct penstock_index *ix = malloc(sizeof *ix);
  CHECK(ix);
  CHECK_EQ(0, penstock_index_open(ix, fd, resident_bytes));
  return ix;
}

static inline void closed(struct penstock_index *ix) {
  penstock_index_close(ix);
  free(ix);
}

/* What a path is in a segment: 0 or an error. */
static inline int look(const struct penstock_index *ix, const char *path, struct penstock_entry *ret) {
  int64_t at = penstock_index_find(ix, path, strlen(path));
  return at < 0 ? (int)at : penstock_index_entry(ix, (uint64_t)at, ret);
}
