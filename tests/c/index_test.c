// SPDX-License-Identifier: Apache-2.0
/* Segments: what is written is found, kept in memory, paged or sealed; from many threads; damage is an error or the truth. */
#include <errno.h>
#include <pthread.h>

#include "index_text.h"

enum { FOLDERS = 20, FILES = 50, THREADS = 4 };

static void path_to(char *into, size_t room, int folder, int file) {
  snprintf(into, room, file < 0 ? "d%02d" : "d%02d/file%d", folder, file);
}

static uint64_t ino_of(int folder, int file) { return 1000 + (uint64_t)folder * 100 + (uint64_t)file; }

/* Folders by two batches, as of two threads, in no order. */
static int tree(void) {
  struct penstock_batch *b[2] = {penstock_batch_new(), penstock_batch_new()};
  char name[32];
  for (int f = FOLDERS - 1; f >= 0; f--) {
    for (int i = FILES - 1; i >= 0; i--) {
      snprintf(name, sizeof name, "file%d", i);
      add_entry(b[f % 2], name, S_IFREG | 0644, ino_of(f, i));
    }
    path_to(name, sizeof name, f, -1);
    close_folder(b[f % 2], name, PENSTOCK_COMPLETE, 100 + f);
  }
  for (int f = 0; f < FOLDERS; f++) {
    path_to(name, sizeof name, f, -1);
    add_entry(b[0], name, S_IFDIR | 0755, 10 + (uint64_t)f);
  }
  close_folder(b[0], "", PENSTOCK_COMPLETE, 99);
  add_root(b[0], 2);
  return segment_file(b, 2);
}

/* Every path and some that are not there; an error that is no damage stops the test.  How many were damaged. */
static int all_paths(const struct penstock_index *ix) {
  int damaged = 0;
  char path[64];
  struct penstock_entry e;
  for (int f = 0; f < FOLDERS; f++)
    for (int i = -1; i < FILES; i++) {
      path_to(path, sizeof path, f, i);
      int err = look(ix, path, &e);
      CHECK(err == 0 || err == -EBADMSG || err == -EIO);
      damaged += err != 0;
      if (err == 0)
        CHECK_EQ(i < 0 ? 10 + f : (long long)ino_of(f, i), e.ino);
      snprintf(path, sizeof path, "d%02d/file%d/x", f, i);
      err = look(ix, path, &e);
      CHECK(err == -ENOENT || err == -EBADMSG || err == -EIO);
    }
  return damaged;
}

static void found_however_it_is_read(void) {
  int fd = tree();
  static const uint64_t resident[] = {KEPT, PAGED};
  for (int i = 0; i < 2; i++) {
    struct penstock_index *ix = opened(fd, resident[i]);
    CHECK_EQ(FOLDERS * (FILES + 1) + 1, ix->h.entries);
    CHECK_EQ(FOLDERS + 1, ix->h.rows);
    CHECK_EQ(0, all_paths(ix));
    CHECK_EQ(0, penstock_index_verify(ix, NULL, NULL));
    closed(ix);
  }
  CHECK_EQ(0, fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE));
  struct penstock_index *ix = opened(fd, PAGED);
  close(fd); /* a sealed one is not asked again */
  CHECK_EQ(0, all_paths(ix));
  closed(ix);
}

static void listing_in_order(void) {
  int fd = tree();
  struct penstock_index *ix = opened(fd, KEPT);
  struct penstock_entry e;
  struct penstock_row row;
  CHECK_EQ(0, look(ix, "d07", &e));
  CHECK_EQ(0, penstock_index_row(ix, e.row, &row));
  CHECK_EQ(FILES, row.children);
  CHECK_EQ(107, row.learnt_ns);
  char before[64] = "", name[64];
  for (uint64_t at = row.children_at, i = 0; i < row.children; i++, at += e.record_size) {
    CHECK_EQ(0, penstock_index_entry(ix, at, &e));
    ssize_t size = penstock_index_name(ix, &e, name, sizeof name);
    CHECK(size > 0 && size < 64);
    name[size] = 0;
    CHECK(strcmp(before, name) < 0);
    strcpy(before, name);
  }
  CHECK_EQ(-EBADMSG, penstock_index_row(ix, (uint32_t)ix->h.rows, &row));
  closed(ix);
  close(fd);
}

