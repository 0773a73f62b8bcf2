// SPDX-License-Identifier: Apache-2.0
/* Snippets of calls on descriptors: opening, data, copies, maps, folders. */
#include "calls.h"

static void use(int fd) {
  char buffer[8] = {0};
  if (fd < 0)
    return;
  SAY(read(fd, buffer, 4));
  SAY(write(fd, "xy", 2));
  say("  '%s' at %lld, flags %o\n", buffer, offset(fd), fcntl(fd, F_GETFL) & ~O_LARGEFILE);
  SAY(close(fd));
}

/* ---- opening ---- */

SYMBOL(int, open_2, "__open_2", (const char *, int));
SYMBOL(int, open64_2, "__open64_2", (const char *, int));
SYMBOL(int, openat_2, "__openat_2", (int, const char *, int));
SYMBOL(int, openat64_2, "__openat64_2", (int, const char *, int));

#define OPEN_CASE(name) \
  CASE(name) { \
    use(GOOD(name(at("file"), O_RDWR))); \
    use(GOOD(name(at("link"), O_RDONLY | O_NOFOLLOW))); \
    use(GOOD(name(at("new"), O_RDWR | O_CREAT | O_EXCL, 0640))); \
    use(GOOD(name(at("new"), O_RDWR | O_CREAT | O_EXCL, 0640))); \
    use(GOOD(name(at("file"), O_WRONLY | O_APPEND | O_TRUNC))); \
    int fd = GOOD(name(here->folder, O_TMPFILE | O_RDWR, 0600)); \
    struct stat st; \
    if (!fstat(fd, &st)) \
      say("  %o %ld\n", st.st_mode, (long)st.st_nlink); \
    use(fd); \
    use(GOOD(name(here->folder, O_DIRECTORY))); \
    GOOD(name(at("missing/x"), O_RDONLY)); \
    GOOD(name((const char *)24, O_RDONLY)); \
    GOOD(name((const char *)24, O_RDONLY | O_TMPFILE, 0)); \
    char lengthy[5000]; \
    memset(lengthy, 'x', sizeof lengthy); \
    lengthy[sizeof lengthy - 1] = 0; \
    GOOD(name(lengthy, O_RDONLY)); \
    GOOD(name("", O_RDONLY)); \
    use(GOOD(name(at("a\n\xff\xfe"), O_CREAT | O_WRONLY, 0600))); \
  }
OPEN_CASE(open)
OPEN_CASE(open64)

SYMBOL(int, own_open, "__open", (const char *, int, ...));
SYMBOL(int, own_open64, "__open64", (const char *, int, ...));
CASE(__open) {
  use(GOOD(own_open(at("file"), O_RDWR)));
  use(GOOD(own_open(at("new"), O_RDWR | O_CREAT, 0640)));
}
CASE(__open64) { use(GOOD(own_open64(at("new"), O_RDWR | O_CREAT, 0604))); }

#define OPENAT_CASE(name) \
  CASE(name) { \
    int dirfd = open(here->folder, O_RDONLY | O_DIRECTORY); \
    use(GOOD(name(dirfd, "file", O_RDWR))); \
    use(GOOD(name(dirfd, "folder/../new", O_RDWR | O_CREAT, 0604))); \
    use(GOOD(name(dirfd, at("link"), O_RDWR | O_CLOEXEC))); \
    GOOD(name(-5, "file", O_RDONLY)); \
    GOOD(name(dirfd, NULL, O_RDONLY)); \
    close(dirfd); \
  }
OPENAT_CASE(openat)
OPENAT_CASE(openat64)
CASE(creat) {
  use(GOOD(creat(at("file"), 0600)));
  use(GOOD(creat(at("new"), 0421)));
}
CASE(creat64) { use(GOOD(creat64(at("new"), 0777))); }
CASE(__open_2) { use(GOOD(open_2(at("file"), O_RDWR))); }
CASE(__open64_2) { use(GOOD(open64_2(at("missing"), O_RDWR))); }
CASE(__openat_2) { use(GOOD(openat_2(AT_FDCWD, at("file"), O_RDONLY))); }
CASE(__openat64_2) { use(GOOD(openat64_2(AT_FDCWD, at("file"), O_RDWR))); }

