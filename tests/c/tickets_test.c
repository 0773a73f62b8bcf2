// SPDX-License-Identifier: Apache-2.0
// seconds: 120
/* The ticket protocol on the real code: pure arithmetic first, then threads, then processes that are killed or stopped
   at named points of the code. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void at_point(const char *name);
static uint64_t test_clock(void);
#define PENSTOCK_POINT(name) at_point(name)
#define PENSTOCK_CLOCK() test_clock()
#include "board/futex.h"
static int wakes;
#define penstock_futex_wake_all(word) (wakes++, penstock_futex_wake_all(word))
#include "board/tickets.c"
#include "check.h"

enum { MS = 1000000, S = 1000000000 };
#define CALL ((uint64_t)PENSTOCK_CALL_UNITS)

struct shared {
  struct penstock_limits_control control;
  struct penstock_limits_usage usage;
  _Atomic long passed;
  _Atomic uint64_t woke_ns;
  _Atomic int reached;  /* a process came to the point where it is to be stopped */
};
static struct shared *shared;
static struct penstock_limits limits;

/* In this process: what happens at which point, and how often it is passed before. */
static const char *point;
static int passes_before;
static int deed; /* a signal for ourselves */

static void at_point(const char *name) {
  if (!point || strcmp(name, point) || passes_before-- > 0)
    return;
  point = NULL;
  shared->reached++;
  kill(getpid(), deed);
}

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * S + (uint64_t)t.tv_nsec;
}
static uint64_t fake_ns; /* 0: the real clock */
static uint64_t test_clock(void) {
  return fake_ns ? fake_ns : now();
}

static struct penstock_want want_of(double per_s, double burst_s) {
  return (struct penstock_want){.rate_per_s_1024 = (uint64_t)(per_s * 1024 * 1024), .lease_ns = 3600ull * S,
                                .burst = (uint64_t)(per_s * burst_s * 1024)};
}

static uint32_t thread_id(void) { return (uint32_t)gettid(); }

static void fresh(double per_s, double burst_s) {
  memset(shared, 0, sizeof *shared);
  shared->control.count = PENSTOCK_BUCKETS_MAX;
  struct penstock_want want = want_of(per_s, burst_s);
  for (int i = 0; i < PENSTOCK_BUCKETS_MAX; i++)
    penstock_bucket_start(&shared->control.bucket[i], &want, test_clock());
  limits = (struct penstock_limits){&shared->control, &shared->usage, thread_id, 0};
}

static struct penstock_pass pass_units(uint64_t cost, bool wait) {
  struct penstock_ask ask = {0, wait, cost};
  struct penstock_pass got;
  penstock_limits_pass(&limits, &ask, 1, test_clock(), &got);
  return got;
}

/* How many calls pass at a frozen time. */
static long at_once(void) {
  long n = 0;
  while (n < 1000000) {
    struct draw d = {.bucket = &limits.control->bucket[0], .issued = &limits.usage->word[0].issued,
                     .demand = penstock_demand_of(&limits, 0), .cost = CALL};
    look(d.bucket, &d.gen, &d.line);
    d.end = draw(&d, penstock_line_units(&d.line, fake_ns));
    if (!due(&d, fake_ns))
      break;
    n++;
  }
  return n;
}

static void idle_time_counts_up_to_the_burst(void) {
  fake_ns = 1000ull * S;
  fresh(1000, 0.1);
  CHECK_EQ(100, at_once());
  fake_ns += 10 * MS;
  CHECK(at_once() <= 10);
  fake_ns += 3600ull * S; /* an hour of nothing: still one burst (and what the last refused ones drew) */
  CHECK_EQ(100, at_once());
  fake_ns = 0;
}

static void long_idle_and_high_rates_do_not_overflow(void) {
  fake_ns = 1000ull * S;
  fresh(12e6, 0.1);
  fake_ns += 30ull * 86400 * S;
  CHECK_EQ(900000, at_once()); /* of a large burst a quarter less is forgiven than the 1.2 million */
  fake_ns = 0;
}

static void slow_rates_are_exact(void) {
  double rates[] = {0.2, 1, 37, 1e6, 12e6};
  for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
    struct penstock_want want = want_of(rates[i], 0);
    struct penstock_bucket b = {0};
    penstock_bucket_start(&b, &want, 5ull * S);
    const struct penstock_line *line = &b.line[b.gen & 1];
    uint64_t units = penstock_line_units(line, 5ull * S + 100000ull * S) - line->n0;
    double calls = (double)units / 1024;
    CHECK(calls > rates[i] * 1e5 * 0.9999 && calls < rates[i] * 1e5 * 1.0001);
  }
}

