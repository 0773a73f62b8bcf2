// SPDX-License-Identifier: Apache-2.0
/* A client of a file system:  calls CELL FOLDER TURNS START [SIZE]
 *
 * create, stat, open, unlink: TURNS calls, on the files START, START + 1, ...; write, read: TURNS calls of SIZE bytes on one file.
 * Prints the CPU microseconds of one call in this process. */
#include "floor.h"

static void on_names(const char *cell, const char *folder, int turns, int start) {
  char path[4096];
  for (int i = start; i < start + turns; i++) {
    struct stat st;
    int fd = 0;
    snprintf(path, sizeof path, "%s/f.%d", folder, i);
    if (*cell == 'c')
      fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    else if (*cell == 'o')
      fd = open(path, O_RDONLY);
    else if (*cell == 's' ? stat(path, &st) : unlink(path))
      die(path);
    if (fd < 0 || (fd && close(fd)))
      die(path);
  }
}

static void on_bytes(const char *cell, const char *folder, int turns, size_t size) {
  char path[4096];
  int reads = *cell == 'r';
  char *bytes = aligned_alloc(4096, size);
  snprintf(path, sizeof path, "%s/big", folder);
  int fd = open(path, reads ? O_RDONLY : O_WRONLY | O_CREAT, 0644);
  if (fd < 0 || !bytes)
    die(path);
  memset(bytes, 1, size);
  for (int i = 0; i < turns; i++) {
    off_t at = (off_t)((size_t)i * size);
    if ((reads ? pread(fd, bytes, size, at) : pwrite(fd, bytes, size, at)) != (ssize_t)size)
      die(path);
  }
  close(fd);
  free(bytes);
}

int main(int argc, char **argv) {
  if (argc < 5)
    return 2;
  int turns = atoi(argv[3]), start = atoi(argv[4]);
  size_t size = argc > 5 ? (size_t)atol(argv[5]) : 0;
  uint64_t before = cpu_ns();
  if (size)
    on_bytes(argv[1], argv[2], turns, size);
  else
    on_names(argv[1], argv[2], turns, start);
  printf("%.4f\n", (double)(cpu_ns() - before) / 1000 / turns);
  return 0;
}
