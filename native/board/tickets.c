// SPDX-License-Identifier: Apache-2.0
/* The protocol of limits.h, step by step.

   A caller:  1 the clock, then of each bucket the line: gen, line[gen & 1], gen again
              2 draws: one addition; or, where the word is behind (idle) or wild, one compare-and-swap that forgives the
                idle time and draws at once
              3 all due: goes on, nothing else was stored
              4 else takes a waiting place, publishes its tickets, and sleeps on the gen under which the line was read,
                until the bucket due last is due, the lease ends, or a second is over; then looks again without drawing
              5 leaves the place
   The agent: changes the line by writing the copy that does not hold and then flipping gen; gives back the tickets of
   the dead by moving n0, after noting in back[] that it did.

   Two interleavings that the order of steps is for:
     caller reads gen 4, line        agent writes line[1], gen := 5, wakes nobody (yet)
     caller sleeps on gen = 4        the kernel sees 5: returns at once, and the new line is read.  Were gen read after
                                     the line, the caller would sleep on 5 with the old due time.
     agent: back[p] := seq           killed here: the ticket is lost, once; the other way round a restarted agent
     agent: n0 += cost               would give it back twice. */
#include "board/limits.h"

#include "board/futex.h"

/* Tests stop and kill threads at these points (tests/c/tickets_test.c). */
#ifndef PENSTOCK_POINT
#define PENSTOCK_POINT(name) ((void)0)
#endif
#ifndef PENSTOCK_CLOCK
#define PENSTOCK_CLOCK() clock_ns()
static uint64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
#endif

enum {
  LOOKS = 4,          /* at a line that changes while it is read */
  SWAPS = 16,         /* tries to forgive and draw */
  LARGE_BURST_BITS = 20,
  PLACES_NEAR = 64,   /* waiting places at the beginning, in which few threads stay together: agents read less then */
  TRIES_NEAR = 16,
  TRIES = 80,         /* waiting places looked at in all */
  ROUNDS_MAX = 1 << 24, /* of a wait: a second each at most */
};
static const uint64_t LOOK_AGAIN_NS = 1000000000;
static const uint64_t NEVER = UINT64_MAX;
static const unsigned __int128 ONE = 1;

#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define STORE(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELAXED)

/* ---- the line ---- */

static uint64_t grown(uint64_t ns, uint64_t rate) {
  return (uint64_t)((unsigned __int128)ns * rate >> PENSTOCK_RATE_SHIFT);
}

static bool lease_over(const struct penstock_line *line, uint64_t now_ns) {
  return now_ns > line->until_ns;
}

uint64_t penstock_line_units(const struct penstock_line *line, uint64_t now_ns) {
  uint64_t elapsed = now_ns > line->t0_ns ? now_ns - line->t0_ns : 0;
  if (line->on_lost != PENSTOCK_LOST_RATE || !lease_over(line, now_ns))
    return line->n0 + grown(elapsed, line->rate);
  uint64_t held = line->until_ns > line->t0_ns ? line->until_ns - line->t0_ns : 0;
  return line->n0 + grown(held, line->rate) + grown(elapsed - held, line->lost_rate);
}

/* When so many units more are due: rounded up, so that the line has reached them then. */
static uint64_t time_for(uint64_t units, uint64_t rate) {
  unsigned __int128 scaled = (unsigned __int128)units << PENSTOCK_RATE_SHIFT;
  unsigned __int128 ns = (scaled + rate - 1) / rate;
  return ns > (ONE << 62) ? (uint64_t)1 << 62 : (uint64_t)ns;
}

uint64_t penstock_line_due_ns(const struct penstock_line *line, uint64_t end) {
  if ((int64_t)(end - line->n0) <= 0)
    return 0;
  uint64_t due = line->rate ? line->t0_ns + time_for(end - line->n0, line->rate) : NEVER;
  if (line->on_lost != PENSTOCK_LOST_RATE || due <= line->until_ns)
    return due;
  uint64_t at_end = penstock_line_units(line, line->until_ns); /* then the other rate goes on */
  if ((int64_t)(end - at_end) <= 0)
    return line->until_ns;
  return line->lost_rate ? line->until_ns + time_for(end - at_end, line->lost_rate) : NEVER;
}

/* Word by word, each load an acquire and each store a release: whoever has read one word of a line that is being written
   finds the gen moved when it looks again. */
