// SPDX-License-Identifier: Apache-2.0
/* See asks.h. */
#include "launch/asks.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "board/holder.h"
#include "launch/alive.h"
#include "launch/limited.h"

enum { WAIT_MS = 5000, LOOK_MS = 20, ASKERS_MAX = 64, LEASE_S = 10, NAME_KEPT = 48 };
#define MIDDLE ".limits-"

/* ---- specs ---- */

struct spec {
  struct penstock_limits_spec head;
  struct penstock_bucket_spec bucket[PENSTOCK_BUCKETS_MAX];
  struct penstock_limit_prefix prefix[PENSTOCK_LIMIT_PREFIXES_MAX];
};

static const struct penstock_bucket_spec *buckets_of(const void *spec) {
  return (const void *)((const char *)spec + sizeof(struct penstock_limits_spec));
}

/* What a bucket is called that was asked for: at most 63 bytes, no two askers' alike. */
static void asked_name(char ret[PENSTOCK_LIMIT_NAME_BYTES], const char *name, uint32_t pid) {
  int size = (int)strnlen(name, NAME_KEPT);
  while (size && ((uint8_t)name[size] & 0xc0) == 0x80) /* no character is cut in two */
    size--;
  snprintf(ret, PENSTOCK_LIMIT_NAME_BYTES, "%.*s (%u)", size, name, pid);
}

/* `packed` has room for a whole struct spec; gives the size. */
static size_t pack(const struct spec *s, void *packed) {
  char *to = packed;
  size_t buckets = s->head.count * sizeof *s->bucket, prefixes = s->head.prefix_count * sizeof *s->prefix;
  memcpy(to, &s->head, sizeof s->head);
  memcpy(to + sizeof s->head, s->bucket, buckets);
  memcpy(to + sizeof s->head + buckets, s->prefix, prefixes);
  return sizeof s->head + buckets + prefixes;
}

/* Adds a spec that is right; of an asker (pid not 0) under other names.  Nothing changes where it does not fit. */
static void add(struct spec *s, const void *more, uint32_t pid) {
  static struct spec packed;
  const struct penstock_limits_spec *head = more;
  const struct penstock_bucket_spec *buckets = buckets_of(more);
  uint32_t count = s->head.count, prefixes = s->head.prefix_count;
  if (count + head->count > PENSTOCK_BUCKETS_MAX || prefixes + head->prefix_count > PENSTOCK_LIMIT_PREFIXES_MAX)
    return;
  if (!count)
    s->head = *head;
  memcpy(&s->bucket[count], buckets, head->count * sizeof *buckets);
  memcpy(&s->prefix[prefixes], buckets + head->count, head->prefix_count * sizeof *s->prefix);
  for (uint32_t i = 0; pid && i < head->count; i++)
    asked_name(s->bucket[count + i].name, buckets[i].name, pid);
  s->head.count = count + head->count;
  s->head.prefix_count = prefixes + head->prefix_count;
  if (penstock_limits_wrong(&packed, pack(s, &packed))) {
    s->head.count = count;
    s->head.prefix_count = prefixes;
  }
}

/* ---- files ---- */

static bool own_path(char ret[PATH_MAX], const char *board) {
  uint32_t pid = (uint32_t)getpid();
  return snprintf(ret, PATH_MAX, "%s" MIDDLE "%u-%llu", board, pid, (unsigned long long)penstock_start_ticks(pid)) < PATH_MAX;
}

struct asker {
  uint32_t pid;
  unsigned long long ticks;
  char path[PATH_MAX];
};

/* The next file of the board's; false: there is no more. */
static bool next_asker(DIR *folder, const char *board, struct asker *ret) {
  const char *name = strrchr(board, '/') + 1;
  size_t size = strlen(name);
  for (struct dirent *entry; (entry = readdir(folder));) {
    int end = 0;
    if (strncmp(entry->d_name, name, size) != 0 ||
        sscanf(entry->d_name + size, MIDDLE "%u-%llu%n", &ret->pid, &ret->ticks, &end) != 2 || entry->d_name[size + (size_t)end])
      continue;
    return snprintf(ret->path, sizeof ret->path, "%.*s%s", (int)(name - board), board, entry->d_name) < (int)sizeof ret->path;
  }
  return false;
}

static DIR *open_folder_of(const char *board) {
  char folder[PATH_MAX];
  const char *slash = strrchr(board, '/');
  if (!slash || snprintf(folder, sizeof folder, "%.*s", (int)(slash - board), board) >= (int)sizeof folder)
    return NULL;
  return opendir(folder);
}

