// SPDX-License-Identifier: Apache-2.0
/* What limits are to hold, from a spec into control: see limits.h.

   A spec comes from a file or from Python, so all of it is checked first; then nothing can fail half way. */
#include <string.h>
#include "board/limits.h"

enum { NONE = -1 };

static const struct penstock_limits_spec *head_of(const void *spec) { return spec; }
static const struct penstock_bucket_spec *buckets_of(const void *spec) {
  return (const void *)((const char *)spec + sizeof(struct penstock_limits_spec));
}
static const struct penstock_limit_prefix *prefixes_of(const void *spec) {
  return (const void *)(buckets_of(spec) + head_of(spec)->count);
}

static bool has_op(const struct penstock_bucket_spec *b, unsigned op) { return b->ops[op / 64] >> op % 64 & 1; }

/* ---- what is wrong ---- */

static bool is_path(const struct penstock_limit_prefix *p) {
  if (p->size > sizeof p->path || (p->size && (p->path[0] != '/' || p->path[p->size - 1] == '/')))
    return false;
  return !memchr(p->path, 0, p->size);
}

static const char *bucket_wrong(const struct penstock_bucket_spec *b) {
  if (!b->name[0] || !memchr(b->name, 0, sizeof b->name))
    return "a limit has no name, or one that is too long";
  if (b->on_lost > PENSTOCK_LOST_RATE)
    return "a limit says nothing known about what holds after the lease";
  return NULL;
}

static const char *head_wrong(const struct penstock_limits_spec *s, size_t bytes) {
  if (bytes < sizeof *s || s->version != PENSTOCK_LIMITS_VERSION)
    return "it is no list of limits that this program knows";
  if (s->count > PENSTOCK_BUCKETS_MAX || s->prefix_count > PENSTOCK_LIMIT_PREFIXES_MAX)
    return "it has too many limits or paths";
  if (bytes != sizeof *s + s->count * sizeof(struct penstock_bucket_spec) +
                 s->prefix_count * sizeof(struct penstock_limit_prefix))
    return "its size is not that of what it should hold";
  for (unsigned op = 0; op < PENSTOCK_OPS_MAX; op++)
    if (s->weight[op] > PENSTOCK_WEIGHT_MAX || s->lookup[op] > PENSTOCK_WEIGHT_MAX)
      return "a weight is above 1000 calls";
  return s->truncate > PENSTOCK_WEIGHT_MAX ? "a weight is above 1000 calls" : NULL;
}

const char *penstock_limits_wrong(const void *spec, size_t bytes) {
  const char *wrong = head_wrong(spec, bytes);
  if (wrong)
    return wrong;
  const struct penstock_bucket_spec *b = buckets_of(spec);
  uint64_t prefixes = 0;
  unsigned of_op[PENSTOCK_OPS_MAX] = {0};
  for (uint32_t i = 0; i < head_of(spec)->count; i++) {
    if ((wrong = bucket_wrong(&b[i])))
      return wrong;
    prefixes += b[i].prefix_count;
    for (uint32_t j = 0; j < i; j++)
      if (strcmp(b[i].name, b[j].name) == 0)
        return "two limits have the same name";
    for (unsigned op = 0; op < PENSTOCK_OPS_MAX; op++)
      if (has_op(&b[i], op) && ++of_op[op] > PENSTOCK_WAIT_TICKETS)
        return "more than eight limits hold for one operation";
  }
  if (prefixes != head_of(spec)->prefix_count)
    return "its limits and its paths do not fit together";
  for (uint32_t i = 0; i < prefixes; i++)
    if (!is_path(&prefixes_of(spec)[i]))
      return "a path is not absolute, or too long";
  return NULL;
}

/* ---- making it hold ---- */

void penstock_limits_begin(struct penstock_limits_control *c, uint64_t usage_offset) {
  c->version = PENSTOCK_LIMITS_VERSION;
  c->usage_offset = usage_offset;
}

/* The bucket of a name; NONE. */
static int find(const struct penstock_limits_control *c, const char *name) {
  for (int i = 0; i < PENSTOCK_BUCKETS_MAX; i++)
    if (strncmp(c->name[i], name, PENSTOCK_LIMIT_NAME_BYTES) == 0)
      return i;
  return NONE;
}

static bool counts_bytes(const struct penstock_limits_control *c, int bucket) {
  return c->rules[c->rules_gen & 1].bytes >> bucket & 1;
}

