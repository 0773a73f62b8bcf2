// SPDX-License-Identifier: Apache-2.0
/* FILEs as they come and go: a file is opened by name, and a descriptor behind it is new.  What libc opens for
   itself in there is not seen by anybody, so the descriptor is asked for afterwards. */
#include <string.h>
#include "interpose/wrap.h"

/* The flags of open that a mode of fopen stands for. */
static int flags_of(const char *mode) {
  int flags = 0;
  if (!mode)
    return 0;
  bool both = strchr(mode, '+');
  if (*mode == 'w')
    flags = (both ? O_RDWR : O_WRONLY) | O_CREAT | O_TRUNC;
  else if (*mode == 'a')
    flags = (both ? O_RDWR : O_WRONLY) | O_CREAT | O_APPEND;
  else
    flags = both ? O_RDWR : O_RDONLY;
  flags |= strchr(mode, 'x') ? O_EXCL : 0;
  return strchr(mode, 'e') ? flags | O_CLOEXEC : flags;
}

/* fdopen knows neither: a character set (",ccs="), nor 'c' (no cancellation). */
static bool only_fopen_can(const char *mode) { return mode && strpbrk(mode, ",c"); }

/* A file whose flags a stage has changed is opened by itself; a stream that cannot be had leaves no descriptor. */
static FILE *open_changed(const struct penstock_call *call, const char *path, const char *mode) {
  int fd = penstock_real.open64(path, call->open_flags, call->mode);
  FILE *stream = fd < 0 ? NULL : fdopen(fd, mode);
  if (fd >= 0 && !stream) {
    int saved = errno;
    penstock_real.close(fd);
    errno = saved;
  }
  return stream;
}

static FILE *opened_unseen(FILE *stream) {
  penstock_opened_unseen(penstock_stream_fd(stream));
  return stream;
}

#define OPEN(pass, libc_alone) \
  struct penstock_call call; \
  if (!penstock_enter_path(&call, PENSTOCK_OP_OPEN, PENSTOCK_DOES_OPEN, AT_FDCWD, path)) \
    return opened_unseen(pass); \
  call.stream = true; \
  call.open_flags = flags_of(mode); \
  call.mode = 0666; \
  call.creates = call.open_flags & O_CREAT; \
  call.fixed = (libc_alone) || only_fopen_can(mode); \
  int asked = call.open_flags; \
  if (penstock_before(&call)) { \
    penstock_answer(&call); \
    return NULL; \
  } \
  FILE *result = PENSTOCK_UNLIKELY(call.open_flags != asked) ? open_changed(&call, path, mode) : pass; \
  penstock_after(&call, penstock_stream_fd(result), !result); \
  /* Where the descriptor was closed again, the stream on it is left: closing it could hit another's. */ \
  return PENSTOCK_UNLIKELY(call.taken_back) ? NULL : result;

PENSTOCK_EXPORT FILE *fopen(const char *path, const char *mode) { OPEN(penstock_real.fopen(path, mode), false) }
PENSTOCK_EXPORT FILE *fopen64(const char *path, const char *mode) { OPEN(penstock_real.fopen64(path, mode), false) }

/* Without a path it is the same file in another mode: looked at anew. */
#define REOPEN(pass) \
  penstock_begun(); \
  int was = penstock_stream_fd(stream); \
  if (was >= 0 && penstock_keeps_books()) \
    penstock_fd_forget(was); \
  if (!path) \
    return pass; \
  OPEN(pass, true)

PENSTOCK_EXPORT FILE *freopen(const char *path, const char *mode, FILE *stream) {
  REOPEN(penstock_real.freopen(path, mode, stream))
}
PENSTOCK_EXPORT FILE *freopen64(const char *path, const char *mode, FILE *stream) {
  REOPEN(penstock_real.freopen64(path, mode, stream))
}

PENSTOCK_EXPORT FILE *tmpfile(void) {
  penstock_begun();
  penstock_lost(PENSTOCK_LOST_STOCK);
  return opened_unseen(penstock_real.tmpfile());
}
PENSTOCK_EXPORT FILE *tmpfile64(void) {
  penstock_begun();
  penstock_lost(PENSTOCK_LOST_STOCK);
  return opened_unseen(penstock_real.tmpfile64());
}

/* As with close: the entry goes before the descriptor. */
#define CLOSE(fd, pass) \
  struct penstock_call call; \
  struct penstock_fd was; \
  penstock_begun(); \
  int number = fd; \
  if ((unsigned)number >= PENSTOCK_FDS || !penstock_fds[number].known || !penstock_keeps_books()) \
    return pass; \
  was = penstock_fds[number]; \
  if (!was.under || !penstock_enter_fd(&call, PENSTOCK_OP_CLOSE, PENSTOCK_DOES_CLOSE, number)) { \
    penstock_fd_forget(number); \
    return pass; \
  } \
  call.entry = &was; \
  if (penstock_before(&call)) \
    return (int)penstock_answer(&call); \
  penstock_fd_forget(number); \
  int result = pass; \
  penstock_after(&call, result, result == -1); \
  return result;

PENSTOCK_EXPORT int fclose(FILE *stream) { CLOSE(penstock_stream_fd(stream), penstock_real.fclose(stream)) }
