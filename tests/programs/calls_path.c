// SPDX-License-Identifier: Apache-2.0
/* Snippets of calls that are named by a path: what a file is, names, attributes, walks. */
#include "calls.h"

#define MISSING at("missing/x")

static int folder_fd(void) { return open(here->folder, O_RDONLY | O_DIRECTORY); }

static void say_stat(const struct stat *st) {
  say("  mode %o, %ld bytes, %ld links\n", st->st_mode, (long)st->st_size, (long)(S_ISDIR(st->st_mode) ? 0 : st->st_nlink));
}

/* Each on a file, a link, something missing, a wild pointer, none. */
#define STAT_CASE(name, type, call) \
  CASE(name) { \
    type st; \
    const char *const paths[] = {at("file"), at("link"), MISSING, (const char *)16}; \
    for (int i = 0; i < 4; i++) { \
      const char *path = paths[i]; \
      memset(&st, 0, sizeof st); \
      SAY(call); \
      say_stat((struct stat *)&st); \
    } \
  }
STAT_CASE(stat, struct stat, stat(path, &st))
STAT_CASE(stat64, struct stat64, stat64(path, &st))
STAT_CASE(lstat, struct stat, lstat(path, &st))
STAT_CASE(lstat64, struct stat64, lstat64(path, &st))
STAT_CASE(fstatat, struct stat, fstatat(AT_FDCWD, path, &st, AT_SYMLINK_NOFOLLOW))
STAT_CASE(fstatat64, struct stat64, fstatat64(AT_FDCWD, path, &st, 0))