static void due_is_when_the_line_reaches_it(void) {
  struct penstock_want want = want_of(37, 0);
  struct penstock_bucket b = {0};
  penstock_bucket_start(&b, &want, 7ull * S);
  const struct penstock_line *line = &b.line[b.gen & 1];
  for (uint64_t end = 1; end < 4000000; end = end * 3 + 1) {
    uint64_t due_ns = penstock_line_due_ns(line, line->n0 + end);
    CHECK(penstock_line_units(line, due_ns) - line->n0 >= end);
    CHECK(penstock_line_units(line, due_ns - 30) - line->n0 < end);
  }
}

static void changes_of_rate_lose_no_fraction(void) {
  struct penstock_want want = want_of(0.2, 0), other = want_of(0.2, 0);
  other.rate_per_s_1024 += 1;
  struct penstock_bucket b = {0};
  uint64_t t = 9ull * S, carry = 0;
  penstock_bucket_start(&b, &want, t);
  uint64_t first = b.line[b.gen & 1].n0;
  for (int i = 1; i <= 100000; i++) /* ten times a second for three hours */
    penstock_bucket_change(&b, i & 1 ? &other : &want, t + (uint64_t)i * 100 * MS, &carry);
  double calls = (double)(b.line[b.gen & 1].n0 - first) / 1024;
  CHECK(calls > 2000 * 0.9995 && calls < 2000 * 1.0005);
}

static void a_wild_word_delays_nobody_for_ever(void) {
  int64_t wild[] = {1ll << 62, -(1ll << 62), INT64_MAX, INT64_MIN, 1ll << 40};
  for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
    fresh(1000, 0.1);
    shared->usage.word[0].issued += (uint64_t)wild[i];
    struct penstock_pass got = pass_units(CALL, true);
    CHECK(got.waited_ns < 1 * S);
  }
}

static void lost_lease_holds_opens_or_slows(void) {
  struct penstock_want want = want_of(10, 0);
  want.lease_ns = 1 * S;
  struct penstock_bucket b = {0};
  uint64_t t = 50ull * S;
  for (uint32_t kind = PENSTOCK_LOST_HOLD; kind <= PENSTOCK_LOST_RATE; kind++) {
    want.on_lost = kind;
    want.lost_per_s_1024 = 100ull * 1024 * 1024;
    penstock_bucket_start(&b, &want, t);
    const struct penstock_line *line = &b.line[b.gen & 1];
    CHECK_EQ(kind == PENSTOCK_LOST_OPEN, open_now(line, t + 2ull * S));
    CHECK(!open_now(line, t + 1 * S));
    uint64_t calls = (penstock_line_units(line, t + 2ull * S) - line->n0 + 512) / 1024;
    CHECK_EQ(kind == PENSTOCK_LOST_RATE ? 110 : 20, calls);
    uint64_t due_ns = penstock_line_due_ns(line, line->n0 + 60 * CALL);
    CHECK(due_ns / MS == (kind == PENSTOCK_LOST_RATE ? 51500 : 56000) || (due_ns - 1) / MS == 51499 || due_ns / MS == 55999);
  }
}

/* Who drew a hundred seconds ahead is gone; the next limit of this place owes nothing, and has saved up its burst. */
static void a_bucket_begins_without_what_was_here_before(void) {
  fake_ns = 1000ull * S;
  fresh(1000, 0.1);
  for (int life = 0; life < 40; life++) {
    struct penstock_want open = {.open = true, .lease_ns = UINT64_MAX}, want = want_of(10, 1);
    uint64_t carry = 0;
    shared->usage.word[0].issued += 1000 * CALL;
    penstock_bucket_change(&shared->control.bucket[0], &open, fake_ns, &carry);
    fake_ns += 50 * MS;
    penstock_bucket_start(&shared->control.bucket[0], &want, fake_ns);
    CHECK_EQ(10, at_once());
  }
  fake_ns = 0;
}

