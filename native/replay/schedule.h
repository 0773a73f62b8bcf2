// SPDX-License-Identifier: Apache-2.0
/* When the operations of one kind are meant to begin.

   A schedule is a list of spans in order of time, each with a number of operations spread evenly over it: the k-th of
   n is due (k + 1/2)/n of the way.  A single operation is a span without length.  Plain numbers, no clock. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct span {
  int64_t start_ns, length_ns;
  uint64_t first, count; /* first: how many operations stand before it */
};

struct schedule {
  struct span *spans;
  size_t held, room;
  uint64_t total;
};

/* Add a span; 0, EINVAL (out of order, or absurd) or ENOMEM. */
int schedule_add(struct schedule *schedule, int64_t start_ns, int64_t length_ns, uint64_t count);

/* When operation `index` is due; *at remembers the span, from 0, for indexes that only grow. */
int64_t schedule_due(const struct schedule *schedule, uint64_t index, size_t *at);

/* How many operations are due before this instant. */
uint64_t schedule_before(const struct schedule *schedule, int64_t time_ns);

/* Read lines `OPERATION START_NS LENGTH_NS COUNT` into the schedules of `names`; 0, or the number of the first line
   that is wrong. */
unsigned long schedule_read(FILE *file, const char *const names[], struct schedule schedules[], size_t count);