static char *template(const char *end) {
  static __thread char path[1200];
  snprintf(path, sizeof path, "%s/tXXXXXX%s", here->folder, end);
  return path;
}
#define MKSTEMP_CASE(name, end, call) \
  CASE(name) { \
    char *path = template(end); \
    use(GOOD(call)); \
    say("  %d\n", (int)(strlen(path) - strlen(here->folder))); \
    SAY(unlink(path)); \
  }
MKSTEMP_CASE(mkstemp, "", mkstemp(path))
MKSTEMP_CASE(mkstemp64, "", mkstemp64(path))
MKSTEMP_CASE(mkostemp, "", mkostemp(path, O_APPEND))
MKSTEMP_CASE(mkostemp64, "", mkostemp64(path, O_CLOEXEC))
MKSTEMP_CASE(mkstemps, ".c", mkstemps(path, 2))
MKSTEMP_CASE(mkstemps64, ".c", mkstemps64(path, 2))
MKSTEMP_CASE(mkostemps, ".c", mkostemps(path, 2, O_APPEND))
MKSTEMP_CASE(mkostemps64, ".c", mkostemps64(path, 3, O_APPEND))
CASE(mkdtemp) {
  char *path = template("");
  GOOD_POINTER(mkdtemp(path));
  SAY(rmdir(path));
}
CASE(open_by_handle_at) {
  struct file_handle *handle = alloca(sizeof *handle + MAX_HANDLE_SZ);
  int mount_id, mount = open(here->folder, O_RDONLY);
  handle->handle_bytes = MAX_HANDLE_SZ;
  SAY(name_to_handle_at(AT_FDCWD, at("file"), handle, &mount_id, 0));
  use(GOOD(open_by_handle_at(mount, handle, O_RDWR)));
  close(mount);
}

/* ---- data ---- */

#define DATA_CASE(name, call) \
  CASE(name) { \
    char buffer[64] = {0}; \
    struct iovec iov[2] = {{buffer, 3}, {buffer + 10, 4}}; \
    int fd = open_file(); \
    (void)iov; \
    SAY(call); \
    SAY(call); \
    say("  '%s' '%s' at %lld\n", buffer, buffer + 10, offset(fd)); \
    close(fd); \
    SAY_CLOSED(call); \
  }