/* Which bucket each is to have; one that counts something else from now on is begun anew.  False: none is free. */
static bool place_all(const struct penstock_limits_control *c, const void *spec, int place[PENSTOCK_BUCKETS_MAX],
                      uint64_t *ret_kept) {
  const struct penstock_bucket_spec *b = buckets_of(spec);
  uint64_t used = 0, kept = 0;
  for (uint32_t i = 0; i < head_of(spec)->count; i++) {
    place[i] = find(c, b[i].name);
    if (place[i] != NONE && counts_bytes(c, place[i]) != (b[i].bytes != 0))
      place[i] = NONE;
    if (place[i] != NONE)
      used |= (uint64_t)1 << place[i];
  }
  kept = used;
  for (uint32_t i = 0; i < head_of(spec)->count; i++) {
    for (int free = 0; place[i] == NONE && free < PENSTOCK_BUCKETS_MAX; free++)
      if (!(used >> free & 1) && !c->name[free][0])
        place[i] = free;
    if (place[i] == NONE)
      return false;
    used |= (uint64_t)1 << place[i];
  }
  *ret_kept = kept;
  return true;
}

static struct penstock_want want_of(const struct penstock_bucket_spec *b, uint64_t lease_ns) {
  return (struct penstock_want){
    .rate_per_s_1024 = b->rate_per_s_1024,
    .burst = b->burst,
    .most = b->most,
    .lease_ns = lease_ns,
    .lost_per_s_1024 = b->lost_per_s_1024,
    .on_lost = b->on_lost,
    .open = b->open,
    .shadow = b->shadow,
    .ceiling_ns = b->ceiling_ns,
  };
}

static void fill_rules(struct penstock_limit_rules *r, const void *spec, uint32_t under,
                       const int place[PENSTOCK_BUCKETS_MAX]) {
  const struct penstock_limits_spec *s = head_of(spec);
  const struct penstock_bucket_spec *b = buckets_of(spec);
  const struct penstock_limit_prefix *from = prefixes_of(spec);
  memset(r, 0, sizeof *r);
  memcpy(r->weight, s->weight, sizeof r->weight);
  memcpy(r->lookup, s->lookup, sizeof r->lookup);
  r->truncate = s->truncate;
  r->known_s = s->known_s;
  r->under = s->under ? s->under : under;
  for (uint32_t i = 0; i < s->count; i++) {
    uint64_t bit = (uint64_t)1 << place[i];
    for (unsigned op = 0; op < PENSTOCK_OPS_MAX; op++)
      r->of_op[op] |= has_op(&b[i], op) ? bit : 0;
    r->bytes |= b[i].bytes ? bit : 0;
    r->close_waits |= b[i].close_waits ? bit : 0;
    r->paths |= b[i].prefix_count ? bit : 0;
    for (uint32_t j = 0; j < b[i].prefix_count; j++) {
      r->prefixes[r->prefix_count] = *from++;
      r->prefixes[r->prefix_count++].bucket = (uint16_t)place[i];
    }
  }
}

/* The buckets that the spec does not name let everybody pass, and may be used again. */
static void drop(struct penstock_limits_control *c, uint64_t keep, uint64_t now_ns, uint64_t carry[PENSTOCK_BUCKETS_MAX]) {
  static const struct penstock_want everything = {.open = true, .lease_ns = UINT64_MAX};
  for (int i = 0; i < PENSTOCK_BUCKETS_MAX; i++)
    if (c->name[i][0] && !(keep >> i & 1)) {
      penstock_bucket_change(&c->bucket[i], &everything, now_ns, &carry[i]);
      memset(c->name[i], 0, sizeof c->name[i]);
    }
}

bool penstock_limits_apply(struct penstock_limits_control *c, const void *spec, uint32_t under, uint64_t now_ns,
                           uint64_t carry[PENSTOCK_BUCKETS_MAX]) {
  const struct penstock_bucket_spec *b = buckets_of(spec);
  int place[PENSTOCK_BUCKETS_MAX];
  uint64_t kept, all = 0;
  if (!place_all(c, spec, place, &kept))
    return false;
  for (uint32_t i = 0; i < head_of(spec)->count; i++) {
    struct penstock_bucket *bucket = &c->bucket[place[i]];
    struct penstock_want want = want_of(&b[i], head_of(spec)->lease_ns);
    if (kept >> place[i] & 1)
      penstock_bucket_change(bucket, &want, now_ns, &carry[place[i]]);
    else {
      carry[place[i]] = 0;
      penstock_bucket_start(bucket, &want, now_ns);
    }
    memcpy(c->name[place[i]], b[i].name, sizeof c->name[0]);
    all |= (uint64_t)1 << place[i];
  }
  uint32_t gen = c->rules_gen;
  fill_rules(&c->rules[(gen + 1) & 1], spec, under, place);
  __atomic_store_n(&c->count, all ? 64 - (uint32_t)__builtin_clzll(all) : 0, __ATOMIC_RELAXED);
  __atomic_store_n(&c->rules_gen, gen + 1, __ATOMIC_RELEASE);
  drop(c, all, now_ns, carry);
  return true;
}

uint32_t penstock_limits_under(const struct penstock_prefix *prefixes, uint32_t count) {
  for (uint32_t i = 0; i < count && i < PENSTOCK_PREFIXES_MAX; i++)
    if (prefixes[i].under & PENSTOCK_UNDER_MOUNT)
      return PENSTOCK_UNDER_MOUNT;
  return PENSTOCK_UNDER_RECORD;
}
