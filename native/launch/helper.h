// SPDX-License-Identifier: Apache-2.0
/* The catalog's helper beside a job's agent: a process of the user's own (`penstock catalog follow`) that reads the
   board's ring and writes the catalog, in the job's mount namespace, without our libraries in it.

   Invariants:
   1. The program neither waits for it nor sees it: it is in a session of its own and has none of the program's files.
   2. It ends when nobody holds `alive` any more and no process of the board lives: also when the agent was killed.
   3. The agent waits for it at the end, so that the catalog is whole when the command has ended, but not for ever. */
#pragma once
#include "launch/wishes.h"

struct penstock_helper {
  int pid;   /* 0: none */
  int alive; /* -1: none; it ends some time after the last copy of this is closed */
};

/* `mask`: the signals that the program is to have blocked.  What goes wrong is a line in the log. */
void penstock_helper_start(struct penstock_helper *ret, const struct penstock_wishes *wishes, const char *board,
                           const void *mask);

/* Tells it that no more comes, and waits.  `verbose`: what went wrong is also said on standard error. */
void penstock_helper_finish(struct penstock_helper *h, const struct penstock_wishes *wishes, bool verbose);
