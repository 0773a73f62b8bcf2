// SPDX-License-Identifier: Apache-2.0
// not under: tsan (it has one thread)
/* The service model against queueing theory, in virtual time: open and closed queues at the metadata server and at an
 * OST, the slowdown table, several stripes against one, more than one client. */
#include "model_drive.h"

/* A random number generator of our own, so that runs are equal everywhere. */
static uint64_t seed = 42;
static double uniform(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return ((double)(seed >> 11) + 0.5) * 0x1p-53;
}
static double exponential(double mean) {
  return -log(uniform()) * mean;
}

static void check_near(const char *what, double expected, double actual, double share) {
  if (fabs(actual - expected) <= share * expected)
    return;
  fprintf(stderr, "%s is %g, theory says %g\n", what, actual, expected);
  exit(1);
}

struct answer {
  struct model *m;
  uint64_t began;
  double *sum;
  long *count;
};
static void note(void *closure, int err) {
  struct answer *a = closure;
  CHECK_EQ(0, err);
  *a->sum += (double)(model_now(a->m) - a->began);
  ++*a->count;
}

/* Mean time in the system when calls come at random, `mean_ns` apart. */
static double open_queue(struct model *m, struct model_call call, double mean_ns, long calls) {
  double sum = 0, at = (double)model_now(m);
  long count = 0;
  for (long i = 0; i < calls; i++) {
    at += exponential(mean_ns);
    model_manual_run(m, (uint64_t)at, false);
    call.client = (uint32_t)(i % MODEL_MAX_CLIENTS);
    call.pid = 1;
    struct answer a = {m, model_now(m), &sum, &count};
    model_finish(m, &call, note, &a, sizeof a);
  }
  drive_wait(m, 1000);
  CHECK_EQ(calls, count);
  return sum / (double)calls;
}

static double erlang_c(int k, double load) {
  double term = 1, sum = 1;
  for (int i = 1; i < k; i++) {
    term *= load / i;
    sum += term;
  }
  double last = term * load / k * k / (k - load);
  return last / (sum + last);
}

static const char BARE[] = "net.latency=0\nmds.dir_lock=0\nmds.queue.knee=1000000\nmds.cost.getattr=1000000\n";
static struct model *bare(const char *more) {
  char settings[1000];
  snprintf(settings, sizeof settings, "%s%s", BARE, more);
  return drive_new(1, 4, settings);
}

/* One request at the MDS that no cache ever answers. */
static struct model_call getattr_call(void) {
  return (struct model_call){.op = MODEL_GETSTRIPE, .ino = 5};
}

static void test_md1(void) {
  static const double loads[] = {0.3, 0.6, 0.8};
  for (int i = 0; i < 3; i++) {
    struct model *m = bare("mds.threads=1\n");
    double s = 1e6, rho = loads[i];
    check_near("M/D/1", s + rho * s / (2 * (1 - rho)), open_queue(m, getattr_call(), s / rho, 100000), 0.05);
    model_free(m);
  }
}

static void test_mmk(void) {
  static const int threads[] = {1, 4, 16};
  for (int i = 0; i < 3; i++) {
    char more[100];
    int k = threads[i];
    snprintf(more, sizeof more, "mds.threads=%d\nmds.service=exponential\n", k);
    struct model *m = bare(more);
    double s = 1e6, load = 0.8 * k;
    check_near("M/M/k", s + erlang_c(k, load) * s / (k - load), open_queue(m, getattr_call(), s / load, 100000), 0.05);
    model_free(m);
  }
}

/* An OST where processes do not disturb each other is M/D/1 too. */
static void test_ost_md1(void) {
  struct model *m = drive_new(1, 1, "net.latency=0\noss.cost=0\nost.contention=1:1 1000:1000\nclient.max_rpcs_in_flight=4096\n");
  struct model_extent x = {0, 0, 0, 1 << 20};
  uint32_t ost = 0;
  struct model_call call = {.op = MODEL_READ, .ino = 7, .size = 1 << 20, .file_size = 1 << 30, .flags = 040000,
                            .extents = &x, .extent_count = 1, .osts = &ost, .ost_count = 1};
  double s = 200e3 + 1048576.0 / 100e6 * 1e9, rho = 0.6;
  check_near("M/D/1 at an OST", s + rho * s / (2 * (1 - rho)), open_queue(m, call, s / rho, 30000), 0.05);
  model_free(m);
}

/* ---- closed: N clients that think at random and ask again ---- */

