// SPDX-License-Identifier: Apache-2.0
/* See places.h. */
#include "launch/places.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include "kernels/layout.h"

/* ---- mounts ---- */

/* Turn \040 and the like into what they stand for. */
static void unescape(char *text) {
  char *to = text;
  for (const char *from = text; *from; from++, to++) {
    *to = *from;
    if (*from == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' && from[3] >= '0' &&
        from[3] <= '7') {
      *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0');
      from += 3;
    }
  }
  *to = 0;
}

void penstock_mounts_read(struct penstock_mounts *ret) {
  FILE *file = fopen("/proc/self/mountinfo", "re");
  char *line = NULL;
  size_t room = 0, mounts_room = 0;
  *ret = (struct penstock_mounts){0};
  while (file && getline(&line, &room, file) > 0) {
    char *point = NULL, type[32];
    const char *after = strstr(line, " - ");
    if (!after || sscanf(after, " - %31s", type) != 1 || sscanf(line, "%*s %*s %*s %*s %ms", &point) != 1)
      continue;
    if (ret->count == mounts_room) {
      size_t more = mounts_room ? mounts_room * 2 : 64;
      struct penstock_mount *bigger = realloc(ret->mount, more * sizeof *bigger);
      if (!bigger) {
        free(point);
        break;
      }
      ret->mount = bigger;
      mounts_room = more;
    }
    unescape(point);
    struct penstock_mount *m = &ret->mount[ret->count++];
    *m = (struct penstock_mount){.point = point, .size = strcmp(point, "/") == 0 ? 0 : strlen(point)};
    memcpy(m->type, type, sizeof type);
  }
  free(line);
  if (file)
    fclose(file);
}

void penstock_mounts_free(struct penstock_mounts *m) {
  for (size_t i = 0; i < m->count; i++)
    free(m->mount[i].point);
  free(m->mount);
  *m = (struct penstock_mounts){0};
}

const char *penstock_mounts_type(const struct penstock_mounts *m, const char *path, size_t size) {
  const struct penstock_mount *best = NULL;
  for (size_t i = 0; i < m->count; i++) {
    const struct penstock_mount *at = &m->mount[i];
    bool covers = at->size <= size && memcmp(at->point, path, at->size) == 0 &&
                  (at->size == size || path[at->size] == '/' || at->size == 0);
    if (size && path[0] == '/' && covers && (!best || at->size >= best->size)) /* of equals the later is on top */
      best = at;
  }
  return best ? best->type : "";
}

/* ---- layouts ---- */

static bool may_have_layouts(const char *type) {
  return strcmp(type, "lustre") == 0 || strncmp(type, "fuse", 4) == 0;
}

static bool put_all(int fd, const void *data, size_t size) {
  for (const char *at = data; size;) {
    ssize_t written = write(fd, at, size);
    if (written <= 0)
      return false;
    at += written;
    size -= (size_t)written;
  }
  return true;
}

/* The other process: for each file that has a layout its number, the size, the bytes. */
static void read_into(int fd, const struct penstock_picture *p, const uint32_t *wanted, uint32_t count) {
  static uint8_t value[PENSTOCK_LAYOUT_MAX_BYTES];
  for (uint32_t i = 0; i < count; i++) {
    const struct penstock_words *name = &p->files[wanted[i]].name;
    char path[PENSTOCK_TEXT_MAX + 1];
    memcpy(path, p->pool + name->at, name->size);
    path[name->size] = 0;
    ssize_t size = getxattr(path, "lustre.lov", value, sizeof value);
    uint32_t head[2] = {wanted[i], size > 0 ? (uint32_t)size : 0};
    if (size > 0 && !(put_all(fd, head, sizeof head) && put_all(fd, value, (size_t)size)))
      return;
  }
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* `size` bytes before the time is over, or false. */
static bool get_by(int fd, void *data, size_t size, int64_t deadline_ms) {
  for (char *at = data; size;) {
    int64_t left = deadline_ms - now_ms();
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    if (left <= 0 || poll(&ready, 1, (int)left) <= 0)
      return false;
    ssize_t got = read(fd, at, size);
    if (got <= 0)
      return false;
    at += got;
    size -= (size_t)got;
  }
  return true;
}

static void collect(int fd, struct penstock_blob *blobs, uint32_t count) {
  int64_t deadline_ms = now_ms() + PENSTOCK_LAYOUTS_MS;
  for (uint32_t head[2]; get_by(fd, head, sizeof head, deadline_ms);) {
    if (head[0] >= count || head[1] > PENSTOCK_LAYOUT_MAX_BYTES || blobs[head[0]].data)
      return;
    uint8_t *data = malloc(head[1]);
    if (!data || !get_by(fd, data, head[1], deadline_ms)) {
      free(data);
      return;
    }
    blobs[head[0]] = (struct penstock_blob){data, head[1]};
  }
}

struct penstock_blob *penstock_layouts_read(const struct penstock_picture *p, const struct penstock_mounts *m) {
  uint32_t *wanted = malloc((p->file_count + 1u) * sizeof *wanted), count = 0;
  struct penstock_blob *blobs = NULL;
  int ends[2];
  for (uint32_t i = 0; wanted && i < p->file_count && count < PENSTOCK_LAYOUTS_MAX; i++) {
    const struct penstock_row_file *row = &p->files[i];
    if (row->sum.kind == PENSTOCK_SLOT_FILE && may_have_layouts(penstock_mounts_type(m, (const char *)p->pool + row->name.at, row->name.size)))
      wanted[count++] = i;
  }
  if (count && (blobs = calloc(p->file_count, sizeof *blobs)) && pipe2(ends, O_CLOEXEC) == 0) {
    pid_t reader = fork();
    if (reader == 0) {
      close(ends[0]);
      read_into(ends[1], p, wanted, count);
      _exit(0);
    }
    close(ends[1]);
    if (reader > 0) {
      collect(ends[0], blobs, p->file_count);
      kill(reader, SIGKILL);
      waitpid(reader, NULL, WNOHANG);
    }
    close(ends[0]);
  }
  free(wanted);
  return blobs;
}

void penstock_layouts_free(struct penstock_blob *b, uint32_t count) {
  for (uint32_t i = 0; b && i < count; i++)
    free(b[i].data);
  free(b);
}
