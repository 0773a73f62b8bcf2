// SPDX-License-Identifier: Apache-2.0
/* The ring: what several writers put arrives, once and whole; what does not fit is noted; the killed hold up nobody. */
// uses: board/ring.c board/ring_read.c board/create.c board/buckets.c board/tickets.c board/place.c
// seconds: 120
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "board/create.h"
#include "board/ring.h"
#include "check.h"

static char folder[256];
static struct penstock_board board;
static struct penstock_ring *ring;
static uint32_t slots;
static uint64_t bytes;
static struct penstock_ring_reader reader;

static pid_t owner;

static void drop_board(void) {
  if (!ring || owner != getpid())
    return;
  munmap(ring, bytes);
  close(reader.fd);
  penstock_board_close(&board);
  penstock_board_delete(folder);
  ring = NULL;
}

static void make(uint64_t size) {
  char path[300];
  struct stat st;
  struct penstock_board_plan plan = {.stages = PENSTOCK_STAGE_CATALOG, .ring_bytes = size};
  if (ring)
    drop_board();
  snprintf(folder, sizeof folder, "/dev/shm/penstock-ring-%d", (int)getpid());
  penstock_board_delete(folder);
  CHECK_EQ(0, penstock_board_create(folder, &plan, &board));
  snprintf(path, sizeof path, "%s/ring", folder);
  int fd = open(path, O_RDWR);
  CHECK(fd >= 0 && fstat(fd, &st) == 0);
  bytes = (uint64_t)st.st_size;
  void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(map != MAP_FAILED);
  ring = map;
  slots = ring->slots;
  CHECK(!penstock_ring_wrong(ring, slots, bytes));
  CHECK_EQ(0, penstock_ring_open(&reader, fd));
}

static bool put(uint32_t pid, uint64_t thread, const char *path, const char *path2) {
  struct penstock_event e = {.what = PENSTOCK_EVENT_RENAME, .pid = pid, .thread = thread};
  e.path_size = (uint16_t)strlen(path);
  e.path2_size = (uint16_t)strlen(path2);
  return penstock_ring_put(ring, slots, &e, path, path2);
}

static uint8_t room[PENSTOCK_EVENT_MAX];
static bool behind;

/* The next event's head; its paths follow in `room`. */
static int next(struct penstock_event *ret, bool skip) {
  size_t size;
  int got = penstock_ring_next(&reader, skip, room, &size, &behind);
  if (got == 1)
    memcpy(ret, room, sizeof *ret);
  return got;
}

static void whole_and_in_order(void) {
  char path[PENSTOCK_EVENT_PATH_MAX + 1], path2[PENSTOCK_EVENT_PATH_MAX + 1];
  struct penstock_event e = {0};
  make(64 << 10);
  for (size_t size = 0; size < 3000; size += 7) { /* several times round */
    memset(path, 'a' + (int)(size % 26), size);
    memset(path2, 'A' + (int)(size % 26), size / 2);
    path[size] = path2[size / 2] = 0;
    CHECK(put(1, size, path, path2));
    CHECK_EQ(1, next(&e, false));
    CHECK_EQ(size, e.thread);
    CHECK_EQ(size, e.path_size);
    CHECK_EQ(size / 2, e.path2_size);
    CHECK(memcmp(room + sizeof e, path, size) == 0 && memcmp(room + sizeof e + size, path2, size / 2) == 0);
    CHECK_EQ(0, penstock_ring_release(&reader));
  }
  memset(path, 'x', PENSTOCK_EVENT_PATH_MAX);
  path[PENSTOCK_EVENT_PATH_MAX] = 0;
  CHECK(put(1, 1, path, path));
  CHECK_EQ(1, next(&e, false));
  CHECK_EQ(PENSTOCK_EVENT_PATH_MAX, e.path2_size);
  CHECK_EQ(0, next(&e, false));
  CHECK(!behind && reader.holes == 0 && ring->dropped == 0);
}

/* Trap K04. */
static void full_drops_and_notes_the_folder(void) {
  struct penstock_event e = {0};
  char name[64], noted[PENSTOCK_RING_FOLDER_BYTES];
  uint64_t fitted = 0;
  make(0);
  while (put(1, fitted, "/data/in/here", ""))
    fitted++;
  CHECK(fitted > 0 && ring->dropped == 1 && ring->all == 0);
  CHECK(!put(1, 0, "/data/in/there", "/other/x"));
  uint32_t folders = 0;
  for (uint32_t i = 0; i < PENSTOCK_RING_FOLDERS; i++) {
    int size = penstock_ring_dropped(&reader, i, noted);
    CHECK(size >= 0);
    folders += size == 8 && memcmp(noted, "/data/in", 8) == 0;
    folders += size == 6 && memcmp(noted, "/other", 6) == 0;
  }
  CHECK_EQ(2, folders);
  for (uint64_t i = 0; i < fitted; i++)
    CHECK_EQ(1, next(&e, false));
  CHECK_EQ(0, next(&e, false));
  CHECK_EQ(0, penstock_ring_release(&reader));
  CHECK(put(1, 0, "/data/in/again", ""));
  CHECK_EQ(1, next(&e, false));
  while (put(1, 0, "/data/in/here", ""))
    ;
  for (int i = 0; i < 4 * PENSTOCK_RING_FOLDERS; i++) {
    snprintf(name, sizeof name, "/many/%d/x", i);
    CHECK(!put(1, 0, name, ""));
  }
  CHECK_EQ(1, ring->all);
}

