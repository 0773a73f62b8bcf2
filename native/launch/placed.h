// SPDX-License-Identifier: Apache-2.0
/* What became of a board's plan: the counts of its programs, and whether files lie where the plan says.

   Files are checked here, afterwards, against the layouts that the agent reads for the record: never on the way of a call. */
#pragma once
#include "board/place.h"
#include "launch/harvest.h"
#include "launch/msgpack.h"
#include "launch/places.h"

struct penstock_placed {
  uint32_t plans;     /* 0: none was on the board */
  uint32_t why_none;  /* 1 + enum penstock_place_why, where there was to be one and is none */
  uint64_t made_ns[PENSTOCK_PLACES_MAX]; /* by which a plan is known to its maker */
  uint64_t left_out;
  uint64_t count[PENSTOCK_PLACE_COUNTS];
  uint64_t checked, as_planned; /* files with an entry that has lists of targets; those that lie on one of them */
};

/* `layouts`: an element a file of the picture, or NULL: then nothing is checked. */
void penstock_placed_read(struct penstock_placed *ret, const struct penstock_watch *w, const struct penstock_picture *picture,
                          const struct penstock_blob *layouts);

/* As the key "plc" of a node's frame: how many keys that is. */
uint32_t penstock_placed_pack(struct penstock_pack *p, const struct penstock_placed *placed);

/* The rules for the file systems that plans among these parts are for: how many, at most `room`. */
uint32_t penstock_placed_rules(struct penstock_prefix *ret, uint32_t room, const struct penstock_board_part *parts,
                               uint32_t part_count);

/* Where in lists the programs of this node begin, so that nodes do not all begin at the same targets. */
void penstock_placed_begin(struct penstock_board *board, const char *node);
