// SPDX-License-Identifier: Apache-2.0
/* hazards WHAT FOLDER: does what preloaded libraries are known to break, and says what came of it.
   Whatever hangs is ended by SIGALRM or by the test. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *folder;

static void need(bool claim, const char *what) {
  if (claim)
    return;
  dprintf(2, "%s: errno %d\n", what, errno);
  _exit(3);
}

static int make(const char *name, int flags) {
  char path[4200];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  int fd = open(path, flags | O_CREAT, 0600);
  need(fd >= 0, path);
  return fd;
}

static void put(int fd, const char *text) { need(write(fd, text, strlen(text)) == (ssize_t)strlen(text), "write"); }

/* ---- vfork: a child that closes and moves descriptors, a parent whose stack and books are as before ---- */

static void vforks(void) {
  volatile uint64_t guard[16];
  int kept = make("kept", O_WRONLY | O_APPEND), other = make("other", O_WRONLY);
  for (int i = 0; i < 16; i++)
    guard[i] = 0x1234567890abcdefu + (unsigned)i;
  for (volatile int turn = 0; turn < 200; turn++) {
    pid_t pid = vfork();
    if (pid == 0) {
      dup2(other, kept);
      close(other);
      syscall(436 /* close_range */, 3, ~0u, 0);
      if (turn % 4 == 0)
        _exit(0);
      execl("/bin/true", "true", NULL);
      _exit(1);
    }
    int status = 0;
    need(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "vfork child");
    for (int i = 0; i < 16; i++)
      need(guard[i] == 0x1234567890abcdefu + (unsigned)i, "the parent's stack");
    put(kept, "x");
  }
  puts("200 vforks");
}

/* ---- processes of every kind are processes of their own ---- */

static void child(const char *name) {
  put(make(name, O_WRONLY), "12345");
  _exit(0);
}

static void processes(void) {
  pid_t (*bare_fork)(void) = (pid_t (*)(void))dlsym(RTLD_DEFAULT, "_Fork");
  put(make("parent", O_WRONLY), "1");
  if (fork() == 0)
    child("fork");
  if ((bare_fork ? bare_fork() : fork()) == 0)
    child("_Fork");
  if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0)
    child("clone");
  while (wait(NULL) > 0)
    ;
  put(make("parent2", O_WRONLY), "1");
  puts("done");
}

/* ---- fork while other threads are in wrappers ---- */

static volatile bool over;

static void *busy(void *number) {
  char name[32], path[4200], data[64];
  snprintf(name, sizeof name, "busy%d", (int)(intptr_t)number);
  snprintf(path, sizeof path, "%s/%s", folder, name);
  while (!over) {
    int fd = make(name, O_RDWR);
    struct stat st;
    put(fd, "0123456789");
    need(pread(fd, data, sizeof data, 0) >= 10, "pread");
    need(stat(path, &st) == 0, "stat");
    need(chdir(folder) == 0, "chdir");
    close(fd);
    FILE *file = fopen(path, "r");
    need(file && fread(data, 1, 10, file) == 10, "fread");
    fclose(file);
  }
  return NULL;
}

static void forks(void) {
  enum { THREADS = 3, FORKS = 1000 };
  pthread_t thread[THREADS];
  for (intptr_t i = 0; i < THREADS; i++)
    pthread_create(&thread[i], NULL, busy, (void *)i);
  for (int turn = 0; turn < FORKS; turn++) {
    pid_t pid = fork();
    if (pid == 0) {
      alarm(60);
      int fd = make("forked", O_WRONLY | O_APPEND);
      put(fd, "y");
      close(fd);
      _exit(0);
    }
    int status = 0;
    need(waitpid(pid, &status, 0) == pid && status == 0, "a child hung or died");
  }
  over = true;
  for (int i = 0; i < THREADS; i++)
    pthread_join(thread[i], NULL);
  puts("1000 forks");
}

/* ---- signal handlers that use files, and that jump out of calls ---- */

static volatile int signals;
static sigjmp_buf out;

static void uses_files(int number) {
  (void)number;
  int saved = errno, fd = make("handler", O_WRONLY | O_APPEND);
  struct stat st;
  put(fd, "z");
  need(fstat(fd, &st) == 0, "fstat");
  close(fd);
  signals++;
  errno = saved;
}

static void jumps(int number) {
  (void)number;
  signals++;
  siglongjmp(out, 1);
}

static void tick(void (*handler)(int), int flags) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
  struct itimerval each = {{0, 300}, {0, 300}};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &each, NULL);
}

static void no_ticks(void) {
  struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
}

