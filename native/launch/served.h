// SPDX-License-Identifier: Apache-2.0
/* What a board's programs were answered from a catalog: the counts that its processes share. */
#pragma once
#include "board/serve.h"
#include "launch/harvest.h"
#include "launch/msgpack.h"

struct penstock_served {
  bool any; /* there was something to answer from */
  bool ended; /* a change was made of which nobody could tell where it was: nothing was answered from then on */
  uint64_t count[PENSTOCK_SERVE_COUNTS];
};

void penstock_served_read(struct penstock_served *ret, const struct penstock_watch *w);

/* All calls that were answered. */
uint64_t penstock_served_calls(const struct penstock_served *served);

/* As the key "srv" of a node's frame: how many keys that is. */
uint32_t penstock_served_pack(struct penstock_pack *p, const struct penstock_served *served);
