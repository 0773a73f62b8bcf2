// SPDX-License-Identifier: Apache-2.0
/* The open family: their mode is there only if it is needed, and what they give is a new descriptor. */
#include <stdarg.h>
#include "interpose/wrap.h"

/* O_TMPFILE has O_DIRECTORY's bit among its own. */
static bool takes_mode(int flags) { return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE; }

#define MODE_OF_OPEN \
  mode_t mode = 0; \
  if (takes_mode(flags)) { \
    va_list list; \
    va_start(list, flags); \
    mode = va_arg(list, mode_t); \
    va_end(list); \
  }

/* The call in which a file is opened; `pass` is the real call with flags and mode, which stages may change. */
#define OPEN(folder, name, how, rights, pass) \
  struct penstock_call call; \
  if (!penstock_enter_path(&call, PENSTOCK_OP_OPEN, PENSTOCK_DOES_OPEN, folder, name)) \
    return penstock_opened_unseen(pass((how), (rights))); \
  call.open_flags = (how); \
  call.mode = (rights); \
  call.creates = takes_mode(how); \
  if (penstock_before(&call)) \
    return (int)penstock_answer(&call); \
  int result = pass(call.open_flags, call.mode); \
  penstock_after(&call, result, result == -1); \
  return (int)call.result;

PENSTOCK_EXPORT int open(const char *path, int flags, ...) {
  MODE_OF_OPEN
#define PASS(f, m) penstock_real.open(path, f, m)
  OPEN(AT_FDCWD, path, flags, mode, PASS)
#undef PASS
}

PENSTOCK_EXPORT int open64(const char *path, int flags, ...) {
  MODE_OF_OPEN
#define PASS(f, m) penstock_real.open64(path, f, m)
  OPEN(AT_FDCWD, path, flags, mode, PASS)
#undef PASS
}

PENSTOCK_EXPORT int __open(const char *path, int flags, ...) {
  MODE_OF_OPEN
#define PASS(f, m) penstock_real.__open(path, f, m)
  OPEN(AT_FDCWD, path, flags, mode, PASS)
#undef PASS
}

PENSTOCK_EXPORT int __open64(const char *path, int flags, ...) {
  MODE_OF_OPEN
#define PASS(f, m) penstock_real.__open64(path, f, m)
  OPEN(AT_FDCWD, path, flags, mode, PASS)
#undef PASS
}

PENSTOCK_EXPORT int openat(int dirfd, const char *path, int flags, ...) {
  MODE_OF_OPEN
#define PASS(f, m) penstock_real.openat(dirfd, path, f, m)
  OPEN(dirfd, path, flags, mode, PASS)
#undef PASS
}

PENSTOCK_EXPORT int openat64(int dirfd, const char *path, int flags, ...) {
  MODE_OF_OPEN
#define PASS(f, m) penstock_real.openat64(dirfd, path, f, m)
  OPEN(dirfd, path, flags, mode, PASS)
#undef PASS
}

PENSTOCK_EXPORT int creat(const char *path, mode_t mode) {
#define PASS(f, m) ((f) == (O_CREAT | O_WRONLY | O_TRUNC) ? penstock_real.creat(path, m) : penstock_real.open(path, f, m))
  OPEN(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode, PASS)
#undef PASS
}

PENSTOCK_EXPORT int creat64(const char *path, mode_t mode) {
#define PASS(f, m) \
  ((f) == (O_CREAT | O_WRONLY | O_TRUNC) ? penstock_real.creat64(path, m) : penstock_real.open64(path, f, m))
  OPEN(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode, PASS)
#undef PASS
}

/* The fortified forms, which stop the program where a mode is missing: that check is libc's. */
PENSTOCK_EXPORT int __open_2(const char *path, int flags) {
#define PASS(f, m) ((void)(m), penstock_real.__open_2(path, f))
  OPEN(AT_FDCWD, path, flags, 0, PASS)
#undef PASS
}

PENSTOCK_EXPORT int __open64_2(const char *path, int flags) {
#define PASS(f, m) ((void)(m), penstock_real.__open64_2(path, f))
  OPEN(AT_FDCWD, path, flags, 0, PASS)
#undef PASS
}

PENSTOCK_EXPORT int __openat_2(int dirfd, const char *path, int flags) {
#define PASS(f, m) ((void)(m), penstock_real.__openat_2(dirfd, path, f))
  OPEN(dirfd, path, flags, 0, PASS)
#undef PASS
}

PENSTOCK_EXPORT int __openat64_2(int dirfd, const char *path, int flags) {
#define PASS(f, m) ((void)(m), penstock_real.__openat64_2(dirfd, path, f))
  OPEN(dirfd, path, flags, 0, PASS)
#undef PASS
}
