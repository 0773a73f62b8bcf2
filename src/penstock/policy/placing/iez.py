# SPDX-License-Identifier: Apache-2.0
"""The published min-cost max-flow (iez), in two readings, to compare with.

`iez` as printed: every stripe on a target costs that target's used share, whatever the flow already put there; only
free space over the stripe's size bounds it.  The optimum of such a network is to fill the cheapest targets first,
which is what is done here, without a solver.  `iez-renewed` makes the costs anew after each request: every file takes
the emptiest targets, and the published balance comes out.  Neither knows of load or of other planners' promises.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from penstock.policy.placing.contract import (
    ALL_LAWS,
    Allocation,
    AllocationSettings,
    Allocator,
    Law,
    Requests,
    Target,
    usable,
)


def allocate(
    requests: Requests, targets: Sequence[Target], settings: AllocationSettings, renewed: bool
) -> Allocation:
    """By request the cheapest targets that still have room; costs renewed after each, or not."""
    able = usable(targets, requests.pool)
    size = np.array([max(t.size_bytes, 1.0) for t in able])
    room = np.array([t.free_bytes for t in able])
    cost = 1 - room / size
    found: list[tuple[int, ...]] = []
    counts = np.minimum(requests.counts, max(len(able), 1))
    for count, stripe in zip(counts.tolist(), (requests.bytes / counts).tolist(), strict=True):
        fits = np.flatnonzero(room >= stripe)
        pick = fits[np.argsort(cost[fits], kind="stable")[:count]]
        if len(pick) < count:
            pick = pick[:0]
        room[pick] -= stripe
        if renewed:
            cost[pick] += stripe / size[pick]
        found.append(tuple(able[i].id for i in pick))
    return Allocation(found)


LITERAL = Allocator("iez", Law.DISTINCT | Law.WHOLE | Law.ROOM, partial(allocate, renewed=False))
RENEWED = Allocator("iez-renewed", ALL_LAWS, partial(allocate, renewed=True))
