// SPDX-License-Identifier: Apache-2.0
/* What limits cost the programs of a board: for each bucket the calls that waited, how long, and the longest.

   Limits are the board's.  A run that made its board tells them from the beginning; one on the board of a node's agent
   notes what they had cost when it began, and tells the difference: what its job paid on this node meanwhile, also in
   other runs at the same time.  A bucket whose limit was lifted is told without its name, unless it had one at the
   beginning; of one whose place a new limit has since, the new one's part alone is told. */
#pragma once
#include "board/limits.h"
#include "launch/harvest.h"
#include "launch/msgpack.h"

struct penstock_limited_bucket {
  uint32_t place; /* on the board */
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

/* From the board's beginning; nothing where that cannot be read. */
void penstock_limited_read(struct penstock_limited *ret, const struct penstock_watch *w);

/* Takes off what it had cost before.  A longest wait that was there before is not this run's: then 0, not known. */
void penstock_limited_since(struct penstock_limited *limited, const struct penstock_limited *before);

/* As the key "lim" of a node's frame: how many keys that is. */
uint32_t penstock_limited_pack(struct penstock_pack *p, const struct penstock_limited *limited);
