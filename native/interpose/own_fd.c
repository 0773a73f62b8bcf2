// SPDX-License-Identifier: Apache-2.0
/* What makes, copies and closes descriptors without a path, and what changes where the process stands. */
#include <stdarg.h>
#include <sys/prctl.h>
#include "interpose/wrap.h"

/* The entry goes before the descriptor does: after it, another thread may already have the number.  A close that fails
   (but for EBADF) has closed it all the same. */
#define CLOSE(real) \
  struct penstock_call call; \
  struct penstock_fd was; \
  penstock_begun(); \
  if ((unsigned)fd >= PENSTOCK_FDS || !penstock_fds[fd].known || !penstock_keeps_books()) \
    return real(fd); \
  was = penstock_fds[fd]; \
  if (!was.under || !penstock_enter_fd(&call, PENSTOCK_OP_CLOSE, PENSTOCK_DOES_CLOSE, fd)) { \
    penstock_fd_forget(fd); \
    return real(fd); \
  } \
  call.entry = &was; \
  if (penstock_before(&call)) \
    return (int)penstock_answer(&call); \
  penstock_fd_forget(fd); \
  int result = real(fd); \
  penstock_after(&call, result, result == -1); \
  return result;

PENSTOCK_EXPORT int close(int fd) { CLOSE(penstock_real.close) }
PENSTOCK_EXPORT int __close(int fd) { CLOSE(penstock_real.__close) }

PENSTOCK_EXPORT int close_range(unsigned int fd, unsigned int fd2, int flags) {
  penstock_begun();
  int result = penstock_real.close_range(fd, fd2, flags);
  if (!result && !(flags & 4 /* CLOSE_RANGE_CLOEXEC */) && penstock_keeps_books())
    penstock_fd_forget_range(fd, fd2);
  return result;
}

PENSTOCK_EXPORT void closefrom(int fd) {
  penstock_begun();
  penstock_real.closefrom(fd);
  if (penstock_keeps_books())
    penstock_fd_forget_range(fd < 0 ? 0 : (unsigned)fd, ~0u);
}

/* A copy is what its source is. */
static int copied(int from, int to) {
  if (to >= 0 && penstock_keeps_books())
    penstock_fd_copy(from, to);
  return to;
}

#define DUPLICATE(fd, pass) \
  struct penstock_call call; \
  penstock_begun(); \
  if (penstock_ignored(fd) || !penstock_enter_fd(&call, PENSTOCK_OP_DUP, 0, fd)) \
    return copied(fd, pass); \
  if (penstock_before(&call)) \
    return (int)penstock_answer(&call); \
  int result = copied(fd, pass); \
  penstock_after(&call, result, result == -1); \
  return result;

PENSTOCK_EXPORT int dup(int fd) { DUPLICATE(fd, penstock_real.dup(fd)) }
PENSTOCK_EXPORT int dup2(int fd, int fd2) { DUPLICATE(fd, penstock_real.dup2(fd, fd2)) }
PENSTOCK_EXPORT int __dup2(int fd, int fd2) { DUPLICATE(fd, penstock_real.__dup2(fd, fd2)) }
PENSTOCK_EXPORT int dup3(int fd, int fd2, int flags) { DUPLICATE(fd, penstock_real.dup3(fd, fd2, flags)) }

#define WORD_AFTER(last, type, name) \
  va_list list; \
  va_start(list, last); \
  type name = va_arg(list, type); \
  va_end(list);

static bool is_lock(int command) {
  return command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK ||
         command == F_OFD_SETLKW || command == F_OFD_GETLK;
}

/* The descriptor's flags without the bit that we put there, until the program asks for it. */
static int shown(int fd, int command, const void *word, int result) {
  struct penstock_fd *entry = penstock_fd_at(fd);
  if (!entry || PENSTOCK_LIKELY(!(entry->flags & PENSTOCK_FD_NOT_ASYNC)) || result < 0)
    return result;
  if (command == F_SETFL && (intptr_t)word & O_ASYNC)
    entry->flags &= (uint16_t)~PENSTOCK_FD_NOT_ASYNC;
  return command == F_GETFL ? result & ~O_ASYNC : result;
}

