// SPDX-License-Identifier: Apache-2.0
/* Where the record stage puts things: this process's chunks on the board, and an index from names to slots.

   Invariants:
   1. No allocation, no lock, no wait: whoever loses a race takes the winner's work or goes without.
   2. All that decides where to write (the index, the room left) is private to the process; what is on the board is
      never believed, except that numbers which we wrote ourselves are checked again before they are followed.
   3. Index entries are never removed, so a search may stop at the first empty place.  A new level, four times as large,
      is begun where the older ones are full: nothing moves under a reader. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "board/board.h"
#include "interpose/call.h"

/* Slot number `line` of a chunk that is ours or, in a fork child, our parent's. */
static inline void *penstock_slot_at(uint32_t line) { return penstock_here.usage + (uint64_t)line * PENSTOCK_LINE; }

/* Takes the first chunk: the number of its first slot, which is for struct penstock_process, or 0. */
uint32_t penstock_slots_begin(void);

/* A fresh slot (OPS: as many as it takes), all zero besides its head, which does not count yet; 0: none to be had. */
uint32_t penstock_slots_take(enum penstock_slot_kind kind, uint8_t flags);

/* From now on it counts. */
void penstock_slot_publish(uint32_t line);

/* Writes text into `here` and as many TEXT slots as it needs; the number of the first of those. */
uint32_t penstock_slot_text(char *here, size_t room, const char *text, size_t size);

/* Reads a name back from a slot of this process or its parent: its size, or 0 when it makes no sense any more. */
size_t penstock_slot_name(uint32_t line, char *name, size_t room);

/* The slot whose name has this hash, or 0; then *ret_place is where it belongs (NULL: there is no place left). */
uint32_t penstock_slots_find(uint64_t hash, uint64_t **ret_place);

/* Enters a slot under its hash at the place that was found: its number, or that of one which came first, or 0 when there
   is no place. */
uint32_t penstock_index_add(uint64_t hash, uint32_t line, uint64_t *place);
