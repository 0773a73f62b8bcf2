// SPDX-License-Identifier: Apache-2.0
/* asks CELL DIR [TURNS]: ns of one call, the low decile of short batches; CPU time (user and system), or with CLOCK=wall
   the wall's.

   DIR holds FOLDERS folders d0, d1, ... with FILES files f0, f1, ... each.  CELL, one turn is
   stat     lstat of a file, another each time
   missing  lstat of a name that is not there
   list     opening a folder, reading all its names, closing it
   change   open for writing and close of the file DIR.out, which is not below DIR
   path     access("/etc/passwd")
   fd       a write of 1 byte to /dev/null

   With TURNS: so many turns in one go, for counting instructions, or for asking about every file once. */
#include <dirent.h>
#include "floor.h"

enum { FOLDERS = 20, FILES = 100, BATCHES = 100, PER_BATCH = 40 };
static const char *dir;
static char out[4096];
static int null = -1;

static void name(char path[4096], int i, const char *ending) {
  unsigned at = (unsigned)i * 1103u % (FOLDERS * FILES);
  if (snprintf(path, 4096, "%s/d%u/f%u%s", dir, at / FILES, at % FILES, ending) >= 4096)
    die("path too long");
}

static void stats(int i) {
  struct stat st;
  char path[4096];
  name(path, i, "");
  if (lstat(path, &st))
    die(path);
}

static void missing(int i) {
  struct stat st;
  char path[4096];
  name(path, i, "none");
  if (!lstat(path, &st))
    die(path);
}

static void lists(int i) {
  char path[4096];
  int names = 0;
  snprintf(path, sizeof path, "%s/d%u", dir, (unsigned)i % FOLDERS);
  DIR *folder = opendir(path);
  while (folder && readdir(folder))
    names++;
  if (names != FILES + 2 || closedir(folder))
    die(path);
}

static void changes(int i) {
  (void)i;
  int fd = open(out, O_WRONLY | O_CREAT, 0600);
  if (fd < 0 || close(fd))
    die(out);
}

static void by_path(int i) {
  (void)i;
  if (access("/etc/passwd", F_OK))
    die("/etc/passwd");
}

static void by_descriptor(int i) {
  (void)i;
  if (write(null, "x", 1) != 1)
    die("/dev/null");
}

int main(int argc, char **argv) {
  static const struct { const char *cell; void (*turn)(int); } cells[] = {
    {"stat", stats}, {"missing", missing}, {"list", lists}, {"change", changes}, {"path", by_path}, {"fd", by_descriptor},
  };
  static double v[BATCHES];
  void (*turn)(int) = NULL;
  clockid_t clock = getenv("CLOCK") && !strcmp(getenv("CLOCK"), "wall") ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID;
  if (argc < 3)
    return 2;
  dir = argv[2];
  snprintf(out, sizeof out, "%s.out", dir);
  null = open("/dev/null", O_WRONLY);
  for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
    if (!strcmp(argv[1], cells[i].cell))
      turn = cells[i].turn;
  if (!turn)
    return 2;
  int turns = argc > 3 ? atoi(argv[3]) : 0;
  if (turns) {
    uint64_t from = clock_ns(clock);
    for (int i = 0; i < turns; i++)
      turn(i);
    return printf("%.1f\n", (double)(clock_ns(clock) - from) / turns) < 0;
  }
  for (int b = 0; b < BATCHES; b++) {
    uint64_t from = clock_ns(clock);
    for (int i = 0; i < PER_BATCH; i++)
      turn(b * PER_BATCH + i);
    v[b] = (double)(clock_ns(clock) - from) / PER_BATCH;
  }
  return printf("%.1f\n", quantile(v, BATCHES, .1)) < 0;
}