/* What makes a ticket due earlier wakes; all else lets sleepers sleep. */
static void whatever_lets_somebody_go_earlier_wakes(void) {
  struct penstock_want want = want_of(10, 0);
  want.on_lost = PENSTOCK_LOST_RATE;
  want.lease_ns = 1 * S;
  want.ceiling_ns = 5ull * S;
  struct {
    const char *what;
    uint64_t after_ns;
    struct penstock_want now;
    int woken;
  } cases[] = {
    {"the same", 0, want, 0},       {"a lease that is not over", S / 2, want, 0}, {"a lease that comes back", 2ull * S, want, 1},
    {"a raise", 0, want, 1},        {"less", 0, want, 0},                          {"shadow", 0, want, 1},
    {"a lower ceiling", 0, want, 1}, {"a higher ceiling", 0, want, 0},             {"no ceiling", 0, want, 0},
  };
  cases[3].now.rate_per_s_1024 *= 2;
  cases[4].now.rate_per_s_1024 /= 2;
  cases[5].now.shadow = true;
  cases[6].now.ceiling_ns = 1 * S;
  cases[7].now.ceiling_ns = 6ull * S;
  cases[8].now.ceiling_ns = 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct penstock_bucket b = {0};
    uint64_t t = 100ull * S, carry = 0;
    penstock_bucket_start(&b, &want, t);
    wakes = 0;
    penstock_bucket_change(&b, &cases[i].now, t + cases[i].after_ns, &carry);
    CHECK_EQ(cases[i].woken, wakes);
  }
}

/* A lease that was over and is renewed: the time between counts at the rate that held then. */
static void a_renewed_lease_goes_on_from_what_was_due(void) {
  struct penstock_want want = want_of(10, 0);
  want.on_lost = PENSTOCK_LOST_RATE;
  want.lost_per_s_1024 = 1024 * 1024;
  want.lease_ns = 1 * S;
  struct penstock_bucket b = {0};
  uint64_t t = 100ull * S;
  penstock_bucket_start(&b, &want, t);
  uint64_t first = b.line[b.gen & 1].n0;
  wakes = 0;
  penstock_bucket_renew(&b, t + 2ull * S, t + S / 2);
  CHECK_EQ(0, wakes);
  penstock_bucket_renew(&b, t + 20ull * S, t + 12ull * S);
  CHECK_EQ(1, wakes);
  uint64_t calls = (penstock_line_units(&b.line[b.gen & 1], t + 13ull * S) - first + 512) / 1024;
  CHECK_EQ(20 + 10 + 10, calls);
}

static void what_does_not_wait_piles_up_no_endless_debt(void) {
  fresh(10, 0.1);
  for (int i = 0; i < 100000; i++)
    CHECK_EQ(0, pass_units(CALL, false).waited_ns);
  const struct penstock_line *line = &shared->control.bucket[0].line[shared->control.bucket[0].gen & 1];
  CHECK((int64_t)(shared->usage.word[0].issued - penstock_line_units(line, now())) <= (int64_t)(line->most / 2 + 2 * CALL));
}

/* ---- threads ---- */

static _Atomic bool stop;
static void *passer(void *arg) {
  (void)arg;
  while (!stop) {
    pass_units(CALL, true);
    shared->passed++;
  }
  return NULL;
}

static void together(int threads, double seconds, void (*meanwhile)(void)) {
  pthread_t id[64];
  stop = false;
  for (int i = 0; i < threads; i++)
    CHECK(!pthread_create(&id[i], NULL, passer, NULL));
  uint64_t end = now() + (uint64_t)(seconds * S);
  if (meanwhile)
    meanwhile();
  while (now() < end)
    usleep(1000);
  stop = true;
  struct penstock_want want = {.open = true, .lease_ns = 3600ull * S};
  uint64_t carry = 0;
  penstock_bucket_change(&shared->control.bucket[0], &want, now(), &carry);
  for (int i = 0; i < threads; i++)
    pthread_join(id[i], NULL);
}

static void threads_together_stay_below_the_bound(void) {
  fresh(5000, 0.05);
  uint64_t began = now();
  long passed;
  pthread_t id[4];
  stop = false;
  for (int i = 0; i < 4; i++)
    CHECK(!pthread_create(&id[i], NULL, passer, NULL));
  usleep(300000);
  passed = shared->passed;
  double seconds = (double)(now() - began) / S; /* read after: the bound can only be larger */
  stop = true;
  for (int i = 0; i < 4; i++)
    pthread_join(id[i], NULL);
  CHECK(passed <= (long)(5000 * seconds) + 250 + 4 + 1);
  CHECK(passed > 100);
}

static void raise_it(void) {
  usleep(20000);
  struct penstock_want want = want_of(1e6, 0.1);
  uint64_t carry = 0;
  penstock_bucket_change(&shared->control.bucket[0], &want, now(), &carry);
}

