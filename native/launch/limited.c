// SPDX-License-Identifier: Apache-2.0
/* See limited.h. */
#include "launch/limited.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include "board/holder.h"

static uint64_t milli(uint64_t rate, bool bytes) {
  unsigned __int128 units = (unsigned __int128)rate * 1000000000000u >> PENSTOCK_RATE_SHIFT;
  units /= bytes ? 1 : PENSTOCK_CALL_UNITS;
  return units < INT64_MAX ? (uint64_t)units : INT64_MAX;
}

static uint64_t bounded(uint64_t value) { return value < INT64_MAX ? value : INT64_MAX; }

/* Usage is the job's: any number may stand there. */
static void read_one(struct penstock_limited *ret, const struct penstock_holder *h, unsigned i) {
  const struct penstock_limits_control *c = h->limits;
  const struct penstock_bucket *b = &c->bucket[i];
  struct penstock_asked asked;
  if (!penstock_hold_asked(h, i, &asked) || (!c->name[i][0] && !asked.demand.delayed))
    return;
  struct penstock_limited_bucket *row = &ret->bucket[ret->count++];
  row->place = i;
  memcpy(row->name, c->name[i], PENSTOCK_LIMIT_NAME_BYTES);
  row->name[PENSTOCK_LIMIT_NAME_BYTES] = 0;
  row->bytes = c->rules[c->rules_gen & 1].bytes >> i & 1;
  row->shadow = b->shadow;
  row->open = b->line[b->gen & 1].open;
  row->rate_milli = milli(b->line[b->gen & 1].rate, row->bytes);
  uint64_t units = asked.asked - (c->name[i][0] ? b->asked_before : 0);
  row->units = (int64_t)units > 0 ? units : 0;
  row->delayed = bounded(asked.demand.delayed - (c->name[i][0] ? b->delayed_before : 0));
  row->waited_ns = bounded(asked.demand.waited_ns - (c->name[i][0] ? b->waited_before_ns : 0));
  row->longest_ns = bounded(asked.longest_ns);
}

static void read_all(struct penstock_limited *ret, const struct penstock_board *board) {
  struct penstock_holder h;
  if (penstock_hold_board(&h, board) || !h.limits->rules_gen)
    return;
  for (unsigned i = 0; i < PENSTOCK_BUCKETS_MAX; i++)
    read_one(ret, &h, i);
}

/* The board of another: its control is mapped for reading alone. */
static void read_others(struct penstock_limited *ret, const struct penstock_watch *w) {
  struct stat st;
  if (fstat(w->control, &st) || st.st_size < (off_t)w->head.control_bytes)
    return;
  void *map = mmap(NULL, w->head.control_bytes, PROT_READ, MAP_SHARED, w->control, 0);
  if (map == MAP_FAILED)
    return;
  read_all(ret, &(struct penstock_board){.control = map, .control_bytes = w->head.control_bytes, .usage = w->usage});
  munmap(map, w->head.control_bytes);
}

void penstock_limited_read(struct penstock_limited *ret, const struct penstock_watch *w) {
  ret->count = 0;
  if (w->agent)
    read_all(ret, &w->board);
  else
    read_others(ret, w);
}

static const struct penstock_limited_bucket *at_place(const struct penstock_limited *limited, uint32_t place) {
  for (uint32_t i = 0; i < limited->count; i++)
    if (limited->bucket[i].place == place)
      return &limited->bucket[i];
  return NULL;
}

static uint64_t less(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

static void take_off(struct penstock_limited_bucket *row, const struct penstock_limited_bucket *before) {
  row->units = less(row->units, before->units);
  row->delayed = less(row->delayed, before->delayed);
  row->waited_ns = less(row->waited_ns, before->waited_ns);
  row->longest_ns = row->longest_ns > before->longest_ns ? row->longest_ns : 0;
  if (!row->name[0])
    memcpy(row->name, before->name, sizeof row->name);
}

void penstock_limited_since(struct penstock_limited *limited, const struct penstock_limited *before) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < limited->count; i++) {
    struct penstock_limited_bucket row = limited->bucket[i];
    const struct penstock_limited_bucket *then = at_place(before, row.place);
    bool lifted = !row.name[0];
    if (then && (lifted || strcmp(row.name, then->name) == 0))
      take_off(&row, then);
    if (!lifted || row.delayed || row.units)
      limited->bucket[kept++] = row;
  }
  limited->count = kept;
}

uint32_t penstock_limited_pack(struct penstock_pack *p, const struct penstock_limited *limited) {
  if (!limited->count)
    return 0;
  penstock_key_array(p, "lim", limited->count);
  for (uint32_t i = 0; i < limited->count; i++) {
    const struct penstock_limited_bucket *row = &limited->bucket[i];
    penstock_pack_map(p, 9);
    penstock_key_text(p, "b", row->name);
    penstock_key_bool(p, "by", row->bytes);
    penstock_key_bool(p, "sh", row->shadow);
    penstock_key_bool(p, "open", row->open);
    penstock_key_uint(p, "rate", row->rate_milli);
    penstock_key_uint(p, "u", row->units);
    penstock_key_uint(p, "n", row->delayed);
    penstock_key_uint(p, "ns", row->waited_ns);
    penstock_key_uint(p, "max", row->longest_ns);
  }
  return 1;
}
