// SPDX-License-Identifier: Apache-2.0
#include "schedule.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DAYS_MAX = 3660 };
static const int64_t latest_ns = (int64_t)DAYS_MAX * 86400 * 1000000000;
static const uint64_t most = UINT64_C(1) << 52; /* what a double counts exactly */

int schedule_add(struct schedule *schedule, int64_t start_ns, int64_t length_ns, uint64_t count) {
  const struct span *last = schedule->held ? &schedule->spans[schedule->held - 1] : NULL;
  if (start_ns < 0 || length_ns < 0 || start_ns > latest_ns || length_ns > latest_ns || count > most - schedule->total)
    return EINVAL;
  if (last && start_ns < last->start_ns + last->length_ns)
    return EINVAL;
  if (!count)
    return 0;
  if (schedule->held == schedule->room) {
    size_t room = schedule->room ? 2 * schedule->room : 64;
    struct span *grown = realloc(schedule->spans, room * sizeof *grown);
    if (!grown)
      return ENOMEM;
    schedule->spans = grown;
    schedule->room = room;
  }
  schedule->spans[schedule->held++] = (struct span){start_ns, length_ns, schedule->total, count};
  schedule->total += count;
  return 0;
}

int64_t schedule_due(const struct schedule *schedule, uint64_t index, size_t *at) {
  while (index >= schedule->spans[*at].first + schedule->spans[*at].count)
    ++*at;
  const struct span *span = &schedule->spans[*at];
  double part = ((double)(index - span->first) + 0.5) / (double)span->count;
  return span->start_ns + (int64_t)(part * (double)span->length_ns);
}

uint64_t schedule_before(const struct schedule *schedule, int64_t time_ns) {
  size_t low = 0, high = schedule->held; /* the first span that does not begin before this instant */
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (schedule->spans[middle].start_ns < time_ns)
      low = middle + 1;
    else
      high = middle;
  }
  if (!low)
    return 0;
  const struct span *span = &schedule->spans[low - 1];
  if (time_ns >= span->start_ns + span->length_ns)
    return span->first + span->count;
  double part = (double)(time_ns - span->start_ns) / (double)span->length_ns;
  return span->first + (uint64_t)(part * (double)span->count + 0.5);
}

unsigned long schedule_read(FILE *file, const char *const names[], struct schedule schedules[], size_t count) {
  char line[256], name[16];
  for (unsigned long number = 1; fgets(line, sizeof line, file); number++) {
    int64_t start_ns, length_ns;
    uint64_t operations;
    int end = 0;
    size_t i = 0;
    if (sscanf(line, "%15s %" SCNd64 " %" SCNd64 " %" SCNu64 " %n", name, &start_ns, &length_ns, &operations, &end) != 4 ||
        !end || line[end])
      return number;
    while (i < count && strcmp(name, names[i]))
      i++;
    if (i == count || schedule_add(&schedules[i], start_ns, length_ns, operations))
      return number;
  }
  return 0;
}
