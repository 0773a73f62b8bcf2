// SPDX-License-Identifier: Apache-2.0
/* What is known of descriptors: a static table that is touched only where it is used.  An entry is all zero until the
   descriptor is opened before our eyes or first used; whatever closes or replaces a descriptor makes it zero again.
   Others than the thread that opens or looks may read an entry at any time: `known` is written last. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "interpose/process.h"
#include "interpose/raw.h"

struct penstock_fd penstock_fds[PENSTOCK_FDS];

struct penstock_fd *penstock_fd_at(int fd) { return (unsigned)fd < PENSTOCK_FDS ? &penstock_fds[fd] : NULL; }

int penstock_fd_path(int fd, char *buffer, size_t room) {
  char link[32] = "/proc/self/fd/", digits[12];
  size_t n = 0, at = 14;
  if (fd < 0 || atomic_load_explicit(&penstock_process.sealed, memory_order_relaxed))
    return -1;
  for (unsigned left = (unsigned)fd; n == 0 || left; left /= 10)
    digits[n++] = (char)('0' + left % 10);
  while (n)
    link[at++] = digits[--n];
  link[at] = 0;
  long size = PENSTOCK_RAW(readlinkat, AT_FDCWD, link, buffer, room);
  /* What is not a path ("pipe:[1]") and what did not fit is no name. */
  if (size <= 0 || (size_t)size >= room || buffer[0] != '/')
    return -1;
  buffer[size] = 0;
  return (int)size;
}

/* A new file is empty, and its times are all the same. */
static bool is_old(const struct stat *st) {
  return st->st_size || st->st_atim.tv_sec != st->st_ctim.tv_sec || st->st_atim.tv_nsec != st->st_ctim.tv_nsec;
}

static bool look(int fd, struct stat *st) { return PENSTOCK_RAW(fstat, fd, st, 0, 0) == 0; }

static void publish(struct penstock_fd *entry, struct penstock_fd now) {
  now.known = 0;
  *entry = now;
  __atomic_store_n(&entry->known, 1, __ATOMIC_RELEASE);
}

static uint32_t next_open(void) {
  return atomic_fetch_add_explicit(&penstock_process.opened, 1, memory_order_relaxed) + 1;
}

/* Fills in what follows from the file's type and device. */
static void judge(struct penstock_fd *now, const struct stat *st, struct penstock_found found) {
  now->under = penstock_rules_decide(&penstock_process.rules, found, st->st_dev);
  if (S_ISDIR(st->st_mode))
    now->flags |= PENSTOCK_FD_DIRECTORY;
  else if (!S_ISREG(st->st_mode))
    now->under = 0;
}

static void judge_folder(struct penstock_fd *now, const char *path, size_t size) {
  if (now->flags & PENSTOCK_FD_DIRECTORY && (!path || penstock_rules_below(&penstock_process.rules, path, size)))
    now->flags |= PENSTOCK_FD_DEEP;
}

struct penstock_fd *penstock_fd_look(int fd) {
  struct penstock_fd now = {.flags = PENSTOCK_FD_INHERITED}, *entry = penstock_fd_at(fd);
  struct stat st;
  if (!entry) {
    if (fd >= 0)
      penstock_lost(PENSTOCK_LOST_FDS);
    return NULL;
  }
  if (atomic_load_explicit(&penstock_process.sealed, memory_order_relaxed)) {
    penstock_lost(PENSTOCK_LOST_UNKNOWN);
    publish(entry, now);
    return entry;
  }
  if (!look(fd, &st))
    return NULL;
  if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) {
    char path[PENSTOCK_NAME_MAX];
    int size = penstock_fd_path(fd, path, sizeof path);
    struct penstock_found found = {penstock_process.rules.otherwise, -1};
    if (size > 0)
      found = penstock_rules_find(&penstock_process.rules, path, (size_t)size, PENSTOCK_LETTERS_ANY);
    /* Memory with a name is no file. */
    if (size > 7 && memcmp(path, "/memfd:", 7) == 0)
      found.under = 0;
    judge(&now, &st, found);
    judge_folder(&now, size > 0 ? path : NULL, (size_t)(size > 0 ? size : 0));
    long flags = PENSTOCK_RAW(fcntl, fd, F_GETFL, 0, 0);
    if (flags > 0 && flags & O_APPEND)
      now.flags |= PENSTOCK_FD_APPEND;
    if (flags > 0 && (flags & O_ACCMODE) != O_RDONLY)
      now.flags |= PENSTOCK_FD_WRITES;
    now.opened = next_open();
  }
  publish(entry, now);
  return entry;
}

/* Whether the file must be looked at: a name says enough where no device is asked for and the file is surely new. */
static bool must_look(const struct penstock_call *call, uint8_t under) {
  if (atomic_load_explicit(&penstock_process.sealed, memory_order_relaxed))
    return false;
  bool is_new = (call->open_flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
  return penstock_process.rules.mounts || (under && !is_new);
}

void penstock_fd_opened(struct penstock_call *call, int fd, struct penstock_found found) {
  struct penstock_fd now = {.under = found.under}, *entry = penstock_fd_at(fd);
  struct stat st;
  if (call->open_flags & O_APPEND)
    now.flags |= PENSTOCK_FD_APPEND;
  if ((call->open_flags & O_ACCMODE) != O_RDONLY || call->open_flags & (O_CREAT | O_TRUNC))
    now.flags |= PENSTOCK_FD_WRITES;
  if (must_look(call, found.under) && look(fd, &st)) {
    judge(&now, &st, found);
    judge_folder(&now, call->path, call->path_size);
    if (now.under) {
      call->dev = st.st_dev;
      call->size = (uint64_t)st.st_size;
      call->was_there = is_old(&st);
    }
  } else if (call->open_flags & O_DIRECTORY || (!now.under && !call->path))
    now.flags |= PENSTOCK_FD_DIRECTORY | PENSTOCK_FD_DEEP;
  else if (!now.under && penstock_rules_below(&penstock_process.rules, call->path, call->path_size))
    now.flags |= PENSTOCK_FD_DEEP;
  call->under = now.under;
  call->fd = fd;
  if (!entry) {
    penstock_lost(PENSTOCK_LOST_FDS);
    return;
  }
  now.opened = next_open();
  publish(entry, now);
  call->entry = entry;
}

void penstock_fd_forget(int fd) {
  struct penstock_fd *entry = penstock_fd_at(fd);
  if (entry && entry->known)
    *entry = (struct penstock_fd){0};
}

void penstock_fd_forget_range(unsigned from, unsigned to) {
  for (unsigned fd = from; fd <= to && fd < PENSTOCK_FDS; fd++)
    penstock_fd_forget((int)fd);
}

void penstock_fd_copy(int from, int to) {
  struct penstock_fd *source = penstock_fd_at(from), *entry = penstock_fd_at(to);
  if (!entry || from == to)
    return;
  if (!source || !source->known)
    penstock_fd_forget(to);
  else
    publish(entry, *source);
}
