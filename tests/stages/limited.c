// SPDX-License-Identifier: Apache-2.0
/* What programs do while they are held back: limited DEED FOLDER [NUMBER] prints what came of it. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *folder;
static char missing[4096];
static int number;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void ask(void) { access(missing, F_OK); }

static void say(const char *what, double value) { printf("%s %.6f\n", what, value); }

/* ---- many at once ---- */

static void *asker(void *unused) {
  for (int i = 0; i < number; i++)
    ask();
  return unused;
}

static void threads(int count) {
  pthread_t id[64];
  for (int i = 0; i < count; i++)
    pthread_create(&id[i], NULL, asker, NULL);
  for (int i = 0; i < count; i++)
    pthread_join(id[i], NULL);
}

static void calls(void) {
  for (int i = 0; i < number; i++)
    ask();
}

static void processes(void) { /* NUMBER of them until somebody kills them */
  for (int i = 0; i < number; i++)
    if (!fork())
      for (;;)
        ask();
  puts("all");
  fflush(stdout);
  while (wait(NULL) > 0) {
  }
}

static void *fork_and_ask(void *unused) {
  for (int i = 0; i < number; i++) {
    pid_t pid = fork();
    if (!pid) {
      struct stat st;
      stat(folder, &st);
      _exit(7);
    }
    int status;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
      abort();
  }
  return unused;
}

static int stop;
static void *ask_on(void *unused) {
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
    ask();
  return unused;
}

static void forks(void) { /* while other threads wait */
  pthread_t id[3], forker;
  for (int i = 0; i < 3; i++)
    pthread_create(&id[i], NULL, ask_on, NULL);
  pthread_create(&forker, NULL, fork_and_ask, NULL);
  pthread_join(forker, NULL);
  stop = 1;
  puts("forked");
}

/* ---- signals, jumps, cancellation ---- */

static double handled_at;
static void note(int sig) {
  (void)sig;
  handled_at = now();
}

static void with_signal(void) { /* handled at once, and no EINTR */
  struct sigaction action = {.sa_handler = note};
  sigaction(SIGALRM, &action, NULL);
  struct timespec t = {0, 20000000};
  timer_t timer;
  timer_create(CLOCK_MONOTONIC, NULL, &timer);
  ask(); /* uses up what may be saved */
  timer_settime(timer, 0, &(struct itimerspec){.it_value = t}, NULL);
  double began = now();
  errno = 0;
  int result = access(missing, F_OK);
  printf("result %d\nerrno %d\n", result, errno);
  say("handled", handled_at - began);
  say("took", now() - began);
}

static sigjmp_buf back;
static void jump(int sig) {
  (void)sig;
  siglongjmp(back, 1);
}

static void jumps(void) { /* out of a wait; then waits are waits as ever */
  struct sigaction action = {.sa_handler = jump};
  sigaction(SIGALRM, &action, NULL);
  ask();
  for (volatile int i = 0; i < number; i++) {
    timer_t timer;
    timer_create(CLOCK_MONOTONIC, NULL, &timer);
    timer_settime(timer, 0, &(struct itimerspec){.it_value = {0, 3000000}}, NULL);
    if (!sigsetjmp(back, 1))
      for (;;)
        ask();
    timer_delete(timer);
  }
  signal(SIGALRM, SIG_IGN);
  double began = now();
  for (int i = 0; i < 3; i++)
    ask();
  say("took", now() - began);
}

static void cancelled(void) {
  for (int i = 0; i < number; i++) {
    pthread_t id;
    void *why;
    stop = 0;
    pthread_create(&id, NULL, ask_on, NULL);
    usleep(2000);
    pthread_cancel(id);
    stop = 1;
    pthread_join(id, &why);
  }
  double began = now();
  ask();
  say("took", now() - began);
}

static void in_handler(int sig) {
  (void)sig;
  ask(); /* while the interrupted call waits */
  handled_at = now();
}

static void call_in_handler(void) {
  struct sigaction action = {.sa_handler = in_handler};
  sigaction(SIGALRM, &action, NULL);
  timer_t timer;
  timer_create(CLOCK_MONOTONIC, NULL, &timer);
  ask();
  timer_settime(timer, 0, &(struct itimerspec){.it_value = {0, 20000000}}, NULL);
  double began = now();
  ask();
  say("handled", handled_at - began);
}

/* ---- what else is not to wait ---- */

static void closes(void) {
  char path[4200];
  snprintf(path, sizeof path, "%s/held", folder);
  int fds[64];
  for (int i = 0; i < number; i++)
    fds[i] = open(path, O_CREAT | O_RDWR, 0600);
  flock(fds[0], LOCK_EX);
  double began = now();
  flock(fds[0], LOCK_UN);
  for (int i = 0; i < number; i++)
    close(fds[i]);
  say("took", now() - began);
}

static void pipes(void) {
  int ends[2];
  double began = now();
  for (int i = 0; i < number; i++)
    if (pipe(ends) == 0) {
      struct stat st;
      fstat(ends[0], &st);
      close(ends[0]);
      close(ends[1]);
    }
  say("took", now() - began);
}

static void loads(void) { /* what the loader opens is none of ours to hold back */
  char path[4200];
  snprintf(path, sizeof path, "%s/loaded.so", folder);
  ask();
  double began = now();
  void *library = dlopen(path, RTLD_NOW);
  printf("loaded %d\n", library != NULL);
  say("took", now() - began);
}

static void execs(void) {
  char *words[] = {"/bin/true", NULL};
  for (int i = 0; i < number; i++) {
    pid_t pid = vfork();
    if (!pid) {
      access(missing, F_OK);
      execv("/bin/true", words);
      _exit(9);
    }
    waitpid(pid, NULL, 0);
  }
  puts("ran");
}

/* ---- walks ---- */

static int visit(const char *path, const struct stat *st, int kind, struct FTW *at) {
  (void)path, (void)st, (void)kind, (void)at;
  return 0;
}

static void walk(void) { nftw(folder, visit, 8, FTW_PHYS); }

static void scan(void) {
  struct dirent **names;
  int count = scandir(folder, &names, NULL, NULL);
  printf("entries %d\n", count);
}

static void globs(void) {
  char pattern[4200];
  glob_t found;
  snprintf(pattern, sizeof pattern, "%s/*", folder);
  if (glob(pattern, 0, NULL, &found) == 0)
    printf("entries %zu\n", found.gl_pathc);
}

static void tree(void) {
  char *roots[] = {(char *)(size_t)folder, NULL};
  int count = 0;
  FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  while (fts_read(fts))
    count++;
  fts_close(fts);
  printf("entries %d\n", count);
}

static void four(void) { threads(4); }
static void one(void) { threads(1); }

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*deed)(void);
  } deeds[] = {
    {"calls", calls}, {"one", one}, {"four", four}, {"processes", processes}, {"forks", forks}, {"signal", with_signal},
    {"jumps", jumps}, {"cancelled", cancelled}, {"handler", call_in_handler}, {"closes", closes}, {"pipes", pipes},
    {"loads", loads}, {"execs", execs}, {"walk", walk}, {"scan", scan}, {"glob", globs}, {"tree", tree},
  };
  folder = argc > 2 ? argv[2] : ".";
  number = argc > 3 ? atoi(argv[3]) : 1;
  snprintf(missing, sizeof missing, "%s/missing", folder);
  for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
    if (argc > 1 && strcmp(argv[1], deeds[i].name) == 0) {
      double began = now();
      deeds[i].deed();
      say("all", now() - began);
      return 0;
    }
  return 2;
}
