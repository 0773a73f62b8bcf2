// SPDX-License-Identifier: Apache-2.0
/* survive forks NUMBER     children that did not end, of so many forked while four threads are held back
   survive kills NUMBER     s that the next call takes when so many who waited were killed at once
   To be run under a limit; each child makes one call that costs a look-up. */
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "../floor.h"

enum { HANGS_S = 10 };

static void ask(void) { access("missing", F_OK); }

static void *ask_on(void *unused) {
  for (;;)
    ask();
  return unused;
}

/* Did it end by itself? */
static int ended(pid_t pid) {
  uint64_t until = now_ns() + HANGS_S * 1000000000ull;
  while (now_ns() < until) {
    if (waitpid(pid, NULL, WNOHANG) == pid)
      return 1;
    usleep(200);
  }
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  return 0;
}

static void forks(int number) {
  int hangs = 0;
  for (int i = 0; i < 4; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, ask_on, NULL);
  }
  for (int i = 0; i < number; i++) {
    pid_t pid = fork();
    if (!pid) {
      ask();
      _exit(0);
    }
    hangs += !ended(pid);
  }
  printf("%d\n", hangs);
  fflush(stdout);
  _exit(0);
}

static void kills(int number) {
  static pid_t pids[4096];
  _Atomic int *ready = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < number && i < 4096; i++)
    if (!(pids[i] = fork())) {
      ++*ready;
      ask_on(NULL);
    }
  while (*ready < number)
    usleep(1000);
  usleep(500000); /* so that all but the last few wait */
  for (int i = 0; i < number; i++)
    kill(pids[i], SIGKILL);
  for (int i = 0; i < number; i++)
    waitpid(pids[i], NULL, 0);
  uint64_t from = now_ns();
  ask();
  printf("%.3f\n", (double)(now_ns() - from) * 1e-9);
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "forks"))
    forks(atoi(argv[2]));
  else if (argc == 3 && !strcmp(argv[1], "kills"))
    kills(atoi(argv[2]));
  else
    return 2;
  return 0;
}
