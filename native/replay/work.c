// SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

enum { STOCK = 4096, FILES_A_FOLDER = 64 };

const char *const operation_names[OPERATIONS] = {
  [OPEN] = "open",     [CLOSE] = "close",   [GETATTR] = "getattr", [SETATTR] = "setattr", [RENAME] = "rename",
  [MKDIR] = "mkdir",   [MKNOD] = "mknod",   [RMDIR] = "rmdir",     [STATFS] = "statfs",   [SYNC] = "sync",
  [UNLINK] = "unlink", [READ] = "read",     [WRITE] = "write",
};

/* What one operation left for another: descriptors, or numbers of names. */
struct stock {
  pthread_mutex_t lock;
  unsigned first, held, most;
  int items[STOCK];
};

struct place {
  struct place_settings settings;
  char folder[3800];
  char (*files)[4096];
  struct stock open, folders, nodes;
  _Atomic int named;
};

static void stock_ready(struct stock *stock, unsigned most) {
  pthread_mutex_init(&stock->lock, NULL);
  stock->most = most < STOCK ? most : STOCK;
}

/* Keep an item; the oldest one if there is no room for both, else -1. */
static int stock_put(struct stock *stock, int item) {
  int oldest = -1;
  pthread_mutex_lock(&stock->lock);
  if (stock->held == stock->most) {
    oldest = stock->items[stock->first];
    stock->first = (stock->first + 1) % STOCK;
    stock->held--;
  }
  stock->items[(stock->first + stock->held++) % STOCK] = item;
  pthread_mutex_unlock(&stock->lock);
  return oldest;
}

static int stock_take(struct stock *stock) {
  int item = -1;
  pthread_mutex_lock(&stock->lock);
  if (stock->held) {
    item = stock->items[stock->first];
    stock->first = (stock->first + 1) % STOCK;
    stock->held--;
  }
  pthread_mutex_unlock(&stock->lock);
  return item;
}

static int status(int result) { return result < 0 ? errno : 0; }

/* ---- the folder ---- */

static int make_files(struct place *place) {
  char folder[sizeof place->folder + 32];
  for (unsigned i = 0; i < place->settings.files; i++) {
    if (i % FILES_A_FOLDER == 0) {
      snprintf(folder, sizeof folder, "%s/files%u", place->folder, i / FILES_A_FOLDER);
      if (mkdir(folder, 0700))
        return errno;
    }
    snprintf(place->files[i], sizeof place->files[i], "%s/files%u/f%u", place->folder, i / FILES_A_FOLDER, i);
    int fd = open(place->files[i], O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0)
      return errno;
    close(fd);
  }
  return 0;
}

static int make_folders(struct place *place) {
  static const char *const names[] = {"folders", "nodes", "own"};
  char path[sizeof place->folder + 16];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(path, sizeof path, "%s/%s", place->folder, names[i]);
    if (mkdir(path, 0700))
      return errno;
  }
  return 0;
}

struct place *place_make(const struct place_settings *settings) {
  struct place *place = calloc(1, sizeof *place);
  int error = ENOMEM;
  if (!place)
    return NULL;
  place->settings = *settings;
  long descriptors = sysconf(_SC_OPEN_MAX);
  stock_ready(&place->open, descriptors > 64 ? (unsigned)descriptors / 2 : 16);
  stock_ready(&place->folders, STOCK);
  stock_ready(&place->nodes, STOCK);
  place->files = calloc(settings->files, sizeof *place->files);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  int length =
    snprintf(place->folder, sizeof place->folder, "%s/penstock-replay.%s.%d", settings->folder, host, (int)getpid());
  if (!place->files)
    goto fail;
  if (length >= (int)sizeof place->folder) {
    error = ENAMETOOLONG;
    goto fail;
  }
  if (mkdir(place->folder, 0700)) {
    error = errno;
    goto fail;
  }
  if ((error = make_files(place)) || (error = make_folders(place))) {
    place_remove(place);
    errno = error;
    return NULL;
  }
  return place;
fail:
  free(place->files);
  free(place);
  errno = error;
  return NULL;
}

/* Removes a folder with all in it; `depth` keeps it within what was made here. */
static int remove_all(const char *folder, int depth) {
  int error = 0;
  DIR *dir = depth ? opendir(folder) : NULL;
  if (!dir)
    return depth ? errno : ELOOP;
  for (struct dirent *entry; (entry = readdir(dir));) {
    char path[4096];
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
      continue;
    int failed = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path ? status(unlink(path)) : ENAMETOOLONG;
    if (failed == EISDIR || failed == EPERM)
      failed = remove_all(path, depth - 1);
    error = failed ? failed : error;
  }
  closedir(dir);
  int failed = status(rmdir(folder));
  return error ? error : failed;
}

int place_remove(struct place *place) {
  for (int fd; (fd = stock_take(&place->open)) >= 0;)
    close(fd);
  int error = remove_all(place->folder, 4);
  free(place->files);
  free(place);
  return error;
}

/* ---- the operations ---- */

static const char *file_of(struct hand *hand) {
  return hand->place->files[hand->turn++ % hand->place->settings.files];
}