struct clients {
  struct model *m;
  uint32_t count;
  double think;
  uint64_t *wakes; /* 0 = waiting for its answer */
  long answers;
  double waited;
  struct model_call call;
};
struct client_call {
  struct clients *all;
  uint32_t client;
  uint64_t began;
};
static void closed_answer(void *closure, int err) {
  struct client_call *c = closure;
  CHECK_EQ(0, err);
  c->all->answers++;
  c->all->waited += (double)(model_now(c->all->m) - c->began);
  c->all->wakes[c->client] = model_now(c->all->m) + (uint64_t)exponential(c->all->think) + 1;
}

static uint32_t next_client(const struct clients *all) {
  uint32_t best = 0;
  for (uint32_t i = 1; i < all->count; i++)
    if ((all->wakes[i] ? all->wakes[i] : NEVER) < (all->wakes[best] ? all->wakes[best] : NEVER))
      best = i;
  return best;
}

/* Calls a second. */
static double closed_queue(struct clients *all, long calls) {
  uint64_t began = model_now(all->m);
  while (all->answers < calls) {
    uint32_t c = next_client(all);
    uint64_t at = all->wakes[c] ? all->wakes[c] : NEVER;
    model_manual_run(all->m, at == NEVER ? model_now(all->m) + 1000000000 : at, true);
    if (at == NEVER || model_now(all->m) < at || all->wakes[c] != at)
      continue;
    all->wakes[c] = 0;
    all->call.client = c;
    all->call.pid = 1 + c;
    struct client_call closure = {all, c, model_now(all->m)};
    model_finish(all->m, &all->call, closed_answer, &closure, sizeof closure);
  }
  return (double)all->answers / ((double)(model_now(all->m) - began) / 1e9);
}

/* N clients, k servers, all exponential: the exact answer. */
static double machine_repair(int n, int k, double service, double think) {
  double p = 1, sum = 1, busy = 0;
  for (int i = 1; i <= n; i++) {
    p *= (n - i + 1) * (service / think) / (i < k ? i : k);
    sum += p;
    busy += p * (i < k ? i : k);
  }
  return busy / sum / service * 1e9;
}

/* The same with fixed service times, by a simulation that shares nothing with the model. */
static double reference(int n, int k, double service, double think, long calls) {
  double wakes[64], servers[16] = {0}, now = 0;
  for (int i = 0; i < n; i++)
    wakes[i] = exponential(think);
  for (long done = 0; done < calls; done++) {
    int c = 0, s = 0;
    for (int i = 1; i < n; i++)
      c = wakes[i] < wakes[c] ? i : c;
    for (int i = 1; i < k; i++)
      s = servers[i] < servers[s] ? i : s;
    now = wakes[c];
    servers[s] = (servers[s] > now ? servers[s] : now) + service;
    wakes[c] = servers[s] + exponential(think);
  }
  return (double)calls / (now / 1e9);
}

static void test_closed(const char *service) {
  static const uint32_t clients[] = {1, 4, 8, 16, 64};
  for (int i = 0; i < 5; i++) {
    char more[100];
    snprintf(more, sizeof more, "mds.threads=4\nmds.service=%s\n", service);
    uint64_t wakes[64];
    uint32_t n = clients[i];
    struct clients all = {.m = bare(more), .count = n, .think = 2e6, .wakes = wakes, .call = getattr_call()};
    for (uint32_t c = 0; c < n; c++)
      wakes[c] = 1 + (uint64_t)exponential(all.think);
    double rate = closed_queue(&all, 30000);
    bool fixed = !strcmp(service, "fixed");
    check_near(service, fixed ? reference((int)n, 4, 1e6, 2e6, 100000) : machine_repair((int)n, 4, 1e6, 2e6), rate, 0.05);
    model_free(all.m);
  }
}

/* ---- slowdown ---- */

/* n processes on n mounts, each with one read after the other at one OST, as in the published figure. */
static double read_time(uint32_t n) {
  struct model_extent x = {0, 0, 0, 1 << 20};
  uint32_t ost = 0;
  uint64_t wakes[128];
  struct clients all = {.m = drive_new(1, 1, "oss.bandwidth=1e12"), .count = n, .think = 1, .wakes = wakes,
                        .call = {.op = MODEL_READ, .ino = 7, .size = 1 << 20, .file_size = 1 << 30, .flags = 040000,
                                 .extents = &x, .extent_count = 1, .osts = &ost, .ost_count = 1}};
  for (uint32_t c = 0; c < n; c++)
    wakes[c] = 1 + c;
  closed_queue(&all, 2 * (long)n); /* the first ones see fewer others */
  all.answers = 0;
  all.waited = 0;
  closed_queue(&all, 10 * (long)n);
  CHECK_EQ(n, all.m->osts[0].disk.most_processes);
  double mean = all.waited / (double)all.answers;
  model_free(all.m);
  return mean;
}

