// SPDX-License-Identifier: Apache-2.0
/* Creates a file in the way that the first word names, writes a line into it, and says what its descriptor's flags are:
   creates WAY FILE [MODE in octal]. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);

static int made(const char *way, const char *path, mode_t mode) {
  int flags = O_CREAT | O_WRONLY;
  if (!strcmp(way, "open"))
    return open(path, flags, mode);
  if (!strcmp(way, "open64"))
    return open64(path, flags, mode);
  if (!strcmp(way, "openat"))
    return openat(AT_FDCWD, path, flags, mode);
  if (!strcmp(way, "openat64"))
    return openat64(AT_FDCWD, path, flags, mode);
  if (!strcmp(way, "creat"))
    return creat(path, mode);
  if (!strcmp(way, "creat64"))
    return creat64(path, mode);
  if (!strcmp(way, "excl"))
    return open(path, flags | O_EXCL, mode);
  if (!strcmp(way, "trunc"))
    return open(path, flags | O_TRUNC, mode);
  if (!strcmp(way, "rdwr"))
    return open(path, O_CREAT | O_RDWR, mode);
  if (!strcmp(way, "append"))
    return open(path, flags | O_APPEND, mode);
  if (!strcmp(way, "own"))
    return open(path, flags | O_NOCTTY | O_ASYNC, mode);
  if (!strcmp(way, "async"))
    return open(path, flags | O_ASYNC, mode);
  if (!strcmp(way, "path"))
    return open(path, O_PATH | O_CREAT, mode);
  errno = EINVAL;
  return -1;
}

static int by_stream(const char *way, const char *path) {
  FILE *stream = !strncmp(way, "fopen64", 7) ? fopen64(path, way + 7) : fopen(path, way + 5);
  if (!stream) {
    printf("%s\n", strerror(errno));
    return 1;
  }
  printf("%o\n", fcntl(fileno(stream), F_GETFL));
  fputs("a line\n", stream);
  if (fclose(stream)) {
    printf("%s\n", strerror(errno));
    return 1;
  }
  return 0;
}

int main(int argc, char **argv) {
  mode_t mode = argc > 3 ? (mode_t)strtoul(argv[3], NULL, 8) : 0644;
  if (argc < 3)
    return 2;
  if (!strncmp(argv[1], "fopen", 5))
    return by_stream(argv[1], argv[2]);
  int fd = made(argv[1], argv[2], mode);
  if (fd < 0) {
    printf("%s\n", strerror(errno));
    return 1;
  }
  printf("%o\n", fcntl(fd, F_GETFL));
  if (strcmp(argv[1], "path") && write(fd, "a line\n", 7) != 7) {
    printf("%s\n", strerror(errno));
    return 1;
  }
  return close(fd) ? 1 : 0;
}
