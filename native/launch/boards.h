// SPDX-License-Identifier: Apache-2.0
/* Where boards lie, and how one is made, joined, taken over and put away.

   Invariants:
   1. Boards lie in a folder of this user alone (checked).  A board's folder in it is named by its run, node and boot.
   2. An agent holds the lock on its board's control as long as it lives.  Who makes or takes over a board holds the lock
      of the folder of boards meanwhile, so that nobody mistakes one in the making for one whose agent was killed.
   3. A board that is put away leaves nothing, or (keep) FOLDER.gone: a rank that starts later makes the board anew, with
      what was seen before. */
#pragma once
#include "launch/harvest.h"

enum { PENSTOCK_BOARDS_PATH_MAX = 512 };

/* The folder of this user's boards, made if it is not there: `chosen`, or on /dev/shm, or in /tmp. */
int penstock_boards_folder(char ret[PENSTOCK_BOARDS_PATH_MAX], const char *chosen);

/* The board's folder within it. */
int penstock_board_path(char ret[PENSTOCK_BOARDS_PATH_MAX], const char *base, const uint8_t run[16], const char *node);

/* Is there a board with an agent?  That is all that a rank needs to know before it becomes its program. */
bool penstock_board_served(const char *path);

/* Become the agent of a board: make it, or take it over.  0; -EWOULDBLOCK: it has an agent; other -errno. */
int penstock_board_take(struct penstock_watch *ret, const char *base, const char *path,
                        const struct penstock_board_plan *plan);

/* Become the agent of a board that is there, never of one in the making: as above. */
int penstock_board_claim(struct penstock_watch *ret, const char *path);

/* Remove the board that we are the agent of; with `keep` what is gone stays.  Closes it. */
void penstock_board_put_away(struct penstock_watch *w, bool keep);