/* What does not fit a record's head comes back whole. */
static void wide_attributes(void) {
  struct penstock_batch *b = penstock_batch_new();
  char name[400], part[3000], read[4000];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = 0;
  memset(part, 'p', sizeof part);
  struct penstock_draft d = draft_of(name, S_IFCHR | 0600, 1);
  d.attrs.mtime = (struct penstock_time){INT64_MIN, 999999999};
  d.attrs.ctime = (struct penstock_time){INT64_MAX, 0};
  d.attrs.size = UINT64_MAX;
  d.attrs.blocks = UINT64_MAX / 3;
  d.attrs.rdev = UINT64_MAX - 1;
  d.attrs.nlink = UINT32_MAX;
  d.attrs.error = EACCES;
  d.attrs.learnt_ns = -5;
  d.has_learnt = true;
  d.target = d.layout = d.sums = part;
  d.target_size = 1;
  d.layout_size = sizeof part;
  d.sums_size = 3;
  CHECK_EQ(0, penstock_batch_add(b, &d));
  close_folder(b, "", PENSTOCK_COMPLETE, 1);
  int fd = segment_file(&b, 1);
  struct penstock_index *ix = opened(fd, PAGED);
  struct penstock_entry e;
  CHECK_EQ(0, look(ix, name, &e));
  CHECK(e.mtime.s == INT64_MIN && e.mtime.ns == 999999999 && e.ctime.s == INT64_MAX && e.atime.s == 0);
  CHECK(e.size == UINT64_MAX && e.blocks == UINT64_MAX / 3 && e.rdev == UINT64_MAX - 1 && e.nlink == UINT32_MAX);
  CHECK(e.error == EACCES && e.learnt_ns == -5);
  CHECK_EQ(1, penstock_index_part(ix, &e, PENSTOCK_PART_TARGET, read, sizeof read));
  CHECK_EQ(sizeof part, penstock_index_part(ix, &e, PENSTOCK_PART_LAYOUT, read, sizeof read));
  CHECK(memcmp(read, part, sizeof part) == 0);
  CHECK_EQ(sizeof part, penstock_index_part(ix, &e, PENSTOCK_PART_LAYOUT, read, 10)); /* its whole size all the same */
  CHECK_EQ(-ENODATA, penstock_index_part(ix, &e, PENSTOCK_PART_OWNER, read, sizeof read));
  d.layout_size = PENSTOCK_PART_MAX + 1;
  b = penstock_batch_new();
  CHECK_EQ(-EFBIG, penstock_batch_add(b, &d));
  d.name_size = PENSTOCK_NAME_MAX + 1;
  CHECK_EQ(-ENAMETOOLONG, penstock_batch_add(b, &d));
  penstock_batch_free(b);
  closed(ix);
  close(fd);
}

/* The later of two entries of a name; the listed of two folders; placeholders for folders that nobody gave. */
static void twice_and_never(void) {
  struct penstock_batch *b = penstock_batch_new();
  add_entry(b, "x", S_IFREG, 1);
  add_entry(b, "x", S_IFREG, 2);
  close_folder(b, "a/b/c", PENSTOCK_COMPLETE, 10);
  add_entry(b, "x", S_IFREG, 3);
  close_folder(b, "a/b/c", 0, 20);
  int fd = segment_file(&b, 1);
  struct penstock_index *ix = opened(fd, KEPT);
  struct penstock_entry e;
  CHECK_EQ(0, look(ix, "a/b/c/x", &e));
  CHECK_EQ(2, e.ino);
  static const char *const places[] = {"", "a", "a/b", "a/b/c"};
  for (int i = 0; i < 4; i++) {
    CHECK_EQ(0, look(ix, places[i], &e));
    CHECK(e.flags & PENSTOCK_PLACE);
    CHECK(e.row != PENSTOCK_NO_ROW);
  }
  CHECK_EQ(1, ix->h.entries);
  closed(ix);
  close(fd);
}

static void *reader(void *ix) {
  for (int i = 0; i < 3; i++) CHECK_EQ(0, all_paths(ix));
  return NULL;
}

static void many_threads_fill_the_same_blocks(void) {
  int fd = tree();
  struct penstock_index *ix = opened(fd, KEPT);
  pthread_t thread[THREADS];
  for (int i = 0; i < THREADS; i++) CHECK_EQ(0, pthread_create(&thread[i], NULL, reader, ix));
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  closed(ix);
  close(fd);
}

/* A bit of each block is turned, after opening and before it; then the file is cut. */
static void damage_is_an_error(void) {
  int fd = tree();
  struct stat st;
  CHECK_EQ(0, fstat(fd, &st));
  int noticed = 0, blocks = 0;
  for (off_t at = 100; at < st.st_size; at += PENSTOCK_BLOCK_BYTES, blocks++) {
    struct penstock_index *held = opened(fd, PAGED), fresh;
    uint8_t byte, turned;
    CHECK_EQ(1, pread(fd, &byte, 1, at));
    turned = byte ^ 4;
    CHECK_EQ(1, pwrite(fd, &turned, 1, at));
    all_paths(held);
    closed(held);
    int err = penstock_index_open(&fresh, fd, at % 2 ? PAGED : KEPT);
    CHECK(err == 0 || err == -EBADMSG);
    noticed += err || penstock_index_verify(&fresh, NULL, NULL) > 0;
    if (err == 0) {
      all_paths(&fresh);
      penstock_index_close(&fresh);
    }
    CHECK_EQ(1, pwrite(fd, &byte, 1, at));
  }
  CHECK_EQ(blocks, noticed);
  struct penstock_index *held = opened(fd, KEPT);
  struct penstock_entry e;
  CHECK_EQ(0, look(held, "d03/file3", &e));
  CHECK_EQ(0, ftruncate(fd, 3 * PENSTOCK_BLOCK_BYTES));
  CHECK(all_paths(held) > 0);
  CHECK_EQ(0, look(held, "d03/file3", &e)); /* what was read stays */
  closed(held);
  struct penstock_index none;
  CHECK_EQ(-EBADMSG, penstock_index_open(&none, fd, KEPT));
  CHECK_EQ(0, ftruncate(fd, 10));
  CHECK_EQ(-EINVAL, penstock_index_open(&none, fd, KEPT));
  close(fd);
}

static void no_space(void) {
  struct penstock_batch *b = penstock_batch_new();
  add_entry(b, "x", S_IFREG, 1);
  close_folder(b, "", PENSTOCK_COMPLETE, 1);
  int fd = open("/dev/full", O_RDWR);
  CHECK_EQ(-ENOSPC, penstock_index_write(fd, &b, 1, 1, 1, NULL));
  close(fd);
  penstock_batch_free(b);
}

int main(void) {
  found_however_it_is_read();
  listing_in_order();
  wide_attributes();
  twice_and_never();
  many_threads_fill_the_same_blocks();
  damage_is_an_error();
  no_space();
  return 0;
}
