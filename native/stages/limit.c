// SPDX-License-Identifier: Apache-2.0
/* The stage `limit`: a call under control waits here until its tickets are due (board/limits.h has the protocol).

   Invariants:
   1. Who is not limited by any bucket pays a test or two; who passes pays a clock, an addition a bucket, and counters.
   2. Charged is what reaches the servers: so many units an operation, more for a name that must be looked up there, and a
      call that fails all the same.  Names that were lately used with success are remembered by their hash, in memory
      of this process: a guess, which costs or saves one look-up when it is wrong.
   3. A process that has sealed itself by seccomp is charged and never waits: a futex might be its death.
   4. Waiting happens in one place, in penstock_limits_pass(), holding nothing; a close and a lock are charged and do not
      wait, for what they end must not last longer, unless a limit names them.
   5. What is only known afterwards (bytes that were moved, entries that were found, a file that turned out to be under
      control) is charged then, without waiting: the next call pays.  Bytes that were asked for and not moved come back;
      no call waits for many that may not be there. */
#include "stages/limit.h"
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include "board/check.h"
#include "board/limits.h"
#include "interpose/raw.h"

enum { KNOWN = 4096, FDS = 1 << 16 };
enum {
  MOVED_MOST = 0x7ffff000, /* bytes that the kernel moves in one call: who asks for more means all that there is */
  READ_AHEAD = 4 << 20,    /* bytes of a read or a copy that are drawn before it is known what there is */
};

static struct penstock_limits here; /* control NULL: this board has no limits */

/* Names that servers need not be asked for: the high bits of the hash, and 1 + the second in the low ones. */
static uint64_t known[KNOWN];
enum { SECOND_BITS = 24 };

/* Which of the buckets with prefixes a descriptor's file is in; as of one opening and one set of rules. */
static struct {
  uint32_t opened;
  uint32_t rules_gen;
  uint64_t buckets;
} of_fd[FDS];

static uint32_t thread_id(void) { return (uint32_t)PENSTOCK_RAW(gettid, 0, 0, 0, 0); }

/* ---- rules ---- */

static uint32_t rules_gen(void) { return __atomic_load_n(&here.control->rules_gen, __ATOMIC_ACQUIRE); }

static const struct penstock_limit_rules *rules_of(uint32_t gen) { return &here.control->rules[gen & 1]; }

static bool lies_in(const struct penstock_limit_prefix *p, const char *path, size_t size) {
  size_t own = p->size;
  return own <= sizeof p->path && own <= size && memcmp(p->path, path, own) == 0 && (own == size || path[own] == '/');
}

/* The buckets with prefixes that a path is in. */
static uint64_t buckets_at(const struct penstock_limit_rules *r, const char *path, size_t size) {
  uint64_t buckets = 0;
  for (uint32_t i = 0; i < r->prefix_count && i < PENSTOCK_LIMIT_PREFIXES_MAX; i++)
    if (lies_in(&r->prefixes[i], path, size))
      buckets |= (uint64_t)1 << (r->prefixes[i].bucket % PENSTOCK_BUCKETS_MAX);
  return buckets;
}

static uint64_t buckets_of_fd(struct penstock_call *c, uint32_t gen) {
  uint32_t opened = c->entry ? c->entry->opened : 0;
  if ((unsigned)c->fd < FDS && opened && of_fd[c->fd].opened == opened && of_fd[c->fd].rules_gen == gen + 1)
    return of_fd[c->fd].buckets;
  const char *path = penstock_path(c);
  uint64_t buckets = path ? buckets_at(rules_of(gen), path, c->path_size) : 0;
  if ((unsigned)c->fd < FDS && path && opened) {
    of_fd[c->fd].opened = 0;
    of_fd[c->fd].buckets = buckets;
    of_fd[c->fd].rules_gen = gen + 1;
    of_fd[c->fd].opened = opened;
  }
  return buckets;
}

