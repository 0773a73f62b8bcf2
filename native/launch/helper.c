// SPDX-License-Identifier: Apache-2.0
/* See helper.h. */
#include "launch/helper.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "launch/agent.h"

enum { WAIT_MS = 120000, LOOK_EVERY_MS = 5 };

/* `penstock` beside this program. */
static bool find_penstock(char ret[PATH_MAX]) {
  ssize_t size = readlink("/proc/self/exe", ret, PATH_MAX - 1);
  if (size <= 0)
    return false;
  ret[size] = 0;
  char *slash = strrchr(ret, '/');
  return slash && (size_t)snprintf(slash + 1, (size_t)(ret + PATH_MAX - slash - 1), "penstock") <
                    (size_t)(ret + PATH_MAX - slash - 1) && access(ret, X_OK) == 0;
}

/* Descriptor 0 tells it when to end, 3 is the ring: the board may be gone before it has begun. */
static _Noreturn void become(const char *penstock, const struct penstock_wishes *wishes, const char *board, int alive,
                             int ring, const sigset_t *mask) {
  char *const argv[] = {(char *)"penstock", (char *)"catalog", (char *)"follow", (char *)"--ring", (char *)"3",
                        (char *)"--board", (char *)(uintptr_t)board, (char *)"--root",
                        (char *)(uintptr_t)wishes->catalog_root, (char *)"--", (char *)(uintptr_t)wishes->catalog, NULL};
  int null = open("/dev/null", O_RDWR), log = penstock_log_open(wishes);
  setsid();
  /* Out of the way first: any of them may have one of the numbers that they are to have. */
  int kept[] = {fcntl(alive, F_DUPFD, 10), fcntl(null, F_DUPFD, 10), fcntl(log < 0 ? null : log, F_DUPFD, 10),
                fcntl(ring, F_DUPFD, 10)};
  for (int i = 0; i < 4; i++)
    dup2(kept[i], i);
  syscall(SYS_close_range, 4u, ~0u, 0);
  for (int sig = 1; sig < SIGRTMIN; sig++)
    signal(sig, SIG_DFL);
  sigprocmask(SIG_SETMASK, mask, NULL);
  unsetenv("LD_PRELOAD");
  unsetenv("PENSTOCK_BOARD");
  unsetenv("PENSTOCK_RUN");
  if (chdir("/") == 0)
    execv(penstock, argv);
  _exit(127);
}

void penstock_helper_start(struct penstock_helper *ret, const struct penstock_wishes *wishes, const char *board,
                           const void *mask) {
  char penstock[PATH_MAX], path[PATH_MAX];
  int ends[2];
  *ret = (struct penstock_helper){0, -1};
  if (!*wishes->catalog)
    return;
  int ring = snprintf(path, sizeof path, "%s/ring", board) < (int)sizeof path
               ? open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
               : -1;
  if (ring < 0 || !find_penstock(penstock) || pipe2(ends, O_CLOEXEC)) {
    if (ring >= 0)
      close(ring);
    penstock_note(wishes, "the catalog %s is not kept: its helper cannot be started; penstock catalog update brings it up to date",
                  wishes->catalog);
    return;
  }
  pid_t child = fork();
  if (child == 0)
    become(penstock, wishes, board, ends[0], ring, mask);
  close(ends[0]);
  close(ring);
  if (child < 0)
    close(ends[1]);
  else
    *ret = (struct penstock_helper){child, ends[1]};
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void penstock_helper_finish(struct penstock_helper *h, const struct penstock_wishes *wishes, bool verbose) {
  if (h->alive >= 0)
    close(h->alive);
  h->alive = -1;
  if (h->pid <= 0)
    return;
  int status = 0;
  int64_t until = now_ms() + WAIT_MS;
  pid_t ended;
  while ((ended = waitpid(h->pid, &status, WNOHANG)) == 0 && now_ms() < until)
    nanosleep(&(struct timespec){.tv_nsec = LOOK_EVERY_MS * 1000000L}, NULL);
  if (ended == 0)
    penstock_note(wishes, "the catalog %s is still being written; it goes on by itself", wishes->catalog);
  else if (ended > 0 && (!WIFEXITED(status) || WEXITSTATUS(status))) {
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    penstock_note(wishes, "the catalog %s may lack what this run wrote (its helper ended with %d); penstock catalog update brings it up to date",
                  wishes->catalog, code);
    if (verbose)
      dprintf(2, "penstock: the catalog %s may lack what this run wrote (its helper ended with %d, the log says more); penstock catalog update brings it up to date\n",
              wishes->catalog, code);
  }
  h->pid = 0;
}
