// SPDX-License-Identifier: Apache-2.0
/* calls CELL DIR [TURNS]: CPU ns of one call (user and system), the low decile of short batches.

   CELL     one turn is
   other    a write of 1 byte to /dev/null: a descriptor that nobody records
   known    access("/etc/passwd"): a path whose prefix is known and not recorded
   read     read of 4 KiB from a file in DIR
   write    write of 4 KiB to a file in DIR
   file     open, write of 100 bytes, close of a new file in DIR
   spawn    start and exit of the program DIR with LD_PRELOAD=$PRELOAD (TURNS: how often)
   memory   Pss of this process in KiB after opening TURNS files in DIR, one after the other
   ranks    the same, while RANKS - 1 others like it do as much and then wait: a node's ranks share a library's text

   With TURNS (of the others): so many turns in one go, for counting instructions. */
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include "floor.h"

enum { BATCHES = 400, FILE_BATCHES = 100, PER_BATCH = 64, SPAWNS = 25, BLOCK = 4096, RANKS = 8 };

extern char **environ;
static char block[BLOCK], path[4096];
static const char *dir;
static int fd = -1;

static void name(const char *kind, int i) {
  if (snprintf(path, sizeof path, "%s/%s.%d.%d", dir, kind, (int)getpid(), i) >= (int)sizeof path)
    die("path too long");
}

static void other(int i) {
  (void)i;
  if (write(fd, block, 1) != 1)
    die("other");
}

static void known(int i) {
  (void)i;
  if (access("/etc/passwd", F_OK))
    die("known");
}

/* The file is as long as a batch; reading and writing go round in it. */
static void rewound(int i) {
  if (i % PER_BATCH == 0 && lseek(fd, 0, SEEK_SET))
    die("lseek");
}

static void reads(int i) {
  rewound(i);
  if (read(fd, block, BLOCK) != BLOCK)
    die("read");
}

static void writes(int i) {
  rewound(i);
  if (write(fd, block, BLOCK) != BLOCK)
    die("write");
}

static void file(int i) {
  name("new", i);
  int f = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (f < 0 || write(f, block, 100) != 100 || close(f))
    die(path);
}

static void remove_files(int n) {
  for (int i = 0; i < n; i++) {
    name("new", i);
    unlink(path);
  }
}

static void prepare(const char *cell) {
  if (!strcmp(cell, "other"))
    fd = open("/dev/null", O_WRONLY);
  if (strcmp(cell, "read") && strcmp(cell, "write"))
    return;
  name("block", 0);
  fd = open(path, O_RDWR | O_CREAT, 0600);
  unlink(path);
  for (int i = 0; i < PER_BATCH; i++)
    if (write(fd, block, BLOCK) != BLOCK)
      die(path);
}

static uint64_t children_ns(void) {
  struct rusage r;
  getrusage(RUSAGE_CHILDREN, &r);
  return (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000000u +
         (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000u;
}

static double spawns(const char *program, int n) {
  char *const words[] = {(char *)(uintptr_t)program, NULL};
  double v[1000];
  if (getenv("PRELOAD"))
    setenv("LD_PRELOAD", getenv("PRELOAD"), 1);
  for (int i = 0; i < n && i < 1000; i++) {
    uint64_t t = children_ns();
    pid_t pid;
    int status = 1;
    if (posix_spawn(&pid, program, NULL, NULL, words, environ) || waitpid(pid, &status, 0) < 0 || status)
      die(program);
    v[i] = (double)(children_ns() - t);
  }
  return quantile(v, (size_t)(n < 1000 ? n : 1000), .1);
}

static double pss_kib(int files) {
  for (int i = 0; i < files; i++)
    file(i);
  FILE *f = fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  double kib = -1;
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "Pss: %lf", &kib) == 1)
      break;
  if (f)
    fclose(f);
  remove_files(files);
  return kib;
}

/* Starts the others and waits until each has used its files; they end when `go` is closed. */
static void start_ranks(char *self, char *turns, int go[2]) {
  int done[2];
  char *const words[] = {self, (char *)(uintptr_t)"rank", (char *)(uintptr_t)dir, turns, NULL}, ready;
  posix_spawn_file_actions_t streams;
  if (pipe(go) || pipe(done))
    die("pipe");
  posix_spawn_file_actions_init(&streams);
  posix_spawn_file_actions_adddup2(&streams, go[0], 0);
  posix_spawn_file_actions_adddup2(&streams, done[1], 1);
  posix_spawn_file_actions_addclose(&streams, go[1]);
  for (int i = 1; i < RANKS; i++)
    if (posix_spawn(&(pid_t){0}, self, &streams, NULL, words, environ))
      die(self);
  for (int i = 1; i < RANKS; i++)
    if (read(done[0], &ready, 1) != 1)
      die("a rank");
}

static void wait_as_a_rank(int files) {
  char end;
  for (int i = 0; i < files; i++)
    file(i);
  remove_files(files);
  if (write(1, "r", 1) != 1 || read(0, &end, 1) != 0)
    die("rank");
}

static double timed(const char *cell, void (*turn)(int)) {
  static double v[BATCHES];
  int batches = turn == file ? FILE_BATCHES : BATCHES;
  prepare(cell);
  for (int b = 0; b < batches; b++) {
    uint64_t t = cpu_ns();
    for (int i = 0; i < PER_BATCH; i++)
      turn(i);
    v[b] = (double)(cpu_ns() - t) / PER_BATCH;
    if (turn == file)
      remove_files(PER_BATCH);
  }
  return quantile(v, (size_t)batches, .1);
}

/* So many turns and nothing else; the files of `file` are left to whoever made DIR. */
static void counted(const char *cell, void (*turn)(int), int turns) {
  prepare(cell);
  for (int i = 0; i < turns; i++)
    turn(i);
}

int main(int argc, char **argv) {
  static const struct { const char *cell; void (*turn)(int); } cells[] = {
    {"other", other}, {"known", known}, {"read", reads}, {"write", writes}, {"file", file},
  };
  if (argc < 3)
    return 2;
  int turns = argc > 3 ? atoi(argv[3]) : 0;
  dir = argv[2];
  if (!strcmp(argv[1], "spawn"))
    return printf("%.1f\n", spawns(dir, turns ? turns : SPAWNS)) < 0;
  if (!strcmp(argv[1], "memory"))
    return printf("%.1f\n", pss_kib(turns)) < 0;
  if (!strcmp(argv[1], "rank")) {
    wait_as_a_rank(turns);
    return 0;
  }
  if (!strcmp(argv[1], "ranks")) {
    int go[2];
    start_ranks(argv[0], argv[3], go);
    printf("%.1f\n", pss_kib(turns));
    close(go[1]);
    while (wait(NULL) > 0)
      ;
    return 0;
  }
  for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
    if (!strcmp(argv[1], cells[i].cell)) {
      if (!turns)
        return printf("%.1f\n", timed(argv[1], cells[i].turn)) < 0;
      counted(argv[1], cells[i].turn, turns);
      return 0;
    }
  return 2;
}
