// SPDX-License-Identifier: Apache-2.0
/* See ask.h. */
#include "launch/ask.h"
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "board/place.h"

#define SITE_SOCKET "/run/penstock/agent.sock"
enum { DEADLINE_MS = 1000, QUESTION_BYTES = 512 << 10, ANSWER_BYTES = 4096 };

/* ---- a question: rows "key=value", each ended by NUL ---- */

struct text {
  char data[QUESTION_BYTES];
  size_t size;
  bool full;
};

__attribute__((format(printf, 2, 3))) static void row(struct text *t, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int size = vsnprintf(t->data + t->size, sizeof t->data - t->size, format, list);
  va_end(list);
  if (size < 0 || (size_t)size + 2 > sizeof t->data - t->size)
    t->full = true;
  else
    t->size += (size_t)size + 1;
}

/* A part of the plan in hexadecimal digits. */
static void part_row(struct text *t, const char *key, const struct penstock_board_part *part) {
  static const char digits[] = "0123456789abcdef";
  const uint8_t *data = part->data;
  row(t, "%s=", key);
  if (t->full || part->bytes > (sizeof t->data - t->size) / 2 - 1) {
    t->full = true;
    return;
  }
  t->size--; /* the NUL comes behind the digits */
  for (size_t i = 0; i < part->bytes; i++) {
    t->data[t->size++] = digits[data[i] >> 4];
    t->data[t->size++] = digits[data[i] & 15];
  }
  t->data[t->size++] = 0;
}

/* Limits must go with the question; a plan of placement that is too long for it is left out. */
static void part_rows(struct text *t, const struct penstock_plan_file *plan) {
  char key[16];
  for (uint32_t i = 0; i < plan->part_count; i++)
    if (plan->parts[i].kind == PENSTOCK_PLAN_LIMITS)
      part_row(t, "limits", &plan->parts[i]);
  size_t before = t->size;
  for (uint32_t i = 0; i < plan->part_count && !t->full; i++) {
    if (plan->parts[i].kind != PENSTOCK_SECTION_PLACE)
      continue;
    snprintf(key, sizeof key, "place%u", (unsigned)i);
    part_row(t, key, &plan->parts[i]);
    if (t->full)
      t->size = before;
    t->full = false;
    before = t->size;
  }
}

static void question(struct text *t, const struct penstock_job *job, const struct penstock_wishes *wishes,
                     const struct penstock_plan_file *plan, const char *within) {
  char hex[33];
  const char *name = getenv("SLURM_JOB_NAME");
  t->size = 0;
  t->full = false;
  penstock_run_hex(hex, job->run);
  row(t, "version=1");
  row(t, "op=board");
  row(t, "job=%s", job->job);
  row(t, "run=%s", hex);
  row(t, "name=%s", name ? name : "");
  if (within)
    row(t, "within=%s", within);
  for (uint32_t i = 0; i < wishes->mount_count; i++)
    row(t, "mount%u=%s", (unsigned)i, wishes->mounts[i]);
  part_rows(t, plan);
  t->data[t->size++] = 0;
}

/* ---- asking ---- */

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool ready(int fd, short what, int64_t until_ms) {
  struct pollfd p = {.fd = fd, .events = what};
  for (;;) {
    int64_t left = until_ms - now_ms();
    int got = left > 0 ? poll(&p, 1, (int)left) : 0;
    if (got >= 0 || errno != EINTR)
      return got > 0;
  }
}

static bool connected(int fd, const char *path, int64_t until_ms) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof at.sun_path)
    return false;
  strcpy(at.sun_path, path);
  while (connect(fd, (struct sockaddr *)&at, sizeof at)) {
    if (errno != EAGAIN && errno != EINTR) /* EAGAIN: too many are waiting */
      return false;
    if (now_ms() >= until_ms)
      return false;
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
  return true;
}

/* The whole answer, ended by two NULs; its size, 0 when there is none. */
static size_t talk(int fd, const struct text *t, char *answer, size_t room, int64_t until_ms) {
  size_t sent = 0, size = 0;
  while (sent < t->size && ready(fd, POLLOUT, until_ms)) {
    ssize_t n = send(fd, t->data + sent, t->size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
      return 0;
    sent += n > 0 ? (size_t)n : 0;
  }
  while (size < room && ready(fd, POLLIN, until_ms)) {
    ssize_t n = recv(fd, answer + size, room - size, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
      return 0;
    size += n > 0 ? (size_t)n : 0;
    if (size >= 2 && !answer[size - 1] && !answer[size - 2])
      return size;
  }
  return 0;
}

static const char *value(const char *answer, size_t size, const char *key) {
  size_t length = strlen(key);
  for (const char *at = answer; at < answer + size && *at; at += strlen(at) + 1)
    if (strncmp(at, key, length) == 0 && at[length] == '=')
      return at + length + 1;
  return "";
}

/* The answer's size; 0 when there is none. */
static size_t answer_at(const char *path, const struct text *t, char *answer, size_t room) {
  int64_t until_ms = now_ms() + DEADLINE_MS;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return 0;
  size_t size = connected(fd, path, until_ms) ? talk(fd, t, answer, room, until_ms) : 0;
  close(fd);
  return size;
}

static bool ask_at(const char *path, const struct text *t, struct penstock_site_board *ret) {
  char answer[ANSWER_BYTES];
  size_t size = answer_at(path, t, answer, sizeof answer);
  const char *board = value(answer, size, "board");
  snprintf(ret->refused, sizeof ret->refused, "%s", value(answer, size, "error"));
  ret->first = strcmp(value(answer, size, "first"), "1") == 0;
  return *board == '/' && snprintf(ret->board, sizeof ret->board, "%s", board) < (int)sizeof ret->board;
}

bool penstock_ask_whom(char ret[108], const struct penstock_wishes *wishes) {
  const char *runtime = getenv("XDG_RUNTIME_DIR");
  if (*wishes->agent_socket)
    return snprintf(ret, 108, "%s", wishes->agent_socket) < 108 && access(ret, F_OK) == 0;
  strcpy(ret, SITE_SOCKET);
  if (access(ret, F_OK) == 0)
    return true;
  return runtime && *runtime == '/' && snprintf(ret, 108, "%s/penstock/agent.sock", runtime) < 108 && access(ret, F_OK) == 0;
}

bool penstock_ask(const char *socket, const struct penstock_job *job, const struct penstock_wishes *wishes,
                  const struct penstock_plan_file *plan, const char *within, struct penstock_site_board *ret) {
  static struct text t;
  *ret = (struct penstock_site_board){.board = ""};
  question(&t, job, wishes, plan, within);
  if (t.full) {
    strcpy(ret->refused, "the limits by hand are too many for one question");
    return false;
  }
  return ask_at(socket, &t, ret);
}

void penstock_ask_recorded(const char *socket, const uint8_t run[16]) {
  static struct text t;
  char hex[33], answer[ANSWER_BYTES];
  t.size = 0;
  penstock_run_hex(hex, run);
  row(&t, "version=1");
  row(&t, "op=recorded");
  row(&t, "run=%s", hex);
  t.data[t.size++] = 0;
  answer_at(socket, &t, answer, sizeof answer);
}
