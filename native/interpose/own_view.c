// SPDX-License-Identifier: Apache-2.0
/* What changes which files names mean, or with whose rights a process asks: for the process itself, or (mounts) for all
   that see the same. */
#include <sched.h>
#include "interpose/wrap.h"

/* Told before the call, so that nobody is answered by what held until then. */
#define ELSEWHERE(pass) \
  penstock_begun(); \
  penstock_is_elsewhere(); \
  return pass;

PENSTOCK_EXPORT int setns(int fd, int kind) { ELSEWHERE(penstock_real.setns(fd, kind)) }
PENSTOCK_EXPORT int setfsuid(uid_t uid) { ELSEWHERE(penstock_real.setfsuid(uid)) }
PENSTOCK_EXPORT int setfsgid(gid_t gid) { ELSEWHERE(penstock_real.setfsgid(gid)) }
PENSTOCK_EXPORT int unshare(int flags) {
  if (!(flags & (CLONE_NEWNS | CLONE_NEWUSER)))
    return penstock_real.unshare(flags);
  ELSEWHERE(penstock_real.unshare(flags))
}

#define MOUNTS(pass) \
  penstock_begun(); \
  if (penstock_here.control) \
    penstock_unseen(-1); \
  return pass;

PENSTOCK_EXPORT int mount(const char *source, const char *path, const char *type, unsigned long int flags, const void *more) {
  MOUNTS(penstock_real.mount(source, path, type, flags, more))
}
PENSTOCK_EXPORT int umount(const char *path) { MOUNTS(penstock_real.umount(path)) }
PENSTOCK_EXPORT int umount2(const char *path, int flags) { MOUNTS(penstock_real.umount2(path, flags)) }
PENSTOCK_EXPORT int move_mount(int dirfd, const char *path, int dirfd2, const char *path2, unsigned int flags) {
  MOUNTS(penstock_real.move_mount(dirfd, path, dirfd2, path2, flags))
}
PENSTOCK_EXPORT int pivot_root(const char *path, const char *path2) { MOUNTS(penstock_real.pivot_root(path, path2)) }
