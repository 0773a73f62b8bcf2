// SPDX-License-Identifier: Apache-2.0
/* The folder, the header and the inode table.  See store.h. */
#include "testbed/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { GROW_INODES = 4096, PAGE_INODES = 4096 / STORE_RECORD_BYTES, VERSION = 1 };

static int say(char *why, size_t size, int err, const char *what) {
  snprintf(why, size, "%s: %s", what, strerror(-err));
  return err;
}

/* A folder below another, made if missing. */
static int open_folder(int at, const char *name) {
  if (mkdirat(at, name, 0700) && errno != EEXIST)
    return -errno;
  int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

static void *map(int folder, const char *name, uint64_t size, int *ret_fd) {
  int fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  struct stat st;
  if (fd < 0 || fstat(fd, &st) || ((uint64_t)st.st_size < size && ftruncate(fd, (off_t)size)))
    goto fail;
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (at == MAP_FAILED)
    goto fail;
  *ret_fd = fd;
  return at;
fail:;
  int err = errno;
  if (fd >= 0)
    close(fd);
  errno = err;
  return NULL;
}

static bool is_empty(int folder) {
  struct stat st;
  return fstatat(folder, "header", &st, 0) != 0 && fstatat(folder, "inodes", &st, 0) != 0;
}

static int open_header(struct store *s, bool is_new, uint32_t ost_count, char *why, size_t why_size) {
  struct stat st;
  if (!is_new && (fstatat(s->folder, "header", &st, 0) || (uint64_t)st.st_size < sizeof *s->header ||
                  fstatat(s->folder, "inodes", &st, 0) || st.st_size < STORE_RECORD_BYTES * 2)) {
    snprintf(why, why_size, "the store has lost its header or inode table; restore it, or start with another folder");
    return -EUCLEAN;
  }
  int fd = -1;
  s->header = map(s->folder, "header", sizeof *s->header, &fd);
  if (!s->header)
    return say(why, why_size, -errno, "the store's header cannot be mapped");
  int err = is_new ? -posix_fallocate(fd, 0, sizeof *s->header) : 0;
  close(fd);
  if (err)
    return say(why, why_size, err, "there is no room for the store's header");
  struct header *h = s->header;
  if (is_new) {
    h->version = VERSION;
    h->ost_count = ost_count;
    h->next_ino = STORE_ROOT;
    for (uint32_t i = 0; i < MODEL_MAX_OSTS; i++) h->osts[i].next_object = 1;
    h->magic = STORE_MAGIC;
  }
  if (h->magic != STORE_MAGIC || h->version != VERSION || h->next_ino > STORE_MAX_INODES) {
    snprintf(why, why_size, "the store's header is not one of this version; start with another folder");
    return -EUCLEAN;
  }
  if (h->ost_count != ost_count) {
    snprintf(why, why_size, "the store has %u OSTs, not %u; ask for as many, or start with another folder", h->ost_count,
             ost_count);
    return -EINVAL;
  }
  return 0;
}

static int open_osts(struct store *s) {
  for (uint32_t i = 0; i < s->ost_count; i++) {
    char name[STORE_NAME_BYTES];
    snprintf(name, sizeof name, "ost%04x", i);
    if ((s->osts[i] = open_folder(s->folder, name)) < 0)
      return s->osts[i];
  }
  return 0;
}

int store_open(struct store *s, const char *path, uint32_t ost_count, bool *was_running, bool *is_new, char *why,
               size_t why_size) {
  memset(s, 0, sizeof *s);
  s->ost_count = ost_count;
  pthread_mutex_init(&s->grow, NULL);
  for (int i = 0; i < STORE_LOCKS; i++) pthread_mutex_init(&s->locks[i], NULL);
  if (mkdir(path, 0700) && errno != EEXIST)
    return say(why, why_size, -errno, path);
  s->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (s->folder < 0)
    return say(why, why_size, -errno, path);
  *is_new = is_empty(s->folder);
  int err = open_header(s, *is_new, ost_count, why, why_size);
  if (err)
    return err;
  s->table = map(s->folder, "inodes", (uint64_t)STORE_MAX_INODES * STORE_RECORD_BYTES, &s->table_file);
  if (!s->table)
    return say(why, why_size, -errno, "the store's inode table cannot be mapped");
  const struct {
    int *fd;
    const char *name;
  } folders[] = {{&s->names, "names"}, {&s->bytes, "bytes"}, {&s->xattrs, "xattrs"}, {&s->dom, "dom"}};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    if ((*folders[i].fd = open_folder(s->folder, folders[i].name)) < 0)
      return say(why, why_size, *folders[i].fd, folders[i].name);
  if ((err = open_osts(s)))
    return say(why, why_size, err, "a folder of an OST cannot be opened");
  *was_running = s->header->running;
  s->header->running = 1;
  return 0;
}

void store_close(struct store *s) {
  if (s->header) {
    s->header->running = 0;
    munmap(s->header, sizeof *s->header);
  }
  if (s->table)
    munmap(s->table, (uint64_t)STORE_MAX_INODES * STORE_RECORD_BYTES);
  s->header = NULL;
  s->table = NULL;
}

/* ---- inodes ---- */

static bool known(const struct store *s, uint64_t ino) {
  return ino >= STORE_ROOT && ino < atomic_load_explicit(&s->header->next_ino, memory_order_acquire);
}

struct record *store_lock(struct store *s, uint64_t ino) {
  if (!known(s, ino))
    return NULL;
  pthread_mutex_t *lock = &s->locks[store_slot(ino)];
  struct record *r = &s->table[ino];
  pthread_mutex_lock(lock);
  if (r->magic == STORE_RECORD_MAGIC)
    return r;
  pthread_mutex_unlock(lock);
  return NULL;
}

void store_unlock(struct store *s, uint64_t ino) {
  pthread_mutex_unlock(&s->locks[store_slot(ino)]);
}

bool store_read(struct store *s, uint64_t ino, struct record *ret) {
  const struct record *r = store_lock(s, ino);
  if (!r)
    return false;
  *ret = *r;
  store_unlock(s, ino);
  return true;
}

struct stamp store_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (struct stamp){t.tv_sec, t.tv_nsec};
}

