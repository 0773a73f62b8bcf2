// SPDX-License-Identifier: Apache-2.0
/* What both programs of this folder do with their own take() and set_rate():
     cost THREADS                         CPU ns per call that is not held back
     rate RATE SECONDS THREADS PROCESSES  achieved / asked and cores used, from one second after the start; then the worst
                                          excess above rate * T in windows T of 10 ms, 100 ms, 1 s
     raise                                us from a raised rate to the first waiter that runs: median, 99th percentile */
#pragma once
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "../floor.h"

static void begin(void);
static void set_rate(double per_s, double burst_s);
static void take(void);

static void *shared(size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    die("mmap");
  return at;
}

static long calls;
static void many(int id) {
  (void)id;
  for (long i = 0; i < calls; i++)
    take();
}

static void cost(int threads) {
  static double batch[200];
  set_rate(1e9, 1);
  if (threads > 1) {
    calls = 500000;
    uint64_t from = cpu_ns();
    on_threads(threads, many);
    printf("%.2f\n", (double)(cpu_ns() - from) / (double)(calls * threads));
    return;
  }
  calls = 2000;
  for (int i = 0; i < 200; i++) {
    uint64_t from = cpu_ns();
    many(0);
    batch[i] = (double)(cpu_ns() - from) / (double)calls;
  }
  printf("%.2f\n", quantile(batch, 200, .1));
}

static uint64_t *stamps, from_ns, end_ns;
static _Atomic uint64_t *stamped;
static uint64_t most_stamps;
static void ask_on(int id) {
  (void)id;
  for (;;) {
    take();
    uint64_t now = now_ns();
    if (now >= end_ns)
      return;
    if (now < from_ns)
      continue;
    uint64_t at = atomic_fetch_add(stamped, 1);
    if (at < most_stamps)
      stamps[at] = now;
  }
}

static int by_time(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static double excess(uint64_t count, double rate, double window_s) {
  double worst = -1e9;
  for (uint64_t first = 0, last = 0; last < count; last++) {
    while (stamps[last] - stamps[first] >= (uint64_t)(window_s * 1e9))
      first++;
    double above = (double)(last - first + 1) - rate * window_s;
    worst = above > worst ? above : worst;
  }
  return worst;
}

static void rate(double per_s, double seconds, int threads, int processes) {
  uint64_t *cpu = shared(64 * sizeof *cpu);
  most_stamps = (uint64_t)(per_s * seconds * 2) + 1000;
  stamps = shared(most_stamps * sizeof *stamps);
  stamped = shared(64);
  set_rate(per_s, .1);
  from_ns = now_ns() + 1000000000;
  end_ns = from_ns + (uint64_t)(seconds * 1e9);
  for (int i = 0; i < processes; i++)
    if (!fork()) {
      uint64_t used = cpu_ns();
      on_threads(threads, ask_on);
      cpu[i] = cpu_ns() - used;
      _exit(0);
    }
  while (wait(NULL) > 0) {
  }
  uint64_t count = *stamped < most_stamps ? *stamped : most_stamps, used = 0;
  for (int i = 0; i < processes; i++)
    used += cpu[i];
  qsort(stamps, count, sizeof *stamps, by_time);
  printf("%.5f %.5f %.1f %.1f %.1f\n", (double)count / (per_s * seconds), (double)used * 1e-9 / (seconds + 1),
         excess(count, per_s, .01), excess(count, per_s, .1), excess(count, per_s, 1));
}

static _Atomic uint64_t woke, raised;
static void wait_or_raise(int id) {
  if (id == 0) {
    take();
    take();
    woke = now_ns();
    return;
  }
  usleep(3000);
  raised = now_ns();
  set_rate(1e9, .1);
}

static void raise_rate(void) {
  static double us[101];
  for (int i = 0; i < 101; i++) {
    set_rate(20, 0);
    on_threads(2, wait_or_raise);
    us[i] = woke > raised ? (double)(woke - raised) * 1e-3 : 0;
  }
  double median = quantile(us, 101, .5);
  printf("%.1f %.1f\n", median, quantile(us, 101, .99));
}

int main(int argc, char **argv) {
  begin();
  if (argc == 3 && !strcmp(argv[1], "cost"))
    cost(atoi(argv[2]));
  else if (argc == 6 && !strcmp(argv[1], "rate"))
    rate(atof(argv[2]), atof(argv[3]), atoi(argv[4]), atoi(argv[5]));
  else if (argc == 2 && !strcmp(argv[1], "raise"))
    raise_rate();
  else
    return 2;
  return 0;
}