/* The buckets that a call passes. */
static uint64_t buckets_of(struct penstock_call *c, uint32_t gen) {
  const struct penstock_limit_rules *r = rules_of(gen);
  uint64_t all = r->of_op[c->op];
  if (__builtin_expect(!(all & r->paths), 1))
    return all;
  uint64_t there = c->given ? 0 : buckets_of_fd(c, gen);
  if (c->given && penstock_path(c))
    there = buckets_at(r, c->path, c->path_size);
  if (c->path2)
    there |= buckets_at(r, c->path2, c->path2_size);
  return (all & ~r->paths) | (all & there);
}

/* ---- names that need no look-up ---- */

static uint64_t coarse_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t tag_of(uint64_t hash, uint64_t second) {
  return (hash >> SECOND_BITS << SECOND_BITS) | ((second + 1) & ((1u << SECOND_BITS) - 1));
}

static bool is_known(const char *path, size_t size, uint64_t second, uint32_t known_s) {
  uint64_t hash = penstock_hash(path, size), there = __atomic_load_n(&known[hash % KNOWN], __ATOMIC_RELAXED);
  /* The coarse clock is some milliseconds behind: a name may seem to be learnt in the second to come. */
  uint64_t since = (tag_of(hash, second + 1) - there) & ((1u << SECOND_BITS) - 1);
  return there && (there ^ hash) >> SECOND_BITS == 0 && since <= (uint64_t)known_s + 1;
}

static void remember(const char *path, size_t size, uint64_t second) {
  uint64_t hash = penstock_hash(path, size);
  __atomic_store_n(&known[hash % KNOWN], tag_of(hash, second), __ATOMIC_RELAXED);
}

static void forget(const char *path, size_t size) {
  uint64_t hash = penstock_hash(path, size), there = __atomic_load_n(&known[hash % KNOWN], __ATOMIC_RELAXED);
  if ((there ^ hash) >> SECOND_BITS == 0)
    __atomic_store_n(&known[hash % KNOWN], 0, __ATOMIC_RELAXED);
}

/* Whether the client has no lock on the name after this call, though it succeeded. */
static bool outdates(uint8_t op) {
  switch (op) {
  case PENSTOCK_OP_MKDIR:
  case PENSTOCK_OP_MKNOD:
  case PENSTOCK_OP_SYMLINK:
  case PENSTOCK_OP_UNLINK:
  case PENSTOCK_OP_RMDIR:
  case PENSTOCK_OP_RENAME:
  case PENSTOCK_OP_CHMOD:
  case PENSTOCK_OP_CHOWN:
  case PENSTOCK_OP_UTIME:
  case PENSTOCK_OP_TRUNCATE:
  case PENSTOCK_OP_SETXATTR:
  case PENSTOCK_OP_REMOVEXATTR:
    return true;
  default:
    return false;
  }
}

static void learn(const struct penstock_call *c) {
  uint64_t second = (c->limited_ns ? c->limited_ns : coarse_ns()) / 1000000000u;
  if (c->path && (c->failed || outdates(c->op)))
    forget(c->path, c->path_size);
  else if (c->path)
    remember(c->path, c->path_size, second);
  if (c->path2 && !c->failed)
    remember(c->path2, c->path2_size, second);
}

/* ---- what it costs ---- */

static bool moves_bytes(const struct penstock_call *c) {
  return c->does & (PENSTOCK_DOES_READ | PENSTOCK_DOES_WRITE);
}

static uint64_t weight_of(const struct penstock_limit_rules *r, uint8_t op) {
  return r->weight[op] < PENSTOCK_WEIGHT_MAX ? r->weight[op] : PENSTOCK_WEIGHT_MAX;
}

static uint64_t calls_cost(const struct penstock_call *c, const struct penstock_limit_rules *r, uint64_t now_ns) {
  uint64_t cost = weight_of(r, c->op), lookup = r->lookup[c->op];
  if (c->stream && moves_bytes(c))
    return 0; /* what libc makes of it is not seen */
  if (lookup && c->given && !(c->path && r->known_s && is_known(c->path, c->path_size, now_ns / 1000000000u, r->known_s)))
    cost += lookup;
  if (c->op == PENSTOCK_OP_OPEN && c->open_flags & O_TRUNC)
    cost += r->truncate;
  return cost < PENSTOCK_WEIGHT_MAX ? cost : PENSTOCK_WEIGHT_MAX;
}