SYMBOL(ssize_t, read_chk, "__read_chk", (int, void *, size_t, size_t));
SYMBOL(ssize_t, pread_chk, "__pread_chk", (int, void *, size_t, off_t, size_t));
SYMBOL(ssize_t, pread64_chk, "__pread64_chk", (int, void *, size_t, off64_t, size_t));
DATA_CASE(read, read(fd, buffer, 5))
DATA_CASE(__read_chk, read_chk(fd, buffer, 5, 64))
SYMBOL(ssize_t, own_read, "__read", (int, void *, size_t));
SYMBOL(ssize_t, own_write, "__write", (int, const void *, size_t));
SYMBOL(ssize_t, own_pread64, "__pread64", (int, void *, size_t, off64_t));
SYMBOL(ssize_t, own_pwrite64, "__pwrite64", (int, const void *, size_t, off64_t));
SYMBOL(off_t, own_lseek, "__lseek", (int, off_t, int));
DATA_CASE(__read, own_read(fd, buffer, 5))
DATA_CASE(__write, own_write(fd, "hello", 5))
DATA_CASE(__pread64, own_pread64(fd, buffer, 5, 3))
DATA_CASE(__pwrite64, own_pwrite64(fd, "hello", 5, 3))
DATA_CASE(__lseek, own_lseek(fd, 7, SEEK_CUR))
DATA_CASE(pread, pread(fd, buffer, 5, 3))
DATA_CASE(pread64, pread64(fd, buffer, 50, 13))
DATA_CASE(__pread_chk, pread_chk(fd, buffer, 5, 1, 64))
DATA_CASE(__pread64_chk, pread64_chk(fd, buffer, 5, 100, 64))
DATA_CASE(readv, readv(fd, iov, 2))
DATA_CASE(preadv, preadv(fd, iov, 2, 2))
DATA_CASE(preadv64, preadv64(fd, iov, 2, 2))
DATA_CASE(preadv2, preadv2(fd, iov, 2, -1, 0))
DATA_CASE(preadv64v2, preadv64v2(fd, iov, 2, 4, RWF_HIPRI))
DATA_CASE(write, write(fd, "hello", 5))
DATA_CASE(pwrite, pwrite(fd, "hello", 5, 2))
DATA_CASE(pwrite64, pwrite64(fd, "hello", 5, 200))
DATA_CASE(writev, writev(fd, iov, 2))
DATA_CASE(pwritev, pwritev(fd, iov, 2, 7))
DATA_CASE(pwritev64, pwritev64(fd, iov, 2, 7))
DATA_CASE(pwritev2, pwritev2(fd, iov, 1, 1, RWF_SYNC))
DATA_CASE(pwritev64v2, pwritev64v2(fd, iov, 2, -1, 0))
CASE(readahead) {
  int fd = open_file();
  SAY(readahead(fd, 0, 10));
  SAY(read(fd, (void *)8, 10));
  SAY(write(fd, (void *)8, 10));
  SAY(readv(fd, (struct iovec *)8, 2));
  SAY(writev(fd, NULL, 2));
  SAY(readv(fd, NULL, -1));
  say("  %lld\n", offset(fd));
  close(fd);
}
DATA_CASE(lseek, lseek(fd, 7, SEEK_CUR))
DATA_CASE(lseek64, lseek64(fd, -1, SEEK_SET))
DATA_CASE(fsync, fsync(fd))
DATA_CASE(fdatasync, fdatasync(fd))
DATA_CASE(syncfs, syncfs(fd))
DATA_CASE(sync_file_range, sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE))
DATA_CASE(ftruncate, ftruncate(fd, 4))
DATA_CASE(ftruncate64, ftruncate64(fd, 400))
DATA_CASE(fallocate, fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 5000))
DATA_CASE(fallocate64, fallocate64(fd, 0, 0, 5000))
DATA_CASE(posix_fallocate, posix_fallocate(fd, 0, 6000))
DATA_CASE(posix_fallocate64, posix_fallocate64(fd, -1, 6000))
DATA_CASE(posix_fadvise, posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL))
DATA_CASE(posix_fadvise64, posix_fadvise64(fd, 0, 0, 99))
DATA_CASE(flock, flock(fd, LOCK_EX | LOCK_NB))
DATA_CASE(lockf, lockf(fd, F_TLOCK, 3))
DATA_CASE(lockf64, lockf64(fd, F_TEST, 3))
DATA_CASE(ioctl, ioctl(fd, FIONREAD, buffer))

/* ---- from one to another ---- */

#define MOVE_CASE(name, type, call) \
  CASE(name) { \
    int from = open_file(), to = open(at("other"), O_RDWR), tube[2]; \
    type place = 2, place2 = 1; \
    (void)place2; \
    if (pipe(tube)) \
      return; \
    SAY(call); \
    SAY(call); \
    say("  %lld %lld %lld %lld\n", (long long)place, (long long)place2, offset(from), offset(to)); \
    close(from); \
    close(to); \
    SAY_CLOSED(call); \
    close(tube[0]); \
    close(tube[1]); \
  }
