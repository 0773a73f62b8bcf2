// SPDX-License-Identifier: Apache-2.0
/* See boards.h. */
#include "launch/boards.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "launch/boot.h"

/* A folder that is ours alone: 0, or -errno. */
static int own_folder(const char *path) {
  struct stat st;
  if (mkdir(path, 0700) && errno != EEXIST)
    return -errno;
  if (lstat(path, &st))
    return -errno;
  return S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022) ? 0 : -EACCES;
}

int penstock_boards_folder(char ret[PENSTOCK_BOARDS_PATH_MAX], const char *chosen) {
  static const char *const places[] = {"/dev/shm", "/tmp"};
  if (chosen && *chosen)
    return snprintf(ret, PENSTOCK_BOARDS_PATH_MAX, "%s", chosen) < PENSTOCK_BOARDS_PATH_MAX ? own_folder(ret)
                                                                                          : -ENAMETOOLONG;
  int error = 0;
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    snprintf(ret, PENSTOCK_BOARDS_PATH_MAX, "%s/penstock-%u", places[i], (unsigned)geteuid());
    error = own_folder(ret);
    if (!error)
      return 0;
  }
  return error;
}

int penstock_board_path(char ret[PENSTOCK_BOARDS_PATH_MAX], const char *base, const uint8_t run[16], const char *node) {
  char hex[33];
  for (int i = 0; i < 16; i++)
    snprintf(hex + 2 * i, 3, "%02x", run[i]);
  int size = snprintf(ret, PENSTOCK_BOARDS_PATH_MAX, "%s/%s-%016llx", base, hex,
                      (unsigned long long)(penstock_hash(node, strlen(node)) ^ penstock_boot_id()));
  return size < PENSTOCK_BOARDS_PATH_MAX ? 0 : -ENAMETOOLONG;
}

bool penstock_board_served(const char *path) {
  char control[PENSTOCK_BOARDS_PATH_MAX + 16], usage[PENSTOCK_BOARDS_PATH_MAX + 16];
  snprintf(control, sizeof control, "%s/control", path);
  snprintf(usage, sizeof usage, "%s/usage", path);
  int fd = open(control, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0)
    return false;
  struct stat st;
  /* A site's agent owns the boards that it keeps, and lets us write usage. */
  bool served = fstat(fd, &st) == 0 && (st.st_uid == geteuid() || access(usage, R_OK | W_OK) == 0) &&
                flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
  close(fd);
  return served;
}

int penstock_board_take(struct penstock_watch *ret, const char *base, const char *path,
                        const struct penstock_board_plan *plan) {
  int lock = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0)
    return -errno;
  int error = flock(lock, LOCK_EX) ? -errno : penstock_watch_open(ret, path, true);
  if (error && error != -EWOULDBLOCK) { /* none, or one that is of no use any more */
    struct penstock_board made;
    penstock_board_delete(path);
    error = penstock_board_create(path, plan, &made);
    if (!error) {
      penstock_board_close(&made);
      error = penstock_watch_open(ret, path, true);
    }
  }
  close(lock);
  return error;
}

int penstock_board_claim(struct penstock_watch *ret, const char *path) {
  char base[PATH_MAX];
  const char *slash = strrchr(path, '/');
  if (!slash || snprintf(base, sizeof base, "%.*s", (int)(slash - path), path) >= (int)sizeof base)
    return -EINVAL;
  int lock = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0)
    return -errno;
  int error = flock(lock, LOCK_EX) ? -errno : penstock_watch_open(ret, path, true);
  close(lock);
  return error;
}

void penstock_board_put_away(struct penstock_watch *w, bool keep) {
  char gone[PATH_MAX];
  if (!w->agent || (keep && penstock_give_back(w) < 0))
    return;
  penstock_board_delete(w->path);
  snprintf(gone, sizeof gone, "%s.gone", w->path);
  if (!keep)
    unlink(gone);
  penstock_watch_close(w);
}
