// SPDX-License-Identifier: Apache-2.0
/* Lists a folder in every way that there is: `listing_ways FOLDER LINK` prints what came of each, in order of names, so
   that it can be compared.  LINK leads to the folder by a symbolic link. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAMES_MAX = 4096, MANY = 400, THREADS = 4, MARK = 1234 };
static char *names[NAMES_MAX];
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void add(const char *name, unsigned long long ino, int type) {
  char *line;
  if (asprintf(&line, "%s %llu %d", name, ino, type) < 0)
    abort();
  pthread_mutex_lock(&lock);
  names[count++] = line;
  pthread_mutex_unlock(&lock);
}

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void show(const char *way) {
  qsort(names, (size_t)count, sizeof *names, compare);
  printf("%s: %d\n", way, count);
  for (int i = 0; i < count; i++) {
    printf("  %s\n", names[i]);
    free(names[i]);
  }
  count = 0;
}

static int read_some(DIR *dir, int most) {
  struct dirent *e;
  int got = 0;
  errno = MARK;
  while (got < most && (e = readdir(dir))) {
    add(e->d_name, e->d_ino, e->d_type);
    if (e->d_reclen < offsetof(struct dirent, d_name) + strlen(e->d_name) + 1 || e->d_off != telldir(dir))
      printf("wrong: %s\n", e->d_name);
    got++;
  }
  if (errno != MARK)
    printf("errno %d\n", errno);
  return got;
}

static void with_64(DIR *dir) {
  for (struct dirent64 *e; (e = readdir64(dir));)
    add(e->d_name, e->d_ino, e->d_type);
}

static void *with_r(void *dir) {
  struct dirent entry, *next;
  while (readdir_r(dir, &entry, &next) == 0 && next)
    add(entry.d_name, entry.d_ino, entry.d_type);
  return NULL;
}

static void with_threads(DIR *dir) {
  pthread_t thread[THREADS];
  for (int i = 0; i < THREADS; i++)
    pthread_create(&thread[i], NULL, with_r, dir);
  for (int i = 0; i < THREADS; i++)
    pthread_join(thread[i], NULL);
}

static void with_seeks(DIR *dir) {
  long place[NAMES_MAX];
  char *name[NAMES_MAX];
  int n = 0, bad = 0;
  struct dirent *e;
  for (place[0] = telldir(dir); (e = readdir(dir)); place[++n] = telldir(dir))
    name[n] = strdup(e->d_name);
  for (int i = n - 1; i >= 0; i--) {
    seekdir(dir, place[i]);
    bad += telldir(dir) != place[i];
    e = readdir(dir);
    bad += !e || strcmp(e->d_name, name[i]) != 0;
  }
  seekdir(dir, place[n]);
  bad += readdir(dir) != NULL;
  seekdir(dir, place[0]);
  read_some(dir, NAMES_MAX);
  printf("seeks: %d of %d bad\n", bad, n);
}

static int visit(const char *path, const struct stat *st, int kind, struct FTW *at) {
  add(path + at->base, st->st_ino, kind);
  return 0;
}

static void with_libc(const char *folder) {
  struct dirent **list;
  glob_t found;
  char pattern[4096], *const paths[] = {(char *)folder, NULL};
  int n = scandir(folder, &list, NULL, alphasort);
  for (int i = 0; i < n; i++)
    add(list[i]->d_name, list[i]->d_ino, list[i]->d_type);
  show("scandir");
  nftw(folder, visit, 8, FTW_PHYS);
  show("nftw");
  snprintf(pattern, sizeof pattern, "%s/*", folder);
  if (glob(pattern, 0, NULL, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; i++)
      add(found.gl_pathv[i], 0, 0);
  show("glob");
  FTS *tree = fts_open(paths, FTS_PHYSICAL, NULL);
  for (FTSENT *e; tree && (e = fts_read(tree));)
    add(e->fts_path, e->fts_statp ? e->fts_statp->st_ino : 0, e->fts_info);
  show("fts");
}

static void with_raw(const char *folder) {
  static char buffer[1 << 16];
  int fd = open(folder, O_RDONLY | O_DIRECTORY), copy = dup(fd);
  printf("raw: %d\n", syscall(SYS_getdents64, copy, buffer, sizeof buffer) > 0);
  DIR *dir = fdopendir(fd);
  printf("after raw: %d\n", read_some(dir, NAMES_MAX));
  show("the rest");
  rewinddir(dir);
  read_some(dir, NAMES_MAX);
  show("rewound after raw");
  closedir(dir);
  close(copy);
}

/* What is read past a DIR before it gave a name is not in it any more. */
static void beside(const char *folder, bool by_number) {
  static char buffer[1 << 16];
  DIR *dir = opendir(folder);
  if (by_number)
    syscall(SYS_getdents64, dirfd(dir), buffer, sizeof buffer);
  else if (getdents64(dirfd(dir), buffer, sizeof buffer) < 0)
    abort();
  printf("beside: %d\n", read_some(dir, NAMES_MAX));
  count = 0;
  closedir(dir);
}