uint64_t store_new(struct store *s, uint32_t mode, uint32_t uid, uint32_t gid) {
  pthread_mutex_lock(&s->grow);
  uint64_t ino = s->header->next_ino;
  bool full = ino >= STORE_MAX_INODES;
  if (!full && ino >= s->backed_inos) { /* room on the disk first: a full disk must not become a SIGBUS */
    uint64_t end = ino + GROW_INODES < STORE_MAX_INODES ? ino + GROW_INODES : STORE_MAX_INODES;
    off_t at = (off_t)(ino * STORE_RECORD_BYTES);
    if (posix_fallocate(s->table_file, at, (off_t)(end * STORE_RECORD_BYTES) - at))
      full = true;
    else
      s->backed_inos = end;
  }
  if (!full)
    atomic_store_explicit(&s->header->next_ino, ino + 1, memory_order_release);
  pthread_mutex_unlock(&s->grow);
  if (full)
    return 0;
  pthread_mutex_lock(&s->locks[store_slot(ino)]);
  struct stamp now = store_now();
  struct record *r = &s->table[ino];
  *r = (struct record){
    .mode = mode, .ino = ino, .uid = uid, .gid = gid, .atime = now, .mtime = now, .ctime = now, .btime = now};
  r->magic = STORE_RECORD_MAGIC;
  store_unlock(s, ino);
  s->header->inodes++;
  return ino;
}

