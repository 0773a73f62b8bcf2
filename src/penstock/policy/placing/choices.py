# SPDX-License-Identifier: Apache-2.0
"""Two random choices: each stripe looks at two targets and takes the one where it would be finished first.

What a planner does that cannot know what others plan at the same time: the best of all by old figures is what
all of them would take; the better of two is nobody's meeting place.
"""

from collections.abc import Sequence

import numpy as np

from penstock.policy.placing.contract import (
    Allocation,
    AllocationSettings,
    Allocator,
    Law,
    Requests,
    Target,
    available_bytes_per_s,
    room_bytes,
    usable,
)


def allocate(requests: Requests, targets: Sequence[Target], settings: AllocationSettings) -> Allocation:
    """Each stripe to the better of two targets drawn by chance."""
    able = usable(targets, requests.pool)
    draw = np.random.default_rng(settings.seed)
    rate = [available_bytes_per_s(t) for t in able]
    end_s = [max(t.promised_bytes, 0.0) / r for t, r in zip(able, rate, strict=True)]
    room = [room_bytes(t, settings.reserve) for t in able]
    found: list[tuple[int, ...]] = []
    counts = np.minimum(requests.counts, max(len(able), 1))
    for count, stripe in zip(counts.tolist(), (requests.bytes / counts).tolist(), strict=True):
        rest = [i for i in range(len(able)) if room[i] >= stripe]
        row: list[int] = []
        if len(rest) < count:
            rest = []
        while rest and len(row) < count:
            pair = {int(draw.integers(len(rest))) for _ in range(2)}
            at = min(pair, key=lambda p: end_s[rest[p]] + stripe / rate[rest[p]])
            i = rest[at]
            rest[at] = rest[-1]
            rest.pop()
            row.append(i)
            end_s[i] += stripe / rate[i]
            room[i] -= stripe
        found.append(tuple(able[i].id for i in row))
    return Allocation(found)


TWO_CHOICES = Allocator("two-choices", Law.DISTINCT | Law.ROOM | Law.WHOLE, allocate)