#define OLD_STAT_CASE(name, type) \
  CASE(name) { \
    type st = {0}; \
    int (*call)(int, const char *, type *) = old(#name); \
    if (!call) \
      return; \
    SAY(call(1, at("link"), &st)); \
    say_stat((struct stat *)&st); \
    SAY(call(1, MISSING, &st)); \
  }
OLD_STAT_CASE(__xstat, struct stat)
OLD_STAT_CASE(__xstat64, struct stat64)
OLD_STAT_CASE(__lxstat, struct stat)
OLD_STAT_CASE(__lxstat64, struct stat64)

#define OLD_STATAT_CASE(name, type) \
  CASE(name) { \
    type st = {0}; \
    int (*call)(int, int, const char *, type *, int) = old(#name); \
    int dirfd = folder_fd(); \
    if (call) \
      SAY(call(1, dirfd, "link", &st, AT_SYMLINK_NOFOLLOW)); \
    say_stat((struct stat *)&st); \
    close(dirfd); \
  }
OLD_STATAT_CASE(__fxstatat, struct stat)
OLD_STATAT_CASE(__fxstatat64, struct stat64)

#define FSTAT_CASE(name, type, call) \
  CASE(name) { \
    type st = {0}; \
    int fd = open_file(); \
    SAY(call); \
    say_stat((struct stat *)&st); \
    close(fd); \
    SAY_CLOSED(call); \
  }
FSTAT_CASE(fstat, struct stat, fstat(fd, &st))
FSTAT_CASE(fstat64, struct stat64, fstat64(fd, &st))
FSTAT_CASE(__fxstat, struct stat, old("__fxstat") ? ((int (*)(int, int, struct stat *))old("__fxstat"))(1, fd, &st) : 0)
FSTAT_CASE(__fxstat64, struct stat64,
           old("__fxstat64") ? ((int (*)(int, int, struct stat64 *))old("__fxstat64"))(1, fd, &st) : 0)

CASE(statx) {
  struct statx st = {0};
  int dirfd = folder_fd();
  SAY(statx(dirfd, "file", 0, STATX_BASIC_STATS, &st));
  say("  %o %lld\n", st.stx_mode, (long long)st.stx_size);
  SAY(statx(dirfd, "", AT_EMPTY_PATH, STATX_TYPE, &st));
  SAY(statx(dirfd, "file", -1, 0, &st));
  SAY(statx(dirfd, NULL, 0, 0, &st));
  close(dirfd);
}

CASE(access) {
  SAY(access(at("file"), R_OK));
  SAY(access(at("file"), X_OK));
  SAY(access(MISSING, F_OK));
  SAY(access((const char *)8, F_OK));
}
CASE(eaccess) { SAY(eaccess(at("link"), W_OK)); }
CASE(euidaccess) { SAY(euidaccess(MISSING, W_OK)); }
CASE(faccessat) {
  int dirfd = folder_fd();
  SAY(faccessat(dirfd, "folder/../file", R_OK, 0));
  SAY(faccessat(dirfd, "nothing", R_OK, AT_EACCESS));
  close(dirfd);
}

#define READLINK_CASE(name, call) \
  CASE(name) { \
    char buffer[64] = {0}; \
    int dirfd = folder_fd(); \
    SAY(call); \
    say("  %s\n", buffer); \
    close(dirfd); \
  }
SYMBOL(ssize_t, readlink_chk, "__readlink_chk", (const char *, char *, size_t, size_t));
SYMBOL(ssize_t, readlinkat_chk, "__readlinkat_chk", (int, const char *, char *, size_t, size_t));
READLINK_CASE(readlink, readlink(at("link"), buffer, 63))
READLINK_CASE(__readlink_chk, readlink_chk(at("link"), buffer, 63, 64))
READLINK_CASE(readlinkat, readlinkat(dirfd, "link", buffer, 3))
READLINK_CASE(__readlinkat_chk, readlinkat_chk(dirfd, "file", buffer, 63, 64))

CASE(truncate) {
  SAY(truncate(at("file"), 5));
  SAY(truncate(MISSING, 5));
}
CASE(truncate64) { SAY(truncate64(at("file"), 3)); }
CASE(mkdir) {
  SAY(mkdir(at("new"), 0750));
  SAY(mkdir(at("new"), 0750));
}
CASE(mkdirat) {
  int dirfd = folder_fd();
  SAY(mkdirat(dirfd, "new", 0700));
  close(dirfd);
}
CASE(rmdir) {
  SAY(rmdir(at("folder")));
  mkdir(at("empty"), 0755);
  SAY(rmdir(at("empty")));
}
CASE(mknod) { SAY(mknod(at("fifo"), S_IFIFO | 0600, 0)); }
CASE(mknodat) {
  int dirfd = folder_fd();
  SAY(mknodat(dirfd, "plain", S_IFREG | 0640, 0));
  SAY(mknodat(dirfd, "folder2", S_IFDIR | 0640, 0));
  close(dirfd);
}
CASE(__xmknod) {
  dev_t dev = 0;
  int (*call)(int, const char *, mode_t, dev_t *) = old("__xmknod");
  if (call)
    SAY(call(0, at("fifo"), S_IFIFO | 0600, &dev));
}
CASE(__xmknodat) {
  dev_t dev = 0;
  int (*call)(int, int, const char *, mode_t, dev_t *) = old("__xmknodat");
  if (call)
    SAY(call(0, AT_FDCWD, at("fifo"), S_IFIFO | 0600, &dev));
}
CASE(mkfifo) { SAY(mkfifo(at("fifo"), 0644)); }
CASE(mkfifoat) { SAY(mkfifoat(AT_FDCWD, at("fifo"), 0600)); }
CASE(link) {
  SAY(link(at("file"), at("second")));
  SAY(link(MISSING, (const char *)8));
}
CASE(linkat) {
  int dirfd = folder_fd();
  SAY(linkat(dirfd, "link", dirfd, "second", AT_SYMLINK_FOLLOW));
  close(dirfd);
}
CASE(symlink) {
  SAY(symlink("target", at("new")));
  SAY(symlink("", at("new2")));
  SAY(symlink("x", NULL));
}
CASE(symlinkat) {
  int dirfd = folder_fd();
  SAY(symlinkat("../x", dirfd, "new"));
  close(dirfd);
}
CASE(unlink) {
  SAY(unlink(at("link")));
  SAY(unlink(at("folder")));
  SAY(unlink(MISSING));
}
CASE(unlinkat) {
  int dirfd = folder_fd();
  SAY(unlinkat(dirfd, "file", 0));
  SAY(unlinkat(dirfd, "folder", AT_REMOVEDIR));
  close(dirfd);
}
CASE(remove) {
  SAY(remove(at("file")));
  SAY(remove(at("folder")));
}
CASE(rename) {
  SAY(rename(at("file"), at("folder/moved")));
  SAY(rename(MISSING, at("x")));
  SAY(rename(at("other"), (const char *)8));
}
CASE(renameat) {
  int dirfd = folder_fd();
  SAY(renameat(dirfd, "file", dirfd, "./folder/../moved"));
  close(dirfd);
}
CASE(renameat2) { SAY(renameat2(AT_FDCWD, at("file"), AT_FDCWD, at("other"), RENAME_EXCHANGE)); }
CASE(chmod) { SAY(chmod(at("file"), 0600)); }
CASE(lchmod) { SAY(lchmod(at("file"), 0611)); }
CASE(fchmod) {
  int fd = open_file();
  SAY(fchmod(fd, 0444));
  close(fd);
}
CASE(fchmodat) { SAY(fchmodat(AT_FDCWD, at("file"), 0400, 0)); }
CASE(chown) { SAY(chown(at("file"), (uid_t)-1, (gid_t)-1)); }
CASE(lchown) { SAY(lchown(at("link"), (uid_t)-1, (gid_t)-1)); }
CASE(fchown) {
  int fd = open_file();
  SAY(fchown(fd, (uid_t)-1, (gid_t)-1));
  close(fd);
}
CASE(fchownat) { SAY(fchownat(AT_FDCWD, at("link"), (uid_t)-1, (gid_t)-1, AT_SYMLINK_NOFOLLOW)); }

static void say_times(const char *name) {
  struct stat st;
  lstat(at(name), &st);
  say("  %ld %ld\n", (long)st.st_atim.tv_sec, (long)st.st_mtim.tv_sec);
}
static const struct timeval halves[2] = {{100, 5}, {200, 6}};
static const struct timespec times[2] = {{300, 5}, {400, 6}};
#define TIMES_CASE(name, call, of) \
  CASE(name) { \
    int fd = open_file(); \
    SAY(call); \
    say_times(of); \
    close(fd); \
  }
TIMES_CASE(utime, utime(at("file"), &((struct utimbuf){11, 22})), "file")
TIMES_CASE(utimes, utimes(at("file"), halves), "file")
TIMES_CASE(lutimes, lutimes(at("link"), halves), "link")
TIMES_CASE(futimes, futimes(fd, halves), "file")
TIMES_CASE(futimesat, futimesat(AT_FDCWD, at("file"), halves), "file")
TIMES_CASE(utimensat, utimensat(AT_FDCWD, at("link"), times, AT_SYMLINK_NOFOLLOW), "link")
TIMES_CASE(futimens, futimens(fd, times), "file")

#define XATTR_CASE(name, call) \
  CASE(name) { \
    char value[64] = {0}; \
    int fd = open_file(); \
    (void)value; \
    setxattr(at("file"), "user.a", "abc", 3, 0); \
    SAY(call); \
    say("  %s\n", value); \
    close(fd); \
  }
XATTR_CASE(getxattr, getxattr(at("link"), "user.a", value, 60))
XATTR_CASE(lgetxattr, lgetxattr(at("link"), "user.a", value, 60))
XATTR_CASE(fgetxattr, fgetxattr(fd, "user.none", value, 60))
XATTR_CASE(listxattr, listxattr(at("file"), value, 60))
XATTR_CASE(llistxattr, llistxattr(at("link"), value, 60))
XATTR_CASE(flistxattr, flistxattr(fd, value, 1))
XATTR_CASE(setxattr, setxattr(at("file"), "user.b", "x", 1, XATTR_CREATE))
XATTR_CASE(lsetxattr, lsetxattr(at("link"), "user.b", "x", 1, 0))
XATTR_CASE(fsetxattr, fsetxattr(fd, "user.a", "x", 1, XATTR_CREATE))
XATTR_CASE(removexattr, removexattr(at("file"), "user.a"))
XATTR_CASE(lremovexattr, lremovexattr(at("link"), "user.a"))
XATTR_CASE(fremovexattr, fremovexattr(fd, "user.a"))

#define STATFS_CASE(name, type, member, call) \
  CASE(name) { \
    type st = {0}; \
    int fd = open_file(); \
    SAY(call); \
    say("  %ld\n", (long)st.member); \
    close(fd); \
  }
STATFS_CASE(statfs, struct statfs, f_type, statfs(at("file"), &st))
STATFS_CASE(statfs64, struct statfs64, f_type, statfs64(at("file"), &st))
STATFS_CASE(fstatfs, struct statfs, f_type, fstatfs(fd, &st))
STATFS_CASE(fstatfs64, struct statfs64, f_type, fstatfs64(fd, &st))
STATFS_CASE(statvfs, struct statvfs, f_namemax, statvfs(at("file"), &st))
STATFS_CASE(statvfs64, struct statvfs64, f_namemax, statvfs64(MISSING, &st))
STATFS_CASE(fstatvfs, struct statvfs, f_namemax, fstatvfs(fd, &st))
STATFS_CASE(fstatvfs64, struct statvfs64, f_namemax, fstatvfs64(fd, &st))

static void say_below(const char *path) {
  say("  %s\n", path && !strncmp(path, here->folder, strlen(here->folder)) ? path + strlen(here->folder) : "elsewhere");
}
SYMBOL(char *, realpath_chk, "__realpath_chk", (const char *, char *, size_t));
CASE2(realpath, NOT_IN_VFORK) {
  char *path = GOOD_POINTER(realpath(at("folder/../link"), NULL));
  say_below(path);
  free(path);
  GOOD_POINTER(realpath(MISSING, NULL));
}
CASE(__realpath_chk) {
  char path[PATH_MAX];
  say_below(GOOD_POINTER(realpath_chk(at("link"), path, sizeof path)));
}
CASE2(canonicalize_file_name, NOT_IN_VFORK) {
  char *path = GOOD_POINTER(canonicalize_file_name(at("link")));
  say_below(path);
  free(path);
}
CASE(pathconf) { SAY(pathconf(at("file"), _PC_NAME_MAX)); }
CASE(fpathconf) {
  int fd = open_file();
  SAY(fpathconf(fd, _PC_NAME_MAX));
  close(fd);
}
CASE(name_to_handle_at) {
  struct file_handle none = {.handle_bytes = 0};
  int mount;
  SAY(name_to_handle_at(AT_FDCWD, at("file"), &none, &mount, 0));
}
CASE(inotify_add_watch) {
  int fd = inotify_init1(IN_CLOEXEC);
  GOOD(inotify_add_watch(fd, here->folder, IN_CREATE));
  SAY(inotify_add_watch(fd, MISSING, IN_CREATE));
  close(fd);
}

/* ---- walks: the program's functions are called, and their own calls go through ---- */

static __thread long visited, bytes_seen;
static int look_into(const char *path) {
  char buffer[64];
  int fd = open(path, O_RDONLY);
  ssize_t n = fd < 0 ? 0 : read(fd, buffer, sizeof buffer);
  if (n > 0)
    bytes_seen += n;
  if (fd >= 0)
    close(fd);
  visited++;
  return 0;
}
static int on_ftw(const char *path, const struct stat *st, int kind) { return (void)st, (void)kind, look_into(path); }
static int on_ftw64(const char *path, const struct stat64 *st, int kind) { return (void)st, (void)kind, look_into(path); }
static int on_nftw(const char *path, const struct stat *st, int kind, struct FTW *f) {
  return (void)st, (void)kind, (void)f, look_into(path);
}
static int on_nftw64(const char *path, const struct stat64 *st, int kind, struct FTW *f) {
  return (void)st, (void)kind, (void)f, look_into(path);
}
#define WALK_CASE(name, call) \
  CASE2(name, NOT_IN_VFORK) { \
    visited = bytes_seen = 0; \
    SAY(call); \
    say("  %ld names, %ld bytes\n", visited, bytes_seen); \
  }
WALK_CASE(ftw, ftw(here->folder, on_ftw, 4))
WALK_CASE(ftw64, ftw64(here->folder, on_ftw64, 4))
WALK_CASE(nftw, nftw(here->folder, on_nftw, 4, FTW_PHYS))
WALK_CASE(nftw64, nftw64(here->folder, on_nftw64, 4, FTW_DEPTH))

#define SCAN_CASE(name, type, call) \
  static int choose_##name(const struct type *e) { \
    visited++; \
    return e->d_name[0] != '.'; \
  } \
  CASE2(name, NOT_IN_VFORK) { \
    struct type **names = NULL; \
    int dirfd = folder_fd(), n; \
    visited = 0; \
    SAY(n = call); \
    say("  %ld asked\n", visited); \
    for (int i = 0; i < n; i++) { \
      say("  %s\n", names[i]->d_name); \
      free(names[i]); \
    } \
    free(names); \
    close(dirfd); \
  }
SCAN_CASE(scandir, dirent, scandir(here->folder, &names, choose_scandir, alphasort))
SCAN_CASE(scandir64, dirent64, scandir64(here->folder, &names, choose_scandir64, alphasort64))
SCAN_CASE(scandirat, dirent, scandirat(dirfd, "folder", &names, choose_scandirat, alphasort))
SCAN_CASE(scandirat64, dirent64, scandirat64(dirfd, "folder", &names, choose_scandirat64, alphasort64))

#define GLOB_CASE(name, type, release) \
  CASE2(name, NOT_IN_VFORK) { \
    type found = {0}; \
    SAY(name(at("*e*"), 0, NULL, &found)); \
    for (size_t i = 0; i < found.gl_pathc; i++) \
      say_below(found.gl_pathv[i]); \
    release(&found); \
    SAY(name(at("nothing*"), 0, NULL, &found)); \
  }
GLOB_CASE(glob, glob_t, globfree)
GLOB_CASE(glob64, glob64_t, globfree64)

static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }
static int by_name64(const FTSENT64 **a, const FTSENT64 **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }
#define FTS_CASE(which, tree, entry, opener, reader, closer, order) \
  CASE2(which, ALONE | NOT_IN_VFORK) { \
    char *paths[] = {here->folder, NULL}; \
    tree *t = GOOD_POINTER(opener(paths, FTS_PHYSICAL, order)); \
    for (entry *e; t && (e = reader(t));) { \
      say("  %d", e->fts_info); \
      say_below(e->fts_path); \
    } \
    closer(t); \
  }
FTS_CASE(fts_open, FTS, FTSENT, fts_open, fts_read, fts_close, by_name)
FTS_CASE(fts_read, FTS, FTSENT, fts_open, fts_read, fts_close, by_name)
FTS_CASE(fts64_open, FTS64, FTSENT64, fts64_open, fts64_read, fts64_close, by_name64)
FTS_CASE(fts64_read, FTS64, FTSENT64, fts64_open, fts64_read, fts64_close, by_name64)
