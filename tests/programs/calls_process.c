// SPDX-License-Identifier: Apache-2.0
/* Snippets of calls that make processes and programs, and that change where a process stands. */
#include "calls.h"
#include <sched.h>
#include <sys/fsuid.h>
#include <sys/mount.h>

extern char **environ;
enum { STATUS = 7 };

static void end_of(pid_t pid) {
  int status = -1;
  SAY(waitpid(pid, &status, 0) == pid);
  say("  ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

/* A program that tells by its status whether its words and its environment arrived. */
#define PROGRAM "/bin/sh"
#define SCRIPT "test \"$1$2$MARK\" = onetwothree || exit 1; exit 7"
static char *const words[] = {"sh", "-c", SCRIPT, "sh", "one", "two", NULL};
static char *const marked[] = {"MARK=three", "PATH=/bin:/usr/bin", NULL};

#define EXEC_CASE(name, call) \
  CASE2(name, ALONE | NOT_IN_VFORK) { \
    pid_t pid = fork(); \
    if (!pid) { \
      environ = (char **)(uintptr_t)marked; \
      call; \
      _exit(100); \
    } \
    end_of(pid); \
    pid = vfork(); \
    if (!pid) { \
      char **was = environ; \
      environ = (char **)(uintptr_t)marked; \
      call; \
      environ = was; \
      _exit(100); \
    } \
    environ = kept; \
    end_of(pid); \
  }
static char **kept;
__attribute__((constructor(250))) static void keep(void) { kept = environ; }

EXEC_CASE(execve, execve(PROGRAM, words, marked))
EXEC_CASE(execv, execv(PROGRAM, words))
EXEC_CASE(execvp, execvp("sh", words))
EXEC_CASE(execvpe, execvpe("sh", words, marked))
EXEC_CASE(execl, execl(PROGRAM, "sh", "-c", SCRIPT, "sh", "one", "two", NULL))
EXEC_CASE(execlp, execlp("sh", "sh", "-c", SCRIPT, "sh", "one", "two", NULL))
EXEC_CASE(execle, execle(PROGRAM, "sh", "-c", SCRIPT, "sh", "one", "two", NULL, marked))
EXEC_CASE(fexecve, fexecve(open(PROGRAM, O_RDONLY), words, marked))
EXEC_CASE(execveat, execveat(AT_FDCWD, PROGRAM, words, marked, 0))

static void cannot(void) {
  char *const none[] = {NULL};
  SAY(execve(at("missing"), words, marked));
  SAY(execve(at("file"), words, marked));
  SAY(execve((const char *)8, words, marked));
  SAY(execve(PROGRAM, words, (char *const *)8));
  SAY(execve(PROGRAM, words, (char *const[]){(char *)8, NULL}));
  SAY(execv(at("folder"), none));
  SAY(execvp("no-such-program", none));
}
CASE2(exec_errors, ALONE) { cannot(); }

#define SPAWN_CASE(name, program) \
  CASE2(name, ALONE | NOT_IN_VFORK) { \
    pid_t pid = 0; \
    posix_spawn_file_actions_t actions; \
    posix_spawn_file_actions_init(&actions); \
    posix_spawn_file_actions_addopen(&actions, 1, at("file"), O_WRONLY | O_TRUNC, 0); \
    SAY(name(&pid, program, &actions, NULL, words, marked)); \
    end_of(pid); \
    SAY(name(&pid, at("missing"), NULL, NULL, words, marked)); \
    posix_spawn_file_actions_destroy(&actions); \
  }
SPAWN_CASE(posix_spawn, PROGRAM)
SPAWN_CASE(posix_spawnp, "sh")

/* The child closes and replaces descriptors of its own; the parent's stay. */
CASE2(vfork, ALONE | NOT_IN_VFORK) {
  int fd = open_file();
  for (volatile int turn = 0; turn < 3; turn++) {
    pid_t pid = vfork();
    if (!pid) {
      dup2(fd, 900);
      close(fd);
      pid_t nested = vfork();
      if (!nested)
        _exit(STATUS);
      int status;
      waitpid(nested, &status, 0);
      _exit(WEXITSTATUS(status) + turn);
    }
    end_of(pid);
  }
  SAY(read(fd, (char[4]){0}, 3));
  SAY(fcntl(900, F_GETFD));
  close(fd);
}

/* What becomes of descriptors 0 to 2 when others put something in their place. */
static int standard_is(int fd) {
  struct stat st, null;
  return fstat(fd, &st) || stat("/dev/null", &null) ? -1 : isatty(fd) ? 1 : st.st_rdev == null.st_rdev ? 2 : 3;
}
CASE2(daemon, ALONE | NOT_IN_VFORK) {
  int tube[2];
  char what = 0;
  if (pipe(tube))
    return;
  pid_t pid = fork();
  if (!pid) {
    dup2(open_file(), 1);
    if (!daemon(1, 0)) {
      what = (char)('0' + standard_is(1));
      _exit(write(tube[1], &what, 1) != 1 || write(1, "lost", 4) != 4);
    }
    _exit(1);
  }
  end_of(pid);
  SAY(read(tube[0], &what, 1));
  say("  %c\n", what);
  close(tube[0]);
  close(tube[1]);
}
CASE2(forkpty, ALONE | NOT_IN_VFORK) {
  int terminal = -1;
  pid_t pid = forkpty(&terminal, NULL, NULL, NULL);
  if (!pid)
    _exit(standard_is(1) * 10 + (write(1, "to a terminal", 13) == 13));
  end_of(pid);
  close(terminal);
}
CASE2(login_tty, ALONE | NOT_IN_VFORK) {
  int terminal = -1, other = -1;
  SAY(openpty(&terminal, &other, NULL, NULL, NULL));
  pid_t pid = fork();
  if (!pid)
    _exit(login_tty(other) ? 1 : standard_is(1) * 10 + (write(1, "x", 1) == 1));
  end_of(pid);
  close(terminal);
  close(other);
}

CASE2(chdir, ALONE | NOT_IN_VFORK) {
  int before = open(".", O_RDONLY | O_DIRECTORY);
  struct stat st;
  SAY(chdir(here->folder));
  SAY(stat("file", &st));
  SAY(chdir("folder"));
  SAY(stat("file", &st));
  SAY(stat("../file", &st));
  SAY(chdir("missing"));
  SAY(chdir((const char *)8));
  SAY(unlink("a"));
  SAY(fchdir(before));
  close(before);
}
CASE2(fchdir, ALONE | NOT_IN_VFORK) {
  int before = open(".", O_RDONLY | O_DIRECTORY), folder = open(at("folder"), O_RDONLY);
  SAY(fchdir(folder));
  SAY(access("a", F_OK));
  SAY(fchdir(before));
  SAY(fchdir(-1));
  close(before);
  close(folder);
}
CASE2(chroot, ALONE | NOT_IN_VFORK) {
  SAY(chroot(at("missing")));
  pid_t pid = fork();
  if (!pid)
    _exit(chroot(here->folder) ? 1 : open("/file", O_RDONLY) < 0 ? 2 : STATUS);
  end_of(pid);
}
CASE(setns) { SAY(setns(-1, 0)); }
CASE(unshare) {
  SAY(unshare(0));
  SAY(unshare(-1));
}
CASE2(setfsuid, ALONE | NOT_IN_VFORK) { SAY(setfsuid((uid_t)-1)); }
CASE2(setfsgid, ALONE | NOT_IN_VFORK) { SAY(setfsgid((gid_t)-1)); }
CASE(mount) { SAY(mount("none", at("missing"), "none", 0, NULL)); }
CASE(umount) { SAY(umount(at("missing"))); }
CASE(umount2) { SAY(umount2(at("folder"), 0)); }
CASE(move_mount) { SAY(move_mount(-1, "", -1, at("missing"), 0)); }
extern int pivot_root(const char *, const char *);
CASE(pivot_root) { SAY(pivot_root(at("missing"), at("missing"))); }
CASE(prctl) {
  SAY(prctl(PR_GET_DUMPABLE));
  SAY(prctl(PR_GET_SECCOMP));
  SAY(prctl(9999, 1, 2, 3, 4));
}
CASE(syscall) {
  char buffer[8] = {0};
  int fd = (int)syscall(SYS_openat, AT_FDCWD, at("file"), O_RDONLY, 0);
  SAY(fd >= 0);
  SAY(syscall(SYS_read, fd, buffer, 3));
  SAY(syscall(SYS_pread64, fd, buffer, 3, 4));
  SAY(syscall(SYS_close, fd));
  SAY(syscall(SYS_close, -1));
  SAY(syscall(9999));
  SAY(syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) > 0);
}
