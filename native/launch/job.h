// SPDX-License-Identifier: Apache-2.0
/* Which job, step and run this process belongs to, out of the environment that schedulers and launchers give.

   Invariant: all ranks of one start come to the same run without asking each other; two starts never do.  Where a
   launcher names nothing that holds across nodes (MPICH's without a scheduler), each node is a run of its own. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct penstock_job {
  char job[128];
  char source[32]; /* the variable that named the job, or "made up" */
  char step[128];
  char node[128];
  uint8_t run[16];
  bool ranked;     /* one of several processes that a launcher started */
  bool given;      /* PENSTOCK_RUN named the run */
  int32_t rank;
  uint32_t size, local_size; /* 0: not known */
};

/* `fresh`: a new run, whatever launcher or PENSTOCK_RUN say (`penstock run`). */
void penstock_job_read(struct penstock_job *ret, bool fresh);

/* FNV-1a of 128 bits over job, 0x1f, step, 0x1f, token. */
void penstock_run_id(uint8_t ret[16], const char *job, const char *step, const char *token);
bool penstock_run_parse(uint8_t ret[16], const char *hex);
void penstock_run_hex(char ret[33], const uint8_t run[16]);
