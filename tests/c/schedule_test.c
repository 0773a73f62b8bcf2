// SPDX-License-Identifier: Apache-2.0
// uses: replay/schedule.c
/* Schedules: each operation is due once, in order, inside its span; counting by time agrees; wrong lines are named. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"
#include "replay/schedule.h"

static void each_is_due_in_its_span(void) {
  struct schedule s = {0};
  CHECK(schedule_add(&s, 0, 1000, 10) == 0);
  CHECK(schedule_add(&s, 2000, 0, 1) == 0);
  CHECK(schedule_add(&s, 2000, 500, 0) == 0); /* nothing in it */
  CHECK(schedule_add(&s, 3000, 7, 100) == 0); /* more than there are nanoseconds */
  size_t at = 0;
  int64_t before = 0;
  CHECK(s.total == 111);
  for (uint64_t i = 0; i < s.total; i++) {
    int64_t due = schedule_due(&s, i, &at);
    CHECK(due >= before && due >= s.spans[at].start_ns && due <= s.spans[at].start_ns + s.spans[at].length_ns);
    before = due;
  }
  at = 0;
  CHECK(schedule_due(&s, 0, &at) == 50);
  CHECK(schedule_due(&s, 9, &at) == 950);
  CHECK(schedule_due(&s, 10, &at) == 2000);
  free(s.spans);
}

static void counts_by_time(void) {
  struct schedule s = {0};
  CHECK(schedule_before(&s, 5) == 0);
  CHECK(schedule_add(&s, 100, 1000, 10) == 0);
  CHECK(schedule_add(&s, 2000, 0, 1) == 0);
  CHECK(schedule_before(&s, 100) == 0);
  CHECK(schedule_before(&s, 600) == 5);
  CHECK(schedule_before(&s, 1100) == 10);
  CHECK(schedule_before(&s, 2000) == 10);
  CHECK(schedule_before(&s, 2001) == 11);
  CHECK(schedule_before(&s, INT64_MAX) == 11);
  for (uint64_t i = 0, at = 0; i < s.total; i++) { /* the same as asking one by one */
    int64_t due = schedule_due(&s, i, (size_t *)&at);
    CHECK(schedule_before(&s, due + 1) == i + 1);
  }
  free(s.spans);
}

static void what_is_wrong_is_refused(void) {
  struct schedule s = {0};
  CHECK(schedule_add(&s, 100, 100, 1) == 0);
  CHECK(schedule_add(&s, 150, 10, 1) == EINVAL); /* inside the one before */
  CHECK(schedule_add(&s, -1, 10, 1) == EINVAL);
  CHECK(schedule_add(&s, 300, INT64_MAX, 1) == EINVAL);
  CHECK(schedule_add(&s, 300, 10, UINT64_MAX) == EINVAL);
  free(s.spans);
}

static unsigned long line_of(const char *text) {
  static const char *const names[] = {"open", "close"};
  struct schedule both[2] = {{0}};
  FILE *file = fmemopen((void *)text, strlen(text), "r");
  unsigned long line = schedule_read(file, names, both, 2);
  fclose(file);
  free(both[0].spans);
  free(both[1].spans);
  return line;
}

static void lines(void) {
  CHECK(line_of("open 0 1000 5\nclose 0 1000 5\nopen 1000 1 1\n") == 0);
  CHECK(line_of("open 0 1000 5\nstat 0 1 1\n") == 2);
  CHECK(line_of("open 0 1000\n") == 1);
  CHECK(line_of("open 0 1000 5 6\n") == 1);
  CHECK(line_of("open 5 1 1\nopen 0 1 1\n") == 2);
}

int main(void) {
  each_is_due_in_its_span();
  counts_by_time();
  what_is_wrong_is_refused();
  lines();
  return 0;
}
