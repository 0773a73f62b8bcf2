// SPDX-License-Identifier: Apache-2.0
/* writers DIR: four threads, each appending 64 bytes at a time to a file of its own until the process is killed.  Says
   "ready" when all have begun. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4 };
static const char *dir;
static pthread_barrier_t begun;

static void *writes(void *arg) {
  char path[4096], data[64] = "";
  snprintf(path, sizeof path, "%s/%d", dir, (int)(intptr_t)arg);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pthread_barrier_wait(&begun);
  while (write(fd, data, sizeof data) == sizeof data)
    ;
  abort();
}

int main(int argc, char **argv) {
  pthread_t thread[THREADS];
  if (argc != 2)
    return 2;
  dir = argv[1];
  pthread_barrier_init(&begun, NULL, THREADS + 1);
  for (intptr_t i = 0; i < THREADS; i++)
    pthread_create(&thread[i], NULL, writes, (void *)i);
  pthread_barrier_wait(&begun);
  if (write(1, "ready\n", 6) != 6)
    return 1;
  pthread_join(thread[0], NULL);
  return 1;
}
