// SPDX-License-Identifier: Apache-2.0
/* Listing a folder of a segment: all its names, places that lead back to them, and what is in no segment that was written
   by us; DIRs that are read by many threads at once. */
// uses: stages/dirs.c
#include <errno.h>
#include <pthread.h>

#include "index_text.h"
#include "kernels/listing.h"
#include "stages/dirs.h"

enum { NAMES = 500, THREADS = 4, HARMS = 3000 };

static int written(void) {
  struct penstock_batch *b = penstock_batch_new();
  char name[300];
  add_root(b, 2);
  add_entry(b, "a", S_IFDIR | 0755, 3);
  add_entry(b, "link", S_IFLNK | 0777, 4);
  close_folder(b, "", PENSTOCK_COMPLETE, 10);
  for (int i = 0; i < NAMES; i++) {
    snprintf(name, sizeof name, "f%03d", i);
    add_entry(b, name, S_IFREG | 0644, 100 + (uint64_t)i);
  }
  add_entry(b, "sub", S_IFDIR | 0755, 5);
  close_folder(b, "a", PENSTOCK_COMPLETE, 10);
  add_entry(b, "half", S_IFREG | 0644, 6);
  close_folder(b, "a/sub", PENSTOCK_LISTED, 10);
  return segment_file(&b, 1);
}

/* The same, sealed: as programs are given it. */
static struct penstock_index *sealed(const void *bytes, size_t size) {
  int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
  struct penstock_index *ix = malloc(sizeof *ix);
  CHECK(ix && fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
  CHECK_EQ(0, fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE));
  int error = penstock_index_open(ix, fd, 0);
  close(fd);
  if (error) {
    free(ix);
    return NULL;
  }
  return ix;
}

static void every_name_once_and_places_lead_back(const struct penstock_index *ix) {
  struct penstock_listing l;
  struct dirent64 e, again;
  uint64_t place = 0, next, after, before;
  CHECK_EQ(0, penstock_listing_open(&l, ix, "a", 1));
  l.above_ino = 2;
  for (int i = 0; i < NAMES + 3; i++) {
    char expected[16];
    snprintf(expected, sizeof expected, i == 0 ? "." : i == 1 ? ".." : i == NAMES + 2 ? "sub" : "f%03d", i - 2);
    CHECK_EQ(1, penstock_listing_next(&l, ix, place, &e, &next));
    CHECK_STR(expected, e.d_name);
    CHECK_EQ(i == 0 ? 3 : i == 1 ? 2 : i == NAMES + 2 ? 5 : 98 + i, e.d_ino);
    CHECK_EQ(i < 2 || i == NAMES + 2 ? DT_DIR : DT_REG, e.d_type);
    CHECK_EQ(next, e.d_off);
    CHECK(next > place && (int64_t)next > 0);
    CHECK_EQ(1, penstock_listing_next(&l, ix, place, &again, &after));
    CHECK_STR(e.d_name, again.d_name);
    before = place;
    place = next;
  }
  CHECK_EQ(0, penstock_listing_next(&l, ix, place, &e, &next));
  CHECK_EQ(1, penstock_listing_next(&l, ix, before, &e, &next));
}

static void places_from_nowhere_are_no_harm(const struct penstock_index *ix) {
  struct penstock_listing l;
  struct dirent64 e;
  uint64_t next;
  CHECK_EQ(0, penstock_listing_open(&l, ix, "", 0));
  for (uint64_t bit = 0; bit < 64; bit++)
    for (uint64_t number = 0; number < 5; number++)
      if (penstock_listing_next(&l, ix, number << 32 | UINT64_C(1) << bit, &e, &next) == 1)
        CHECK(strlen(e.d_name) <= 255);
  CHECK_EQ(0, penstock_listing_next(&l, ix, UINT64_MAX, &e, &next));
  CHECK_EQ(-ENOENT, penstock_listing_open(&l, ix, "a/sub", 5)); /* not every name is known */
  CHECK_EQ(-ENOENT, penstock_listing_open(&l, ix, "a/f001", 6));
  CHECK_EQ(-ENOENT, penstock_listing_open(&l, ix, "b", 1));
}