static const char *name_of(struct hand *hand, const char *kind, int number) {
  snprintf(hand->path[0], sizeof hand->path[0], "%s/%s/%d", hand->place->folder, kind, number);
  return hand->path[0];
}

static int do_open(struct hand *hand) {
  int fd = open(file_of(hand), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return errno;
  int oldest = stock_put(&hand->place->open, fd);
  if (oldest >= 0) {
    hand->extra++;
    close(oldest);
  }
  return 0;
}

/* A trace that closes more than it opens closes duplicates: a call that is seen, and no request to a server. */
static int do_close(struct hand *hand) {
  int fd = stock_take(&hand->place->open);
  if (fd < 0) {
    hand->extra++;
    fd = fcntl(hand->fd, F_DUPFD_CLOEXEC, 0);
  }
  return status(close(fd));
}

static int do_mkdir(struct hand *hand) {
  int number = atomic_fetch_add(&hand->place->named, 1);
  if (mkdir(name_of(hand, "folders", number), 0700))
    return errno;
  int oldest = stock_put(&hand->place->folders, number);
  hand->extra += oldest >= 0;
  return oldest < 0 ? 0 : status(rmdir(name_of(hand, "folders", oldest)));
}

static int do_rmdir(struct hand *hand) {
  int number = stock_take(&hand->place->folders);
  if (number < 0) {
    number = atomic_fetch_add(&hand->place->named, 1);
    hand->extra++;
    if (mkdir(name_of(hand, "folders", number), 0700))
      return errno;
  }
  return status(rmdir(name_of(hand, "folders", number)));
}

static int do_mknod(struct hand *hand) {
  int number = atomic_fetch_add(&hand->place->named, 1);
  if (mknod(name_of(hand, "nodes", number), S_IFREG | 0600, 0))
    return errno;
  int oldest = stock_put(&hand->place->nodes, number);
  hand->extra += oldest >= 0;
  return oldest < 0 ? 0 : status(unlink(name_of(hand, "nodes", oldest)));
}

static int do_unlink(struct hand *hand) {
  int number = stock_take(&hand->place->nodes);
  if (number < 0) {
    number = atomic_fetch_add(&hand->place->named, 1);
    hand->extra++;
    if (mknod(name_of(hand, "nodes", number), S_IFREG | 0600, 0))
      return errno;
  }
  return status(unlink(name_of(hand, "nodes", number)));
}

static int do_rename(struct hand *hand) {
  int from = (int)(hand->turn++ % 2);
  return status(rename(hand->path[from], hand->path[!from]));
}

static off_t offset_of(struct hand *hand) {
  const struct place_settings *settings = &hand->place->settings;
  return (off_t)(hand->turn++ % (settings->file_bytes / settings->io_bytes) * settings->io_bytes);
}

int hand_do(struct hand *hand) {
  struct stat st;
  struct statfs fs;
  size_t bytes = hand->place->settings.io_bytes;
  switch (hand->operation) {
  case OPEN: return do_open(hand);
  case CLOSE: return do_close(hand);
  case GETATTR: return status(stat(file_of(hand), &st));
  case SETATTR: return status(chmod(file_of(hand), hand->turn & 1 ? 0600 : 0640));
  case RENAME: return do_rename(hand);
  case MKDIR: return do_mkdir(hand);
  case MKNOD: return do_mknod(hand);
  case RMDIR: return do_rmdir(hand);
  case STATFS: return status(statfs(hand->place->folder, &fs));
  case SYNC: return status(fsync(hand->fd));
  case UNLINK: return do_unlink(hand);
  case READ: return status((int)pread(hand->fd, hand->buffer, bytes, offset_of(hand)));
  case WRITE: return status((int)pwrite(hand->fd, hand->buffer, bytes, offset_of(hand)));
  case OPERATIONS: break;
  }
  return EINVAL;
}

/* ---- a thread's own things ---- */

static int fill(struct hand *hand) {
  const struct place_settings *settings = &hand->place->settings;
  for (size_t at = 0; at < settings->file_bytes; at += settings->io_bytes)
    if (pwrite(hand->fd, hand->buffer, settings->io_bytes, (off_t)at) < 0)
      return errno;
  return 0;
}

int hand_ready(struct hand *hand, struct place *place, enum operation operation, unsigned number) {
  *hand = (struct hand){.place = place, .operation = operation, .fd = -1};
  for (int i = 0; i < 2; i++)
    snprintf(hand->path[i], sizeof hand->path[i], "%s/own/%s%u.%d", place->folder, operation_names[operation], number, i);
  hand->fd = open(hand->path[0], O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (hand->fd < 0)
    return errno;
  if (operation != READ && operation != WRITE)
    return 0;
  hand->buffer = malloc(place->settings.io_bytes);
  if (!hand->buffer)
    return ENOMEM;
  memset(hand->buffer, 'p', place->settings.io_bytes);
  return operation == READ ? fill(hand) : 0;
}

void hand_done(struct hand *hand) {
  if (hand->fd >= 0)
    close(hand->fd);
  free(hand->buffer);
}
