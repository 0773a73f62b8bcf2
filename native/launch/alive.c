// SPDX-License-Identifier: Apache-2.0
/* See alive.h. */
#include "launch/alive.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INITIAL_PID_NAMESPACE 0xEFFFFFFCu

struct foreign {
  uint64_t pid_namespace, start_ticks;
  uint32_t pid; /* within its namespace */
};
struct penstock_alive {
  uint64_t own_namespace;
  bool listed;
  struct foreign *foreign;
  size_t count, room;
};

/* Where /proc does not tell: whether there is a process of this number at all. */
static bool is_there(uint32_t pid) { return (pid_t)pid > 0 && (!kill((pid_t)pid, 0) || errno == EPERM); }

static bool read_text(const char *path, char *ret, size_t room) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? -1 : read(fd, ret, room - 1);
  if (fd >= 0)
    close(fd);
  ret[size > 0 ? size : 0] = 0;
  return size > 0;
}

/* False: it cannot be seen, or is gone.  A zombie has no ticks. */
static bool read_ticks(uint32_t pid, uint64_t *ret) {
  char path[64], text[1024], state;
  unsigned long long ticks;
  *ret = 0;
  snprintf(path, sizeof path, "/proc/%u/stat", pid);
  if (!read_text(path, text, sizeof text))
    return false;
  const char *after = strrchr(text, ')'); /* the name before may hold anything */
  if (after && sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                       &state, &ticks) == 2 && state != 'Z' && state != 'X')
    *ret = ticks;
  return true;
}

uint64_t penstock_start_ticks(uint32_t pid) {
  uint64_t ticks;
  read_ticks(pid, &ticks);
  return ticks;
}

static uint64_t namespace_of(const char *pid) {
  char path[64];
  struct stat st;
  snprintf(path, sizeof path, "/proc/%.20s/ns/pid", pid);
  return stat(path, &st) ? 0 : st.st_ino;
}

struct penstock_alive *penstock_alive_open(void) {
  struct penstock_alive *a = calloc(1, sizeof *a);
  if (a)
    a->own_namespace = namespace_of("self");
  return a;
}

void penstock_alive_close(struct penstock_alive *a) {
  if (a)
    free(a->foreign);
  free(a);
}

/* All processes of other namespaces that we see. */
static void list_foreign(struct penstock_alive *a) {
  DIR *proc = opendir("/proc");
  a->listed = true;
  for (struct dirent *entry; proc && (entry = readdir(proc));) {
    char path[64], text[4096];
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
      continue;
    uint64_t space = namespace_of(entry->d_name);
    snprintf(path, sizeof path, "/proc/%.20s/status", entry->d_name);
    if (!space || space == a->own_namespace || !read_text(path, text, sizeof text))
      continue;
    char *line = strstr(text, "\nNSpid:"), *end = line ? strchr(line + 1, '\n') : NULL;
    if (!end)
      continue;
    *end = 0;
    char *last = strrchr(line, '\t');
    if (a->count == a->room) {
      size_t room = a->room ? a->room * 2 : 64;
      struct foreign *more = realloc(a->foreign, room * sizeof *more);
      if (!more)
        break;
      a->foreign = more;
      a->room = room;
    }
    a->foreign[a->count++] = (struct foreign){
      .pid_namespace = space,
      .start_ticks = penstock_start_ticks((uint32_t)strtoul(entry->d_name, NULL, 10)),
      .pid = last ? (uint32_t)strtoul(last + 1, NULL, 10) : 0,
    };
  }
  if (proc)
    closedir(proc);
}

bool penstock_alive(struct penstock_alive *a, uint32_t pid, uint64_t start_ticks, uint64_t pid_namespace) {
  if (!pid_namespace || pid_namespace == a->own_namespace) {
    uint64_t ticks;
    if (!read_ticks(pid, &ticks))
      return is_there(pid);
    return ticks && (!start_ticks || ticks == start_ticks);
  }
  if (!a->listed)
    list_foreign(a);
  for (size_t i = 0; i < a->count; i++)
    if (a->foreign[i].pid_namespace == pid_namespace && a->foreign[i].pid == pid)
      return a->foreign[i].start_ticks && (!start_ticks || a->foreign[i].start_ticks == start_ticks);
  return a->own_namespace != INITIAL_PID_NAMESPACE;
}
