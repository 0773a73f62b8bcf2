// SPDX-License-Identifier: Apache-2.0
/* See job.h. */
#include "launch/job.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include "launch/alive.h"

void penstock_run_id(uint8_t ret[16], const char *job, const char *step, const char *token) {
  const char *const parts[] = {job, "\x1f", step, "\x1f", token};
  const unsigned __int128 prime = (unsigned __int128)1 << 88 | 0x13b;
  unsigned __int128 hash = (unsigned __int128)0x6c62272e07bb0142u << 64 | 0x62b821756295c58du;
  for (int i = 0; i < 5; i++)
    for (const char *at = parts[i]; *at; at++)
      hash = (hash ^ (uint8_t)*at) * prime;
  for (int i = 0; i < 16; i++)
    ret[i] = (uint8_t)(hash >> (8 * (15 - i)));
}

static int digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool penstock_run_parse(uint8_t ret[16], const char *hex) {
  if (!hex || strlen(hex) != 32)
    return false;
  for (int i = 0; i < 16; i++) {
    int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0)
      return false;
    ret[i] = (uint8_t)(high << 4 | low);
  }
  return true;
}

void penstock_run_hex(char ret[33], const uint8_t run[16]) {
  for (int i = 0; i < 16; i++)
    snprintf(ret + 2 * i, 3, "%02x", run[i]);
}

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

static uint32_t number(const char *name) {
  const char *value = name ? variable(name) : NULL;
  unsigned long found = value ? strtoul(value, NULL, 10) : 0;
  return found > INT32_MAX ? 0 : (uint32_t)found;
}

/* Element `index` of Slurm's "4(x2),3". */
static uint32_t tasks_of_node(const char *text, uint32_t index) {
  while (text && *text) {
    char *end;
    unsigned long tasks = strtoul(text, &end, 10), nodes = 1;
    if (end == text)
      return 0;
    if (end[0] == '(' && end[1] == 'x')
      nodes = strtoul(end + 2, &end, 10);
    if (index < nodes)
      return (uint32_t)tasks;
    index -= (uint32_t)nodes;
    text = strchr(end, ',');
    text = text ? text + 1 : NULL;
  }
  return 0;
}

/* Who started this rank, in the order of who stands nearest to it. */
static const struct {
  const char *rank, *size, *local_size;
  const char *needs;     /* without this variable the others are left over from a surrounding job */
  const char *token[2];  /* what all ranks of one start have in common and no other start has */
} LAUNCHERS[] = {
  {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL,
   {"OMPI_MCA_orte_precondition_transports", "PMIX_NAMESPACE"}},
  {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_FD", {NULL, NULL}},
  {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NULL, "SLURM_STEP_ID", {"SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
  {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", NULL, "FLUX_JOB_ID", {"FLUX_JOB_ID", NULL}},
  {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
};

/* The parent is common to all ranks of a node. */
static void parent_token(char *ret, size_t room) {
  uint32_t parent = (uint32_t)getppid();
  snprintf(ret, room, "%u.%llu", parent, (unsigned long long)penstock_start_ticks(parent));
}

static bool read_launcher(struct penstock_job *job, char *token, size_t room) {
  for (size_t i = 0; i < sizeof LAUNCHERS / sizeof *LAUNCHERS; i++) {
    if (!variable(LAUNCHERS[i].rank) || (LAUNCHERS[i].needs && !variable(LAUNCHERS[i].needs)))
      continue;
    job->rank = (int32_t)number(LAUNCHERS[i].rank);
    job->size = number(LAUNCHERS[i].size);
    job->local_size = number(LAUNCHERS[i].local_size);
    if (!job->local_size && strcmp(LAUNCHERS[i].rank, "SLURM_PROCID") == 0)
      job->local_size = tasks_of_node(variable("SLURM_STEP_TASKS_PER_NODE"), number("SLURM_NODEID"));
    const char *first = LAUNCHERS[i].token[0] ? variable(LAUNCHERS[i].token[0]) : NULL;
    const char *second = LAUNCHERS[i].token[1] ? variable(LAUNCHERS[i].token[1]) : NULL;
    if (first || second)
      snprintf(token, room, "%s/%s/%s", LAUNCHERS[i].rank, first ? first : "", second ? second : "");
    else
      parent_token(token, room);
    return true;
  }
  return false;
}

/* The scheduler's job: false when there is none. */
static bool read_scheduler(struct penstock_job *job) {
  static const char *const names[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *id = variable(names[i]), *step = i == 0 ? variable("SLURM_STEP_ID") : NULL;
    if (!id)
      continue;
    snprintf(job->job, sizeof job->job, "%s", id);
    snprintf(job->source, sizeof job->source, "%s", names[i]);
    snprintf(job->step, sizeof job->step, "%s", step ? step : "");
    return true;
  }
  return false;
}

static void make_up(struct penstock_job *job, const char *token) {
  char when[32];
  struct tm tm;
  time_t now = time(NULL);
  uint8_t id[16];
  strftime(when, sizeof when, "%Y%m%d-%H%M%S", gmtime_r(&now, &tm));
  if (job->ranked) {
    penstock_run_id(id, "", "", token);
    snprintf(job->job, sizeof job->job, "mpi-%02x%02x%02x%02x", id[0], id[1], id[2], id[3]);
  } else
    snprintf(job->job, sizeof job->job, "%s-%d", when, (int)getpid());
  snprintf(job->source, sizeof job->source, "made up");
}

void penstock_job_read(struct penstock_job *ret, bool fresh) {
  struct utsname uts;
  char token[256] = "";
  *ret = (struct penstock_job){.rank = -1};
  const char *node = variable("SLURMD_NODENAME");
  if (!node && uname(&uts) == 0)
    node = uts.nodename;
  snprintf(ret->node, sizeof ret->node, "%s", node ? node : "localhost");
  ret->ranked = !fresh && read_launcher(ret, token, sizeof token);
  if (!read_scheduler(ret))
    make_up(ret, token);
  if (!fresh && penstock_run_parse(ret->run, getenv("PENSTOCK_RUN"))) {
    ret->given = true;
    return;
  }
  const char *cluster = variable("SLURM_CLUSTER_NAME");
  uint64_t random[2] = {(uint64_t)getpid(), (uint64_t)time(NULL)};
  size_t size = strlen(token);
  if (ret->ranked)
    snprintf(token + size, sizeof token - size, "/%s", cluster ? cluster : "");
  else if (getrandom(random, sizeof random, 0) >= 0)
    snprintf(token, sizeof token, "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
  penstock_run_id(ret->run, ret->job, ret->step, token);
}
