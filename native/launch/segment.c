// SPDX-License-Identifier: Apache-2.0
/* See segment.h; the invariants are those of src/penstock/runs/segments.py. */
#include "launch/segment.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "kernels/crc32c.h"

enum { LOCK_WAIT_MS = 5000, LOCK_TRY_MS = 10, NODE_NAME_MAX = 64 };

static void put_le(uint8_t *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++)
    at[i] = (uint8_t)(value >> (8 * i));
}

size_t penstock_frame_open(struct penstock_pack *p) {
  size_t at = p->size;
  penstock_pack_room(p, PENSTOCK_FRAME_HEAD_BYTES);
  return at;
}

void penstock_frame_close(struct penstock_pack *p, size_t at, int kind, const uint8_t run[16]) {
  if (p->failed)
    return;
  size_t size = p->size - at - PENSTOCK_FRAME_HEAD_BYTES;
  if (size > PENSTOCK_FRAME_MAX_BYTES) {
    p->failed = true;
    return;
  }
  uint8_t *head = p->data + at;
  memcpy(head, "PSF1", 4);
  put_le(head + 4, size, 4);
  put_le(head + 12, PENSTOCK_RECORD_VERSION, 2);
  put_le(head + 14, (uint64_t)kind, 2);
  memcpy(head + 16, run, 16);
  put_le(head + 8, penstock_crc32c(0, head + 12, PENSTOCK_FRAME_HEAD_BYTES - 12 + size), 4);
}

/* The lock, or -1 when it was not to be had in time. */
static int take_lock(void) {
  static const char *const places[] = {"/dev/shm", "/tmp"};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    char path[64];
    struct stat st;
    int size = snprintf(path, sizeof path, "%s/penstock-%u", places[i], (unsigned)getuid());
    if ((mkdir(path, 0700) && errno != EEXIST) || lstat(path, &st) || st.st_uid != getuid())
      continue;
    snprintf(path + size, sizeof path - (size_t)size, "/history.lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
      return -1;
    for (int waited = 0; waited <= LOCK_WAIT_MS; waited += LOCK_TRY_MS) {
      if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
      nanosleep(&(struct timespec){.tv_nsec = LOCK_TRY_MS * 1000000}, NULL);
    }
    close(fd);
    return -1;
  }
  return -1;
}

void penstock_make_parents(const char *below) {
  char path[PATH_MAX];
  if (strlen(below) >= sizeof path)
    return;
  strcpy(path, below);
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0777);
    *slash = '/';
  }
}

static void node_folder(char ret[NODE_NAME_MAX + 2], const char *node) {
  size_t size = 0;
  bool dots = true;
  char *name = ret + 1;
  for (; node[size] && size < NODE_NAME_MAX; size++) {
    char c = node[size];
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("._-", c);
    name[size] = plain ? c : '_';
    dots = dots && c == '.';
  }
  name[size] = 0;
  ret[0] = '_';
  if (!dots)
    memmove(ret, name, size + 1);
}

/* The segment of this moment, made with its folders when `history` has none; or -errno. */
static int open_segment(const char *history, const char *node, bool group) {
  char path[PATH_MAX], name[NODE_NAME_MAX + 2], month[32];
  struct tm tm;
  time_t now = time(NULL);
  node_folder(name, node);
  strftime(month, sizeof month, "%Y-%m", gmtime_r(&now, &tm));
  int size = snprintf(path, sizeof path, "%s/%s/%s.seg", history, name, month);
  if (size < 0 || (size_t)size >= sizeof path)
    return -ENAMETOOLONG;
  int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC;
  mode_t file_mode = group ? 0640 : 0600, folder_mode = group ? 0750 : 0700;
  int fd = open(path, flags, file_mode);
  if (fd < 0 && errno == ENOENT) {
    penstock_make_parents(history);
    mkdir(history, folder_mode);
    path[strlen(history) + 1 + strlen(name)] = 0;
    mkdir(path, folder_mode);
    path[strlen(path)] = '/';
    fd = open(path, flags, file_mode);
  }
  return fd < 0 ? -errno : fd;
}

int penstock_segment_append(const char *history, const char *node, bool group, const void *frames, size_t size) {
  int fd = open_segment(history, node, group);
  if (fd < 0)
    return fd;
  int lock = take_lock(), error = 0;
  struct stat before;
  if (fstat(fd, &before))
    error = -errno;
  ssize_t written = error ? 0 : write(fd, frames, size);
  if (written < 0)
    error = -errno;
  else if (!error && (size_t)written < size)
    error = -ENOSPC;
  if (error && lock >= 0 && written > 0 && ftruncate(fd, before.st_size))
    error = -errno;
  close(fd);
  if (lock >= 0)
    close(lock);
  return error;
}
