// SPDX-License-Identifier: Apache-2.0
/* penstock-replay: does the operations of a schedule on a folder, at the times that the schedule says.

   Each kind of operation has threads of its own.  An operation that cannot begin in time (the one before was held up)
   begins as soon as it can; none is left out.  What an operation waited counts from when it was meant to begin, so a
   slow answer shows in all that came after it.

   Started by `penstock replay`, or by hand: penstock-replay [OPTIONS] FOLDER <SCHEDULE (lines of schedule.h).
   It prints a line of JSON for what it begins with, each interval, and the sum.  Status 0: all done; 1: some
   operations failed; 2: wrong words or schedule; 128 + n: stopped by signal n. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "schedule.h"
#include "work.h"

enum { THREADS_MAX = 64, CLASSES = 44 * 4, BEHIND_MAX = 20, INTERVALS_MAX = 1 << 20 };
static const int64_t slice_ns = 100000000; /* nobody sleeps longer before it looks whether to stop */
static const int64_t second_ns = 1000000000;

/* Times in classes, four to each power of two: a count each, their sum and the largest. */
struct times {
  uint64_t classes[CLASSES];
  double sum_ns;
  int64_t most_ns;
};

struct worker {
  pthread_t thread;
  struct hand hand;
  const struct schedule *schedule;
  unsigned number, step;
  _Atomic uint64_t *served; /* by interval */
  _Atomic uint64_t done, failed;
  struct times waited, took;
  int first_error;
};

static struct schedule schedules[OPERATIONS];
static struct worker workers[OPERATIONS * THREADS_MAX];
static size_t worker_count, interval_count;
static int64_t begin_ns, interval_ns = 1000000000, quantum_ns = 1000000;
static _Atomic bool stopping;
static _Atomic size_t running;

static int64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * second_ns + now.tv_nsec;
}

