// SPDX-License-Identifier: Apache-2.0
/* Changes a file where no stage looks: `nested WAY PATH FIFO` prints its size before and after.
   handler: in a signal handler that interrupts an open; vfork: in a vfork child; number: by system calls alone.  It is
   written to, or with -cut at the end truncated by its name. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *path;
static int cuts;

static long long size(void) {
  struct stat st;
  return stat(path, &st) ? -errno : (long long)st.st_size;
}

static void change(void) {
  if (cuts) {
    if (truncate(path, 3))
      _exit(6);
    return;
  }
  int fd = open(path, O_WRONLY | O_APPEND);
  if (fd < 0 || write(fd, "more", 4) != 4)
    _exit(3);
  close(fd);
}

static void on_signal(int sig) {
  (void)sig;
  change();
}

/* Somebody signals us again and again until we are out of an open that waits. */
static void in_handler(const char *fifo) {
  struct sigaction act = {.sa_handler = on_signal};
  sigaction(SIGUSR1, &act, NULL);
  pid_t us = getpid(), other = fork();
  if (!other)
    for (int i = 0; i < 600; i++) {
      usleep(100000);
      kill(us, SIGUSR1);
    }
  int fd = other ? open(fifo, O_RDONLY) : -1;
  if (fd >= 0 || errno != EINTR)
    _exit(4);
  kill(other, SIGKILL);
  waitpid(other, NULL, 0);
}

static void in_vfork(void) {
  pid_t child = vfork();
  if (!child) {
    change();
    _exit(0);
  }
  waitpid(child, NULL, 0);
}

static void by_number(void) {
  long fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND);
  if (fd < 0 || syscall(SYS_write, fd, "more", 4) != 4)
    _exit(5);
  syscall(SYS_close, fd);
}

int main(int count, char **words) {
  if (count < 4)
    return 2;
  path = words[2];
  cuts = strstr(words[1], "-cut") != NULL;
  printf("%lld ", size());
  fflush(stdout);
  if (!strncmp(words[1], "handler", 7))
    in_handler(words[3]);
  else if (!strncmp(words[1], "vfork", 5))
    in_vfork();
  else
    by_number();
  printf("%lld\n", size());
  return 0;
}
