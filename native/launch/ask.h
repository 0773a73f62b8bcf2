// SPDX-License-Identifier: Apache-2.0
/* Asks the agent of this node, if there is one, for the job's board (src/penstock/control/local.py has the other end).

   Invariant: it takes a second at most, and whatever goes wrong, the answer is no: the program then runs as on a machine
   without an agent. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "launch/job.h"
#include "launch/plan.h"
#include "launch/wishes.h"

struct penstock_site_board {
  char board[512];
  bool first;        /* nobody on this node has asked for this run before: we keep its record */
  char refused[256]; /* why not, in the agent's words; "": no agent */
};

/* Does an agent listen here, by the looks of it? */
bool penstock_ask_whom(char ret[108], const struct penstock_wishes *wishes);

/* False: no agent, or it refused.  What the plan says of limits goes with the question: the agent adds them to its own.
   `within`: the board that a run around us has, or NULL: a nested run is of that job. */
bool penstock_ask(const char *socket, const struct penstock_job *job, const struct penstock_wishes *wishes,
                  const struct penstock_plan_file *plan, const char *within, struct penstock_site_board *ret);

/* Tell it that all of a run is in the history: the agent then needs its board no longer for that. */
void penstock_ask_recorded(const char *socket, const uint8_t run[16]);