/* A FILE's bytes, and those of "all that there is", are known afterwards: one of them waits for what is owed. */
static uint64_t bytes_cost(const struct penstock_call *c) {
  if (!moves_bytes(c))
    return 0;
  if (!c->asked || c->asked >= MOVED_MOST)
    return 1;
  return c->does & PENSTOCK_DOES_READ && c->asked > READ_AHEAD ? READ_AHEAD : c->asked;
}

static bool only_charged(const struct penstock_call *c) {
  return c->op == PENSTOCK_OP_CLOSE || c->op == PENSTOCK_OP_LOCK;
}

/* ---- counting ---- */

static struct penstock_demand *demand_of(uint32_t bucket) { return penstock_demand_of(&here, bucket); }

static void add(uint64_t *sum, uint64_t n) { __atomic_fetch_add(sum, n, __ATOMIC_RELAXED); }

/* A few tries: who loses them all was overtaken by others' waits, and the longest may be a little short. */
static void raise_longest(uint64_t *longest, uint64_t ns) {
  uint64_t seen = __atomic_load_n(longest, __ATOMIC_RELAXED);
  for (int i = 0; i < 8 && ns > seen; i++)
    if (__atomic_compare_exchange_n(longest, &seen, ns, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return;
}

static void count_wait(uint32_t bucket, uint64_t ns) {
  add(&demand_of(bucket)->delayed, 1);
  add(&demand_of(bucket)->waited_ns, ns);
  raise_longest(&here.usage->word[bucket].longest_ns, ns);
}

static __attribute__((noinline)) void count_rare(const struct penstock_ask *asks, unsigned count,
                                                 const struct penstock_pass *p) {
  for (unsigned i = 0; i < count; i++)
    if (p->late >> asks[i].bucket & 1)
      count_wait(asks[i].bucket, p->late_ns);
  struct penstock_demand *first = demand_of(asks[0].bucket), *last = demand_of(p->bucket % PENSTOCK_BUCKETS_MAX);
  if (p->waited_ns)
    count_wait(p->bucket % PENSTOCK_BUCKETS_MAX, p->waited_ns);
  if (p->ceiling)
    add(&last->ceilings, 1);
  if (p->unplaced)
    add(&last->unplaced, 1);
  if (p->lost)
    add(&first->lost, 1);
  if (p->torn)
    add(&first->torn, 1);
}

static void pass(const struct penstock_ask *asks, unsigned count, uint64_t now_ns) {
  struct penstock_pass p;
  penstock_limits_pass(&here, asks, count, now_ns, &p);
  if (__builtin_expect(p.waited_ns || p.late || p.lost || p.torn, 0))
    count_rare(asks, count, &p);
}

/* More of a call that was charged already, or that should have been: the next one pays. */
static void charge_more(uint64_t buckets, uint64_t units) {
  struct penstock_pass p;
  for (; buckets && units; buckets &= buckets - 1) {
    uint32_t bucket = (uint32_t)__builtin_ctzll(buckets);
    struct penstock_ask ask = {.bucket = bucket, .cost = units};
    penstock_limits_pass(&here, &ask, 1, coarse_ns(), &p);
  }
}

/* ---- the stage ---- */

static void charge(struct penstock_call *c, const struct penstock_limit_rules *r, uint64_t buckets, bool may_wait) {
  struct penstock_ask asks[PENSTOCK_WAIT_TICKETS];
  unsigned count = 0;
  uint64_t waits = !may_wait || penstock_is_sealed() ? 0 : only_charged(c) ? r->close_waits : UINT64_MAX;
  c->limited_ns = buckets & waits ? penstock_now_ns() : coarse_ns();
  c->limited = 0;
  c->drawn = bytes_cost(c);
  uint64_t calls = calls_cost(c, r, c->limited_ns);
  for (; buckets && count < PENSTOCK_WAIT_TICKETS; buckets &= buckets - 1) {
    uint32_t bucket = (uint32_t)__builtin_ctzll(buckets);
    uint64_t bit = (uint64_t)1 << bucket, cost = r->bytes & bit ? c->drawn : calls;
    if (!cost)
      continue;
    asks[count++] = (struct penstock_ask){.bucket = bucket, .wait = waits & bit, .cost = cost};
    c->limited |= bit;
  }
  if (count)
    pass(asks, count, c->limited_ns);
}

static enum penstock_answer before(struct penstock_call *c) {
  if (!here.control)
    return PENSTOCK_GO;
  uint32_t gen = rules_gen();
  const struct penstock_limit_rules *r = rules_of(gen);
  if (!(c->under & r->under) || !r->of_op[c->op])
    return PENSTOCK_GO;
  uint64_t buckets = buckets_of(c, gen);
  if (buckets)
    charge(c, r, buckets, true);
  return PENSTOCK_GO;
}

/* Bytes that were moved, against those that were asked for and drawn. */
static void settle_bytes(const struct penstock_call *c, uint64_t buckets) {
  uint64_t drawn = c->drawn, moved = c->failed || c->result < 0 ? 0 : (uint64_t)c->result;
  if (moved > drawn)
    charge_more(buckets, moved - drawn);
  for (; moved < drawn && buckets; buckets &= buckets - 1) {
    uint32_t bucket = (uint32_t)__builtin_ctzll(buckets);
    penstock_limits_return(&here, bucket, drawn - moved);
  }
}

static void after(struct penstock_call *c) {
  if (!here.control)
    return;
  uint32_t gen = rules_gen();
  const struct penstock_limit_rules *r = rules_of(gen);
  if (!(c->under & r->under))
    return;
  if (__builtin_expect(!c->limited && r->of_op[c->op] && c->given, 0)) {
    uint64_t buckets = buckets_of(c, gen); /* not known to be under control before */
    if (buckets)
      charge(c, r, buckets, false);
  }
  if (c->op == PENSTOCK_OP_WALK && c->given && !c->failed && c->result > 1) /* that many entries, found in one call */
    charge_more(c->limited & ~r->bytes, (uint64_t)(c->result - 1) * weight_of(r, c->op));
  if (moves_bytes(c) && c->limited & r->bytes)
    settle_bytes(c, c->limited & r->bytes);
  if (c->given && r->known_s)
    learn(c);
}

void penstock_limit_more(const struct penstock_call *c, unsigned calls) {
  if (here.control && c->limited)
    charge_more(c->limited & ~rules_of(rules_gen())->bytes, (uint64_t)calls * PENSTOCK_CALL_UNITS);
}

static uint32_t pid_space(void) {
  char link[64];
  uint64_t inode = 0;
  long size = PENSTOCK_RAW(readlinkat, AT_FDCWD, "/proc/self/ns/pid", link, sizeof link);
  for (long i = 0; i < size; i++)
    if (link[i] >= '0' && link[i] <= '9')
      inode = 10 * inode + (uint64_t)(link[i] - '0');
  return (uint32_t)inode;
}

static void start(void) {
  const struct penstock_control *control = penstock_here.control;
  const struct penstock_limits_control *limits = penstock_control_section(
    control, penstock_here.control_bytes, PENSTOCK_SECTION_LIMITS, PENSTOCK_LIMITS_VERSION, sizeof *limits);
  uint64_t at = limits ? limits->usage_offset : 0;
  uint64_t most = __atomic_load_n(&control->usage_bytes, __ATOMIC_ACQUIRE);
  if (!limits || at % 128 || at < PENSTOCK_USAGE_HEAD_BYTES || most > penstock_here.usage_max_bytes ||
      most < sizeof *here.usage || at > most - sizeof *here.usage)
    return;
  here.usage = (struct penstock_limits_usage *)(penstock_here.usage + at);
  here.thread = thread_id;
  here.space = pid_space();
  here.control = limits;
}

const struct penstock_stage penstock_limit_stage = {
  .name = "limit",
  .bit = PENSTOCK_STAGE_LIMIT,
  .under = PENSTOCK_UNDER_RECORD | PENSTOCK_UNDER_MOUNT,
  .paths = PENSTOCK_PATHS_ALL,
  .start = start,
  .before = before,
  .after = after,
};
