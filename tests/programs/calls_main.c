// SPDX-License-Identifier: Apache-2.0
/* calls MODE FOLDER: runs all snippets and says what they said.
   MODE: list, plain, constructor (set CALLS_MODE and CALLS_FOLDER too), threads, fork, vfork.
   Compiled with -DLIBRARY it is loaded by dlopen, and `calls_main` does the same. */
#include "calls.h"
#include <pthread.h>

enum { THREADS = 8, ROOM = 512 };
static struct snippet snippets[ROOM];
static int count;
__thread struct place *here;
static const char *top;

void add_snippet(const char *symbol, int where, void (*run)(void)) {
  snippets[count++] = (struct snippet){symbol, where, run};
}

void say(const char *format, ...) {
  va_list list;
  va_start(list, format);
  int n = vsnprintf(here->said + here->size, sizeof here->said - here->size, format, list);
  va_end(list);
  if (n > 0 && here->size + (size_t)n < sizeof here->said)
    here->size += (size_t)n;
}

const char *at(const char *name) {
  char *to = here->name[here->names++ % 4];
  snprintf(to, sizeof here->name[0], "%s/%s", here->folder, name);
  return to;
}

int open_file(void) { return open(at("file"), O_RDWR); }

long long offset(int fd) { return lseek(fd, 0, SEEK_CUR); }

void result_of(const char *what, long long result, int error) {
  if (error != POISON)
    say("  %s = %lld, errno %d\n", what, result, error);
  else
    say("  %s = %lld\n", what, result);
}

void *old(const char *symbol) {
  static const char *const versions[] = {"GLIBC_2.2.5", "GLIBC_2.17"};
  for (int i = 0; i < 2; i++) {
    void *found = dlvsym(RTLD_DEFAULT, symbol, versions[i]);
    if (found)
      return found;
  }
  return NULL;
}

static void put(const char *name, const char *text) {
  int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd)) {
    perror(at(name));
    exit(3);
  }
}

static void furnish(void) {
  char line[] = "0123456789abcdef 3 words\n";
  put("file", line);
  put("other", "x\n");
  mkdir(at("folder"), 0755);
  put("folder/a", "a");
  put("folder/b", "bb");
  if (symlink("file", at("link")))
    perror("symlink");
}

static void run_one(const struct snippet *s, const char *who) {
  here->size = 0;
  here->names = 0;
  here->said[0] = 0;
  snprintf(here->folder, sizeof here->folder, "%s/%s", top, who);
  mkdir(here->folder, 0755);
  snprintf(here->folder, sizeof here->folder, "%s/%s/%s", top, who, s->symbol);
  if (mkdir(here->folder, 0755)) {
    perror(here->folder);
    exit(3);
  }
  furnish();
  s->run();
}

static void print(const struct snippet *s) {
  char text[sizeof here->said + 64];
  int n = snprintf(text, sizeof text, "%s:\n%s", s->symbol, here->said);
  if (write(1, text, (size_t)n) != n)
    exit(3);
}

static struct place *shared_place(void) {
  return mmap(NULL, sizeof(struct place), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void in_place(const char *who) {
  for (int i = 0; i < count; i++) {
    run_one(&snippets[i], who);
    print(&snippets[i]);
  }
}

static void wait_for(pid_t pid, const char *symbol) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || status) {
    char text[200];
    int n = snprintf(text, sizeof text, "%s: its process ended with %d\n", symbol, status);
    if (write(1, text, (size_t)n) != n)
      exit(3);
  }
}

static void after_fork(void) {
  for (int i = 0; i < count; i++) {
    pid_t pid = fork();
    if (!pid) {
      run_one(&snippets[i], "fork");
      _exit(0);
    }
    wait_for(pid, snippets[i].symbol);
    print(&snippets[i]);
  }
}

static void after_vfork(void) {
  for (volatile int i = 0; i < count; i++) {
    if (snippets[i].where & NOT_IN_VFORK)
      continue;
    pid_t pid = vfork();
    if (!pid) {
      run_one(&snippets[i], "vfork");
      _exit(0);
    }
    wait_for(pid, snippets[i].symbol);
    print(&snippets[i]);
  }
}

static void *thread(void *number) {
  char who[32];
  snprintf(who, sizeof who, "thread%d", (int)(intptr_t)number);
  char *all = calloc(1, 1 << 21), *end = all;
  here = calloc(1, sizeof *here);
  here->among_threads = true;
  for (int i = 0; i < count; i++) {
    if (snippets[i].where & ALONE)
      continue;
    run_one(&snippets[i], who);
    end += sprintf(end, "%s of %s:\n%s", snippets[i].symbol, who, here->said);
  }
  free(here);
  return all;
}

static void in_threads(void) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, thread, (void *)(intptr_t)i);
  for (int i = 0; i < THREADS; i++) {
    void *said;
    pthread_join(threads[i], &said);
    if (write(1, said, strlen(said)) < 0)
      exit(3);
    free(said);
  }
}

int calls_main(const char *mode, const char *folder);
int calls_main(const char *mode, const char *folder) {
  top = folder;
  umask(022);
  here = shared_place();
  if (!strcmp(mode, "list"))
    for (int i = 0; i < count; i++)
      printf("%s %d\n", snippets[i].symbol, snippets[i].where);
  else if (!strcmp(mode, "plain") || !strcmp(mode, "constructor"))
    in_place(mode);
  else if (!strcmp(mode, "threads"))
    in_threads();
  else if (!strcmp(mode, "fork"))
    after_fork();
  else if (!strcmp(mode, "vfork"))
    after_vfork();
  else
    return 2;
  return 0;
}

#ifndef LIBRARY
__attribute__((constructor(300))) static void early(void) {
  const char *mode = getenv("CALLS_MODE");
  if (mode && !strcmp(mode, "constructor"))
    exit(calls_main(mode, getenv("CALLS_FOLDER")));
}

int main(int argc, char **argv) { return argc < 3 ? 2 : calls_main(argv[1], argv[2]); }
#endif