/* F_DUPFD and F_DUPFD_CLOEXEC make a copy and leave the original as it is. */
#define CONTROL(real) \
  struct penstock_call call; \
  WORD_AFTER(command, void *, word) \
  penstock_begun(); \
  bool copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC; \
  uint8_t op = copies ? PENSTOCK_OP_DUP : is_lock(command) ? PENSTOCK_OP_LOCK : PENSTOCK_OP_FCNTL; \
  if (penstock_ignored(fd) || !penstock_enter_fd(&call, op, 0, fd)) { \
    int plain = real(fd, command, word); \
    return copies ? copied(fd, plain) : shown(fd, command, word, plain); \
  } \
  if (penstock_before(&call)) \
    return (int)penstock_answer(&call); \
  int result = real(fd, command, word); \
  if (copies) \
    copied(fd, result); \
  penstock_after(&call, result, result == -1); \
  return shown(fd, command, word, result);

PENSTOCK_EXPORT int fcntl(int fd, int command, ...) { CONTROL(penstock_real.fcntl) }
PENSTOCK_EXPORT int __fcntl(int fd, int command, ...) { CONTROL(penstock_real.__fcntl) }
PENSTOCK_EXPORT int fcntl64(int fd, int command, ...) { CONTROL(penstock_real.fcntl64) }

/* Relative paths mean something else from somewhere within the call on; after it, the path is told from where we stand
   then. */
#define MOVE(enter, pass) \
  struct penstock_call call; \
  penstock_begun(); \
  bool seen = enter, keeps = penstock_keeps_books(); \
  if (seen && penstock_before(&call)) \
    return (int)penstock_answer(&call); \
  if (keeps) \
    penstock_cwd_changes(); \
  int result = pass; \
  if (keeps) \
    penstock_cwd_changes(); \
  if (!seen) \
    return result; \
  if (call.given && !result) \
    call.given = "."; \
  penstock_after(&call, result, result == -1); \
  return result;

PENSTOCK_EXPORT int chdir(const char *path) {
  MOVE(penstock_enter_path(&call, PENSTOCK_OP_CHDIR, 0, AT_FDCWD, path), penstock_real.chdir(path))
}
PENSTOCK_EXPORT int fchdir(int fd) { MOVE(penstock_enter_fd(&call, PENSTOCK_OP_CHDIR, 0, fd), penstock_real.fchdir(fd)) }
PENSTOCK_EXPORT int chroot(const char *path) {
  penstock_is_elsewhere();
  MOVE(false, penstock_real.chroot(path))
}

/* These put a terminal or nothing in the place of descriptors 0 to 2, without asking us. */
static int standard_replaced(int result) {
  if (penstock_keeps_books())
    penstock_fd_forget_range(0, 2);
  return result;
}

/* Up to glibc 2.33 these two lie in libutil, which may come later than we. */
#define COMES_LATER(symbol) \
  penstock_begun(); \
  if ((void *)penstock_real.symbol == (void *)penstock_missing) \
    penstock_resolve();

PENSTOCK_EXPORT int daemon(int stay, int keep) {
  penstock_begun();
  if (!stay)
    penstock_cwd_changes();
  int result = penstock_real.daemon(stay, keep);
  if (!stay)
    penstock_cwd_changes();
  return standard_replaced(result);
}

PENSTOCK_EXPORT int login_tty(int fd) {
  COMES_LATER(login_tty)
  return standard_replaced(penstock_real.login_tty(fd));
}

PENSTOCK_EXPORT pid_t forkpty(int *terminal, char *name, const struct termios *modes, const struct winsize *size) {
  COMES_LATER(forkpty)
  pid_t result = penstock_real.forkpty(terminal, name, modes, size);
  return result ? result : (pid_t)standard_replaced(0);
}

/* A program that seals itself may have forbidden what we would ask of the kernel. */
PENSTOCK_EXPORT int prctl(int option, ...) {
  va_list list;
  unsigned long word[4];
  va_start(list, option);
  for (int i = 0; i < 4; i++)
    word[i] = va_arg(list, unsigned long);
  va_end(list);
  penstock_begun();
  if (option == PR_SET_SECCOMP)
    atomic_store(&penstock_process.sealed, true);
  if ((option == PR_SET_SECCOMP && word[0] == 1 /* strict */) || (option == PR_SET_TSC && word[0] == PR_TSC_SIGSEGV))
    atomic_store(&penstock_process.no_tsc, true);
  return penstock_real.prctl(option, word[0], word[1], word[2], word[3]);
}
