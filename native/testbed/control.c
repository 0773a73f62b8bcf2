// SPDX-License-Identifier: Apache-2.0
/* The control socket: FOLDER/run/control, in a folder of the owner's alone.
 *
 * A connection is one command: a line in, then out a line "ok" or "error ERRNO" and what there is to say, to the end.
 *     status        key=value lines: pid, caching, osts, inodes, started; and for each mount
 *                   mount=CLIENT FLAGS_ANSWERED FLAGS_OFFERED PATH
 *     mount PATH    another client
 *     mounted PATH  is this (still) a mount? ok once it is gone from the list: "yes" or "no"
 *     down          ends the server; what uses the mounts gets errors
 * Anything else is the service model's: see model_command in model.h. */
#include "testbed/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAX_LINE = 8192, PATIENCE_S = 10 };

int control_listen(const char *folder) {
  char path[PATH_MAX];
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  snprintf(path, sizeof path, "%s/run", folder);
  int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0)
    return -errno;
  unlinkat(dir, "control", 0);
  /* By the descriptor: a socket's path is short, folders may be deep. */
  snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/control", dir);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int err = fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 64) ? -errno : 0;
  close(dir);
  if (err && fd >= 0)
    close(fd);
  return err ? err : fd;
}

static void status(struct server *s, FILE *out) {
  fprintf(out, "pid=%d\ncaching=%s\nosts=%u\ninodes=%lld\nstarted=%lld\n", (int)getpid(), s->posix ? "posix" : "contention",
          s->store.ost_count, (long long)s->store.header->inodes, (long long)s->started.tv_sec);
  pthread_mutex_lock(&s->mounts_lock);
  for (uint32_t i = 0; i < MODEL_MAX_CLIENTS; i++) {
    const struct mount *m = s->mounts[i];
    if (m)
      fprintf(out, "mount=%u %llx %llx %s\n", m->client, (unsigned long long)m->asked_flags,
              (unsigned long long)m->offered_flags, m->path);
  }
  pthread_mutex_unlock(&s->mounts_lock);
}

static bool is_mounted(struct server *s, const char *path) {
  bool found = false;
  pthread_mutex_lock(&s->mounts_lock);
  for (uint32_t i = 0; i < MODEL_MAX_CLIENTS && !found; i++) found = s->mounts[i] && !strcmp(s->mounts[i]->path, path);
  pthread_mutex_unlock(&s->mounts_lock);
  return found;
}

static int obey(struct server *s, const char *line, FILE *out, bool *down) {
  if (strcmp(line, "status") == 0) {
    status(s, out);
    return 0;
  }
  if (strncmp(line, "mount ", 6) == 0) {
    char why[PATH_MAX + 256] = "";
    int err = mounts_add(s, line + 6, why, sizeof why);
    fputs(why, out);
    return err;
  }
  if (strncmp(line, "mounted ", 8) == 0) {
    fputs(is_mounted(s, line + 8) ? "yes" : "no", out);
    return 0;
  }
  if (strcmp(line, "down") == 0) {
    *down = true;
    return 0;
  }
  int err = model_command(s->model, line, out);
  lov_refresh(s->lov); /* a fill or a fault may have changed what the allocator believes */
  return err;
}

/* A line without its end; false if none came in time. */
static bool read_line(int fd, char line[MAX_LINE]) {
  size_t used = 0;
  while (used < MAX_LINE - 1) {
    ssize_t n = read(fd, line + used, MAX_LINE - 1 - used);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    used += (size_t)n;
    char *end = memchr(line, '\n', used);
    if (end) {
      *end = 0;
      return true;
    }
  }
  return false;
}

static void send_all(int fd, const char *text, size_t size) {
  while (size) {
    ssize_t n = send(fd, text, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return;
    text += n;
    size -= (size_t)n;
  }
}

struct connection {
  struct server *server;
  int fd;
};

static void *converse(void *closure) {
  struct connection c = *(struct connection *)closure;
  free(closure);
  char line[MAX_LINE], head[32], *text = NULL;
  size_t size = 0;
  bool down = false;
  const struct timeval patience = {PATIENCE_S, 0};
  setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(c.fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (read_line(c.fd, line)) {
    FILE *out = open_memstream(&text, &size);
    int err = out ? obey(c.server, line, out, &down) : -ENOMEM;
    if (out)
      fclose(out);
    int n = err ? snprintf(head, sizeof head, "error %d\n", -err) : snprintf(head, sizeof head, "ok\n");
    send_all(c.fd, head, (size_t)n);
    send_all(c.fd, text ? text : "", size);
  }
  free(text);
  close(c.fd);
  if (down)
    kill(getpid(), SIGTERM);
  return NULL;
}

static void greet(struct server *s, int fd) {
  struct connection *c = malloc(sizeof *c);
  pthread_t thread;
  if (!c) {
    close(fd);
    return;
  }
  *c = (struct connection){s, fd};
  if (pthread_create(&thread, NULL, converse, c)) {
    close(fd);
    free(c);
    return;
  }
  pthread_detach(thread);
}

void control_serve(struct server *s, int listening, int signals) {
  struct pollfd what[] = {{.fd = listening, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
  for (;;) {
    if (poll(what, 2, -1) < 0 && errno != EINTR)
      return;
    if (what[1].revents)
      return;
    int fd = what[0].revents ? accept4(listening, NULL, NULL, SOCK_CLOEXEC) : -1;
    if (fd >= 0)
      greet(s, fd);
  }
}
