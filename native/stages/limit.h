// SPDX-License-Identifier: Apache-2.0
/* What other stages need of limits. */
#pragma once
#include "interpose/call.h"

/* A stage adds requests of its own to a call (a layout that is set, a look-up): so many calls of weight one are charged to
   the buckets that the call passes.  They do not wait: the next call pays.  From a stage's before() or after(). */
void penstock_limit_more(const struct penstock_call *call, unsigned calls);
