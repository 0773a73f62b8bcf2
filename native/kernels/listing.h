// SPDX-License-Identifier: Apache-2.0
/* The names of one folder of a segment, one after the other, as readdir gives them: `.`, `..`, then in order.

   A place in it is a number of 0 or more that is the same for the same name each time: that of the name to come, in the
   high half, and where its record lies, in the low one.  Any number may be asked for: what it leads to lies in the segment
   or is an error.  Nothing is kept, nothing is allocated. */
#pragma once
#include <dirent.h>
#include "kernels/index.h"

struct penstock_listing {
  uint64_t ino, above_ino; /* of `.` and `..` */
  uint64_t children_at;
  uint32_t children; /* records: entries, and tombstones, which are passed by */
  uint32_t row;
};

/* Of the folder at a path.  -ENOENT: it is no folder of which every name is known. */
int penstock_listing_open(struct penstock_listing *ret, const struct penstock_index *ix, const char *path, size_t size);

/* The name at a place, and the place after it: 1, or 0 at the end, or an error. */
int penstock_listing_next(const struct penstock_listing *listing, const struct penstock_index *ix, uint64_t place,
                          struct dirent64 *ret, uint64_t *ret_place);
