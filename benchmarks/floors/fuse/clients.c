// SPDX-License-Identifier: Apache-2.0
/* Clients of a modelled file system, a process each, which begin together.
 *
 *   clients mix   SECONDS THINK_US SEED DECK FOLDER...  closed loops: think, call, think; prints calls a second of all
 *   clients names SECONDS FOLDER...                 the same without thinking, missing names alone
 *   clients read  WARM TURNS SIZE FILE...           reads past the cache; prints the median microseconds of one
 *   clients write FILE COUNT SIZE                   one writer and fsync; prints bytes a second
 *
 * `mix` draws from DECK, a letter for each call that is one request to a metadata server: n a missing name, m chmod,
 * l a lock taken or given back, s fsync of a folder.  Thinking is exponential, drawn from all parts of the distribution
 * in turn so that few calls suffice for a mean, and what a sleep took too long is taken from the next one.
 * Any failure of a call fails the run. */
#include "floor.h"

#include <math.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { DECK_MOST = 64, PARTS = 32, MOST = 1024 };

static struct shared {
  pthread_barrier_t begin;
  volatile int measured; /* readers that have what they need */
  uint64_t calls[MOST];
  double us[MOST * 4];
} *all;

static uint64_t seed;
static double uniform(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return ((double)(seed >> 11) + 0.5) * 0x1p-53;
}

static void shuffle(char *cards, int count) {
  for (int i = count - 1; i > 0; i--) {
    int k = (int)(uniform() * (i + 1));
    char held = cards[i];
    cards[i] = cards[k];
    cards[k] = held;
  }
}

static double think_ns(double mean_us) {
  static char parts[PARTS];
  static int next = PARTS;
  if (next == PARTS) {
    for (int i = 0; i < PARTS; i++)
      parts[i] = (char)i;
    shuffle(parts, PARTS);
    next = 0;
  }
  return -log((parts[next++] + uniform()) / PARTS) * mean_us * 1000;
}

static char draw(const char *deck) {
  static char cards[DECK_MOST];
  static int next = 0;
  int count = (int)strlen(deck);
  if (next == 0) {
    memcpy(cards, deck, (size_t)count);
    shuffle(cards, count);
    next = count;
  }
  return cards[count - next--];
}

static void sleep_until(uint64_t at) {
  struct timespec t = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
    ;
}

struct place {
  int dir, file, locked;
  uint32_t turn;
};

static struct place settle(const char *folder, int number) {
  char path[4096];
  snprintf(path, sizeof path, "%s/client.%d", folder, number);
  if (mkdir(path, 0755) && errno != EEXIST)
    die(path);
  struct place p = {.dir = open(path, O_RDONLY | O_DIRECTORY)};
  if (p.dir < 0 || (p.file = openat(p.dir, "own", O_RDONLY | O_CREAT, 0644)) < 0)
    die(path);
  return p;
}

static void call(struct place *p, char what) {
  char name[32];
  struct stat st;
  snprintf(name, sizeof name, "missing.%u", ++p->turn);
  int failed = what == 'n'   ? fstatat(p->dir, name, &st, 0) != -1 || errno != ENOENT
               : what == 'm' ? fchmod(p->file, p->turn % 2 ? 0600 : 0644)
               : what == 'l' ? flock(p->file, (p->locked = !p->locked) ? LOCK_EX : LOCK_UN)
                             : fsync(p->dir);
  if (failed)
    die(name);
}

static void begin(void) {
  pthread_barrier_wait(&all->begin);
}

static void mixed_calls(int number, char **words) {
  uint64_t span = (uint64_t)(atof(words[0]) * 1e9);
  double think_us = atof(words[1]), late_ns = 0;
  seed = strtoull(words[2], NULL, 10) * 7919 + (uint64_t)number;
  struct place p = settle(words[4 + number], number);
  begin();
  for (uint64_t now = now_ns(), end = now + span;;) {
    double due = (double)now + think_ns(think_us) - late_ns;
    if (due > (double)now)
      sleep_until((uint64_t)due);
    now = now_ns();
    late_ns = (double)now - due;
    call(&p, draw(words[3]));
    if ((now = now_ns()) >= end)
      break;
    all->calls[number]++;
  }
}

