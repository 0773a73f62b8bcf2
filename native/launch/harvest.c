// SPDX-License-Identifier: Apache-2.0
/* See harvest.h. */
#include "launch/harvest.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "board/check.h"
#include "launch/alive.h"
#include "launch/boot.h"

/* ---- opening ---- */

static int check(struct penstock_watch *w) {
  struct penstock_usage usage;
  struct stat st;
  if (pread(w->control, &w->head, sizeof w->head, 0) != sizeof w->head || fstat(w->control, &st) ||
      penstock_control_wrong(&w->head, (uint64_t)st.st_size))
    return -EBADMSG;
  w->other_boot = w->head.boot_id != penstock_boot_id();
  if (fstat(w->usage, &st) || !S_ISREG(st.st_mode) || pread(w->usage, &usage, sizeof usage, 0) != sizeof usage ||
      penstock_usage_wrong(&usage, w->head.nonce))
    return -EBADMSG;
  w->chunk_count = w->head.chunk_count;
  return 0;
}

static void gone_path(const struct penstock_watch *w, char ret[PATH_MAX]) { snprintf(ret, PATH_MAX, "%s.gone", w->path); }

static void load_gone(struct penstock_watch *w) {
  char path[PATH_MAX];
  gone_path(w, path);
  penstock_picture_free(&w->gone);
  penstock_picture_load(&w->gone, path);
}