static void with_changes(DIR *dir, const char *folder) {
  char path[4096];
  read_some(dir, 3);
  snprintf(path, sizeof path, "%s/new", folder);
  close(open(path, O_CREAT | O_WRONLY, 0600));
  rewinddir(dir);
  count = 0;
  for (struct dirent *e; (e = readdir(dir));)
    add(e->d_name, 0, e->d_type);
  show("with a new name");
  unlink(path);
}

int main(int words, char **word) {
  if (words < 3)
    return 2;
  const char *folder = word[1];
  DIR *dir = opendir(folder), *many[MANY];
  printf("%d\n", read_some(dir, NAMES_MAX));
  show("readdir");
  rewinddir(dir);
  read_some(dir, 5);
  rewinddir(dir);
  count = 0;
  with_64(dir);
  show("readdir64, rewound");
  rewinddir(dir);
  with_r(dir);
  show("readdir_r, rewound");
  closedir(dir);

  dir = fdopendir(open(folder, O_RDONLY | O_DIRECTORY));
  with_seeks(dir);
  show("fdopendir");
  struct stat a, b;
  bool known = fstat(dirfd(dir), &a) == 0 && stat(folder, &b) == 0;
  printf("same: %d\n", known && a.st_ino == b.st_ino && a.st_dev == b.st_dev);
  closedir(dir);
  dir = opendir(folder);
  with_threads(dir);
  show("threads");
  closedir(dir);

  dir = opendir(word[2]);
  long begin = telldir(dir);
  seekdir(dir, begin);
  read_some(dir, NAMES_MAX);
  show("by a link, told first");
  closedir(dir);
  with_raw(folder);
  beside(folder, false);
  beside(folder, true);

  for (int i = 0; i < MANY; i++)
    many[i] = opendir(folder);
  int sum = 0;
  for (int i = 0; i < MANY; i++) {
    while (readdir(many[i]))
      sum++;
    closedir(many[i]);
  }
  printf("many: %d\n", sum);

  dir = opendir(folder);
  read_some(dir, 3);
  count = 0;
  fflush(stdout);
  pid_t child = fork();
  int rest = read_some(dir, NAMES_MAX);
  count = 0;
  if (!child)
    _exit(rest);
  int status;
  waitpid(child, &status, 0);
  printf("after fork: %d %d\n", rest, WEXITSTATUS(status));
  closedir(dir);

  with_libc(folder);
  if (chdir(folder) == 0 && (dir = opendir(".")))
    read_some(dir, NAMES_MAX);
  show("from inside");
  rewinddir(dir);
  with_changes(dir, folder);
  closedir(dir);
  dir = opendir("/none");
  printf("none: %d %d\n", dir == NULL, errno);
  return 0;
}