static void copy_line(struct penstock_line *to, const struct penstock_line *from) {
#define COPY(field) __atomic_store_n(&to->field, __atomic_load_n(&from->field, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE)
  COPY(t0_ns);
  COPY(n0);
  COPY(rate);
  COPY(burst);
  COPY(most);
  COPY(until_ns);
  COPY(lost_rate);
  COPY(on_lost);
  COPY(open);
#undef COPY
}

/* The line that holds, and the gen under which it was read.  False: it changed at every look. */
static bool look(const struct penstock_bucket *b, uint32_t *ret_gen, struct penstock_line *ret) {
  for (int i = 0; i < LOOKS; i++) {
    uint32_t gen = __atomic_load_n(&b->gen, __ATOMIC_ACQUIRE);
    const struct penstock_line *line = &b->line[gen & 1];
    copy_line(ret, line);
    PENSTOCK_POINT("look");
    if (LOAD(b->gen) == gen) {
      *ret_gen = gen;
      return true;
    }
  }
  return false;
}

/* ---- drawing ---- */

/* One bucket on a caller's way. */
struct draw {
  const struct penstock_bucket *bucket;
  uint64_t *issued;
  struct penstock_demand *demand;
  struct penstock_line line;
  uint32_t gen;
  uint32_t number;
  bool shadow;
  bool wait; /* where it is not due */
  uint64_t cost;
  uint64_t end;
};

static bool in_window(const struct penstock_line *line, uint64_t issued, uint64_t units) {
  return issued - (units - line->burst) <= line->burst + line->most;
}

/* How much idle time counts when it is forgiven: of a large burst a quarter less, so that the next calls need only add. */
static uint64_t credit(const struct penstock_line *line) {
  return line->burst >> LARGE_BURST_BITS ? line->burst - line->burst / 4 : line->burst;
}

static void add(uint64_t *sum, uint64_t n) { __atomic_fetch_add(sum, n, __ATOMIC_RELAXED); }

