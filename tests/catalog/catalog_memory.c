// SPDX-License-Identifier: Apache-2.0
/* A catalog of many entries that nobody has, and looking them up at random with little memory.

       catalog_memory make FILE FOLDERS      each with 1,000 files
       catalog_memory look FILE FOLDERS COUNT

   look prints how many were found as they were made, and how many blocks of memory it kept. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/index.h"
#include "kernels/index_write.h"

enum { FILES = 1000 };

static uint64_t mixed(uint64_t n) { return (n + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 20; }

static int make(const char *file, unsigned folders) {
  struct penstock_batch *b = penstock_batch_new();
  char name[64];
  int fd = open(file, O_CREAT | O_RDWR | O_TRUNC, 0600), err = 0;
  for (unsigned f = 0; f < folders && !err; f++) {
    for (unsigned i = 0; i < FILES && !err; i++) {
      uint64_t n = (uint64_t)f * FILES + i;
      int size = snprintf(name, sizeof name, "sample-%06u.npy", i);
      struct penstock_draft d = {.name = name, .name_size = (size_t)size, .attrs = {.ino = n + 2, .size = mixed(n), .mode = 0100644, .nlink = 1}};
      err = penstock_batch_add(b, &d);
    }
    int size = snprintf(name, sizeof name, "shard%05u", f);
    if (!err)
      err = penstock_batch_close(b, name, (size_t)size, PENSTOCK_COMPLETE, 1);
  }
  if (!err)
    err = penstock_index_write(fd, &b, 1, 1, 2, NULL);
  penstock_batch_free(b);
  fsync(fd);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  return err ? 1 : 0;
}

static int look(const char *file, unsigned folders, unsigned count) {
  struct penstock_index ix;
  char path[128];
  unsigned good = 0;
  uint64_t x = 88172645463325252u;
  int fd = open(file, O_RDONLY);
  if (fd < 0 || penstock_index_open(&ix, fd, 0) < 0)
    return 1;
  for (unsigned k = 0; k < count; k++) {
    struct penstock_entry e;
    x = x * 6364136223846793005u + 1442695040888963407u;
    uint64_t n = (x >> 33) % ((uint64_t)folders * FILES);
    int size = snprintf(path, sizeof path, "shard%05u/sample-%06u.npy", (unsigned)(n / FILES), (unsigned)(n % FILES));
    int64_t at = penstock_index_find(&ix, path, (size_t)size);
    good += at > 0 && penstock_index_entry(&ix, (uint64_t)at, &e) == 0 && e.ino == n + 2 && e.size == mixed(n);
  }
  printf("%u %llu\n", good, (unsigned long long)ix.h.entries);
  penstock_index_close(&ix);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "make") == 0)
    return make(argv[2], (unsigned)atoi(argv[3]));
  if (argc == 5 && strcmp(argv[1], "look") == 0)
    return look(argv[2], (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]));
  return 2;
}
