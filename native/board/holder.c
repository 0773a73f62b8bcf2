// SPDX-License-Identifier: Apache-2.0
/* See holder.h. */
#include "board/holder.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "board/check.h"

enum { CONTROL_MOST_BYTES = 4 << 20, AT_ONCE = 64, SILENT_S = 5 };

static uint64_t clock_ns(clockid_t which) {
  struct timespec t;
  clock_gettime(which, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now(void) { return clock_ns(CLOCK_MONOTONIC); }

/* ---- holding ---- */

static uint64_t pid_space(void) {
  struct stat st;
  return stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino;
}

static int map_control(int folder, struct penstock_holder *h) {
  struct stat st;
  int fd = openat(folder, "control", O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), error = 0;
  if (fd < 0)
    return -errno;
  if (fstat(fd, &st) || st.st_size < (off_t)sizeof *h->control || st.st_size > CONTROL_MOST_BYTES)
    error = -EPROTO;
  void *map = error ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (!error && map == MAP_FAILED)
    error = -errno;
  close(fd);
  if (error)
    return error;
  h->control = map;
  h->control_bytes = (uint64_t)st.st_size;
  return 0;
}

static int check(struct penstock_holder *h) {
  if (penstock_control_wrong(h->control, h->control_bytes))
    return -EPROTO;
  const void *at = penstock_control_section(h->control, h->control_bytes, PENSTOCK_SECTION_LIMITS, PENSTOCK_LIMITS_VERSION,
                                            sizeof *h->limits);
  if (!at)
    return -EPROTO;
  h->limits = (struct penstock_limits_control *)((char *)h->control + ((const char *)at - (const char *)h->control));
  h->usage_offset = penstock_usage_limits_offset(h->control->chunk_count);
  return h->limits->usage_offset == h->usage_offset ? 0 : -EPROTO;
}

int penstock_hold(struct penstock_holder *ret, const char *folder) {
  *ret = (struct penstock_holder){.usage = -1, .space = pid_space()};
  int at = open(folder, O_DIRECTORY | O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  int error = at < 0 ? -errno : map_control(at, ret);
  if (!error)
    error = check(ret);
  if (!error && (ret->usage = openat(at, "usage", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) < 0)
    error = -errno;
  if (at >= 0)
    close(at);
  if (error)
    penstock_hold_end(ret);
  return error;
}

int penstock_hold_board(struct penstock_holder *ret, const struct penstock_board *board) {
  *ret = (struct penstock_holder){
    .usage = board->usage, .space = pid_space(), .control = board->control, .control_bytes = board->control_bytes};
  return check(ret);
}

void penstock_hold_end(struct penstock_holder *h) {
  if (h->control)
    munmap(h->control, h->control_bytes);
  if (h->usage >= 0)
    close(h->usage);
  h->control = NULL;
  h->usage = -1;
}

/* ---- changing ---- */

/* What the places that are not in use have seen: a bucket that begins in one of them counts from there. */
static void note_before(struct penstock_holder *h) {
  struct penstock_asked asked;
  for (unsigned i = 0; i < PENSTOCK_BUCKETS_MAX; i++)
    if (!h->limits->name[i][0] && penstock_hold_asked(h, i, &asked)) {
      h->limits->bucket[i].asked_before = asked.asked;
      h->limits->bucket[i].delayed_before = asked.demand.delayed;
      h->limits->bucket[i].waited_before_ns = asked.demand.waited_ns;
    }
}

bool penstock_hold_apply(struct penstock_holder *h, const void *spec) {
  uint32_t under = penstock_limits_under(h->control->prefixes, h->control->prefix_count);
  note_before(h);
  if (!penstock_limits_apply(h->limits, spec, under, now(), h->carry))
    return false;
  if (h->limits->count)
    __atomic_fetch_or(&h->control->stages, (uint32_t)PENSTOCK_STAGE_LIMIT, __ATOMIC_RELEASE);
  else
    __atomic_fetch_and(&h->control->stages, ~(uint32_t)PENSTOCK_STAGE_LIMIT, __ATOMIC_RELEASE);
  return true;
}

void penstock_hold_renew(struct penstock_holder *h, uint64_t lease_ns) {
  uint64_t from = now(), until = from + lease_ns < from ? UINT64_MAX : from + lease_ns;
  for (int i = 0; i < PENSTOCK_BUCKETS_MAX; i++)
    if (h->limits->name[i][0])
      penstock_bucket_renew(&h->limits->bucket[i], until, from);
}

/* ---- the dead ---- */

static bool read_usage(void *arg, size_t offset, void *into, size_t size) {
  const struct penstock_holder *h = arg;
  return pread(h->usage, into, size, (off_t)(h->usage_offset + offset)) == (ssize_t)size;
}

enum { NOT_SEEN = 1 };

/* When a thread began, by CLOCK_MONOTONIC; 0: there is none; NOT_SEEN: it lives, and /proc says nothing of it. */
static uint64_t began_ns(uint32_t thread) {
  char path[64], text[1024], state;
  unsigned long long ticks;
  snprintf(path, sizeof path, "/proc/%u/stat", thread);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return !syscall(SYS_tkill, (pid_t)thread, 0) || errno == EPERM ? NOT_SEEN : 0;
  ssize_t size = read(fd, text, sizeof text - 1);
  close(fd);
  text[size > 0 ? size : 0] = 0;
  const char *after = strrchr(text, ')'); /* the name before may hold anything */
  if (!after || sscanf(after + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                       &state, &ticks) != 2 || state == 'Z' || state == 'X')
    return 0;
  uint64_t asleep = clock_ns(CLOCK_BOOTTIME) - now(), ns = ticks * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
  return ns > asleep ? ns - asleep : 1;
}

/* Threads of another pid namespace are not to be found by their number: who has not looked for so long does not live. */
static bool is_dead(void *arg, const struct penstock_wait *w) {
  const struct penstock_holder *h = arg;
  if (w->space && w->space != (uint32_t)h->space)
    return (int64_t)(now() - w->seen_ns) > (int64_t)SILENT_S * 1000000000;
  uint64_t began = began_ns((uint32_t)w->holder);
  return !began || (w->published == (uint32_t)(w->holder >> 32) && began > w->start_ns + 1000000000u);
}

unsigned penstock_hold_give_back(struct penstock_holder *h) {
  struct penstock_limits_reader from = {read_usage, is_dead, h};
  return penstock_limits_give_back(h->limits, &from, now());
}

/* ---- looking ---- */

static void add_up(struct penstock_demand *sum, const struct penstock_demand lines[PENSTOCK_DEMAND_LINES]) {
  for (int i = 0; i < PENSTOCK_DEMAND_LINES; i++) {
    sum->forgiven += lines[i].forgiven;
    sum->undrawn += lines[i].undrawn;
    sum->delayed += lines[i].delayed;
    sum->waited_ns += lines[i].waited_ns;
    sum->ceilings += lines[i].ceilings;
    sum->lost += lines[i].lost;
    sum->torn += lines[i].torn;
    sum->unplaced += lines[i].unplaced;
  }
}

/* A thread waits for its bucket that is due last; here for all of them: each has a share in it. */
static void count_wait(struct penstock_held ret[PENSTOCK_BUCKETS_MAX], const struct penstock_wait *w, uint64_t now_ns) {
  uint64_t ns = now_ns > w->start_ns ? now_ns - w->start_ns : 0;
  for (uint32_t i = 0; i < w->count && i < PENSTOCK_WAIT_TICKETS; i++) {
    if (w->bucket[i] >= PENSTOCK_BUCKETS_MAX)
      continue;
    struct penstock_held *held = &ret[w->bucket[i]];
    uint64_t due_ns = penstock_line_due_ns(&held->line, w->ticket[i].end);
    if (due_ns <= now_ns || held->shadow)
      continue;
    held->waiting++;
    held->waiting_units += w->ticket[i].cost;
    held->waiting_ns += ns;
    held->longest_ns = ns > held->longest_ns ? ns : held->longest_ns;
  }
}

static bool count_waits(const struct penstock_holder *h, struct penstock_held ret[PENSTOCK_BUCKETS_MAX], uint64_t now_ns) {
  struct penstock_wait some[AT_ONCE];
  uint32_t high = 0;
  if (!read_usage((void *)(uintptr_t)h, offsetof(struct penstock_limits_usage, wait_high), &high, sizeof high))
    return false;
  for (uint32_t place = 0; place < PENSTOCK_WAITS_MAX && place < high; place += AT_ONCE) {
    size_t offset = offsetof(struct penstock_limits_usage, wait) + place * sizeof *some;
    if (!read_usage((void *)(uintptr_t)h, offset, some, sizeof some))
      return false;
    for (uint32_t i = 0; i < AT_ONCE; i++) {
      uint32_t seq = (uint32_t)(some[i].holder >> 32);
      if (seq & 1 && seq == some[i].published && seq != h->limits->back[place + i])
        count_wait(ret, &some[i], now_ns);
    }
  }
  return true;
}

bool penstock_hold_asked(const struct penstock_holder *h, unsigned bucket, struct penstock_asked *ret) {
  struct penstock_demand lines[PENSTOCK_DEMAND_LINES];
  struct penstock_bucket_word word;
  size_t word_at = offsetof(struct penstock_limits_usage, word) + bucket * sizeof word;
  size_t lines_at = offsetof(struct penstock_limits_usage, demand) + bucket * sizeof lines;
  *ret = (struct penstock_asked){0};
  /* The word last: calls that are counted in between make the sum larger, never smaller than it was. */
  if (!read_usage((void *)(uintptr_t)h, lines_at, lines, sizeof lines) ||
      !read_usage((void *)(uintptr_t)h, word_at, &word, sizeof word))
    return false;
  add_up(&ret->demand, lines);
  ret->issued = word.issued;
  ret->asked = word.issued - ret->demand.forgiven + ret->demand.undrawn;
  ret->longest_ns = word.longest_ns;
  return true;
}

bool penstock_hold_observe(const struct penstock_holder *h, struct penstock_held ret[PENSTOCK_BUCKETS_MAX]) {
  uint64_t now_ns = now();
  memset(ret, 0, PENSTOCK_BUCKETS_MAX * sizeof *ret);
  for (uint32_t i = 0; i < h->limits->count && i < PENSTOCK_BUCKETS_MAX; i++) {
    const struct penstock_bucket *b = &h->limits->bucket[i];
    struct penstock_asked asked;
    if (!h->limits->name[i][0])
      continue;
    if (!penstock_hold_asked(h, i, &asked))
      return false;
    ret[i].line = b->line[b->gen & 1];
    ret[i].shadow = b->shadow;
    ret[i].given = b->given;
    ret[i].owed = (int64_t)(asked.issued - penstock_line_units(&ret[i].line, now_ns));
    ret[i].demand = asked.demand;
    ret[i].demand.delayed -= b->delayed_before;
    ret[i].demand.waited_ns -= b->waited_before_ns;
    int64_t since = (int64_t)(asked.asked - b->asked_before); /* a late return of bytes is of the bucket before */
    ret[i].asked = since > 0 ? (uint64_t)since : 0;
  }
  return count_waits(h, ret, now_ns);
}