static void test_slowdown(void) {
  struct points points = {3, {1, 64, 128}, {1, 32, 128}};
  static const uint32_t counts[] = {2, 8, 32, 64, 96, 128};
  double alone = read_time(1);
  for (int i = 0; i < 6; i++)
    check_near("slowdown", points_at(&points, counts[i]), read_time(counts[i]) / alone, 0.05);
  CHECK_EQ(224, (int)(points_at(&points, 192) + 0.5)); /* on past the last point */
}

/* ---- stripes ---- */

/* Rate of one writer of 1 MiB requests over `stripes` OSTs, until everything is on them. */
static double writer(uint32_t stripes, uint64_t mib) {
  struct model *m = drive_new(2, 8, "");
  uint32_t osts[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  uint64_t began = model_now(m);
  drive(m, (struct model_call){.op = MODEL_CREATE, .ino = 9, .parent = 1, .name = 3, .pid = 1, .flags = 1, .osts = osts,
                               .ost_count = stripes});
  for (uint64_t i = 0; i < mib; i++) {
    struct model_extent x = {(uint32_t)(i % stripes), (uint32_t)(i % stripes), i / stripes << 20, 1 << 20};
    drive(m, (struct model_call){.op = MODEL_WRITE, .ino = 9, .pid = 1, .flags = 1, .offset = i << 20, .size = 1 << 20,
                                 .file_size = (i + 1) << 20, .extents = &x, .extent_count = 1, .osts = osts, .ost_count = stripes});
    drive_wait(m, 300e-6); /* what the call itself takes */
  }
  drive(m, (struct model_call){.op = MODEL_FSYNC, .ino = 9, .pid = 1, .osts = osts, .ost_count = stripes});
  double rate = (double)(mib << 20) / ((double)(model_now(m) - began) / 1e9);
  model_free(m);
  return rate;
}

static void test_stripes(void) {
  double one = writer(1, 256), four = writer(4, 256);
  printf("writer: %.0f MB/s over one stripe, %.0f over four\n", one / 1e6, four / 1e6);
  check_near("one stripe", 100e6, one, 0.06);
  CHECK(four / one >= 3.5);
}

/* Work of one process is done one after the other, whatever it has in flight. */
static void test_one_process_many_requests(void) {
  struct model *m = drive_new(1, 1, "net.latency=0\noss.cost=0\n");
  struct model_extent x = {0, 0, 0, 8 << 20};
  uint32_t ost = 0;
  drive(m, (struct model_call){.op = MODEL_OPEN, .ino = 7, .pid = 3});
  uint64_t took = drive(m, (struct model_call){.op = MODEL_READ, .ino = 7, .pid = 3, .size = 8 << 20, .file_size = 1 << 30,
                                               .flags = 040000, .extents = &x, .extent_count = 1, .osts = &ost, .ost_count = 1});
  check_near("two requests of 4 MiB", 2 * 200e3 + 8388608.0 / 100e6 * 1e9, (double)took, 0.0001);
  model_free(m);
}

/* A heap of events against the sorted order, with moves and cancels. */
struct dated {
  struct event event;
  uint64_t fired;
};
static struct engine engine;
static uint64_t last_fired, order;
static void dated_fire(struct event *event) {
  CHECK(event->at >= last_fired);
  last_fired = event->at;
  owner_of(event, struct dated, event)->fired = ++order;
}
static void test_events(void) {
  enum { N = 2000 };
  struct dated *all = calloc(N, sizeof *all);
  for (int i = 0; i < N; i++) {
    all[i].event.fire = dated_fire;
    event_set(&engine, &all[i].event, (uint64_t)(uniform() * 500));
  }
  for (int i = 0; i < N; i += 3)
    event_set(&engine, &all[i].event, (uint64_t)(uniform() * 500));
  for (int i = 1; i < N; i += 3)
    event_cancel(&engine, &all[i].event);
  while (engine_step(&engine, NEVER - 1))
    ;
  for (int i = 0; i < N; i++)
    CHECK_EQ(i % 3 != 1, all[i].fired != 0);
  for (int i = 2; i + 3 < N; i += 3)
    for (int j = i + 3; j < N && j < i + 60; j += 3)
      CHECK(all[i].event.at != all[j].event.at || all[i].fired < all[j].fired);
  engine_free(&engine);
  free(all);
}

int main(void) {
  test_events();
  test_md1();
  test_mmk();
  test_ost_md1();
  test_closed("exponential");
  test_closed("fixed");
  test_slowdown();
  test_stripes();
  test_one_process_many_requests();
  return 0;
}