/* Gives a page of the table back to the disk when nothing on it is in use or will be. */
static void punch(struct store *s, uint64_t ino) {
  uint64_t first = ino - ino % PAGE_INODES;
  if (first == 0 || first + PAGE_INODES > s->header->next_ino)
    return;
  for (uint64_t i = first; i < first + PAGE_INODES; i++)
    if (__atomic_load_n(&s->table[i].magic, __ATOMIC_RELAXED))
      return;
  fallocate(s->table_file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(first * STORE_RECORD_BYTES),
            (off_t)PAGE_INODES * STORE_RECORD_BYTES);
}

static void path_of(char path[STORE_NAME_BYTES], uint64_t number) {
  snprintf(path, STORE_NAME_BYTES, "%llx", (unsigned long long)number);
}

void store_retire(struct record *r) {
  __atomic_store_n(&r->magic, STORE_RECORD_RETIRED, __ATOMIC_RELAXED);
}

void store_forget(struct store *s, const struct record *copy) {
  char path[STORE_NAME_BYTES];
  path_of(path, copy->ino);
  if (copy->byte_count > STORE_INLINE)
    unlinkat(s->bytes, path, 0);
  if (copy->has_xattrs)
    unlinkat(s->xattrs, path, 0);
  __atomic_store_n(&s->table[copy->ino].magic, 0, __ATOMIC_RELAXED);
  s->header->inodes--;
  punch(s, copy->ino);
}

/* ---- the bytes of an inode ---- */

ssize_t store_read_file(int folder, uint64_t number, void *ret, size_t room) {
  char path[STORE_NAME_BYTES];
  path_of(path, number);
  int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return -errno;
  struct stat st;
  ssize_t got = fstat(fd, &st) ? -errno : st.st_size > (off_t)room ? -ERANGE : pread(fd, ret, room, 0);
  close(fd);
  return got;
}