static int open_files(struct penstock_watch *w) {
  int folder = open(w->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (folder < 0)
    return -errno;
  int error = 0, flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  w->control = openat(folder, "control", flags);
  if (w->control < 0 || (w->usage = openat(folder, "usage", flags)) < 0)
    error = -errno;
  close(folder);
  return error;
}

int penstock_watch_open(struct penstock_watch *ret, const char *path, bool agent) {
  struct penstock_watch *w = ret;
  *w = (struct penstock_watch){.control = -1, .usage = -1, .board.usage = -1};
  if (snprintf(w->path, sizeof w->path, "%s", path) >= (int)sizeof w->path)
    return -ENAMETOOLONG;
  int error = open_files(w);
  if (!error && agent && flock(w->control, LOCK_EX | LOCK_NB))
    error = -errno;
  if (!error) /* locked before it is judged: one of another version may have an agent of its own */
    error = check(w);
  if (!error && agent)
    error = penstock_board_open(path, &w->board);
  if (error) {
    penstock_watch_close(w);
    return error;
  }
  w->agent = agent;
  load_gone(w);
  return 0;
}

void penstock_watch_close(struct penstock_watch *w) {
  if (w->agent)
    penstock_board_close(&w->board);
  if (w->usage >= 0)
    close(w->usage);
  if (w->control >= 0)
    close(w->control);
  penstock_picture_free(&w->gone);
  w->usage = w->control = w->board.usage = -1;
  w->agent = false;
}

/* ---- reading ---- */

/* A process on the board, as it was judged before its counters were read. */
struct judged {
  uint32_t pid, chunks;
  uint64_t pid_namespace, start_ticks, start_ns;
  bool ended;
};

struct judgement {
  const struct penstock_watch *watch;
  struct penstock_alive *alive;
  struct judged *row;
  size_t count, room;
  uint32_t living, dead_chunks;
  bool failed;
};

static void judge(void *context, const struct penstock_seen_process *p) {
  struct judgement *j = context;
  if (j->count == j->room) {
    size_t room = j->room ? j->room * 2 : 64;
    struct judged *more = realloc(j->row, room * sizeof *more);
    if (!more) {
      j->failed = true;
      return;
    }
    j->row = more;
    j->room = room;
  }
  bool ended = j->watch->other_boot || !penstock_alive(j->alive, p->pid, p->start_ticks, p->pid_namespace);
  j->row[j->count++] =
    (struct judged){p->pid, p->chunk_count, p->pid_namespace, p->start_ticks, p->start_ns, ended};
  j->living += !ended;
  j->dead_chunks += ended ? p->chunk_count : 0;
}

static int by_process(const void *a, const void *b) {
  const struct judged *x = a, *y = b;
#define COMPARE(field) \
  if (x->field != y->field) \
    return x->field < y->field ? -1 : 1
  COMPARE(pid);
  COMPARE(pid_namespace);
  COMPARE(start_ticks);
  COMPARE(start_ns);
#undef COMPARE
  return 0;
}

/* What the agent has given back; NULL when there is no memory. */
static uint32_t *read_freed(const struct penstock_watch *w) {
  uint32_t *freed = calloc(w->chunk_count, sizeof *freed);
  if (freed && pread(w->control, freed, w->chunk_count * sizeof *freed, offsetof(struct penstock_control, freed)) < 0)
    memset(freed, 0, w->chunk_count * sizeof *freed);
  return freed;
}

static int judge_all(struct penstock_watch *w, const uint32_t *freed, struct judgement *ret) {
  *ret = (struct judgement){.watch = w, .alive = penstock_alive_open()};
  struct penstock_visitor visitor = {.context = ret, .process = judge};
  struct penstock_seen seen;
  int error = ret->alive ? penstock_read(w->usage, w->chunk_count, freed, w->head.nonce, &visitor, &seen) : -ENOMEM;
  penstock_alive_close(ret->alive);
  if (!error && ret->failed)
    error = -ENOMEM;
  if (error)
    return error;
  if (ret->count)
    qsort(ret->row, ret->count, sizeof *ret->row, by_process);
  w->used_chunks = (uint32_t)seen.chunks_held;
  w->dead_chunks = ret->dead_chunks;
  return 0;
}

/* Was it judged dead?  One that was not there yet is alive. */
static bool is_dead(const struct judgement *j, const struct penstock_seen_process *p) {
  struct judged key = {p->pid, 0, p->pid_namespace, p->start_ticks, p->start_ns, false};
  const struct judged *row = j->count ? bsearch(&key, j->row, j->count, sizeof *j->row, by_process) : NULL;
  return row && row->ended;
}

struct adding {
  struct penstock_watch *watch;
  struct penstock_picture *picture;
  const struct judgement *judgement;
  bool dead_only, skip;
  uint32_t run, process;
  struct penstock_seen_chunk *dead; /* chunks of the dead, to be given back */
  uint32_t dead_count;
};

static void note_dead(struct adding *a, const struct penstock_seen_process *p) {
  if (!p->chunk_count || !a->dead_only)
    return;
  struct penstock_seen_chunk *more = realloc(a->dead, (a->dead_count + p->chunk_count) * sizeof *more);
  if (!more) {
    a->picture->failed = true;
    return;
  }
  memcpy(more + a->dead_count, p->chunks, p->chunk_count * sizeof *more);
  a->dead = more;
  a->dead_count += p->chunk_count;
}

static void add_process(void *context, const struct penstock_seen_process *p) {
  struct adding *a = context;
  bool dead = is_dead(a->judgement, p), gone = penstock_picture_has(&a->watch->gone, p);
  if (dead)
    note_dead(a, p);
  a->skip = gone || (a->dead_only && !dead);
  a->run = a->skip ? PENSTOCK_NO_PROCESS : penstock_picture_run(a->picture, p->run);
  a->skip |= a->run == PENSTOCK_NO_PROCESS;
  if (a->skip)
    return;
  a->process = penstock_picture_process(a->picture, a->run, p, dead);
  if (p->anonymous_read_bytes || p->anonymous_written_bytes) {
    struct penstock_seen_file unnamed = {
      .kind = PENSTOCK_SLOT_UNNAMED,
      .threads = 1,
      .name = "",
      .way = {{.bytes = p->anonymous_read_bytes}, {.bytes = p->anonymous_written_bytes}},
    };
    penstock_picture_file(a->picture, a->run, a->process, &unnamed);
  }
}

static void add_file(void *context, const struct penstock_seen_process *p, const struct penstock_seen_file *file) {
  struct adding *a = context;
  (void)p;
  if (!a->skip)
    penstock_picture_file(a->picture, a->run, a->process, file);
}

/* Judge, then read: what a dead process wrote is all there.  `ret->dead` is the caller's to free. */
static int add_all(struct penstock_watch *w, struct penstock_picture *p, bool dead_only, struct adding *ret,
                   uint32_t *living) {
  struct judgement j = {0};
  uint32_t *freed = read_freed(w);
  *ret = (struct adding){.watch = w, .picture = p, .judgement = &j, .dead_only = dead_only};
  struct penstock_visitor visitor = {ret, add_process, add_file};
  struct penstock_seen seen = {0};
  int error = freed ? judge_all(w, freed, &j) : -ENOMEM;
  if (!error)
    error = penstock_read(w->usage, w->chunk_count, freed, w->head.nonce, &visitor, &seen);
  if (!error && p->failed)
    error = -ENOMEM;
  memcpy(w->lost, seen.lost, sizeof w->lost);
  w->attached = seen.attached;
  w->damaged = seen.skipped;
  if (living)
    *living = j.living;
  free(freed);
  free(j.row);
  ret->judgement = NULL;
  return error;
}

int penstock_harvest(struct penstock_watch *w, struct penstock_picture *ret, uint32_t *living) {
  struct adding adding;
  if (!w->agent)
    load_gone(w);
  if (!penstock_picture_copy(ret, &w->gone))
    return -ENOMEM;
  int error = add_all(w, ret, false, &adding, living);
  free(adding.dead);
  if (error)
    penstock_picture_free(ret);
  return error;
}

uint32_t penstock_watch_used(const struct penstock_watch *w) {
  struct penstock_claim claims[256];
  uint32_t freed[256], used = 0;
  for (uint32_t at = 0; at < w->chunk_count; at += 256) {
    uint32_t count = w->chunk_count - at < 256 ? w->chunk_count - at : 256;
    ssize_t got = pread(w->usage, claims, count * sizeof *claims, PENSTOCK_USAGE_HEAD_BYTES + (off_t)at * (off_t)sizeof *claims);
    off_t where = (off_t)(offsetof(struct penstock_control, freed) + at * sizeof *freed);
    if (got <= 0 || pread(w->control, freed, count * sizeof *freed, where) != (ssize_t)(count * sizeof *freed))
      break;
    for (uint32_t i = 0; i < (size_t)got / sizeof *claims; i++) {
      uint32_t seq = (uint32_t)(claims[i].holder >> 32);
      used += seq && seq != freed[i];
    }
  }
  return used;
}

int penstock_watch_look(struct penstock_watch *w, uint32_t *living) {
  struct judgement j = {0};
  uint32_t *freed = read_freed(w);
  int error = freed ? judge_all(w, freed, &j) : -ENOMEM;
  *living = j.living;
  free(freed);
  free(j.row);
  return error;
}

int penstock_give_back(struct penstock_watch *w) {
  struct penstock_picture gone;
  struct adding adding;
  char path[PATH_MAX];
  if (!w->agent)
    return -EPERM;
  if (!penstock_picture_copy(&gone, &w->gone))
    return -ENOMEM;
  gone_path(w, path);
  int error = add_all(w, &gone, true, &adding, NULL);
  if (!error && adding.dead_count)
    error = penstock_picture_save(&gone, path);
  if (error) {
    penstock_picture_free(&gone);
  } else {
    penstock_picture_free(&w->gone);
    w->gone = gone;
    for (uint32_t i = 0; i < adding.dead_count; i++)
      penstock_board_free(&w->board, adding.dead[i].chunk, adding.dead[i].seq);
  }
  free(adding.dead);
  return error ? error : (int)adding.dead_count;
}