/* A right spec, to be freed; NULL. */
static void *read_spec(const char *path) {
  size_t room = sizeof(struct spec);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  char *data = fd < 0 ? NULL : malloc(room + 1);
  ssize_t size = data ? read(fd, data, room + 1) : -1;
  if (fd >= 0)
    close(fd);
  if (size <= 0 || (size_t)size > room || penstock_limits_wrong(data, (size_t)size)) {
    free(data);
    return NULL;
  }
  return data;
}

/* ---- the agent ---- */

void penstock_asks_begin(struct penstock_asks *a, const struct penstock_board_part *parts, uint32_t count) {
  for (uint32_t i = 0; i < count; i++)
    if (parts[i].kind == PENSTOCK_SECTION_LIMITS && !penstock_limits_wrong(parts[i].data, parts[i].bytes) &&
        (a->own = malloc(parts[i].bytes)))
      memcpy(a->own, parts[i].data, parts[i].bytes);
}

/* Those that live, in any order; the files of the others go.  `ret_which`: tells these from others. */
static uint32_t living(const char *board, struct asker *ret, uint64_t *ret_which) {
  DIR *folder = open_folder_of(board);
  uint32_t count = 0;
  *ret_which = 0;
  while (folder && count < ASKERS_MAX && next_asker(folder, board, &ret[count])) {
    if (penstock_start_ticks(ret[count].pid) == ret[count].ticks) {
      *ret_which ^= penstock_hash(ret[count].path, strlen(ret[count].path));
      count++;
    } else
      unlink(ret[count].path);
  }
  if (folder)
    closedir(folder);
  return count;
}

void penstock_asks_look(struct penstock_asks *a, struct penstock_watch *w) {
  static struct asker askers[ASKERS_MAX];
  static struct spec all, packed;
  struct penstock_holder h;
  uint64_t which;
  uint32_t count = living(w->path, askers, &which);
  if (which == a->applied || penstock_hold_board(&h, &w->board))
    return;
  all.head = (struct penstock_limits_spec){.version = PENSTOCK_LIMITS_VERSION, .lease_ns = LEASE_S * UINT64_C(1000000000)};
  if (a->own)
    add(&all, a->own, 0);
  for (uint32_t i = 0; i < count; i++) {
    void *spec = read_spec(askers[i].path);
    if (spec)
      add(&all, spec, askers[i].pid);
    free(spec);
  }
  pack(&all, &packed);
  if (penstock_hold_apply(&h, &packed))
    a->applied = which;
}

void penstock_asks_forget(const char *board) {
  DIR *folder = open_folder_of(board);
  struct asker asker;
  while (folder && next_asker(folder, board, &asker))
    unlink(asker.path);
  if (folder)
    closedir(folder);
}

/* ---- a nested run ---- */

static bool write_beside(const char *path, const void *data, size_t size) {
  char aside[PATH_MAX];
  if (snprintf(aside, sizeof aside, "%s.new", path) >= (int)sizeof aside)
    return false;
  int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool whole = fd >= 0 && write(fd, data, size) == (ssize_t)size;
  if (fd >= 0)
    close(fd);
  if (whole && rename(aside, path) == 0)
    return true;
  unlink(aside);
  return false;
}

static bool has(const struct penstock_limited *there, const char *name) {
  for (uint32_t i = 0; i < there->count; i++)
    if (strcmp(there->bucket[i].name, name) == 0)
      return true;
  return false;
}

/* Does the board have all of these? */
static bool holds(const struct penstock_watch *w, const void *spec) {
  static struct penstock_limited there;
  char name[PENSTOCK_LIMIT_NAME_BYTES];
  bool all = true;
  penstock_limited_read(&there, w);
  for (uint32_t i = 0; all && i < ((const struct penstock_limits_spec *)spec)->count; i++) {
    asked_name(name, buckets_of(spec)[i].name, (uint32_t)getpid());
    all = has(&there, name);
  }
  return all;
}

bool penstock_asks_add(const char *board, const struct penstock_watch *w, const void *spec, size_t bytes) {
  char path[PATH_MAX];
  if (penstock_limits_wrong(spec, bytes) || !own_path(path, board) || !write_beside(path, spec, bytes))
    return false;
  for (int ms = 0; ms < WAIT_MS; ms += LOOK_MS) {
    if (holds(w, spec))
      return true;
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
  }
  unlink(path);
  return false;
}

void penstock_asks_end(const char *board) {
  char path[PATH_MAX];
  if (own_path(path, board))
    unlink(path);
}