/* Bytes that nobody checks any more: what comes out may be anything, but nothing outside is read, and it ends. */
static void harmed_ones_end(const uint8_t *bytes, size_t size) {
  uint8_t *own = malloc(size);
  unsigned seed = 7;
  CHECK(own);
  for (int i = 0; i < HARMS; i++) {
    memcpy(own, bytes, size);
    for (int k = 0; k < 1 + i % 4; k++)
      own[1024 + (unsigned)rand_r(&seed) % (size - 1024)] ^= (uint8_t)(1u << rand_r(&seed) % 8);
    struct penstock_index *ix = sealed(own, size);
    struct penstock_listing l;
    struct dirent64 e;
    uint64_t place = 0;
    if (ix && penstock_listing_open(&l, ix, "a", 1) == 0)
      for (int n = 0; n < 2 * NAMES && penstock_listing_next(&l, ix, place, &e, &place) == 1; n++)
        CHECK(strlen(e.d_name) <= 255);
    if (ix)
      closed(ix);
  }
  free(own);
}

static unsigned char times[NAMES + 3];

static void *reads(void *dir) {
  struct dirent64 e;
  int error;
  while (penstock_dir_next(penstock_dir_of(dir), &e, &error)) {
    int at = e.d_name[0] == 'f' ? atoi(e.d_name + 1) : !strcmp(e.d_name, "sub") ? NAMES : NAMES + (int)strlen(e.d_name);
    __atomic_fetch_add(&times[at], 1, __ATOMIC_RELAXED);
  }
  CHECK_EQ(0, error);
  return NULL;
}

static void threads_share_a_dir(const struct penstock_index *ix) {
  pthread_t thread[THREADS];
  struct penstock_listing l;
  static char any;
  DIR *dir = (DIR *)(void *)&any;
  CHECK_EQ(0, penstock_listing_open(&l, ix, "a", 1));
  CHECK(!penstock_dir_of(dir));
  CHECK(penstock_dir_answer(dir, 3, ix, &l));
  for (int i = 0; i < THREADS; i++)
    CHECK_EQ(0, pthread_create(&thread[i], NULL, reads, dir));
  for (int i = 0; i < THREADS; i++)
    pthread_join(thread[i], NULL);
  for (int i = 0; i < NAMES + 3; i++)
    CHECK_EQ(1, times[i]);
  penstock_dir_read_past(3); /* too late */
  CHECK(penstock_dir_of(dir));
  penstock_dir_seek(penstock_dir_of(dir), 0);
  penstock_dir_read_past(4);
  CHECK(penstock_dir_of(dir));
  penstock_dir_read_past(3);
  CHECK(!penstock_dir_of(dir));
  penstock_dir_forget(NULL);
}

/* More than there is room for: the others are libc's, and places come free again. */
static void a_table_that_is_full_is_no_harm(const struct penstock_index *ix) {
  static char many[4096];
  struct penstock_listing l;
  CHECK_EQ(0, penstock_listing_open(&l, ix, "a", 1));
  for (int turn = 0; turn < 3; turn++) {
    int got = 0;
    for (size_t i = 0; i < sizeof many; i++)
      got += penstock_dir_answer((DIR *)(void *)&many[i], (int)i, ix, &l);
    CHECK(got > 100 && got <= 256);
    CHECK_EQ(got, penstock_dirs);
    for (size_t i = 0; i < sizeof many; i++)
      penstock_dir_forget(penstock_dir_of((DIR *)(void *)&many[i]));
    CHECK_EQ(0, penstock_dirs);
  }
}

int main(void) {
  int fd = written();
  size_t size = (size_t)lseek(fd, 0, SEEK_END);
  uint8_t *bytes = malloc(size);
  CHECK(bytes && pread(fd, bytes, size, 0) == (ssize_t)size);
  struct penstock_index *kept = opened(fd, KEPT), *paged = opened(fd, PAGED), *ours = sealed(bytes, size);
  CHECK(ours);
  every_name_once_and_places_lead_back(kept);
  every_name_once_and_places_lead_back(paged);
  every_name_once_and_places_lead_back(ours);
  places_from_nowhere_are_no_harm(ours);
  harmed_ones_end(bytes, size);
  threads_share_a_dir(ours);
  a_table_that_is_full_is_no_harm(ours);
  closed(kept);
  closed(paged);
  closed(ours);
  close(fd);
  free(bytes);
  return 0;
}