static void missing_names(int number, char **words) {
  struct place p = {.dir = open(words[1 + number], O_RDONLY | O_DIRECTORY)}; /* a floor has no mkdir */
  if (p.dir < 0)
    die(words[1 + number]);
  begin();
  for (uint64_t end = now_ns() + (uint64_t)(atof(words[0]) * 1e9); now_ns() < end; all->calls[number]++)
    call(&p, 'n');
}

/* Goes on until everybody has measured, so that nobody measures with fewer than all. */
static void reads(int number, char **words, int count) {
  int warm = atoi(words[0]), turns = atoi(words[1]);
  size_t size = (size_t)atol(words[2]);
  char *bytes = aligned_alloc(4096, size);
  int fd = open(words[3 + number], O_RDONLY | O_DIRECT);
  if (fd < 0 || !bytes)
    die(words[3 + number]);
  begin();
  for (int i = 0; all->measured < count; i++) {
    uint64_t from = now_ns();
    if (pread(fd, bytes, size, 0) != (ssize_t)size)
      die("read");
    if (i >= warm && i < warm + turns)
      all->us[number * turns + i - warm] = (double)(now_ns() - from) / 1000;
    if (i + 1 == warm + turns)
      __atomic_add_fetch(&all->measured, 1, __ATOMIC_SEQ_CST);
  }
}

static void write_one(char **words) {
  long count = atol(words[1]);
  size_t size = (size_t)atol(words[2]);
  char *bytes = calloc(1, size);
  int fd = open(words[0], O_WRONLY);
  if (fd < 0 || !bytes)
    die(words[0]);
  uint64_t from = now_ns();
  for (long i = 0; i < count; i++)
    if (write(fd, bytes, size) != (ssize_t)size)
      die("write");
  if (fsync(fd) || close(fd))
    die("fsync");
  printf("%.0f\n", (double)size * (double)count / ((double)(now_ns() - from) / 1e9));
}

static void start(int count, const char *mode, char **words) {
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&all->begin, &shared, (unsigned)count);
  prctl(PR_SET_TIMERSLACK, 1);
  for (int i = 0; i < count; i++) {
    pid_t child = fork();
    if (child < 0)
      die("fork");
    if (child)
      continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (*mode == 'm')
      mixed_calls(i, words);
    else if (*mode == 'n')
      missing_names(i, words);
    else
      reads(i, words, count);
    _exit(0);
  }
  int status, failed = 0;
  while (wait(&status) > 0)
    if (status && !failed++) /* the others may wait for it for ever */
      kill(0, SIGTERM);
}

int main(int argc, char **argv) {
  if (argc < 5)
    return 2;
  const char *mode = argv[1];
  int fixed = *mode == 'm' ? 6 : *mode == 'r' ? 5 : 3;
  int count = argc - fixed;
  if (*mode == 'm' && (count < 1 || strspn(argv[5], "nmls") != strlen(argv[5]) || strlen(argv[5]) - 1 >= DECK_MOST))
    return 2;
  if (*mode == 'w') {
    write_one(argv + 2);
    return 0;
  }
  size_t samples = *mode == 'r' ? (size_t)count * (size_t)atoi(argv[3]) : 0;
  if (count < 1 || count > MOST || samples > MOST * 4)
    return 2;
  all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED)
    die("mmap");
  setpgid(0, 0); /* so that an end of one can end all */
  start(count, mode, argv + 2);
  double calls = 0;
  for (int i = 0; i < count; i++)
    calls += (double)all->calls[i];
  printf("%.3f\n", *mode == 'r' ? quantile(all->us, samples, 0.5) : calls / atof(argv[2]));
  return 0;
}