static void sleep_until(int64_t time_ns) {
  struct timespec until = {time_ns / second_ns, time_ns % second_ns};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* ---- times ---- */

static size_t class_of(int64_t time_ns) {
  uint64_t value = time_ns > 4 ? (uint64_t)time_ns : 4;
  unsigned power = 63 - (unsigned)__builtin_clzll(value);
  return least((power - 2) * 4 + ((value >> (power - 2)) & 3), CLASSES - 1);
}

static double class_ns(size_t class) { /* its end: all of it are within */
  return ldexp(5 + (double)(class % 4), (int)(class / 4));
}

static void times_add(struct times *times, int64_t time_ns) {
  times->classes[class_of(time_ns)]++;
  times->sum_ns += (double)time_ns;
  if (time_ns > times->most_ns)
    times->most_ns = time_ns;
}

static void times_join(struct times *into, const struct times *from) {
  for (size_t i = 0; i < CLASSES; i++)
    into->classes[i] += from->classes[i];
  into->sum_ns += from->sum_ns;
  if (from->most_ns > into->most_ns)
    into->most_ns = from->most_ns;
}

/* The time that `part` of all are within; 0 if there are none. */
static double times_within(const struct times *times, double part) {
  uint64_t all = 0, seen = 0;
  for (size_t i = 0; i < CLASSES; i++)
    all += times->classes[i];
  for (size_t i = 0; i < CLASSES; i++)
    if ((seen += times->classes[i]) && (double)seen >= part * (double)all)
      return fmin(class_ns(i), (double)times->most_ns);
  return 0;
}

/* ---- threads ---- */

/* Sleep until an operation is due; false to stop.  Those of a quantum are done in one go: waking costs more. */
static bool wait_for(int64_t due_ns) {
  int64_t now = clock_ns();
  if (due_ns < now + quantum_ns)
    due_ns = now + quantum_ns;
  for (; now < due_ns && !atomic_load_explicit(&stopping, memory_order_relaxed); now = clock_ns())
    sleep_until(due_ns < now + slice_ns ? due_ns : now + slice_ns);
  return !atomic_load_explicit(&stopping, memory_order_relaxed);
}

static void add(_Atomic uint64_t *count) { /* one thread writes, others look */
  atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void *work(void *argument) {
  struct worker *worker = argument;
  size_t at = 0;
  int64_t now = clock_ns();
  for (uint64_t index = worker->number; index < worker->schedule->total; index += worker->step) {
    int64_t due_ns = begin_ns + schedule_due(worker->schedule, index, &at);
    if (due_ns > now) {
      if (!wait_for(due_ns))
        break;
      now = clock_ns();
    } else if (atomic_load_explicit(&stopping, memory_order_relaxed))
      break;
    int64_t began_ns = now;
    int error = hand_do(&worker->hand);
    now = clock_ns();
    if (error) {
      worker->first_error = worker->first_error ? worker->first_error : error;
      add(&worker->failed);
    }
    add(&worker->served[least((size_t)((now - begin_ns) / interval_ns), interval_count - 1)]);
    add(&worker->done);
    times_add(&worker->took, now - began_ns);
    times_add(&worker->waited, now - due_ns);
  }
  atomic_fetch_sub(&running, 1);
  return NULL;
}

/* ---- what is printed ---- */

static uint64_t served(enum operation operation, size_t interval) {
  uint64_t sum = 0;
  for (size_t i = 0; i < worker_count; i++)
    if (workers[i].hand.operation == operation)
      sum += atomic_load_explicit(&workers[i].served[interval], memory_order_relaxed);
  return sum;
}

/* An interval: from when (seconds), and of each operation how many were demanded and served in it. */
static void print_interval(size_t interval) {
  int64_t from = (int64_t)interval * interval_ns;
  const char *comma = "";
  printf("{\"interval\":%zu,\"start_s\":%.3f,\"operations\":{", interval, (double)from / 1e9);
  for (int op = 0; op < OPERATIONS; op++) {
    if (!schedules[op].total)
      continue;
    uint64_t demanded = schedule_before(&schedules[op], from + interval_ns) - schedule_before(&schedules[op], from);
    printf("%s\"%s\":[%" PRIu64 ",%" PRIu64 "]", comma, operation_names[op], demanded, served(op, interval));
    comma = ",";
  }
  printf("}}\n");
  fflush(stdout);
}

static void print_times(const char *name, const struct times *times, uint64_t count) {
  printf(",\"%s\":{\"mean\":%.0f,\"p50\":%.0f,\"p99\":%.0f,\"max\":%" PRId64 "}", name,
         count ? times->sum_ns / (double)count : 0, times_within(times, 0.5), times_within(times, 0.99), times->most_ns);
}

static uint64_t print_operation(enum operation operation) {
  struct times waited = {0}, took = {0};
  uint64_t done = 0, failed = 0, extra = 0;
  unsigned threads = 0;
  int error = 0;
  for (struct worker *worker = workers; worker < workers + worker_count; worker++) {
    if (worker->hand.operation != operation)
      continue;
    times_join(&waited, &worker->waited);
    times_join(&took, &worker->took);
    done += atomic_load(&worker->done);
    failed += atomic_load(&worker->failed);
    extra += worker->hand.extra;
    threads++;
    error = error ? error : worker->first_error;
  }
  printf("\"%s\":{\"demanded\":%" PRIu64 ",\"served\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"extra\":%" PRIu64
         ",\"threads\":%u,\"error\":\"%s\"",
         operation_names[operation], schedules[operation].total, done, failed, extra, threads,
         error ? strerror(error) : "");
  print_times("waited_ns", &waited, done);
  print_times("took_ns", &took, done);
  printf("}");
  return failed;
}

static uint64_t print_sum(int64_t elapsed_ns, int signal_number) {
  uint64_t failed = 0;
  const char *comma = "";
  printf("{\"elapsed_s\":%.6f,\"signal\":%d,\"operations\":{", (double)elapsed_ns / 1e9, signal_number);
  for (int op = 0; op < OPERATIONS; op++) {
    if (!schedules[op].total)
      continue;
    printf("%s", comma);
    failed += print_operation(op);
    comma = ",";
  }
  printf("}}\n");
  fflush(stdout);
  return failed;
}

/* ---- the main thread ---- */

/* Prints intervals as they are over (one late: somebody may just be counting), until all is done; a signal or 0. */
static int watch(const sigset_t *signals) {
  size_t printed = 0;
  int caught = 0;
  while (atomic_load(&running)) {
    if (ferror(stdout)) /* who listened is gone */
      atomic_store(&stopping, true);
    struct timespec wait = {0, 20000000};
    int number = sigtimedwait(signals, NULL, &wait);
    if (number > 0) {
      caught = number;
      atomic_store(&stopping, true);
      pthread_sigmask(SIG_UNBLOCK, signals, NULL); /* a second one ends it at once */
    }
    int64_t over = (clock_ns() - begin_ns) / interval_ns - 1;
    while ((int64_t)printed < over && printed < interval_count)
      print_interval(printed++);
  }
  for (size_t i = 0; i < worker_count; i++)
    pthread_join(workers[i].thread, NULL);
  size_t last = least((size_t)((clock_ns() - begin_ns) / interval_ns), interval_count - 1);
  while (printed <= last)
    print_interval(printed++);
  return caught;
}

static int64_t length_ns(void) {
  int64_t most = 0;
  for (int op = 0; op < OPERATIONS; op++)
    if (schedules[op].held) {
      const struct span *last = &schedules[op].spans[schedules[op].held - 1];
      int64_t end = last->start_ns + last->length_ns;
      most = end > most ? end : most;
    }
  return most;
}

static const char *make_workers(struct place *place, const unsigned threads[OPERATIONS]) {
  interval_count = least((size_t)(length_ns() / interval_ns + 60) * BEHIND_MAX, INTERVALS_MAX);
  for (int op = 0; op < OPERATIONS; op++)
    for (unsigned i = 0; schedules[op].total && i < threads[op]; i++) {
      struct worker *worker = &workers[worker_count++];
      *worker = (struct worker){.schedule = &schedules[op], .number = i, .step = threads[op]};
      worker->served = calloc(interval_count, sizeof *worker->served);
      int error = worker->served ? hand_ready(&worker->hand, place, op, i) : ENOMEM;
      if (error)
        return strerror(error);
    }
  return NULL;
}

static const char *start_workers(void) {
  int error = 0;
  size_t started = 0;
  atomic_store(&running, worker_count);
  begin_ns = clock_ns() + 10000000;
  printf("{\"begin_monotonic_ns\":%" PRId64 ",\"interval_s\":%.6f,\"length_s\":%.6f}\n", begin_ns,
         (double)interval_ns / 1e9, (double)length_ns() / 1e9);
  fflush(stdout);
  while (started < worker_count && !(error = pthread_create(&workers[started].thread, NULL, work, &workers[started])))
    started++;
  if (error)
    atomic_store(&stopping, true);
  for (size_t i = 0; error && i < started; i++)
    pthread_join(workers[i].thread, NULL);
  return error ? strerror(error) : NULL;
}

static int complain(const char *what, const char *why) {
  fprintf(stderr, "penstock-replay: %s: %s\n", what, why);
  return 2;
}

/* OPERATION=N */
static bool read_threads(const char *word, unsigned threads[OPERATIONS]) {
  for (int op = 0; op < OPERATIONS; op++) {
    size_t length = strlen(operation_names[op]);
    if (strncmp(word, operation_names[op], length) || word[length] != '=')
      continue;
    threads[op] = (unsigned)strtoul(word + length + 1, NULL, 10);
    return threads[op] > 0 && threads[op] <= THREADS_MAX;
  }
  return false;
}

struct words {
  struct place_settings place;
  unsigned threads[OPERATIONS];
};

static int read_words(int argc, char **argv, struct words *words) {
  static const struct option options[] = {
    {"threads", required_argument, NULL, 't'}, {"files", required_argument, NULL, 'f'},
    {"io-bytes", required_argument, NULL, 'b'}, {"file-bytes", required_argument, NULL, 's'},
    {"interval-ns", required_argument, NULL, 'i'}, {"quantum-ns", required_argument, NULL, 'q'},
    {NULL, 0, NULL, 0}};
  words->place = (struct place_settings){.files = 256, .io_bytes = 65536, .file_bytes = 16 << 20};
  for (int op = 0; op < OPERATIONS; op++)
    words->threads[op] = 1;
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    uint64_t number = optarg ? strtoull(optarg, NULL, 10) : 0;
    if (option == 't' ? !read_threads(optarg, words->threads) : option == '?' || !number || number > INT64_MAX / 4)
      return complain(optarg ? optarg : "options", "this cannot be used; penstock replay --help lists what can");
    if (option == 'f')
      words->place.files = (unsigned)least(number, 1000000);
    if (option == 'b')
      words->place.io_bytes = least(number, 1 << 30);
    if (option == 's')
      words->place.file_bytes = number;
    if (option == 'i')
      interval_ns = (int64_t)number;
    if (option == 'q')
      quantum_ns = (int64_t)number;
  }
  if (optind + 1 != argc)
    return complain("FOLDER", "name the folder to work in, and nothing else");
  if (words->place.file_bytes < words->place.io_bytes)
    words->place.file_bytes = words->place.io_bytes;
  words->place.folder = argv[optind];
  return 0;
}

int main(int argc, char **argv) {
  struct words words;
  char where[64];
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  if (read_words(argc, argv, &words))
    return 2;
  unsigned long wrong = schedule_read(stdin, operation_names, schedules, OPERATIONS);
  snprintf(where, sizeof where, "schedule, line %lu", wrong);
  if (wrong)
    return complain(where, "it is wrong, or before the one above it");
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  struct place *place = place_make(&words.place);
  if (!place)
    return complain(words.place.folder, strerror(errno));
  const char *trouble = make_workers(place, words.threads);
  trouble = trouble ? trouble : start_workers();
  int caught = trouble ? 0 : watch(&signals);
  int64_t elapsed_ns = clock_ns() - begin_ns;
  uint64_t failed = trouble ? 0 : print_sum(elapsed_ns, caught);
  for (size_t i = 0; i < worker_count; i++)
    hand_done(&workers[i].hand);
  int error = place_remove(place);
  if (trouble)
    return complain(words.place.folder, trouble);
  if (error)
    complain(words.place.folder, strerror(error));
  return caught ? 128 + caught : failed || error ? 1 : 0;
}
