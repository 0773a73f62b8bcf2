// SPDX-License-Identifier: Apache-2.0
/* Limits that runs within a run ask its agent for, where that is `penstock run` itself and no agent of the node's.

   Only the agent writes control, so a nested run leaves what it wants in a file beside the board, BOARD.limits-PID-TICKS,
   and waits until the board has it.  The agent looks at each of its ticks, adds what is there to the limits of its own
   plan, each under its name and the asker's pid, and takes it off when the asker is gone.

   Invariants:
   1. A file counts only whole and right (penstock_limits_wrong), and as long as its asker lives.
   2. What does not fit with the rest is left out; its asker sees that it does not come and says so.
   3. Nothing is changed while the askers stay the same. */
#pragma once
#include "board/limits.h"
#include "launch/harvest.h"

struct penstock_asks {
  void *own; /* the spec of the board's own plan; NULL: it has none */
  uint64_t applied; /* which askers the board's limits are of; 0: none */
};

/* Keep the limits of the board's own plan, if there are some. */
void penstock_asks_begin(struct penstock_asks *a, const struct penstock_board_part *parts, uint32_t count);
/* From time to time, as the board's agent. */
void penstock_asks_look(struct penstock_asks *a, struct penstock_watch *w);
/* The board goes: so do the files. */
void penstock_asks_forget(const char *board);

/* As a nested run: ask for a spec that is right, and wait until it holds on the board that `w` watches.  False: it does
   not. */
bool penstock_asks_add(const char *board, const struct penstock_watch *w, const void *spec, size_t bytes);
/* It is over. */
void penstock_asks_end(const char *board);
