// SPDX-License-Identifier: Apache-2.0
/* What is left: bytes between descriptors, maps, and calls past libc's names. */
#include <sys/mman.h>
#include "interpose/raw.h"
#include "interpose/wrap.h"
#include "stages/changes.h"
#include "stages/dirs.h"

/* ---- from one descriptor to another ---- */

/* Where a transfer began, from where it ended: the program's offsets are read when the kernel has written them. */
#define MOVE(op, enters, pass, from, to) \
  struct penstock_call call; \
  if (!(enters)) \
    return pass; \
  call.asked = count; \
  if (penstock_before(&call)) \
    return (ssize_t)penstock_answer(&call); \
  ssize_t result = pass; \
  if (PENSTOCK_UNLIKELY(result == -1) && penstock_again(NULL, fd2)) \
    result = pass; \
  if (result >= 0) \
    moved(&call, fd, result, from, to); \
  penstock_after(&call, result, result == -1); \
  return result;

static void moved(struct penstock_call *call, int fd, int64_t bytes, const int64_t *from, const int64_t *to) {
  /* When only the receiver is under control, it is the call's first descriptor. */
  if (call->fd != fd) {
    from = to;
    to = NULL;
  }
  call->positioned = from != NULL;
  call->offset = from ? *from - bytes : 0;
  call->positioned2 = to != NULL;
  call->offset2 = to ? *to - bytes : 0;
}

PENSTOCK_EXPORT ssize_t sendfile(int fd2, int fd, off_t *offset, size_t count) {
  MOVE(PENSTOCK_OP_READ, penstock_enter_two(&call, PENSTOCK_OP_READ, fd, fd2), penstock_real.sendfile(fd2, fd, offset, count),
       (const int64_t *)offset, NULL)
}

PENSTOCK_EXPORT ssize_t sendfile64(int fd2, int fd, off64_t *offset, size_t count) {
  MOVE(PENSTOCK_OP_READ, penstock_enter_two(&call, PENSTOCK_OP_READ, fd, fd2),
       penstock_real.sendfile64(fd2, fd, offset, count), (const int64_t *)offset, NULL)
}

PENSTOCK_EXPORT ssize_t copy_file_range(int fd, off64_t *offset, int fd2, off64_t *offset2, size_t count, unsigned int flags) {
  MOVE(PENSTOCK_OP_READ, penstock_enter_two(&call, PENSTOCK_OP_READ, fd, fd2),
       penstock_real.copy_file_range(fd, offset, fd2, offset2, count, flags), (const int64_t *)offset,
       (const int64_t *)offset2)
}

PENSTOCK_EXPORT ssize_t splice(int fd, off64_t *offset, int fd2, off64_t *offset2, size_t count, unsigned int flags) {
  MOVE(PENSTOCK_OP_READ, penstock_enter_two(&call, PENSTOCK_OP_READ, fd, fd2),
       penstock_real.splice(fd, offset, fd2, offset2, count, flags), (const int64_t *)offset, (const int64_t *)offset2)
}

/* ---- maps ---- */

/* Allocators call this without a descriptor, before anything is set up. */
#define MAP(pass) \
  struct penstock_call call; \
  penstock_begun(); \
  if (fd < 0 || flags & MAP_ANONYMOUS || penstock_ignored(fd) || \
      !penstock_enter_fd(&call, PENSTOCK_OP_MMAP, PENSTOCK_DOES_MAP, fd)) \
    return pass; \
  call.asked = count; \
  call.positioned = true; \
  call.offset = offset; \
  if (penstock_before(&call)) \
    return (void *)(intptr_t)penstock_answer(&call); \
  void *result = pass; \
  penstock_after(&call, result == MAP_FAILED ? -1 : 0, result == MAP_FAILED); \
  return result;

PENSTOCK_EXPORT void *mmap(void *at, size_t count, int protection, int flags, int fd, off_t offset) {
  MAP(penstock_real.mmap(at, count, protection, flags, fd, offset))
}
PENSTOCK_EXPORT void *mmap64(void *at, size_t count, int protection, int flags, int fd, off64_t offset) {
  MAP(penstock_real.mmap64(at, count, protection, flags, fd, offset))
}

/* ---- by descriptor, without libc knowing how ---- */

PENSTOCK_EXPORT int open_by_handle_at(int mount, struct file_handle *handle, int flags) {
  penstock_begun();
  penstock_lost(PENSTOCK_LOST_STOCK);
  return penstock_opened_unseen(penstock_real.open_by_handle_at(mount, handle, flags));
}

PENSTOCK_EXPORT int ioctl(int fd, unsigned long int request, ...) {
  struct penstock_call call;
  va_list list;
  va_start(list, request);
  void *word = va_arg(list, void *);
  va_end(list);
  if (penstock_ignored(fd) || !penstock_enter_fd(&call, PENSTOCK_OP_IOCTL, 0, fd))
    return penstock_real.ioctl(fd, request, word);
  if (penstock_before(&call))
    return (int)penstock_answer(&call);
  int result = penstock_real.ioctl(fd, request, word);
  penstock_after(&call, result, result == -1);
  return result;
}

