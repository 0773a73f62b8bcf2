// SPDX-License-Identifier: Apache-2.0
/* Shared by every floor program: clocks, quantiles, threads that start together. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static inline uint64_t clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* CPU time of this process: what single-core cells are timed with, so that other load does not count. */
static inline uint64_t cpu_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

static inline int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline double quantile(double *v, size_t n, double q) {
  qsort(v, n, sizeof *v, compare_doubles);
  return v[(size_t)(q * (double)(n - 1) + 0.5)];
}

static inline void die(const char *what) {
  perror(what);
  exit(1);
}

struct floor_thread {
  int id;
  void (*work)(int);
  pthread_barrier_t *together;
  uint64_t from_ns, to_ns;
};

static inline void *floor_thread_main(void *p) {
  struct floor_thread *t = p;
  pthread_barrier_wait(t->together);
  t->from_ns = now_ns();
  t->work(t->id);
  t->to_ns = now_ns();
  return NULL;
}

/* Runs work(0..n-1) on n threads (256 at the most); the wall seconds between the first start and the last end. */
static inline double on_threads(int n, void (*work)(int)) {
  pthread_t thread[256];
  struct floor_thread t[256];
  pthread_barrier_t together;
  uint64_t from_ns = UINT64_MAX, to_ns = 0;
  pthread_barrier_init(&together, NULL, (unsigned)n);
  for (int i = 0; i < n; i++) {
    t[i] = (struct floor_thread){i, work, &together, 0, 0};
    if (pthread_create(&thread[i], NULL, floor_thread_main, &t[i]))
      die("pthread_create");
  }
  for (int i = 0; i < n; i++) {
    pthread_join(thread[i], NULL);
    from_ns = t[i].from_ns < from_ns ? t[i].from_ns : from_ns;
    to_ns = t[i].to_ns > to_ns ? t[i].to_ns : to_ns;
  }
  pthread_barrier_destroy(&together);
  return (double)(to_ns - from_ns) * 1e-9;
}
