// SPDX-License-Identifier: Apache-2.0
/* The agent's side of a board: makes it, gives it room ahead of use, changes what holds, deletes it.

   Functions give 0 or -errno.  A board is used by one agent at a time; nothing here is thread-safe. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "board/board.h"

/* A section of control that is there from the beginning: what a plan brings (launch/plan.h). */
struct penstock_board_part {
  uint32_t kind, version;
  const void *data;
  uint64_t bytes;
};

/* What a new board is to say.  Zero means the default where there is one. */
struct penstock_board_plan {
  uint8_t run[16];
  uint32_t stages;
  uint32_t otherwise;           /* PENSTOCK_UNDER_* where no prefix matches */
  uint32_t record_files_max;    /* default: 16384 */
  uint32_t record_sample_every; /* default: 128 */
  uint64_t usage_max_bytes;     /* default: 64 MiB; rounded down to whole chunks */
  uint64_t ring_bytes;          /* with the stage `catalog`; default: 4 MiB; rounded down to a power of two of slots */
  const struct penstock_prefix *prefixes;
  uint32_t prefix_count;
  uint32_t place_spots;         /* for plans that may come later, besides those of the parts */
  const struct penstock_board_part *parts; /* copied as they are, but for limits: those are a spec (limits.h) */
  uint32_t part_count;
};

struct penstock_board {
  struct penstock_control *control; /* mapped for writing */
  uint64_t control_bytes;           /* of the mapping */
  uint64_t usage_max_bytes;
  uint32_t chunk_count;
  int usage; /* descriptor, for growing and reading */
};

/* The rules that keep noise out of records: system folders, and where Python keeps its modules.  Gives their number,
   at most `room`. */
uint32_t penstock_board_noise(struct penstock_prefix *rules, uint32_t room);

/* One rule; -ENAMETOOLONG, or -EINVAL for what is neither an absolute path nor one component. */
int penstock_board_rule(struct penstock_prefix *rule, const char *path, uint8_t under, uint64_t dev);

/* Makes the board `folder`, which must not exist, complete or not at all; its parent must.  -EEXIST: somebody was
   faster, and theirs can be used.  -ENOSPC: no room for it. */
int penstock_board_create(const char *folder, const struct penstock_board_plan *plan, struct penstock_board *ret_board);

/* Takes over a board that is there, as its agent.  -EPROTO: it makes no sense, or is of another version. */
int penstock_board_open(const char *folder, struct penstock_board *ret_board);

/* Gives `usage` another step of room when less than half a step is left: 1 when it did, 0 when there was no need or no
   more is allowed, or -ENOSPC and the like; what there is stays usable. */
int penstock_board_grow(struct penstock_board *board);

/* Changes the rules; programs see all of them or the old ones. */
int penstock_board_rules(struct penstock_board *board, const struct penstock_prefix *rules, uint32_t count);

void penstock_board_stages(struct penstock_board *board, uint32_t stages);

/* The chunk's holder with this seq is dead and all it counted is kept elsewhere: others may take it. */
void penstock_board_free(struct penstock_board *board, uint32_t chunk, uint32_t seq);

/* Puts a plan (a section of place.h) into the spot of its file system, or into one that has none yet, under a running
   program; the file system is under control from then on, for programs that start.  Nodes begin at `begin` of its lists
   (place.h), but for a spot that says already where.  -ENOSPC: no spot has room for it; -EINVAL: it makes no sense.
   `section` is 8-byte aligned. */
int penstock_board_place(struct penstock_board *board, const void *section, uint64_t bytes, uint32_t begin);

/* A section of a kind and version, at least so large; NULL: there is none. */
void *penstock_board_section(const struct penstock_board *board, uint32_t kind, uint32_t version, uint64_t least);

/* Lets go of it; the board stays. */
void penstock_board_close(struct penstock_board *board);

/* Deletes the files and the folder.  Programs that have it mapped go on writing into what nobody reads. */
int penstock_board_delete(const char *folder);
