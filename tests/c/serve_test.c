// SPDX-License-Identifier: Apache-2.0
/* The image that programs are answered from: rows are found, and one whose numbers do not fit is refused. */
// uses: board/serve.c
#include <errno.h>

#include "board/serve.h"
#include "check.h"

enum { ROWS = 3, SLOTS = 8 };

struct whole {
  struct penstock_serve_image head;
  struct penstock_serve_row row[ROWS];
  uint32_t slot[SLOTS];
};
static const char *const paths[ROWS] = {"/m", "/m/a", "/m/a/b"};

static struct whole made(void) {
  struct whole w = {.head = {.magic = PENSTOCK_SERVE_MAGIC,
                             .version = PENSTOCK_SERVE_VERSION,
                             .bytes = sizeof w,
                             .rows = ROWS,
                             .slots = SLOTS,
                             .rows_at = offsetof(struct whole, row),
                             .slots_at = offsetof(struct whole, slot)}};
  for (uint32_t i = 0; i < ROWS; i++) {
    w.row[i].hash = penstock_hash(paths[i], strlen(paths[i]));
    w.row[i].ino = i + 1;
    uint64_t at = w.row[i].hash % SLOTS;
    while (w.slot[at])
      at = (at + 1) % SLOTS;
    w.slot[at] = i + 1;
  }
  return w;
}

static const struct penstock_serve_row *look(const struct penstock_serve *it, const char *path) {
  uint64_t hash;
  return penstock_serve_row(it, path, strlen(path), &hash);
}

static void rows_are_found(void) {
  struct whole w = made();
  struct penstock_serve it;
  CHECK_EQ(0, penstock_serve_open(&it, &w, sizeof w));
  for (uint32_t i = 0; i < ROWS; i++)
    CHECK_EQ(i + 1, look(&it, paths[i])->ino);
  CHECK(!look(&it, "/m/none"));
}

/* Slots may say anything: full ones end, numbers beyond the rows are nobody's. */
static void slots_are_not_believed(void) {
  struct whole w = made();
  struct penstock_serve it;
  for (int i = 0; i < SLOTS; i++)
    w.slot[i] = 1;
  CHECK_EQ(0, penstock_serve_open(&it, &w, sizeof w));
  CHECK(!look(&it, "/m/none"));
  for (int i = 0; i < SLOTS; i++)
    w.slot[i] = UINT32_MAX;
  CHECK(!look(&it, "/m"));
}

#define REFUSED(change) \
  do { \
    struct whole w = made(); \
    struct penstock_serve it = {0}; \
    change; \
    CHECK_EQ(-EINVAL, penstock_serve_open(&it, &w, sizeof w)); \
    CHECK(!it.image); \
  } while (0)

static void what_does_not_fit_is_refused(void) {
  REFUSED(w.head.magic++);
  REFUSED(w.head.version++);
  REFUSED(w.head.bytes--);
  REFUSED(w.head.rows = UINT32_MAX);
  REFUSED(w.head.rows_at = sizeof w + 8);
  REFUSED(w.head.rows_at = UINT64_MAX - 7);
  REFUSED(w.head.rows_at++);
  REFUSED(w.head.slots = 0);
  REFUSED(w.head.slots = 6);
  REFUSED(w.head.slots = 1u << 31);
  REFUSED(w.head.slots_at = sizeof w);
  REFUSED(w.head.slots_at += 4);
  REFUSED(memset(w.head.attribute, 'x', sizeof w.head.attribute));
  struct whole w = made();
  struct penstock_serve it = {0};
  CHECK_EQ(-EINVAL, penstock_serve_open(&it, &w, sizeof w.head - 1));
  CHECK_EQ(-EINVAL, penstock_serve_open(&it, &w, 0));
}

int main(void) {
  rows_are_found();
  slots_are_not_believed();
  what_does_not_fit_is_refused();
  return 0;
}