static void handlers(void) {
  char path[4200], data[16];
  long loops = 0;
  snprintf(path, sizeof path, "%s/main", folder);
  tick(uses_files, SA_RESTART);
  for (; signals < 500; loops++) {
    int fd = make("main", O_RDWR | O_TRUNC);
    put(fd, "0123456789");
    need(pread(fd, data, 10, 0) == 10, "pread");
    struct stat st;
    need(stat(path, &st) == 0 && st.st_size == 10, "stat");
    errno = 0;
    need(open("/no/such/file", O_RDONLY) == -1 && errno == ENOENT, "errno");
    close(fd);
  }
  no_ticks();
  struct stat st;
  snprintf(path, sizeof path, "%s/handler", folder);
  need(stat(path, &st) == 0 && st.st_size == signals, "what handlers wrote");
  puts("500 signals");
}

static void longjmps(void) {
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  int fd = make("main", O_RDWR);
  put(fd, "0123456789");
  for (volatile int turn = 0; turn < 300; turn++) {
    if (sigsetjmp(out, 1) == 0) {
      tick(jumps, 0);
      char data[16];
      for (;;)
        need(pread(fd, data, 10, 0) == 10, "pread");
    }
    no_ticks();
  }
  close(fd);
  put(make("after", O_WRONLY), "seen");
  puts("300 jumps");
}

/* ---- cancellation ---- */

static void *cancelled(void *arg) {
  char path[4200], data[16];
  (void)arg;
  snprintf(path, sizeof path, "%s/main", folder);
  for (;;) {
    struct stat st;
    int fd = *(int *)arg;
    need(pread(fd, data, 10, 0) == 10, "pread");
    need(stat(path, &st) == 0, "stat");
    pwrite(fd, "0123456789", 10, 0);
    fsync(fd);
  }
  return NULL;
}

static void cancels(void) {
  int fd = make("main", O_RDWR);
  put(fd, "0123456789");
  for (int turn = 0; turn < 300; turn++) {
    pthread_t thread;
    void *result;
    need(pthread_create(&thread, NULL, cancelled, &fd) == 0, "pthread_create");
    struct timespec some = {0, turn % 7 * 30000};
    nanosleep(&some, NULL);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    need(result == PTHREAD_CANCELED, "cancelled");
    char data[16];
    need(pread(fd, data, 10, 0) == 10, "others go on");
  }
  put(make("after", O_WRONLY), "seen");
  puts("300 cancelled");
}

/* ---- seccomp ---- */

/* All but what a program needs kills it: no open, stat, readlink, getcwd, futex of ours. */
static void seal(void) {
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
  struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_read),
    ALLOW(SYS_write),
    ALLOW(SYS_close),
    ALLOW(SYS_dup),
    ALLOW(SYS_openat),
    ALLOW(SYS_lseek),
    ALLOW(SYS_newfstatat),
    ALLOW(SYS_clock_gettime),
    ALLOW(SYS_exit_group),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
  need(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "seccomp");
}

static void sealed(bool strict) {
  int before = make("before", O_RDWR), unused = make("unused", O_RDWR);
  put(before, "1");
  if (strict && prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0)
    put(before, "1");
  if (strict)
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0, "seccomp");
  else
    seal();
  put(before, "2");
  put(unused, "3");
  if (strict) {
    put(1, "sealed\n");
    syscall(SYS_exit, 0);
  }
  struct stat st;
  char path[4200];
  put(make("after", O_WRONLY), "4");
  put(dup(before), "5");
  snprintf(path, sizeof path, "%s/after", folder);
  need(stat(path, &st) == 0, "stat");
  need(lseek(before, 0, SEEK_SET) == 0, "lseek");
  put(1, "sealed\n");
  _exit(0);
}

/* ---- namespaces of the loader ---- */

static void namespaces(void) {
  void *other = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
  int (*other_open)(const char *, int, ...) = other ? (int (*)(const char *, int, ...))dlsym(other, "open") : NULL;
  void *deep = dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND);
  need(other_open && deep, "dlmopen");
  char path[4200];
  snprintf(path, sizeof path, "%s/other", folder);
  int fd = other_open(path, O_CREAT | O_RDWR, 0600);
  need(fd >= 0, "open of another libc");
  put(fd, "12"); /* opened unseen, written through ours */
  close(fd);
  puts("done");
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  const char *what = argv[1];
  folder = argv[2];
  if (!strcmp(what, "vforks"))
    vforks();
  else if (!strcmp(what, "processes"))
    processes();
  else if (!strcmp(what, "forks"))
    forks();
  else if (!strcmp(what, "handlers"))
    handlers();
  else if (!strcmp(what, "longjmps"))
    longjmps();
  else if (!strcmp(what, "cancels"))
    cancels();
  else if (!strcmp(what, "strict"))
    sealed(true);
  else if (!strcmp(what, "filter"))
    sealed(false);
  else if (!strcmp(what, "namespaces"))
    namespaces();
  else
    return 2;
  return 0;
}
