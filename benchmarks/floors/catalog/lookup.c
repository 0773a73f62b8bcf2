// SPDX-License-Identifier: Apache-2.0
/* Look-ups in a segment of Penstock's, measured as the floor's: random fresh paths, the best of 40 passes of 4,096.

       lookup SEGMENT PATHS      PATHS: one a line, relative to the root

   Prints nanoseconds a look-up, the record's size read, and nanoseconds of one that finds nothing. */
#include "floor.h"

#include "kernels/index.h"

static char **path;
static size_t count, room;

static void read_paths(const char *file) {
  FILE *f = fopen(file, "r");
  char *line = NULL;
  size_t size = 0;
  if (!f)
    die(file);
  for (ssize_t n; (n = getline(&line, &size, f)) > 0; count++) {
    line[n - 1] = 0;
    if (count == room && !(path = realloc(path, (room = room ? room * 2 : 1024) * sizeof *path)))
      die("realloc");
    path[count] = strdup(line);
  }
  fclose(f);
}

static char ask[4096][1024];

static double pass(const struct penstock_index *ix, bool missing, uint64_t *sum) {
  uint64_t began = cpu_ns();
  for (int k = 0; k < 4096; k++) {
    struct penstock_entry e;
    int err = penstock_index_lookup(ix, ask[k], strlen(ask[k]), &e);
    if (missing != (err < 0))
      die("look-up");
    if (!missing)
      *sum += e.size;
  }
  return (double)(cpu_ns() - began) / 4096;
}

int main(int argc, char **argv) {
  struct penstock_index ix;
  if (argc < 3)
    return 2;
  int fd = open(argv[1], O_RDONLY);
  if (fd < 0 || penstock_index_open(&ix, fd, UINT64_MAX) < 0)
    die(argv[1]);
  read_paths(argv[2]);
  uint64_t x = 1, sum = 0;
  double best = 1e9, absent = 1e9;
  for (size_t i = 0; i < count; i++) { /* every block is in memory, as the floor's are */
    struct penstock_entry e;
    if (penstock_index_lookup(&ix, path[i], strlen(path[i]), &e) < 0)
      die(path[i]);
  }
  for (int round = 0; round < 40; round++) {
    for (int k = 0; k < 4096; k++) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      snprintf(ask[k], sizeof ask[k], "%s", path[(size_t)(x >> 33) % count]);
    }
    double d = pass(&ix, false, &sum);
    best = d < best ? d : best;
    for (int k = 0; k < 4096; k++)
      strncat(ask[k], "~", sizeof ask[k] - strlen(ask[k]) - 1);
    d = pass(&ix, true, &sum);
    absent = d < absent ? d : absent;
  }
  printf("%.1f %.1f\n", absent, best);
  return sum == 1;
}
