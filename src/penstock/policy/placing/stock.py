# SPDX-License-Identifier: Apache-2.0
"""What a Lustre metadata server does by itself: round robin over an order that spreads servers, weighted by free
space once it is uneven.  A peer to compare with, and what unplaced files get.

Its counter is shared by all clients and begins anywhere, so the seed says where; `racy` files each begin anywhere,
which is what many clients that create at once amount to.  Full targets and unusable ones are passed over, nobody's
load is known, and its figures of free space are some seconds old: a burst does not see its own effect.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from penstock.policy.placing.contract import (
    Allocation,
    AllocationSettings,
    Allocator,
    Law,
    Requests,
    Target,
    usable,
)

WEIGHTED_FROM = 0.17  # (biggest free space less the smallest) over the biggest
PRIO_WIDE = 26 / 256  # 256 - 256 * 90 % of qos_prio_free, of 256


def spread_order(targets: Sequence[Target]) -> list[int]:
    """Positions of targets, those of one server spread evenly over the list; by index where there is one server."""
    by_server: dict[str, list[int]] = {}
    for i, t in enumerate(targets):
        by_server.setdefault(t.server, []).append(i)
    placed = [
        ((number + 0.5) / len(members), s, i)
        for s, members in enumerate(by_server.values())
        for number, i in enumerate(members)
    ]
    return [i for _, _, i in sorted(placed)]


class _Counter:
    """The running start: set anew now and then, shifted by one each time all targets were passed."""

    def __init__(self, targets: int, draw: np.random.Generator) -> None:
        self.n, self.draw = targets, draw
        self.start = self.shift = self.left = 0

    def next(self, count: int, racy: bool) -> int:
        self.left -= 1
        if racy or self.left <= 0:
            self.start = int(self.draw.integers(self.n))
            self.left = (2000 // self.n + 30) * self.n
        elif self.start >= self.n:
            self.start %= self.n
            if count > 1 and self.n % count != 1:
                self.shift += 1
        at = self.start + self.shift
        self.start += count
        return at


def allocate(
    requests: Requests, targets: Sequence[Target], settings: AllocationSettings, racy: bool = False
) -> Allocation:
    """Round robin, or by weight where free space differs by more than 17 %."""
    able = [t for t in usable(targets, requests.pool) if t.free_bytes > 0.001 * t.size_bytes]
    found: list[tuple[int, ...]] = [()] * len(requests)
    if not able:
        return Allocation(found)
    draw = np.random.default_rng(settings.seed)
    free = np.array([t.free_bytes for t in able])
    counts = np.minimum(requests.counts, len(able)).tolist()
    if len(able) > 1 and free.max() - free.min() > WEIGHTED_FROM * free.max():
        chosen = _weighted(counts, able, free, draw)
    else:
        order, counter = spread_order(able), _Counter(len(able), draw)
        starts = [counter.next(count, racy) for count in counts]
        chosen = [
            [order[(at + j) % len(able)] for j in range(count)]
            for at, count in zip(starts, counts, strict=True)
        ]
    return Allocation([tuple(able[i].id for i in row) for row in chosen])


def _weighted(
    counts: list[int], able: Sequence[Target], free: np.ndarray, draw: np.random.Generator
) -> list[list[int]]:
    """By chance in proportion to free space less a penalty for what was used lately."""
    names = sorted({t.server for t in able})
    server = np.array([names.index(t.server) for t in able])
    n, m = len(able), len(names)
    step = PRIO_WIDE * free / 2 / (n - 1) * (2 if m == 1 else 1)
    server_free = np.bincount(server, free, m)
    server_step = PRIO_WIDE * server_free / (n * max(m - 1, 1)) / 2
    penalty, server_penalty = np.zeros(n), np.zeros(m)
    rows = []
    for count in counts:
        weight = np.maximum(free - penalty - server_penalty[server], 0.0)
        row: list[int] = []
        for _ in range(count):
            total = float(weight.sum())
            if total > 0:
                i = int(np.searchsorted(np.cumsum(weight), draw.uniform(0, total)))
            else:
                i = next(j for j in range(n) if j not in row)
            i = min(i, n - 1)
            row.append(i)
            weight[i] = 0.0
            penalty = np.maximum(penalty - step, 0.0)
            server_penalty = np.maximum(server_penalty - server_step, 0.0)
            penalty[i] = penalty[i] / 2 + step[i] * n
            server_penalty[server[i]] = server_penalty[server[i]] / 2 + server_step[server[i]] * m
        rows.append(row)
    return rows


LAWS = Law.DISTINCT | Law.WHOLE
STOCK = Allocator("stock", LAWS | Law.BALANCED, allocate)
RACY = Allocator("stock at once", LAWS, partial(allocate, racy=True))