MOVE_CASE(sendfile, off_t, sendfile(to, from, &place, 5))
MOVE_CASE(sendfile64, off64_t, sendfile64(to, from, NULL, 5))
MOVE_CASE(copy_file_range, off64_t, copy_file_range(from, &place, to, &place2, 6, 0))
MOVE_CASE(splice, off64_t, splice(from, &place, tube[1], NULL, 6, 0))

/* ---- copies and ends ---- */

CASE(close) {
  int fd = open_file();
  SAY(close(fd));
  SAY(close(-1));
  SAY(close(90000));
}
SYMBOL(int, own_close, "__close", (int));
SYMBOL(int, own_dup2, "__dup2", (int, int));
SYMBOL(int, own_fcntl, "__fcntl", (int, int, ...));
CASE(__close) { SAY(own_close(open_file())); }
CASE2(__dup2, ALONE) {
  int fd = open_file();
  SAY(own_dup2(fd, 752));
  use(752);
  close(fd);
}
CASE(__fcntl) {
  int fd = open_file();
  SAY(own_fcntl(fd, F_SETFL, O_APPEND));
  SAY(own_fcntl(fd, F_GETFL) & O_APPEND);
  close(fd);
}
CASE2(close_range, ALONE) {
  int fd = open_file(), high = fcntl(fd, F_DUPFD, 700);
  say("  %d\n", high);
  SAY(close_range(600, 800, CLOSE_RANGE_CLOEXEC));
  SAY(fcntl(high, F_GETFD));
  SAY(close_range(600, 800, 0));
  SAY(fcntl(high, F_GETFD));
  SAY(close_range(9, 8, 0));
  close(fd);
}
CASE2(closefrom, ALONE) {
  int fd = open_file(), high = fcntl(fd, F_DUPFD, 700);
  closefrom(600);
  SAY(fcntl(high, F_GETFD));
  close(fd);
}
CASE(dup) {
  int fd = open_file(), copy = GOOD(dup(fd));
  SAY(lseek(copy, 5, SEEK_SET));
  say("  %lld\n", offset(fd));
  use(copy);
  use(fd);
  GOOD(dup(-1));
}
CASE2(dup2, ALONE) {
  int fd = open_file();
  SAY(dup2(fd, 750));
  SAY(dup2(fd, fd) == fd);
  use(750);
  use(fd);
  SAY(dup2(-1, 750));
}
CASE2(dup3, ALONE) {
  int fd = open_file();
  SAY(dup3(fd, 751, O_CLOEXEC));
  SAY(fcntl(751, F_GETFD));
  SAY(dup3(fd, fd, 0));
  use(751);
  close(fd);
}
#define FCNTL_CASE(name) \
  CASE2(name, ALONE) { \
    int fd = open_file(), copy; \
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 4}; \
    SAY(copy = name(fd, F_DUPFD, 800)); \
    use(copy); \
    SAY(copy = name(fd, F_DUPFD_CLOEXEC, 800)); \
    SAY(name(copy, F_GETFD)); \
    close(copy); \
    SAY(name(fd, F_SETLK, &lock)); \
    SAY(name(fd, F_OFD_GETLK, &lock)); \
    SAY(name(fd, F_SETFL, O_APPEND)); \
    SAY(name(fd, F_GETFL) & O_APPEND); \
    SAY(name(fd, F_SETLK, (struct flock *)8)); \
    close(fd); \
    SAY_CLOSED(name(fd, F_GETFL)); \
  }
FCNTL_CASE(fcntl)
FCNTL_CASE(fcntl64)

/* ---- maps ---- */