/* ---- system calls by number ---- */

/* Whether it names a file call, which no wrapper sees. */
static bool is_file_call(long number) {
  static const uint16_t numbers[] = {
#ifdef SYS_open
    SYS_open, SYS_creat, SYS_stat, SYS_lstat, SYS_access, SYS_mkdir, SYS_rmdir, SYS_rename, SYS_link, SYS_unlink,
    SYS_symlink, SYS_readlink, SYS_chmod, SYS_chown, SYS_lchown, SYS_mknod, SYS_utime, SYS_utimes, SYS_getdents,
#endif
    SYS_openat, 437 /* openat2 */, SYS_read, SYS_write, SYS_pread64, SYS_pwrite64, SYS_readv, SYS_writev, SYS_preadv,
    SYS_pwritev, SYS_preadv2, SYS_pwritev2, SYS_lseek, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_getdents64,
    SYS_ftruncate, SYS_truncate, SYS_fallocate, SYS_fsync, SYS_fdatasync, SYS_sync_file_range, SYS_faccessat,
    439 /* faccessat2 */, SYS_mkdirat, SYS_unlinkat, SYS_renameat2, SYS_linkat, SYS_symlinkat, SYS_readlinkat, SYS_fchmod,
    SYS_fchmodat, SYS_fchown, SYS_fchownat, SYS_mknodat, SYS_utimensat, SYS_sendfile, SYS_copy_file_range, SYS_splice,
    SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_listxattr,
    SYS_llistxattr, SYS_flistxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, SYS_statfs, SYS_fstatfs,
    SYS_execve, SYS_execveat,
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (number == numbers[i])
      return true;
  return false;
}

/* Whether it may change a file that others ask about, or what names mean to them. */
static bool may_change(long number, const long word[6]) {
  static const uint16_t numbers[] = {
#ifdef SYS_open
    SYS_creat, SYS_mkdir, SYS_rmdir, SYS_rename, SYS_link, SYS_unlink, SYS_symlink, SYS_chmod, SYS_chown, SYS_lchown,
    SYS_mknod, SYS_utime, SYS_utimes, SYS_futimesat,
#endif
#ifdef SYS_renameat
    SYS_renameat,
#endif
    437 /* openat2 */, SYS_open_by_handle_at, SYS_ftruncate, SYS_truncate, SYS_fallocate, SYS_mkdirat, SYS_unlinkat,
    SYS_renameat2, SYS_linkat, SYS_symlinkat, SYS_fchmod, SYS_fchmodat, 452 /* fchmodat2 */, SYS_fchown, SYS_fchownat,
    SYS_mknodat, SYS_utimensat, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr,
    SYS_fremovexattr, SYS_mount, SYS_umount2, SYS_pivot_root, 429 /* move_mount */, 425 /* io_uring_setup */,
  };
#ifdef SYS_open
  if (number == SYS_open)
    return penstock_may_change((int)word[1]);
#endif
  if (number == SYS_openat)
    return penstock_may_change((int)word[2]);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (number == numbers[i])
      return true;
  return false;
}

/* What such a call does to descriptors and to where we stand. */
static void follow(long number, const long word[6], long result) {
  switch (number) {
#ifdef SYS_open
  case SYS_open:
  case SYS_creat:
  case SYS_dup2:
#endif
  case SYS_openat:
  case 437: /* openat2 */
  case SYS_dup:
  case SYS_dup3:
    penstock_opened_unseen((int)result);
    break;
  case SYS_close:
    penstock_fd_forget((int)word[0]);
    break;
  case 436: /* close_range */
    penstock_fd_forget_range((unsigned)word[0], (unsigned)word[1]);
    break;
  case SYS_chdir:
  case SYS_fchdir:
    penstock_cwd_changes();
    break;
  case SYS_chroot:
  case SYS_unshare:
  case SYS_setns:
  case SYS_setfsuid:
  case SYS_setfsgid:
    penstock_is_elsewhere();
    break;
  default:
    break;
  }
}

PENSTOCK_EXPORT long int syscall(long int number, ...) {
  long word[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; i++)
    word[i] = va_arg(list, long);
  va_end(list);
  penstock_begun();
  if (number == SYS_seccomp) {
    atomic_store(&penstock_process.sealed, true);
    if (word[0] == 0 /* strict */)
      atomic_store(&penstock_process.no_tsc, true);
  }
  bool keeps = penstock_keeps_books();
  if (keeps && penstock_here.control && is_file_call(number))
    penstock_lost(PENSTOCK_LOST_SYSCALLS);
  if (penstock_here.control && may_change(number, word))
    penstock_unseen(-1);
  if (number == SYS_getdents64 || number == SYS_lseek)
    penstock_dir_read_past((int)word[0]);
  long result = penstock_real.syscall(number, word[0], word[1], word[2], word[3], word[4], word[5]);
  if (keeps && result >= 0)
    follow(number, word, result);
  return result;
}