static void a_raise_wakes_those_who_sleep_at_rate_zero(void) {
  fresh(0, 0);
  together(8, 0.1, raise_it);
  CHECK(shared->passed >= 8);
}

static void a_ceiling_ends_the_wait(void) {
  fresh(0, 0);
  shared->control.bucket[0].ceiling_ns = 10 * MS;
  struct penstock_pass got = pass_units(CALL, true);
  CHECK(got.ceiling);
  CHECK(got.waited_ns >= 10 * MS);
}

static void two_buckets_are_drawn_and_the_later_is_waited_for(void) {
  fresh(1e6, 0);
  struct penstock_want slow = want_of(100, 0);
  uint64_t carry = 0;
  penstock_bucket_change(&shared->control.bucket[3], &slow, now(), &carry);
  struct penstock_ask asks[] = {{0, true, CALL}, {3, true, CALL}, {4, true, 0}};
  struct penstock_pass got;
  for (int i = 0; i < 3; i++)
    penstock_limits_pass(&limits, asks, 3, test_clock(), &got);
  CHECK_EQ(3, got.bucket);
  CHECK(got.waited_ns > 0);
}

/* ---- processes that die ---- */

static bool read_shared(void *arg, size_t offset, void *into, size_t size) {
  (void)arg;
  memcpy(into, (const char *)&shared->usage + offset, size);
  return true;
}
static uint32_t dead_one;
static bool is_dead(void *arg, const struct penstock_wait *wait) {
  (void)arg;
  return (uint32_t)wait->holder == dead_one;
}
static const struct penstock_limits_reader reader = {read_shared, is_dead, NULL};

static pid_t at(const char *where, int before, int what) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (!pid) {
    point = where;
    passes_before = before;
    deed = what;
    pass_units(50 * CALL, true);
    _exit(0);
  }
  return pid;
}

static void ended(pid_t pid) {
  int status;
  CHECK_EQ(pid, waitpid(pid, &status, 0));
}

static void the_tickets_of_the_dead_come_back_once(void) {
  fresh(100, 0);
  pid_t pid = at("sleep", 0, SIGKILL); /* killed with 50 calls drawn and published: half a second of the rate */
  ended(pid);
  dead_one = (uint32_t)pid;
  uint64_t issued = shared->usage.word[0].issued;
  CHECK_EQ(1, penstock_limits_give_back(&shared->control, &reader, now()));
  CHECK_EQ(0, penstock_limits_give_back(&shared->control, &reader, now()));
  CHECK_EQ(issued, shared->usage.word[0].issued); /* the agent writes nothing there */
  CHECK(shared->control.bucket[0].given <= 50 * CALL);
  CHECK(shared->control.bucket[0].given >= 30 * CALL); /* less what became due before it was noticed */
  struct penstock_pass got = pass_units(CALL, true);
  CHECK(got.waited_ns < 400 * MS);
}

static void a_death_before_publishing_costs_one_ticket(void) {
  const char *points[] = {"drawn", "place", "publish"};
  for (size_t i = 0; i < 3; i++) {
    fresh(1000, 0);
    pid_t pid = at(points[i], 0, SIGKILL);
    ended(pid);
    dead_one = (uint32_t)pid;
    penstock_limits_give_back(&shared->control, &reader, now());
    CHECK_EQ(0, shared->control.bucket[0].given);
    pass_units(CALL, true); /* waits for at most the one ticket that was lost */
    CHECK_EQ(51 * CALL <= shared->usage.word[0].issued, 1);
  }
}

/* Killed anywhere while it gives back, the agent has given once or not at all; who comes after it never gives again, and
   those who sleep look by themselves. */
static void an_agent_that_dies_while_it_gives_back_never_doubles(void) {
  const char *points[] = {"noted", "staged", "flipped"};
  for (size_t i = 0; i < 3; i++) {
    fresh(50, 0);
    const struct penstock_bucket *b = &shared->control.bucket[0];
    pid_t dead = at("sleep", 0, SIGKILL);
    ended(dead);
    dead_one = (uint32_t)dead;
    uint32_t place = place_of(dead_one, 0);
    pid_t waiter = at("nowhere", 0, SIGKILL); /* sleeps behind the dead one's 50 calls */
    while (*(volatile uint64_t *)&shared->usage.word[0].issued < 100 * CALL)
      usleep(1000);
    uint64_t before = b->line[b->gen & 1].n0;
    pid_t agent = fork();
    if (!agent) {
      point = points[i];
      deed = SIGKILL;
      penstock_limits_give_back(&shared->control, &reader, now());
      _exit(0);
    }
    ended(agent);
    CHECK_EQ((uint32_t)(shared->usage.wait[place].holder >> 32), shared->control.back[place]);
    CHECK_EQ(0, penstock_limits_give_back(&shared->control, &reader, now()));
    uint64_t moved = b->line[b->gen & 1].n0 - before;
    CHECK(i < 2 ? moved == 0 : moved > 0 && moved <= 50 * CALL);
    ended(waiter); /* it went on: else the time of this test is over */
  }
}

