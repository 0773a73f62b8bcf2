// SPDX-License-Identifier: Apache-2.0
/* What every wrapper is made of:

     if (penstock_ignored(fd)) return the real call;       by descriptor: the fast way
     if (!penstock_enter_...(&call, ...)) return the real call;
     if (penstock_before(&call)) return penstock_answer(&call);
     result = the real call;
     penstock_after(&call, result, failed);

   From enter to after the thread is inside: what it calls in between (a signal handler, another library's wrapper)
   passes.  longjmp out of it and cancellation leave the mark behind; the next call of a frame further out clears it. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "interpose/process.h"
#include "stages/record.h"

/* The first argument of __xstat where struct stat is the kernel's. */
#if defined(__x86_64__)
#define PENSTOCK_STAT_VERSION 1
#else
#define PENSTOCK_STAT_VERSION 0
#endif

#define PENSTOCK_EXPORT __attribute__((visibility("default")))

/* Known, and not under control. */
static inline bool penstock_ignored(int fd) {
  return PENSTOCK_LIKELY((unsigned)fd < PENSTOCK_FDS && penstock_fds[fd].known == 1 && penstock_fds[fd].under == 0);
}

/* A call on a descriptor under control that only needs counting: nothing but `record` is active, and that has all it needs
   (stages/record.h).  True: the thread is inside until penstock_quick_done(). */
static inline bool penstock_quick(const struct penstock_fd *entry, uint64_t asked) {
  /* A descriptor that is quick was bound by a process that had a board.  Plain loads, which become part of a comparison:
     what is older by a call does no harm here. */
  if (!penstock_record_is_quick(entry, asked) ||
      (penstock_here.control->stages | PENSTOCK_STAGE_PLACE) != (PENSTOCK_STAGE_RECORD | PENSTOCK_STAGE_PLACE) ||
      *(const uint32_t *)(const void *)penstock_process.alive != 1 || penstock_thread.inside | penstock_thread.vforks)
    return false;
  char here;
  penstock_thread.inside = (uintptr_t)&here;
  return true;
}
static inline void penstock_quick_done(void) { penstock_thread.inside = 0; }

/* In a vfork child no books are kept: they are its parent's. */
static inline bool penstock_keeps_books(void) { return !penstock_thread.vforks; }

/* Each starts a call; false: pass it on.  By a descriptor: */
bool penstock_enter_fd(struct penstock_call *call, uint8_t op, uint8_t does, int fd);
/* Bytes from fd to fd2: either may be under control. */
bool penstock_enter_two(struct penstock_call *call, uint8_t op, int fd, int fd2);
/* By a path, or two; what they name is found out in before() or after(). */
bool penstock_enter_path(struct penstock_call *call, uint8_t op, uint8_t does, int dirfd, const char *path);
bool penstock_enter_paths(struct penstock_call *call, uint8_t op, uint8_t does, int dirfd, const char *path, int dirfd2,
                          const char *path2);

/* True: a stage answered; then penstock_answer() is what to return. */
bool penstock_before(struct penstock_call *call);
void penstock_after(struct penstock_call *call, int64_t result, bool failed);
int64_t penstock_answer(struct penstock_call *call);

/* After a write that failed: is it to be made once more (call.h, `again`)?  `call` may be NULL. */
bool penstock_again(const struct penstock_call *call, int fd);

/* Tells the stages that must not miss a change (call.h, `unseen`). */
void penstock_unseen(int fd);

/* What was opened without the stages seeing it: what was known of the number is of another file. */
static inline int penstock_opened_unseen(int fd) {
  if (fd < 0)
    return fd;
  if (penstock_here.control)
    penstock_unseen(fd);
  if (penstock_keeps_books())
    penstock_fd_forget(fd);
  return fd;
}

/* Bytes of all pieces; to be asked when the kernel has read them. */
uint64_t penstock_iov_bytes(const struct iovec *iov, int count);

static inline int penstock_stream_fd(FILE *stream) {
  int saved = errno;
  int fd = stream ? fileno(stream) : -1;
  errno = saved;
  return fd;
}
static inline int penstock_dir_fd(DIR *dir) {
  int saved = errno;
  int fd = dir ? dirfd(dir) : -1;
  errno = saved;
  return fd;
}
