// SPDX-License-Identifier: Apache-2.0
/* Is a process still there?  By pid and start time, so that a reused pid is no life; also for processes of other pid
   namespaces below ours (containers), found by their NSpid.

   Invariant: what cannot be known (a namespace that we do not see) counts as alive while anything of it may be. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct penstock_alive;
struct penstock_alive *penstock_alive_open(void); /* NULL: no memory */
void penstock_alive_close(struct penstock_alive *a); /* NULL is fine */
bool penstock_alive(struct penstock_alive *a, uint32_t pid, uint64_t start_ticks, uint64_t pid_namespace);

/* Field 22 of /proc/PID/stat, 0 when there is no such process or it is a zombie. */
uint64_t penstock_start_ticks(uint32_t pid);
