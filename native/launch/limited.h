// SPDX-License-Identifier: Apache-2.0
/* What limits cost the programs of a board: for each bucket the calls that waited, how long, and the longest.

   Limits are the board's: they are told in the frame of the run that made it.  A bucket whose limit was lifted is told
   without its name, for it has none any more; one that was given a new limit since goes on under the new name. */
#pragma once
#include "board/limits.h"
#include "launch/harvest.h"
#include "launch/msgpack.h"

struct penstock_limited_bucket {
  char name[PENSTOCK_LIMIT_NAME_BYTES + 1];
  bool bytes, shadow, open;
  uint64_t rate_milli; /* thousandths of a call of weight one, or of a byte, a second; as it stands */
  uint64_t units;      /* asked for */
  uint64_t delayed, waited_ns, longest_ns;
};

struct penstock_limited {
  uint32_t count; /* 0: there was no limit */
  struct penstock_limited_bucket bucket[PENSTOCK_BUCKETS_MAX];
};

void penstock_limited_read(struct penstock_limited *ret, const struct penstock_watch *w);

/* As the key "lim" of a node's frame: how many keys that is. */
uint32_t penstock_limited_pack(struct penstock_pack *p, const struct penstock_limited *limited);
