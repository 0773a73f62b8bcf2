// SPDX-License-Identifier: Apache-2.0
/* From a board to what it tells (launch/picture.h), and the board's chunks back to those who need them.

   Invariants:
   1. The board is hostile: `usage` is read with pread only, every number of it is checked against sizes that the files
      themselves have; what makes no sense is counted (`damaged`) and skipped (board/read.h).
   2. A process is judged dead before its chunks are read, so nothing that it wrote is missed.
   3. Chunks go back in this order: a picture of all that is gone is saved beside the board (FOLDER.gone), then
      control.freed says so.  Whoever takes over after a kill finds each process in exactly one of both.
   4. Only the agent, who holds the lock on `control`, saves, frees and grows.  Anybody may look. */
#pragma once
#include <stdbool.h>
#include <limits.h>
#include <stdint.h>
#include "board/create.h"
#include "launch/picture.h"

struct penstock_limited;

struct penstock_watch {
  char path[PATH_MAX - 64];
  int control, usage;           /* descriptors; -1 */
  bool agent;                   /* we hold the lock on control, and `board` is ours */
  struct penstock_board board;
  struct penstock_control head; /* as it was when opened; freed[] not among it */
  uint32_t chunk_count;         /* checked */
  bool other_boot;              /* nobody of its processes can live */
  struct penstock_picture gone; /* of the dead whose chunks went back */
  /* As of the last look or harvest: */
  uint32_t used_chunks, dead_chunks, attached;
  uint64_t lost[PENSTOCK_LOST_MAX], damaged;
  const struct penstock_limited *before; /* what limits had cost when our run began; NULL: the board was made for it */
};

/* Watch a board.  As `agent`: take its lock, or -EWOULDBLOCK.
   0, -errno (-ENOENT: none; -EBADMSG: no board, or of another version). */
int penstock_watch_open(struct penstock_watch *ret, const char *path, bool agent);
void penstock_watch_close(struct penstock_watch *w);

/* All that the board tells now.  `living`: processes that still run.  0 or -errno. */
int penstock_harvest(struct penstock_watch *w, struct penstock_picture *ret, uint32_t *living);

/* How many chunks are held, by the living or the dead: cheap. */
uint32_t penstock_watch_used(const struct penstock_watch *w);

/* Who lives, and whose chunks are held (used_chunks, dead_chunks): 0 or -errno. */
int penstock_watch_look(struct penstock_watch *w, uint32_t *living);

/* Take the dead off the board (invariant 3): how many chunks went back, or -errno. */
int penstock_give_back(struct penstock_watch *w);