enum { WRITERS = 4, EACH = 20000 };

static void *write_many(void *number) {
  char path[600];
  uint64_t who = (uint64_t)(uintptr_t)number;
  for (uint32_t i = 0; i < EACH;) {
    int size = snprintf(path, sizeof path, "/w%d/%u/", (int)who, i);
    size_t more = (size_t)(i * 13 % 300);
    memset(path + size, 'z', more);
    path[(size_t)size + more] = 0;
    if (put(i, who, path, ""))
      i++;
    else
      usleep(100);
  }
  return NULL;
}

static void many_writers_lose_nothing(void) {
  pthread_t threads[WRITERS];
  uint32_t expected[WRITERS] = {0}, all = 0;
  struct penstock_event e = {0};
  make(256 << 10);
  for (uintptr_t i = 0; i < WRITERS; i++)
    CHECK_EQ(0, pthread_create(&threads[i], NULL, write_many, (void *)i));
  while (all < WRITERS * EACH) {
    int got = next(&e, false);
    CHECK(got >= 0);
    if (!got) {
      CHECK_EQ(0, penstock_ring_release(&reader));
      usleep(50);
      continue;
    }
    CHECK(e.thread < WRITERS);
    CHECK_EQ(expected[e.thread], e.pid);
    expected[e.thread]++;
    all++;
    if (all % 64 == 0)
      CHECK_EQ(0, penstock_ring_release(&reader));
  }
  for (int i = 0; i < WRITERS; i++)
    pthread_join(threads[i], NULL);
  CHECK_EQ(0, reader.holes);
}

/* Trap K03. */
static void killed_writers_hold_up_nobody(void) {
  struct penstock_event e = {0};
  make(64 << 10);
  for (int round = 0; round < 60; round++) {
    uint64_t before = reader.position;
    pid_t child = fork();
    if (!child) {
      for (uint32_t i = 0;; i++)
        put(i, 7, "/killed/at/some/point/of/a/name/that/takes/more/than/one/slot/of/the/ring/and/yet/a/few/more/letters", "");
    }
    usleep(200 + (useconds_t)(round * 37 % 900));
    CHECK_EQ(0, kill(child, SIGKILL));
    CHECK_EQ(child, waitpid(child, NULL, 0));
    CHECK(put(1, 8, "/after/it", "") || ring->dropped);
    int got;
    while ((got = next(&e, true)) == 1)
      CHECK(e.thread == 7 || e.thread == 8);
    CHECK_EQ(0, got);
    CHECK(reader.position >= before);
    CHECK_EQ(ring->head, reader.position);
    CHECK_EQ(0, penstock_ring_release(&reader));
    CHECK(put(1, 9, "/well/again", ""));
    CHECK_EQ(1, next(&e, false));
    CHECK_EQ(9, e.thread);
  }
}

/* A writer stopped between reserving and writing for a whole round writes into what is another's by then. */
static void late_writer_is_not_believed(void) {
  struct penstock_event e = {0};
  struct penstock_ring_slot *late;
  make(0);
  uint64_t position = __atomic_fetch_add(&ring->head, 1, __ATOMIC_RELAXED);
  CHECK(put(1, 1, "/b", ""));
  CHECK_EQ(0, next(&e, false));
  CHECK(behind);
  CHECK_EQ(1, next(&e, true));
  CHECK_EQ(1, reader.holes);
  CHECK_EQ(0, penstock_ring_release(&reader));
  for (uint32_t i = 0; i + 1 < slots; i++) {
    CHECK(put(1, 2, "/c", ""));
    CHECK_EQ(1, next(&e, false));
    CHECK_EQ(0, penstock_ring_release(&reader));
  }
  CHECK(put(1, 3, "/d", "")); /* this one, or the one before, lies where the late one writes */
  late = (void *)((uint8_t *)ring + penstock_ring_slot_offset(slots, position));
  memset(late->payload, 'L', 40);
  int got = next(&e, true);
  CHECK(got == 0 || (got == 1 && e.thread == 3));
  late->commit = position + 1;
  CHECK(put(1, 4, "/e", ""));
  CHECK_EQ(1, next(&e, true));
  CHECK_EQ(4, e.thread);
}

static void hostile_rings_are_refused(void) {
  struct penstock_event e = {0};
  struct penstock_ring_reader other;
  char path[300];
  make(0);
  CHECK_EQ(-EBADF, penstock_ring_open(&other, -1));
  ring->head = UINT64_MAX / 2; /* a head from nowhere is passed over */
  CHECK_EQ(0, next(&e, false));
  CHECK(reader.holes > 0);
  CHECK(!put(1, 1, "/a", "") || next(&e, false) == 1);
  snprintf(path, sizeof path, "%s/ring", folder);
  CHECK_EQ(0, truncate(path, PENSTOCK_RING_HEAD_BYTES));
  reader.position = 0;
  ring->head = 5;
  CHECK_EQ(-EPROTO, next(&e, false)); /* cut short: an error, not a signal */
  CHECK_EQ(-EPROTO, penstock_ring_open(&other, reader.fd));
  CHECK_EQ(0, truncate(path, (off_t)bytes));
}

int main(void) {
  owner = getpid();
  atexit(drop_board);
  whole_and_in_order();
  full_drops_and_notes_the_folder();
  many_writers_lose_nothing();
  killed_writers_hold_up_nobody();
  late_writer_is_not_believed();
  hostile_rings_are_refused();
  return 0;
}
