// SPDX-License-Identifier: Apache-2.0
/* lookup SECTION NAMES: ns of one look-up of a name in a plan for the board, the mean of a pass over all names (a line
   each), the low decile of passes. */
#include "board/place.h"
#include <stdio.h>
#include <string.h>
#include "floor.h"

enum { PASSES = 50, NAMES_MAX = 200000 };

static char *load(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END))
    die(path);
  *size = (size_t)ftell(file);
  rewind(file);
  char *data = aligned_alloc(64, *size / 64 * 64 + 64);
  if (!data || fread(data, 1, *size, file) != *size)
    die(path);
  fclose(file);
  return data;
}

int main(int argc, char **argv) {
  static const char *name[NAMES_MAX];
  static size_t length[NAMES_MAX];
  static double pass[PASSES];
  struct penstock_place plan;
  size_t size, names_size, count = 0, found = 0;
  if (argc != 3)
    return 2;
  char *section = load(argv[1], &size), *names = load(argv[2], &names_size);
  if (penstock_place_open(&plan, section, size))
    die("no plan");
  for (char *at = names, *end; count < NAMES_MAX && at < names + names_size; at = end + 1) {
    end = memchr(at, '\n', (size_t)(names + names_size - at));
    if (!end)
      break;
    name[count] = at;
    length[count++] = (size_t)(end - at);
  }
  for (int i = 0; i < PASSES; i++) {
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (size_t j = 0; j < count; j++)
      found += penstock_place_find(&plan, name[j], length[j]) != NULL;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    pass[i] = ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)count;
  }
  for (int i = 0; i < PASSES; i++)
    for (int j = i + 1; j < PASSES; j++)
      if (pass[j] < pass[i]) {
        double swap = pass[i];
        pass[i] = pass[j];
        pass[j] = swap;
      }
  printf("%zu found\n%.1f\n", found / PASSES, pass[PASSES / 10]);
  return 0;
}
