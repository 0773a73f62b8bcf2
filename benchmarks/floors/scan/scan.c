// SPDX-License-Identifier: Apache-2.0
/* The floor of a scan: getdents64 and statx over a tree with N threads and one stack of folders; nothing is kept.

       scan DIR THREADS [list OUT]

   list: also writes "path \t size mode uid gid nlink ino mtime ctime_ns atime" lines.
   Prints entries, wall seconds, CPU seconds. */
#include "floor.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/syscall.h>

struct ent { uint64_t ino, off; unsigned short len; unsigned char type; char name[]; };
struct dir { struct dir *next; char path[]; };
static struct dir *stack;
static int idle, done, n_threads;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cv = PTHREAD_COND_INITIALIZER;
static _Atomic uint64_t entries, bytes;
static FILE *list;
enum { WANT = STATX_BASIC_STATS };
static void push(const char *path) {
  size_t n = strlen(path) + 1;
  struct dir *d = malloc(sizeof *d + n);
  memcpy(d->path, path, n); pthread_mutex_lock(&mu); d->next = stack; stack = d;
  if (idle) pthread_cond_signal(&cv);
  pthread_mutex_unlock(&mu);
}
static struct dir *pop(void) {
  pthread_mutex_lock(&mu);
  while (!stack && !done) {
    if (++idle == n_threads) { done = 1; pthread_cond_broadcast(&cv); break; }
    pthread_cond_wait(&cv, &mu);
    if (!done) idle--;
  }
  struct dir *d = done ? NULL : stack;
  if (d) stack = d->next;
  pthread_mutex_unlock(&mu); return d;
}
static void seen(const char *dir, const char *name, const struct statx *s) {
  if (list)
    fprintf(list, "%s/%s\t%llu %u %u %u %u %llu %lld %llu %lld\n", dir, name, (unsigned long long)s->stx_size, s->stx_mode, s->stx_uid, s->stx_gid, s->stx_nlink,
            (unsigned long long)s->stx_ino, (long long)s->stx_mtime.tv_sec, (unsigned long long)s->stx_ctime.tv_sec * 1000000000u + s->stx_ctime.tv_nsec, (long long)s->stx_atime.tv_sec);
}
static void work(int id) {
  (void)id;
  static const size_t cap = 1 << 18;
  char *buf = malloc(cap), path[4096];
  uint64_t n = 0, size = 0;
  struct statx sx;
  for (struct dir *d; (d = pop()); free(d)) {
    int fd = open(d->path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
      continue;
    for (long k; (k = syscall(SYS_getdents64, fd, buf, cap)) > 0;)
      for (long o = 0; o < k; o += ((struct ent *)(buf + o))->len) {
        struct ent *e = (struct ent *)(buf + o);
        if (e->name[0] == '.' && (!e->name[1] || (e->name[1] == '.' && !e->name[2])))
          continue;
        n++;
        if (e->type == DT_DIR) {
          snprintf(path, sizeof path, "%s/%s", d->path, e->name);
          push(path);
        }
        if (statx(fd, e->name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, WANT, &sx))
          die(e->name);
        size += sx.stx_size;
        seen(d->path, e->name, &sx);
      }
    close(fd);
  }
  entries += n;
  bytes += size;
  free(buf);
}

int main(int argc, char **argv) {
  if (argc < 3)
    return 2;
  n_threads = atoi(argv[2]);
  if (argc > 4)
    list = fopen(argv[4], "w");
  push(argv[1]);
  uint64_t before = cpu_ns();
  double seconds = on_threads(n_threads, work);
  printf("%lu %.6f %.6f\n", (unsigned long)entries, seconds, (double)(cpu_ns() - before) * 1e-9);
  if (list)
    fclose(list);
  return 0;
}
