// SPDX-License-Identifier: Apache-2.0
/* See served.h. */
#include "launch/served.h"
#include <string.h>
#include <unistd.h>
#include "board/check.h"

static const char *const names[PENSTOCK_SERVE_COUNTS] = PENSTOCK_SERVE_COUNT_NAMES;

void penstock_served_read(struct penstock_served *ret, const struct penstock_watch *w) {
  struct penstock_serve_usage usage;
  *ret = (struct penstock_served){0};
  if (!w->agent || !penstock_control_section(w->board.control, w->board.control_bytes, PENSTOCK_SECTION_SERVE,
                                             PENSTOCK_SERVE_VERSION, sizeof(struct penstock_serve_section)))
    return;
  ret->any = pread(w->usage, &usage, sizeof usage, PENSTOCK_SERVE_USAGE_OFFSET) == (ssize_t)sizeof usage;
  if (!ret->any)
    return;
  /* The job's to write: any number may stand there. */
  for (int i = 0; i < PENSTOCK_SERVE_COUNTS; i++)
    ret->count[i] = usage.count[i] < INT64_MAX ? usage.count[i] : INT64_MAX;
  ret->ended = usage.all;
}

uint64_t penstock_served_calls(const struct penstock_served *served) {
  const uint64_t *count = served->count;
  return count[PENSTOCK_SERVE_STAT] + count[PENSTOCK_SERVE_ACCESS] + count[PENSTOCK_SERVE_READLINK] +
         count[PENSTOCK_SERVE_LAYOUT] + count[PENSTOCK_SERVE_MISSING];
}

uint32_t penstock_served_pack(struct penstock_pack *p, const struct penstock_served *served) {
  uint32_t keys = served->ended;
  if (!served->any)
    return 0;
  for (int i = 0; i < PENSTOCK_SERVE_COUNTS; i++)
    keys += served->count[i] != 0;
  penstock_pack_text(p, "srv");
  penstock_pack_map(p, keys);
  for (int i = 0; i < PENSTOCK_SERVE_COUNTS; i++)
    if (served->count[i])
      penstock_key_uint(p, names[i], served->count[i]);
  if (served->ended)
    penstock_key_uint(p, "ended", 1);
  return 1;
}
