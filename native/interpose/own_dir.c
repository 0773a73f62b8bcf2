// SPDX-License-Identifier: Apache-2.0
/* DIRs.  What opens and closes them is libc's; the names in them may be a stage's (stages/dirs.h). */
#include "interpose/wrap.h"
#include "stages/dirs.h"

_Static_assert(sizeof(struct dirent) == sizeof(struct dirent64), "one entry serves both");

/* What was known of the address is of another DIR. */
static DIR *opened(DIR *dir) {
  penstock_dir_forget(penstock_dir_of(dir));
  return dir;
}

PENSTOCK_EXPORT DIR *opendir(const char *path) {
  struct penstock_call call;
  if (!penstock_enter_path(&call, PENSTOCK_OP_OPENDIR, PENSTOCK_DOES_OPEN, AT_FDCWD, path)) {
    DIR *dir = opened(penstock_real.opendir(path));
    penstock_opened_unseen(penstock_dir_fd(dir));
    return dir;
  }
  call.open_flags = O_DIRECTORY;
  if (penstock_before(&call)) {
    penstock_answer(&call);
    return NULL;
  }
  call.begins = true;
  call.dir = opened(penstock_real.opendir(path));
  penstock_after(&call, penstock_dir_fd(call.dir), !call.dir);
  return call.dir;
}

/* The descriptor is known already. */
PENSTOCK_EXPORT DIR *fdopendir(int fd) {
  struct penstock_call call;
  if (penstock_ignored(fd) || !penstock_enter_fd(&call, PENSTOCK_OP_OPENDIR, 0, fd))
    return opened(penstock_real.fdopendir(fd));
  if (penstock_before(&call)) {
    penstock_answer(&call);
    return NULL;
  }
  call.begins = true;
  call.dir = opened(penstock_real.fdopendir(fd));
  penstock_after(&call, call.dir ? 0 : -1, !call.dir);
  return call.dir;
}

PENSTOCK_EXPORT int closedir(DIR *dir) {
  struct penstock_call call;
  struct penstock_fd was;
  penstock_begun();
  penstock_dir_forget(penstock_dir_of(dir));
  int fd = penstock_dir_fd(dir);
  /* As with close: the entry goes before the descriptor. */
  if ((unsigned)fd >= PENSTOCK_FDS || !penstock_fds[fd].known || !penstock_keeps_books())
    return penstock_real.closedir(dir);
  was = penstock_fds[fd];
  if (!was.under || !penstock_enter_fd(&call, PENSTOCK_OP_CLOSE, PENSTOCK_DOES_CLOSE, fd)) {
    penstock_fd_forget(fd);
    return penstock_real.closedir(dir);
  }
  call.entry = &was;
  if (penstock_before(&call))
    return (int)penstock_answer(&call);
  penstock_fd_forget(fd);
  int result = penstock_real.closedir(dir);
  penstock_after(&call, result, result == -1);
  return result;
}

/* ---- names ---- */

#define NAMES(pass, names) \
  struct penstock_dir *known = penstock_dir_of(dir); \
  struct penstock_call call; \
  if (PENSTOCK_UNLIKELY(known)) \
    names; \
  int fd = penstock_dir_fd(dir); \
  if (penstock_ignored(fd) || !penstock_enter_fd(&call, PENSTOCK_OP_READDIR, 0, fd)) \
    pass; \
  call.dir = dir;

static struct dirent64 *next_of(struct penstock_dir *it) {
  int error;
  struct dirent64 *result = penstock_dir_next(it, NULL, &error);
  if (error)
    errno = error;
  return result;
}

#define READDIR(type, real) \
  NAMES(return real(dir), return (type *)next_of(known)) \
  if (penstock_before(&call)) { \
    penstock_answer(&call); \
    return NULL; \
  } \
  type *result = real(dir); \
  penstock_after(&call, result ? 0 : -1, false); \
  return result;

PENSTOCK_EXPORT struct dirent *readdir(DIR *dir) { READDIR(struct dirent, penstock_real.readdir) }
PENSTOCK_EXPORT struct dirent64 *readdir64(DIR *dir) { READDIR(struct dirent64, penstock_real.readdir64) }

static int next_into(struct penstock_dir *it, struct dirent64 *entry, struct dirent64 **ret) {
  int error;
  *ret = penstock_dir_next(it, entry, &error);
  return error;
}

#define READDIR_R(type, real) \
  NAMES(return real(dir, entry, next), return next_into(known, (struct dirent64 *)entry, (struct dirent64 **)next)) \
  if (penstock_before(&call)) \
    return (int)penstock_answer(&call); \
  int result = real(dir, entry, next); \
  penstock_after(&call, result, result != 0); \
  return result;

PENSTOCK_EXPORT int readdir_r(DIR *dir, struct dirent *entry, struct dirent **next) {
  READDIR_R(struct dirent, penstock_real.readdir_r)
}
PENSTOCK_EXPORT int readdir64_r(DIR *dir, struct dirent64 *entry, struct dirent64 **next) {
  READDIR_R(struct dirent64, penstock_real.readdir64_r)
}

PENSTOCK_EXPORT long int telldir(DIR *dir) {
  NAMES(return penstock_real.telldir(dir), return penstock_dir_tell(known))
  if (penstock_before(&call))
    return penstock_answer(&call);
  long result = penstock_real.telldir(dir);
  penstock_after(&call, result, result == -1);
  return result;
}

#define MOVES(pass, names) \
  NAMES({ pass; return; }, { names; return; }) \
  if (penstock_before(&call)) { \
    penstock_answer(&call); \
    return; \
  } \
  pass; \
  penstock_after(&call, 0, false);

PENSTOCK_EXPORT void seekdir(DIR *dir, long int place) {
  MOVES(penstock_real.seekdir(dir, place), penstock_dir_seek(known, place))
}

/* Whose it is from now on is decided anew (stage serve, after()). */
PENSTOCK_EXPORT void rewinddir(DIR *dir) {
  struct penstock_call call;
  penstock_dir_forget(penstock_dir_of(dir));
  int fd = penstock_dir_fd(dir);
  if (penstock_ignored(fd) || !penstock_enter_fd(&call, PENSTOCK_OP_READDIR, 0, fd)) {
    penstock_real.rewinddir(dir);
    return;
  }
  call.dir = dir;
  if (penstock_before(&call)) {
    penstock_answer(&call);
    return;
  }
  penstock_real.rewinddir(dir);
  call.begins = true;
  penstock_after(&call, 0, false);
}
