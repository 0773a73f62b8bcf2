// SPDX-License-Identifier: Apache-2.0
/* An allocator as some are: its first call, from wherever, takes a lock and then opens, reads and maps files. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *at, *end;

static void begin(void) {
  char text[64];
  int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && read(fd, text, sizeof text) > 0)
    close(fd);
  at = mmap(NULL, 1 << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  end = at + (1 << 30);
}

void *malloc(size_t size) {
  pthread_mutex_lock(&lock);
  if (!at)
    begin();
  size = (size + 31) & ~(size_t)15;
  char *found = at + size <= end ? at : NULL;
  if (found) {
    at += size;
    memcpy(found, &size, sizeof size);
    found += 16;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void free(void *old) { (void)old; }
void *calloc(size_t n, size_t size) { return malloc(n * size); }

void *realloc(void *old, size_t size) {
  void *made = malloc(size);
  if (made && old) {
    size_t had;
    memcpy(&had, (char *)old - 16, sizeof had);
    memcpy(made, old, had - 16 < size ? had - 16 : size);
  }
  return made;
}
