// SPDX-License-Identifier: Apache-2.0
/* Drives stages without the interposer: a board in a folder of its own, and calls made up as the wrappers would.
   A program that includes it also uses board/create.c and board/read.c. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "check.h"
#include "board/check.h"
#include "board/create.h"
#include "board/read.h"
#include "interpose/call.h"

struct penstock_here penstock_here;
static struct penstock_board board;
static char board_folder[256];

uint64_t penstock_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct penstock_fd fds[64];
struct penstock_fd *penstock_fd_at(int fd) { return fd >= 0 && fd < 64 ? &fds[fd] : NULL; }

static const char *kernel_name; /* what /proc/self/fd would say; NULL: sealed */
int penstock_fd_path(int fd, char *buffer, size_t room) {
  (void)fd;
  size_t size = kernel_name ? strlen(kernel_name) : 0;
  if (size == 0 || size > room)
    return -1;
  memcpy(buffer, kernel_name, size);
  return (int)size;
}

const char *penstock_path(struct penstock_call *call) { return call->path; }

void penstock_lost(enum penstock_lost what) {
  if (penstock_here.usage)
    __atomic_fetch_add(&((struct penstock_usage *)penstock_here.usage)->lost[what], 1, __ATOMIC_RELAXED);
}

static void attach(void) {
  penstock_here.control = board.control;
  penstock_here.control_bytes = board.control_bytes;
  penstock_here.usage_max_bytes = board.usage_max_bytes;
  penstock_here.chunk_count = board.chunk_count;
  penstock_here.pid = (uint32_t)getpid();
  void *map = mmap(NULL, board.usage_max_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, board.usage, 0);
  CHECK(map != MAP_FAILED);
  penstock_here.usage = map;
}

static void remove_board(void) {
  if (board_folder[0] && penstock_here.pid == (uint32_t)getpid())
    penstock_board_delete(board_folder);
}

static inline void make_board(struct penstock_board_plan plan) {
  const char *top = getenv("TMPDIR");
  snprintf(board_folder, sizeof board_folder, "%s/penstock-board-%d", top ? top : "/dev/shm", (int)getpid());
  plan.stages = PENSTOCK_STAGE_RECORD;
  plan.otherwise = PENSTOCK_UNDER_RECORD;
  penstock_board_delete(board_folder);
  CHECK_EQ(0, penstock_board_create(board_folder, &plan, &board));
  attach();
  atexit(remove_board);
}

/* ---- calls as wrappers make them ---- */

enum { OP_OPEN, OP_CLOSE, OP_READ, OP_WRITE, OP_SEEK, OP_STAT }; /* as calls.def begins */

static inline void pass(const struct penstock_stage *stage, struct penstock_call *call) {
  call->entry = call->fd >= 0 ? penstock_fd_at(call->fd) : NULL;
  CHECK_EQ(PENSTOCK_GO, stage->before(call));
  if (call->timed) {
    call->start_ns = penstock_now_ns();
    call->end_ns = call->start_ns + 1000;
  }
  stage->after(call);
}

static inline void do_open(const struct penstock_stage *stage, int fd, const char *path) {
  fds[fd] = (struct penstock_fd){.known = 1, .under = PENSTOCK_UNDER_RECORD};
  struct penstock_call call = {
    .op = OP_OPEN, .does = PENSTOCK_DOES_OPEN, .fd = fd, .fd2 = -1, .path = path, .path_size = (uint16_t)strlen(path), .result = fd};
  pass(stage, &call);
}

static inline void do_move(const struct penstock_stage *stage, int fd, bool writes, uint64_t asked, int64_t result) {
  struct penstock_call call = {.op = writes ? OP_WRITE : OP_READ,
                               .does = writes ? PENSTOCK_DOES_WRITE : PENSTOCK_DOES_READ,
                               .class = 1,
                               .fd = fd,
                               .fd2 = -1,
                               .asked = asked,
                               .result = result,
                               .failed = result < 0};
  pass(stage, &call);
}

static inline void do_fd(const struct penstock_stage *stage, int fd, int op, uint8_t does, int64_t result) {
  struct penstock_call call = {.op = (uint8_t)op, .does = does, .fd = fd, .fd2 = -1, .result = result};
  pass(stage, &call);
}

static inline void do_path(const struct penstock_stage *stage, int op, const char *path) {
  struct penstock_call call = {.op = (uint8_t)op, .fd = -1, .fd2 = -1, .path = path, .path_size = (uint16_t)strlen(path)};
  pass(stage, &call);
}

/* ---- what the board says then ---- */

enum { SEEN_MAX = 4096, SEEN_NAME = 256 };
static struct {
  struct penstock_seen total;
  struct penstock_seen_process processes[256];
  uint32_t process_count;
  struct penstock_seen_file files[SEEN_MAX];
  uint32_t file_pid[SEEN_MAX];
  char names[SEEN_MAX][SEEN_NAME];
  uint32_t file_count;
} seen;

static void see_process(void *context, const struct penstock_seen_process *p) {
  (void)context;
  if (seen.process_count < 256)
    seen.processes[seen.process_count++] = *p;
}

static void see_file(void *context, const struct penstock_seen_process *p, const struct penstock_seen_file *f) {
  (void)context;
  if (seen.file_count == SEEN_MAX)
    return;
  snprintf(seen.names[seen.file_count], SEEN_NAME, "%.*s", (int)f->name_size, f->name);
  seen.file_pid[seen.file_count] = p->pid;
  seen.files[seen.file_count++] = *f;
}

static inline void look(void) {
  struct penstock_visitor visitor = {NULL, see_process, see_file};
  memset(&seen, 0, sizeof seen);
  CHECK_EQ(0, penstock_read(board.usage, board.chunk_count, board.control->freed, board.control->nonce, &visitor, &seen.total));
}

/* The row of a file of a process (0: any); fails when there is none. */
static inline const struct penstock_seen_file *row(const char *name, uint32_t pid) {
  for (uint32_t i = 0; i < seen.file_count; i++)
    if (strcmp(seen.names[i], name) == 0 && (!pid || seen.file_pid[i] == pid))
      return &seen.files[i];
  fprintf(stderr, "no row of %s\n", name);
  exit(1);
}