int store_write_file(int folder, uint64_t number, const void *data, size_t size) {
  char path[STORE_NAME_BYTES], aside[STORE_NAME_BYTES + 8];
  path_of(path, number);
  snprintf(aside, sizeof aside, "%s.new", path);
  int fd = openat(folder, aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return -errno;
  ssize_t put = write(fd, data, size);
  int err = put < 0 ? -errno : (size_t)put < size ? -ENOSPC : 0;
  close(fd);
  if (!err && renameat(folder, aside, folder, path))
    err = -errno;
  if (err)
    unlinkat(folder, aside, 0);
  return err;
}

ssize_t store_bytes(struct store *s, const struct record *r, void *ret, size_t room) {
  if (r->byte_count > STORE_INLINE)
    return store_read_file(s->bytes, r->ino, ret, room);
  if (r->byte_count > room)
    return -ERANGE;
  memcpy(ret, r->bytes, r->byte_count);
  return (ssize_t)r->byte_count;
}

int store_set_bytes(struct store *s, struct record *r, const void *data, size_t size) {
  if (size > STORE_INLINE) {
    int err = store_write_file(s->bytes, r->ino, data, size);
    if (err)
      return err;
  }
  bool outside = r->byte_count > STORE_INLINE;
  if (size <= STORE_INLINE) {
    r->byte_count = 0;
    atomic_signal_fence(memory_order_seq_cst); /* killed here: no layout, rather than half of one */
    if (size)
      memcpy(r->bytes, data, size);
    atomic_signal_fence(memory_order_seq_cst);
  }
  r->byte_count = (uint32_t)size;
  if (outside && size <= STORE_INLINE) {
    char path[STORE_NAME_BYTES];
    path_of(path, r->ino);
    unlinkat(s->bytes, path, 0);
  }
  return 0;
}

/* ---- names ---- */

enum { ENTRY_BYTES = STORE_NAME_BYTES + 256 };

static int entry_path(char path[ENTRY_BYTES], uint64_t dir, const char *name) {
  int n = snprintf(path, ENTRY_BYTES, "%llx/%s", (unsigned long long)dir, name);
  return n < ENTRY_BYTES && strlen(name) <= 255 ? 0 : -ENAMETOOLONG;
}

int store_find(struct store *s, uint64_t dir, const char *name, uint64_t *ret) {
  char path[ENTRY_BYTES], text[STORE_NAME_BYTES];
  int err = entry_path(path, dir, name);
  if (err)
    return err;
  ssize_t n = readlinkat(s->names, path, text, sizeof text - 1);
  if (n < 0)
    return errno == EINVAL ? -EUCLEAN : -errno;
  text[n] = 0;
  char *end;
  *ret = strtoull(text, &end, 16);
  return *end || end == text ? -EUCLEAN : 0;
}

int store_link(struct store *s, uint64_t dir, const char *name, uint64_t ino) {
  char path[ENTRY_BYTES], text[STORE_NAME_BYTES];
  int err = entry_path(path, dir, name);
  if (err)
    return err;
  path_of(text, ino);
  return symlinkat(text, s->names, path) ? -errno : 0;
}

int store_unlink(struct store *s, uint64_t dir, const char *name) {
  char path[ENTRY_BYTES];
  int err = entry_path(path, dir, name);
  return err ? err : unlinkat(s->names, path, 0) ? -errno : 0;
}

int store_rename(struct store *s, uint64_t from, const char *old_name, uint64_t to, const char *new_name) {
  char a[ENTRY_BYTES], b[ENTRY_BYTES];
  int err = entry_path(a, from, old_name);
  if (!err)
    err = entry_path(b, to, new_name);
  return err ? err : renameat(s->names, a, s->names, b) ? -errno : 0;
}

int store_make_dir(struct store *s, uint64_t ino) {
  char path[STORE_NAME_BYTES];
  path_of(path, ino);
  return mkdirat(s->names, path, 0700) ? -errno : 0;
}

int store_remove_dir(struct store *s, uint64_t ino) {
  char path[STORE_NAME_BYTES];
  path_of(path, ino);
  return unlinkat(s->names, path, AT_REMOVEDIR) ? (errno == EEXIST ? -ENOTEMPTY : -errno) : 0;
}

int store_list(struct store *s, uint64_t ino) {
  char path[STORE_NAME_BYTES];
  path_of(path, ino);
  int fd = openat(s->names, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  return fd < 0 ? -errno : fd;
}

/* ---- objects ---- */

int store_new_object(struct store *s, uint32_t ost, uint32_t *ret) {
  if (ost >= s->ost_count)
    return -EINVAL;
  uint32_t number = s->header->osts[ost].next_object++;
  *ret = number;
  return number == 0 || number == UINT32_MAX ? -ENOSPC : 0;
}

static int folder_of(struct store *s, uint32_t ost) {
  return ost == STORE_MDT ? s->dom : ost < s->ost_count ? s->osts[ost] : -1;
}

int store_make_object(struct store *s, uint32_t ost, uint64_t number) {
  char path[STORE_NAME_BYTES];
  path_of(path, number);
  if (mknodat(folder_of(s, ost), path, S_IFREG | 0600, 0))
    return -errno;
  if (ost != STORE_MDT)
    s->header->osts[ost].objects++;
  return 0;
}

int store_open_object(struct store *s, uint32_t ost, uint64_t number) {
  char path[STORE_NAME_BYTES];
  path_of(path, number);
  int fd = openat(folder_of(s, ost), path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOATIME);
  return fd < 0 ? -errno : fd;
}

int store_remove_object(struct store *s, uint32_t ost, uint64_t number, uint64_t *room_bytes) {
  char path[STORE_NAME_BYTES];
  path_of(path, number);
  int folder = folder_of(s, ost);
  struct stat st;
  if (room_bytes)
    *room_bytes = fstatat(folder, path, &st, AT_SYMLINK_NOFOLLOW) ? 0 : (uint64_t)st.st_blocks * 512;
  if (unlinkat(folder, path, 0))
    return -errno;
  if (ost != STORE_MDT)
    s->header->osts[ost].objects--;
  return 0;
}