static void a_place_of_the_dead_is_taken_again(void) {
  fresh(1000, 0);
  for (int i = 0; i < 3 * PENSTOCK_WAITS_MAX / 8; i++) {
    pid_t pid = at("sleep", 0, SIGKILL);
    ended(pid);
    dead_one = (uint32_t)pid;
    CHECK_EQ(1, penstock_limits_give_back(&shared->control, &reader, now()));
  }
}

static void a_stopped_waiter_holds_up_nobody(void) {
  const char *points[] = {"look", "swap", "add", "place", "publish", "sleep"};
  for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
    fresh(1000, 0);
    pid_t pid = at(points[i], 0, SIGSTOP);
    uint64_t end = now() + 5ull * S;
    while (!shared->reached && now() < end && waitpid(pid, NULL, WNOHANG) == 0)
      usleep(1000);
    struct penstock_pass got = pass_units(CALL, true); /* at most its 50 tickets are before us */
    CHECK(got.waited_ns < 2ull * S);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
  }
}

static void an_agent_that_dies_before_the_flip_leaves_the_old_line(void) {
  fresh(1000, 0.1);
  struct penstock_line before = shared->control.bucket[0].line[shared->control.bucket[0].gen & 1];
  pid_t pid = fork();
  if (!pid) {
    struct penstock_want want = want_of(1, 0);
    uint64_t carry = 0;
    point = "staged";
    deed = SIGKILL;
    penstock_bucket_change(&shared->control.bucket[0], &want, now(), &carry);
    _exit(0);
  }
  ended(pid);
  struct penstock_line after = shared->control.bucket[0].line[shared->control.bucket[0].gen & 1];
  CHECK_EQ(before.rate, after.rate);
  CHECK_EQ(0, pass_units(CALL, true).waited_ns);
}

static void an_agent_that_dies_before_waking_delays_by_a_second_at_most(void) {
  fresh(0, 0);
  pid_t waiter = fork();
  if (!waiter) {
    shared->reached++;
    pass_units(CALL, true);
    shared->passed++;
    _exit(0);
  }
  while (!shared->reached)
    usleep(1000);
  usleep(20000);
  pid_t agent = fork();
  if (!agent) {
    struct penstock_want want = want_of(1e6, 0.1);
    uint64_t carry = 0;
    point = "flipped";
    deed = SIGKILL;
    penstock_bucket_change(&shared->control.bucket[0], &want, now(), &carry);
    _exit(0);
  }
  ended(agent);
  ended(waiter);
  CHECK_EQ(1, shared->passed);
}

int main(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  idle_time_counts_up_to_the_burst();
  long_idle_and_high_rates_do_not_overflow();
  slow_rates_are_exact();
  due_is_when_the_line_reaches_it();
  changes_of_rate_lose_no_fraction();
  a_wild_word_delays_nobody_for_ever();
  lost_lease_holds_opens_or_slows();
  a_bucket_begins_without_what_was_here_before();
  whatever_lets_somebody_go_earlier_wakes();
  a_renewed_lease_goes_on_from_what_was_due();
  what_does_not_wait_piles_up_no_endless_debt();
  threads_together_stay_below_the_bound();
  a_raise_wakes_those_who_sleep_at_rate_zero();
  a_ceiling_ends_the_wait();
  two_buckets_are_drawn_and_the_later_is_waited_for();
  the_tickets_of_the_dead_come_back_once();
  a_death_before_publishing_costs_one_ticket();
  an_agent_that_dies_while_it_gives_back_never_doubles();
  a_place_of_the_dead_is_taken_again();
  a_stopped_waiter_holds_up_nobody();
  an_agent_that_dies_before_the_flip_leaves_the_old_line();
  an_agent_that_dies_before_waking_delays_by_a_second_at_most();
  return 0;
}
