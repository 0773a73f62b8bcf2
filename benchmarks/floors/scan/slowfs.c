// SPDX-License-Identifier: Apache-2.0
/* A folder seen through FUSE of which each metadata request takes so long: what a scan waits for.

       slowfs STORE MICROSECONDS THREADS MOUNT

   Names and attributes are kept by the kernel for a second. */
#define FUSE_USE_VERSION 312
#define _FILE_OFFSET_BITS 64
#include "floor.h"

#include <dirent.h>
#include <fuse.h>
#include <sys/prctl.h>

static const char *store;
static long wait_us;

static void wait_for_server(void) {
  struct timespec t = {wait_us / 1000000, wait_us % 1000000 * 1000};
  prctl(PR_SET_TIMERSLACK, 1);
  nanosleep(&t, NULL);
}

static void in_store(char *room, size_t size, const char *path) { snprintf(room, size, "%s%s", store, path); }

static int do_getattr(const char *path, struct stat *st, struct fuse_file_info *fi) {
  char real[4096];
  (void)fi;
  in_store(real, sizeof real, path);
  wait_for_server();
  return lstat(real, st) < 0 ? -errno : 0;
}

static int do_readdir(const char *path, void *list, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *fi,
                      enum fuse_readdir_flags flags) {
  char real[4096];
  (void)at;
  (void)fi;
  (void)flags;
  in_store(real, sizeof real, path);
  wait_for_server();
  DIR *d = opendir(real);
  if (!d)
    return -errno;
  for (struct dirent *e; (e = readdir(d));) {
    struct stat st = {.st_ino = e->d_ino, .st_mode = (mode_t)DTTOIF(e->d_type)};
    fill(list, e->d_name, &st, 0, 0);
  }
  closedir(d);
  return 0;
}

static void *begin(struct fuse_conn_info *conn, struct fuse_config *config) {
  conn->want &= ~(unsigned)FUSE_CAP_READDIRPLUS;
  conn->max_background = 128;
  config->use_ino = 1;
  config->entry_timeout = config->attr_timeout = 1;
  return NULL;
}

int main(int argc, char **argv) {
  static const struct fuse_operations calls = {.init = begin, .getattr = do_getattr, .readdir = do_readdir};
  if (argc < 5)
    return 2;
  store = argv[1];
  wait_us = atol(argv[2]);
  char threads[32], program[] = "slowfs", front[] = "-f", option[] = "-o";
  snprintf(threads, sizeof threads, "max_threads=%d", atoi(argv[3]));
  char *words[] = {program, front, option, threads, argv[4], NULL};
  return fuse_main(5, words, &calls, NULL);
}