#define MAP_CASE(name) \
  CASE(name) { \
    int fd = open_file(); \
    char *map = name(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); \
    say("  %.5s\n", map); \
    map[1] = 'M'; \
    SAY(munmap(map, 4096)); \
    SAY(name(NULL, 4096, PROT_READ, MAP_SHARED, fd, 1) == MAP_FAILED); \
    SAY(name(NULL, 4096, PROT_READ, MAP_SHARED, -1, 0) == MAP_FAILED); \
    close(fd); \
    SAY_CLOSED(name(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED); \
    map = name(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); \
    SAY(munmap(map, 4096)); \
  }
MAP_CASE(mmap)
MAP_CASE(mmap64)

/* ---- folders ---- */

static int compare_words(const void *a, const void *b) { return strcmp(a, b); }
static void say_sorted(char names[16][64], int n) {
  qsort(names, (size_t)n, sizeof names[0], compare_words);
  for (int i = 0; i < n; i++)
    say("  %s\n", names[i]);
}
#define READDIR_CASE(symbol, type, call) \
  CASE(symbol) { \
    DIR *dir = GOOD_POINTER(opendir(here->folder)); \
    char names[16][64]; \
    int n = 0; \
    errno = POISON; \
    for (struct type *e; n < 16 && (e = call(dir));) \
      snprintf(names[n++], 64, "%.60s", e->d_name); \
    say("  errno %d\n", errno); \
    say_sorted(names, n); \
    SAY(closedir(dir)); \
  }
READDIR_CASE(readdir, dirent, readdir)
READDIR_CASE(readdir64, dirent64, readdir64)
#define READDIR_R_CASE(symbol, type) \
  CASE(symbol) { \
    _Pragma("GCC diagnostic ignored \"-Wdeprecated-declarations\"") \
    DIR *dir = opendir(here->folder); \
    struct type entry, *next; \
    char names[16][64]; \
    int n = 0; \
    while (n < 16 && !symbol(dir, &entry, &next) && next) \
      snprintf(names[n++], 64, "%.60s", entry.d_name); \
    say_sorted(names, n); \
    closedir(dir); \
  }
READDIR_R_CASE(readdir_r, dirent)
READDIR_R_CASE(readdir64_r, dirent64)
CASE(opendir) {
  GOOD_POINTER(opendir(at("missing")));
  GOOD_POINTER(opendir(at("file")));
  DIR *dir = GOOD_POINTER(opendir(at("folder")));
  SAY(closedir(dir));
}
CASE(closedir) {
  DIR *dir = opendir(here->folder);
  int fd = dirfd(dir);
  SAY(fcntl(fd, F_GETFD));
  SAY(closedir(dir));
}
CASE(fdopendir) {
  int fd = open(at("folder"), O_RDONLY | O_DIRECTORY), file = open_file();
  DIR *dir = GOOD_POINTER(fdopendir(fd));
  GOOD_POINTER(fdopendir(file));
  SAY(dirfd(dir) == fd);
  SAY(closedir(dir));
  close(file);
}
static DIR *entered(void) {
  DIR *dir = opendir(here->folder);
  readdir(dir);
  return dir;
}
CASE(rewinddir) {
  DIR *dir = entered();
  rewinddir(dir);
  int n = 0;
  while (readdir(dir))
    n++;
  say("  %d\n", n);
  closedir(dir);
}
CASE(telldir) {
  DIR *dir = entered();
  SAY(telldir(dir) != -1);
  closedir(dir);
}
CASE(seekdir) {
  DIR *dir = opendir(here->folder);
  long start = telldir(dir);
  int n = 0;
  readdir(dir);
  seekdir(dir, start);
  while (readdir(dir))
    n++;
  say("  %d\n", n);
  closedir(dir);
}
#define GETDENTS_CASE(name, call) \
  CASE(name) { \
    char buffer[2048]; \
    off_t base = 0; \
    int fd = open(at("folder"), O_RDONLY | O_DIRECTORY); \
    (void)base; \
    SAY(call); \
    SAY(call); \
    close(fd); \
    SAY_CLOSED(call); \
  }
GETDENTS_CASE(getdents64, getdents64(fd, buffer, sizeof buffer))
GETDENTS_CASE(getdirentries, getdirentries(fd, buffer, sizeof buffer, &base))
GETDENTS_CASE(getdirentries64, getdirentries64(fd, buffer, sizeof buffer, &base))
