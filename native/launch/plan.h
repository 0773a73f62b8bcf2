// SPDX-License-Identifier: Apache-2.0
/* A job's plan: what its boards are to hold from the beginning, besides what settings say.  Python makes the file (or a
   program writes it to a shared file system for the job's other nodes); penstock-run reads it when it makes a board, so
   only the first rank of a node does.  PENSTOCK_PLAN or --plan names it.

   The file: struct penstock_plan_head, `count` times struct penstock_plan_part, then the parts, each on a line of 64
   bytes.  A part of kind and version becomes the section of that kind and version in control, as it is; but limits are a
   spec (board/limits.h), from which the board makes its section.  To add a kind: give it a number below, describe its
   bytes in the header of its own, and look for the section with penstock_control_section() in the stage; a part is as
   hostile there as the rest of control.  src/penstock/runs/limits.py, plan_file(), writes it.

   Invariants:
   1. A file is checked as a whole (sizes, bounds, CRC-32C) before anything of it is used.
   2. A file that is missing or wrong keeps no program from starting: it runs without, and is told so. */
#pragma once
#include <stdint.h>
#include "board/create.h"

#define PENSTOCK_PLAN_MAGIC 0x314e4c504b534350u /* "PCSKPLN1" */
enum { PENSTOCK_PLAN_VERSION = 1, PENSTOCK_PLAN_BYTES_MAX = 2 << 20, PENSTOCK_PLAN_PARTS_MAX = PENSTOCK_SECTIONS_MAX - 1 };

/* Kinds of sections, of all stages. */
enum {
  PENSTOCK_PLAN_LIMITS = 1, /* PENSTOCK_SECTION_LIMITS of board/limits.h */
};

struct penstock_plan_head {
  uint64_t magic;
  uint32_t version;
  uint32_t count;
  uint64_t bytes; /* of the file */
  uint32_t check; /* CRC-32C of the file, where this is 0 */
  uint32_t zero;
};

struct penstock_plan_part {
  uint32_t kind, version;
  uint64_t offset_bytes; /* from the start of the file */
  uint64_t size_bytes;
};

struct penstock_plan_file {
  void *data; /* of the file; the parts point into it */
  struct penstock_board_part parts[PENSTOCK_PLAN_PARTS_MAX];
  uint32_t part_count;
};

/* Reads it: what is wrong with it, or NULL.  `path` may be "fd:N": a descriptor, which is closed.  Nothing to free after an
   error. */
const char *penstock_plan_read(struct penstock_plan_file *ret, const char *path);
void penstock_plan_free(struct penstock_plan_file *plan);
