// SPDX-License-Identifier: Apache-2.0
/* An agent's hold on the limits of one board: control mapped for writing, usage for reading alone.  Also of boards whose
   usage belongs to another user.  Functions give 0 or -errno; nothing here is thread-safe. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "board/create.h"
#include "board/limits.h"

struct penstock_holder {
  struct penstock_control *control; /* NULL: not held */
  uint64_t control_bytes;
  struct penstock_limits_control *limits;
  uint64_t usage_offset;
  int usage;
  uint64_t space; /* of pids, that this agent lives in */
  uint64_t carry[PENSTOCK_BUCKETS_MAX];
};

/* Adopts a board, perhaps one that another agent held before: there is nothing to repair.  -EPROTO: it makes no sense, or
   is of another version. */
int penstock_hold(struct penstock_holder *ret, const char *folder);
void penstock_hold_end(struct penstock_holder *h);
/* The same of a board that the agent has open: it stays the board's, and ends with it. */
int penstock_hold_board(struct penstock_holder *ret, const struct penstock_board *board);

/* A spec that is not wrong (limits.h): whether there were buckets enough.  The stage is on while there is any. */
bool penstock_hold_apply(struct penstock_holder *h, const void *spec);
/* All leases end so long from now. */
void penstock_hold_renew(struct penstock_holder *h, uint64_t lease_ns);
/* The tickets of dead waiters: how many these were. */
unsigned penstock_hold_give_back(struct penstock_holder *h);

/* What one bucket's place has seen, since it was first used. */
struct penstock_asked {
  uint64_t issued;
  struct penstock_demand demand;
  uint64_t asked;        /* units; only grows, but for what was drawn and not used */
  uint64_t longest_ns;   /* that a call waited, when over */
};
/* False where usage could not be read.  Also of a bucket that is not in use any more. */
bool penstock_hold_asked(const struct penstock_holder *h, unsigned bucket, struct penstock_asked *ret);

/* Where a bucket stands, and what it has seen since it began. */
struct penstock_held {
  struct penstock_line line;
  struct penstock_demand demand;
  uint64_t asked;
  int64_t owed;          /* units drawn that are not due yet; negative: idle */
  uint64_t given;
  uint32_t shadow;
  uint32_t waiting;      /* threads, the dead not counted once their tickets are back */
  uint64_t waiting_units;
  uint64_t waiting_ns;   /* of those, so far */
  uint64_t longest_ns;
};
/* By bucket; false where usage could not be read. */
bool penstock_hold_observe(const struct penstock_holder *h, struct penstock_held ret[PENSTOCK_BUCKETS_MAX]);