static __attribute__((noinline)) bool forgive(struct draw *d, uint64_t issued, uint64_t units) {
  for (int i = 0; i < SWAPS && !in_window(&d->line, issued, units); i++) {
    bool behind = (int64_t)(issued - units) < 0;
    uint64_t base = behind ? units - credit(&d->line) : units;
    PENSTOCK_POINT("swap");
    if (__atomic_compare_exchange_n(d->issued, &issued, base + d->cost, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      add(&d->demand->forgiven, base - issued);
      d->end = base + d->cost;
      return true;
    }
  }
  return false;
}

/* The end of the units drawn at a time when `units` were due. */
static uint64_t draw(struct draw *d, uint64_t units) {
  uint64_t issued = LOAD(*d->issued);
  if (__builtin_expect(!in_window(&d->line, issued, units), 0) && forgive(d, issued, units))
    return d->end;
  PENSTOCK_POINT("add");
  return __atomic_add_fetch(d->issued, d->cost, __ATOMIC_RELAXED);
}

static bool open_now(const struct penstock_line *line, uint64_t now_ns) {
  return line->open || (line->on_lost == PENSTOCK_LOST_OPEN && lease_over(line, now_ns));
}

static bool due(const struct draw *d, uint64_t now_ns) {
  return open_now(&d->line, now_ns) || (int64_t)(d->end - penstock_line_units(&d->line, now_ns)) <= 0;
}

/* Whether this bucket is nothing to wait for now. */
static bool passes(const struct draw *d, uint64_t now_ns) { return !d->wait || d->shadow || due(d, now_ns); }

/* A ticket from a word that somebody else made wild between our look and our addition. */
static bool is_wild(const struct draw *d, uint64_t units) {
  return (int64_t)(d->end - d->cost - units) > (int64_t)(d->line.most + d->line.burst);
}

/* While nothing is limited nothing is owed later; and who does not wait must not pile up a debt without an end. */
static bool goes_undrawn(const struct draw *d, uint64_t units, uint64_t now_ns) {
  if (open_now(&d->line, now_ns))
    return true;
  return !(d->wait && !d->shadow) && (int64_t)(LOAD(*d->issued) - units) > (int64_t)(d->line.most / 2);
}

/* Draws from all; false: a word was wild, draw once more.  *ret_late: some ticket is not due yet. */
static bool draw_all(struct draw *draws, unsigned count, uint64_t now_ns, bool *ret_late) {
  bool good = true;
  *ret_late = false;
  for (unsigned i = 0; i < count; i++) {
    struct draw *d = &draws[i];
    uint64_t units = penstock_line_units(&d->line, now_ns);
    if (__builtin_expect(goes_undrawn(d, units, now_ns), 0)) {
      add(&d->demand->undrawn, d->cost);
      d->end = units;
      continue;
    }
    d->end = draw(d, units);
    if (__builtin_expect((int64_t)(d->end - units) > 0, 0))
      *ret_late = true;
    good = good && !is_wild(d, units);
  }
  return good;
}

/* ---- waiting ---- */

/* The i-th place where a thread looks. */
static uint32_t place_of(uint32_t thread, uint32_t i) {
  uint32_t from = thread * 2654435761u >> 8;
  return i < TRIES_NEAR ? (from + i) % PLACES_NEAR : (from + i) % PENSTOCK_WAITS_MAX;
}

static void note_high(struct penstock_limits_usage *u, uint32_t place) {
  uint32_t high = LOAD(u->wait_high);
  for (int i = 0; i < SWAPS && high <= place; i++)
    if (__atomic_compare_exchange_n(&u->wait_high, &high, place + 1, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
      return;
}

/* A place to publish the tickets in; NULL: none was free near where this thread looks.  One that it still holds was left
   by a longjmp out of a signal handler. */
static struct penstock_wait *take_place(const struct penstock_limits *l, uint32_t thread, uint32_t *ret_seq) {
  for (uint32_t i = 0; i < TRIES; i++) {
    uint32_t place = place_of(thread, i);
    struct penstock_wait *w = &l->usage->wait[place];
    uint64_t holder = LOAD(w->holder);
    uint32_t seq = (uint32_t)(holder >> 32);
    if ((seq & 1) && (uint32_t)holder != thread && seq != __atomic_load_n(&l->control->back[place], __ATOMIC_ACQUIRE))
      continue;
    uint32_t mine = (seq | 1) + (seq & 1 ? 2 : 0);
    PENSTOCK_POINT("place");
    if (__atomic_compare_exchange_n(&w->holder, &holder, (uint64_t)mine << 32 | thread, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED)) {
      note_high(l->usage, place);
      *ret_seq = mine;
      return w;
    }
  }
  return NULL;
}

static void publish(struct penstock_wait *w, uint32_t seq, uint32_t space, const struct draw *draws, unsigned count,
                    uint64_t start_ns) {
  for (unsigned i = 0; i < count; i++) {
    STORE(w->bucket[i], (uint8_t)draws[i].number);
    STORE(w->ticket[i].end, draws[i].end);
    STORE(w->ticket[i].cost, draws[i].cost);
  }
  STORE(w->count, count);
  STORE(w->start_ns, start_ns);
  STORE(w->seen_ns, start_ns);
  STORE(w->space, space);
  PENSTOCK_POINT("publish");
  __atomic_store_n(&w->published, seq, __ATOMIC_RELEASE);
}

/* Only a place that is still ours: a fork in a signal handler leaves two who think so. */
static void leave(struct penstock_wait *w, uint32_t seq, uint32_t thread) {
  uint64_t mine = (uint64_t)seq << 32 | thread;
  PENSTOCK_POINT("leave");
  __atomic_compare_exchange_n(&w->holder, &mine, (uint64_t)(seq + 1) << 32, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* The bucket due last; ret_until: when to look again. */
static const struct draw *latest(const struct draw *draws, unsigned count, uint64_t now_ns, uint64_t *ret_until) {
  const struct draw *last = NULL;
  uint64_t until = 0;
  for (unsigned i = 0; i < count; i++) {
    const struct draw *d = &draws[i];
    if (passes(d, now_ns))
      continue;
    uint64_t at = penstock_line_due_ns(&d->line, d->end);
    if (d->line.on_lost != PENSTOCK_LOST_HOLD && d->line.until_ns >= now_ns && at > d->line.until_ns)
      at = d->line.until_ns + 1; /* what holds after the lease is looked up then */
    if (!last || at > until) {
      last = d;
      until = at;
    }
  }
  *ret_until = until < now_ns + LOOK_AGAIN_NS ? until : now_ns + LOOK_AGAIN_NS;
  return last;
}

static bool past_ceiling(const struct draw *d, uint64_t start_ns, uint64_t now_ns) {
  uint64_t ceiling = LOAD(d->bucket->ceiling_ns);
  return ceiling && now_ns - start_ns >= ceiling;
}

/* Sleeps until all tickets are due. */
static void wait_for(struct draw *draws, unsigned count, struct penstock_wait *w, uint64_t start_ns,
                     struct penstock_pass *ret) {
  uint64_t now_ns = start_ns;
  for (int round = 0; round < ROUNDS_MAX; round++) {
    uint64_t until;
    const struct draw *d = latest(draws, count, now_ns, &until);
    if (!d)
      break;
    ret->bucket = d->number;
    if (past_ceiling(d, start_ns, now_ns)) {
      ret->ceiling = true;
      break;
    }
    uint64_t ceiling = LOAD(d->bucket->ceiling_ns);
    if (ceiling && until > start_ns + ceiling)
      until = start_ns + ceiling;
    PENSTOCK_POINT("sleep");
    penstock_futex_wait(&d->bucket->gen, d->gen, until);
    now_ns = PENSTOCK_CLOCK();
    if (w)
      STORE(w->seen_ns, now_ns);
    for (unsigned i = 0; i < count; i++)
      if (!look(draws[i].bucket, &draws[i].gen, &draws[i].line))
        ret->torn = true;
      else
        draws[i].shadow = LOAD(draws[i].bucket->shadow);
    if (ret->torn)
      break;
  }
  ret->waited_ns = now_ns - start_ns;
}

/* Who would have waited, were the bucket not in shadow. */
static void note_late(const struct draw *d, uint64_t now_ns, struct penstock_pass *ret) {
  if (!d->shadow || due(d, now_ns))
    return;
  uint64_t at = penstock_line_due_ns(&d->line, d->end), late = at > now_ns && at != NEVER ? at - now_ns : 0;
  ret->late |= (uint64_t)1 << d->number;
  ret->late_ns = late > ret->late_ns ? late : ret->late_ns;
}

static void wait_in_a_place(const struct penstock_limits *l, struct draw *draws, unsigned count, uint64_t start_ns,
                            struct penstock_pass *ret) {
  uint32_t thread = l->thread(), seq = 0;
  struct penstock_wait *w = take_place(l, thread, &seq);
  ret->unplaced = !w;
  if (w)
    publish(w, seq, l->space, draws, count, start_ns);
  wait_for(draws, count, w, start_ns, ret);
  if (w)
    leave(w, seq, thread);
}

/* Some ticket is not due: waits for those that are to be waited for. */
static __attribute__((noinline)) void go_late(const struct penstock_limits *l, struct draw *draws, unsigned count,
                                              uint64_t now_ns, struct penstock_pass *ret) {
  bool all = true;
  for (unsigned i = 0; i < count; i++) {
    note_late(&draws[i], now_ns, ret);
    all = all && passes(&draws[i], now_ns);
  }
  if (!all)
    wait_in_a_place(l, draws, count, now_ns, ret);
}

void penstock_limits_pass(const struct penstock_limits *l, const struct penstock_ask *asks, unsigned count, uint64_t now_ns,
                          struct penstock_pass *ret) {
  struct draw draws[PENSTOCK_WAIT_TICKETS];
  unsigned n = 0;
  *ret = (struct penstock_pass){0};
  for (unsigned i = 0; i < count && n < PENSTOCK_WAIT_TICKETS; i++) {
    if (!asks[i].cost || asks[i].bucket >= PENSTOCK_BUCKETS_MAX)
      continue;
    struct draw *d = &draws[n];
    d->bucket = &l->control->bucket[asks[i].bucket];
    d->issued = &l->usage->word[asks[i].bucket].issued;
    d->demand = penstock_demand_of(l, asks[i].bucket);
    d->number = asks[i].bucket;
    d->wait = asks[i].wait;
    d->cost = asks[i].cost;
    d->shadow = LOAD(d->bucket->shadow);
    if (!look(d->bucket, &d->gen, &d->line)) {
      ret->torn = true;
      return;
    }
    if (!d->line.t0_ns)
      continue; /* a bucket that nobody ever began */
    ret->lost = ret->lost || lease_over(&d->line, now_ns);
    n++;
  }
  bool late;
  if (!draw_all(draws, n, now_ns, &late))
    draw_all(draws, n, now_ns, &late);
  PENSTOCK_POINT("drawn");
  if (__builtin_expect(late, 0))
    go_late(l, draws, n, now_ns, ret);
}

void penstock_limits_return(const struct penstock_limits *l, uint32_t bucket, uint64_t units) {
  if (bucket < PENSTOCK_BUCKETS_MAX)
    __atomic_fetch_sub(&l->usage->word[bucket].issued, units, __ATOMIC_RELAXED);
}

/* ---- the agent ---- */

/* Units a nanosecond, times 2^44, from units a second times 1024. */
static uint64_t rate_of(uint64_t per_s_1024) {
  unsigned __int128 scaled = ((unsigned __int128)per_s_1024 << PENSTOCK_RATE_SHIFT) + 512000000000u;
  return (uint64_t)(scaled / 1024 / 1000000000u);
}

static void fill(struct penstock_line *line, const struct penstock_want *want, uint64_t now_ns) {
  line->rate = rate_of(want->rate_per_s_1024);
  line->burst = want->burst;
  line->most = want->most ? want->most : 4096 * (uint64_t)PENSTOCK_CALL_UNITS + want->rate_per_s_1024 / 1024 * 10;
  line->until_ns = now_ns + want->lease_ns < now_ns ? NEVER : now_ns + want->lease_ns;
  line->lost_rate = rate_of(want->lost_per_s_1024);
  line->on_lost = want->on_lost;
  line->open = want->open;
}

/* Writes the copy that does not hold, then makes it hold. */
static void flip(struct penstock_bucket *b, const struct penstock_line *line) {
  uint32_t gen = LOAD(b->gen);
  struct penstock_line *other = &b->line[(gen + 1) & 1];
  copy_line(other, line);
  PENSTOCK_POINT("staged");
  __atomic_store_n(&b->gen, gen + 1, __ATOMIC_RELEASE);
  PENSTOCK_POINT("flipped");
}

/* What stays of a former bucket's debt and credit after so many units: nothing, for its `issued` is out of the window. */
static const uint64_t FAR_UNITS = (uint64_t)1 << 60;

static void set_manners(struct penstock_bucket *b, const struct penstock_want *want) {
  STORE(b->shadow, want->shadow);
  STORE(b->ceiling_ns, want->ceiling_ns);
}

void penstock_bucket_start(struct penstock_bucket *b, const struct penstock_want *want, uint64_t now_ns) {
  const struct penstock_line *old = &b->line[LOAD(b->gen) & 1];
  struct penstock_line line = {.t0_ns = now_ns, .n0 = want->burst};
  if (old->t0_ns)
    line.n0 += penstock_line_units(old, now_ns) + FAR_UNITS;
  fill(&line, want, now_ns);
  set_manners(b, want);
  flip(b, &line);
  penstock_futex_wake_all(&b->gen);
}

/* A line that says the same as the old one until now. */
static void base_anew(struct penstock_line *line, const struct penstock_line *old, uint64_t now_ns, uint64_t *carry) {
  uint64_t elapsed = now_ns > old->t0_ns ? now_ns - old->t0_ns : 0;
  unsigned __int128 exact = (unsigned __int128)elapsed * old->rate + *carry;
  bool lost = old->on_lost == PENSTOCK_LOST_RATE && lease_over(old, now_ns);
  line->t0_ns = now_ns;
  line->n0 = lost ? penstock_line_units(old, now_ns) : old->n0 + (uint64_t)(exact >> PENSTOCK_RATE_SHIFT);
  *carry = lost ? 0 : (uint64_t)(exact & ((ONE << PENSTOCK_RATE_SHIFT) - 1));
}

/* Whether somebody may go on earlier by a new line than by the old one. */
static bool is_earlier(const struct penstock_line *line, const struct penstock_line *old, uint64_t now_ns) {
  return line->rate > old->rate || line->open || line->until_ns < old->until_ns || line->lost_rate > old->lost_rate ||
         line->on_lost != old->on_lost || (old->on_lost == PENSTOCK_LOST_RATE && lease_over(old, now_ns));
}

void penstock_bucket_change(struct penstock_bucket *b, const struct penstock_want *want, uint64_t now_ns, uint64_t *carry) {
  const struct penstock_line *old = &b->line[LOAD(b->gen) & 1];
  struct penstock_line line = *old;
  fill(&line, want, now_ns);
  bool same_line = line.rate == old->rate && line.open == old->open && line.lost_rate == old->lost_rate;
  if (!same_line || line.on_lost != old->on_lost || lease_over(old, now_ns))
    base_anew(&line, old, now_ns, carry);
  uint64_t ceiling = LOAD(b->ceiling_ns);
  bool earlier = is_earlier(&line, old, now_ns) || (want->shadow && !LOAD(b->shadow)) ||
                 (want->ceiling_ns && (!ceiling || want->ceiling_ns < ceiling));
  set_manners(b, want);
  flip(b, &line);
  if (earlier)
    penstock_futex_wake_all(&b->gen);
}

void penstock_bucket_renew(struct penstock_bucket *b, uint64_t until_ns, uint64_t now_ns) {
  const struct penstock_line *old = &b->line[LOAD(b->gen) & 1];
  struct penstock_line line = *old;
  uint64_t carry = 0;
  if (lease_over(old, now_ns))
    base_anew(&line, old, now_ns, &carry);
  line.until_ns = until_ns;
  bool earlier = is_earlier(&line, old, now_ns);
  flip(b, &line);
  if (earlier)
    penstock_futex_wake_all(&b->gen);
}

/* Moves n0 by what a dead waiter drew, as far as it is still owed, and wakes. */
static void give(struct penstock_bucket *b, uint64_t issued, uint64_t cost, uint64_t now_ns) {
  struct penstock_line line = b->line[LOAD(b->gen) & 1];
  int64_t owed = (int64_t)(issued - penstock_line_units(&line, now_ns));
  if (owed <= 0 || !cost)
    return;
  uint64_t back = cost < (uint64_t)owed ? cost : (uint64_t)owed;
  line.n0 += back;
  STORE(b->given, b->given + back);
  flip(b, &line);
  penstock_futex_wake_all(&b->gen);
}

/* One dead waiter's, if it still is one when its tickets have been read. */
static unsigned give_back_of(struct penstock_limits_control *c, const struct penstock_limits_reader *from, uint32_t place,
                             uint64_t now_ns) {
  size_t offset = offsetof(struct penstock_limits_usage, wait) + place * sizeof(struct penstock_wait);
  struct penstock_wait w;
  uint64_t again;
  if (!from->read(from->arg, offset, &w, sizeof w))
    return 0;
  uint32_t seq = (uint32_t)(w.holder >> 32);
  if (!(seq & 1) || seq == c->back[place] || !from->dead(from->arg, &w))
    return 0;
  uint64_t holder = w.holder; /* `published` once more now that nobody writes it, then the tickets */
  if (!from->read(from->arg, offset, &w, sizeof w) || !from->read(from->arg, offset, &again, sizeof again) ||
      again != holder)
    return 0;
  __atomic_store_n(&c->back[place], seq, __ATOMIC_RELEASE); /* first: an agent killed here loses, never doubles */
  PENSTOCK_POINT("noted");
  /* Else the tickets are an earlier holder's. */
  for (uint32_t i = 0; w.published == seq && i < w.count && i < PENSTOCK_WAIT_TICKETS; i++) {
    uint64_t issued;
    if (w.bucket[i] < c->count &&
        from->read(from->arg, offsetof(struct penstock_limits_usage, word) + w.bucket[i] * sizeof(struct penstock_bucket_word),
                   &issued, sizeof issued))
      give(&c->bucket[w.bucket[i]], issued, w.ticket[i].cost, now_ns);
  }
  return 1;
}

enum { AT_ONCE = 64 };

unsigned penstock_limits_give_back(struct penstock_limits_control *c, const struct penstock_limits_reader *from,
                                   uint64_t now_ns) {
  struct penstock_wait some[AT_ONCE];
  unsigned count = 0;
  uint32_t high = 0;
  if (!from->read(from->arg, offsetof(struct penstock_limits_usage, wait_high), &high, sizeof high))
    return 0;
  for (uint32_t place = 0; place < PENSTOCK_WAITS_MAX && place < high; place += AT_ONCE) {
    if (!from->read(from->arg, offsetof(struct penstock_limits_usage, wait) + place * sizeof *some, some, sizeof some))
      break;
    for (uint32_t i = 0; i < AT_ONCE; i++)
      if (some[i].holder >> 32 & 1 && some[i].holder >> 32 != c->back[place + i])
        count += give_back_of(c, from, place + i, now_ns);
  }
  return count;
}
