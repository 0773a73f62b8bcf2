// SPDX-License-Identifier: Apache-2.0
/* Who this process is: filled in once, at start or after a fork, when a few system calls are allowed. */
#pragma once
#include "stages/slots.h"

/* Everything of the slot but `threads`, `end_ns` and the MPI counters; exe and argv may take TEXT slots. */
void penstock_process_fill(struct penstock_process *process);

/* Is this still the process of that number, or a child that has not been told yet? */
bool penstock_process_is(uint32_t pid);

/* Rank and size of the world as the launcher's variables say; rank -1 when there are none. */
struct penstock_rank {
  int32_t rank;
  uint32_t size;
};
struct penstock_rank penstock_process_rank(char *const *environment);
