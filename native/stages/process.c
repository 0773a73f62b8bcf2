// SPDX-License-Identifier: Apache-2.0
/* See process.h.  What /proc does not tell stays zero. */
#include "stages/process.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "interpose/raw.h"

extern char **environ;

/* Launchers, the innermost first: a rank that torchrun starts inside a Slurm step is torchrun's.  A variable of its own
   (`only_with`) tells a rank from what merely inherited the job's environment, such as a batch script. */
static const struct {
  const char *rank, *size, *only_with;
} LAUNCHERS[] = {
  {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL},
  {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", NULL},
  {"PMI_RANK", "PMI_SIZE", NULL},
  {"PALS_RANKID", "PMI_SIZE", NULL},
  {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"},
  {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEPID"},
  {"PMIX_RANK", NULL, NULL},
};

static const char *variable(char *const *environment, const char *name) {
  size_t size = strlen(name);
  for (; environment && *environment; environment++)
    if (strncmp(*environment, name, size) == 0 && (*environment)[size] == '=')
      return *environment + size + 1;
  return NULL;
}

/* A decimal number below 2^31, or -1. */
static int32_t number(const char *text) {
  int64_t value = text && *text ? 0 : -1;
  for (; value >= 0 && *text; text++)
    value = *text >= '0' && *text <= '9' && value < 214748364 ? 10 * value + *text - '0' : -1;
  return (int32_t)value;
}

struct penstock_rank penstock_process_rank(char *const *environment) {
  for (size_t i = 0; i < sizeof LAUNCHERS / sizeof *LAUNCHERS; i++) {
    int32_t rank = number(variable(environment, LAUNCHERS[i].rank));
    if (rank < 0 || (LAUNCHERS[i].only_with && !variable(environment, LAUNCHERS[i].only_with)))
      continue;
    int32_t size = LAUNCHERS[i].size ? number(variable(environment, LAUNCHERS[i].size)) : 0;
    return (struct penstock_rank){rank, size > 0 ? (uint32_t)size : 0};
  }
  return (struct penstock_rank){-1, 0};
}

/* What a small file of /proc says, without NUL at the end; its size. */
static size_t read_file(const char *path, char *text, size_t room) {
  long fd = PENSTOCK_RAW(openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  size_t size = 0;
  if (fd < 0)
    return 0;
  for (long n = 1; size < room && n > 0; size += n > 0 ? (size_t)n : 0)
    n = PENSTOCK_RAW(read, fd, text + size, room - size, 0);
  PENSTOCK_RAW(close, fd, 0, 0, 0);
  return size;
}

static size_t read_link(const char *path, char *text, size_t room) {
  long size = PENSTOCK_RAW(readlinkat, AT_FDCWD, path, text, room);
  return size > 0 ? (size_t)size : 0;
}

/* Field 22 of stat; the name before it, in parentheses, may hold anything. */
static uint64_t start_ticks(char *text, size_t size) {
  const char *end = memrchr(text, ')', size);
  uint64_t ticks = 0;
  size_t at = end ? (size_t)(end - text) + 1 : size;
  for (int field = 2; at < size && field < 22; at++)
    field += text[at] == ' ';
  for (; at < size && text[at] >= '0' && text[at] <= '9'; at++)
    ticks = 10 * ticks + (uint64_t)(text[at] - '0');
  return ticks;
}

/* The number in "pid:[4026531836]". */
static uint64_t namespace_of(const char *text, size_t size) {
  uint64_t inode = 0;
  for (size_t i = 0; i < size; i++)
    if (text[i] >= '0' && text[i] <= '9')
      inode = 10 * inode + (uint64_t)(text[i] - '0');
  return inode;
}

static uint64_t real_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void penstock_process_fill(struct penstock_process *p) {
  char text[PENSTOCK_TEXT_MAX];
  p->pid = (uint32_t)PENSTOCK_RAW(getpid, 0, 0, 0, 0);
  p->ppid = (uint32_t)PENSTOCK_RAW(getppid, 0, 0, 0, 0);
  p->start_ticks = start_ticks(text, read_file("/proc/self/stat", text, sizeof text));
  p->pid_namespace = namespace_of(text, read_link("/proc/self/ns/pid", text, sizeof text));
  p->start_ns = penstock_now_ns();
  p->start_real_ns = real_ns();
  memcpy(p->run, penstock_here.run, sizeof p->run);
  struct penstock_rank rank = penstock_process_rank(environ);
  p->rank = rank.rank;
  p->size = rank.size;
  p->exe_size = (uint16_t)read_link("/proc/self/exe", text, sizeof text);
  p->exe_next = penstock_slot_text(p->exe, sizeof p->exe, text, p->exe_size);
  size_t size = read_file("/proc/self/cmdline", text, sizeof text);
  p->argv_size = (uint16_t)(size && text[size - 1] == 0 ? size - 1 : size);
  p->argv_next = penstock_slot_text(p->argv, sizeof p->argv, text, p->argv_size);
}

bool penstock_process_is(uint32_t pid) { return (uint32_t)PENSTOCK_RAW(getpid, 0, 0, 0, 0) == pid; }
