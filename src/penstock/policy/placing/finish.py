# SPDX-License-Identifier: Apache-2.0
"""The default allocator: largest stripes first, each to the target where it would be finished first.

A stripe's finish time on a target is what is queued there and the stripe itself over what is left of the target's
bandwidth, or the same of its server where that is later.  A tenth of the server's booked time is added: of two
equal targets the one on the emptier server is taken, also within one file.  Where targets are filled unequally, their
filling counts too.  With equal stripes no exact solver can do better.

How: a heap of the targets of each server, and one of the servers by their best target.  Only what an assignment
touches is renewed.  Keys hold for one size of stripe; all are made anew when stripes have become a quarter
smaller, so a target's own speed is weighed with a size that is right to a quarter.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from penstock.policy.placing.contract import (
    ALL_LAWS,
    Allocation,
    AllocationSettings,
    Allocator,
    Requests,
    Target,
    available_bytes_per_s,
    room_bytes,
    usable,
)

SERVER_WEIGHT = 0.1
RENEW = 0.75


class _Heaps:
    """Targets by the time at which a stripe of `size_bytes` would be finished there."""

    def __init__(self, targets: Sequence[Target], settings: AllocationSettings) -> None:
        names = sorted({t.server for t in targets})
        self.server = [names.index(t.server) for t in targets]
        self.rate = [available_bytes_per_s(t) for t in targets]
        self.end_s = [max(t.promised_bytes, 0.0) / r for t, r in zip(targets, self.rate, strict=True)]
        self.room = [room_bytes(t, settings.reserve) for t in targets]
        together = [0.0] * len(names)
        booked = [0.0] * len(names)
        for i, s in enumerate(self.server):
            together[s] += self.rate[i]
            booked[s] += max(targets[i].promised_bytes, 0.0)
        own = settings.server_rate_bytes_per_s
        self.server_rate = [min(own, rate) if own > 0 else rate for rate in together]
        self.server_s = [b / r for b, r in zip(booked, self.server_rate, strict=True)]
        self.per_byte_s = _space_price(targets, settings, self.end_s)
        self.space_s = [
            (1 - t.free_bytes / t.size_bytes) * t.size_bytes * price if t.size_bytes else 0.0
            for t, price in zip(targets, self.per_byte_s, strict=True)
        ]
        least = min(self.space_s, default=0.0)
        self.space_s = [value - least for value in self.space_s]
        self.size_bytes = 0.0
        self.least_bytes = 0.0
        self.heaps: list[list[tuple[float, int]]] = [[] for _ in names]
        self.version = [0] * len(names)
        self.servers: list[tuple[float, int, int]] = []

    def _key(self, i: int) -> float:
        return self.end_s[i] + self.size_bytes / self.rate[i] + self.space_s[i]

    def renew(self, size_bytes: float) -> None:
        """All keys for stripes of this size."""
        self.size_bytes = size_bytes
        self.heaps = [[] for _ in self.heaps]
        for i, s in enumerate(self.server):
            if self.room[i] >= self.least_bytes:
                self.heaps[s].append((self._key(i), i))
        for heap in self.heaps:
            heapify(heap)
        self.version = [0] * len(self.heaps)
        self.servers = [(self._server_key(s), s, 0) for s, heap in enumerate(self.heaps) if heap]
        heapify(self.servers)

    def _server_key(self, s: int) -> float:
        booked = self.server_s[s]
        return (
            max(self.heaps[s][0][0], booked + self.size_bytes / self.server_rate[s]) + SERVER_WEIGHT * booked
        )

    def _place_again(self, s: int) -> None:
        self.version[s] += 1
        if self.heaps[s]:
            heappush(self.servers, (self._server_key(s), s, self.version[s]))

    def take(self, count: int, size_bytes: float) -> list[int]:
        """The best `count` targets for stripes of `size_bytes`, booked; none if not so many have room."""
        taken: list[int] = []
        too_full: list[int] = []
        while len(taken) < count and self.servers:
            _, s, version = heappop(self.servers)
            if version != self.version[s]:
                continue
            _, i = heappop(self.heaps[s])
            if self.room[i] >= size_bytes:
                taken.append(i)
                self.server_s[s] += size_bytes / self.server_rate[s]
            else:
                too_full.append(i)
            self._place_again(s)
        if len(taken) < count:
            for i in taken:
                self.server_s[self.server[i]] -= size_bytes / self.server_rate[self.server[i]]
            taken, too_full = [], taken + too_full
        for i in taken:
            self.end_s[i] += size_bytes / self.rate[i]
            self.space_s[i] += size_bytes * self.per_byte_s[i]
            self.room[i] -= size_bytes
        for i in taken + too_full:
            if self.room[i] >= self.least_bytes:
                heappush(self.heaps[self.server[i]], (self._key(i), i))
        for s in {self.server[i] for i in taken + too_full}:
            self._place_again(s)
        return taken


def _space_price(targets: Sequence[Target], settings: AllocationSettings, end_s: list[float]) -> list[float]:
    """Seconds that a byte on each target counts for filling it; nothing where all are filled about equally."""
    used = [1 - t.free_bytes / t.size_bytes for t in targets if t.size_bytes > 0]
    if not used or max(used) - min(used) <= settings.space_from:
        return [0.0] * len(targets)
    whole_s = settings.space_weight * (1 + max(end_s))
    return [whole_s / t.size_bytes if t.size_bytes > 0 else 0.0 for t in targets]


def widened(requests: Requests, targets: int, most: int) -> Requests:
    """The last few files of equal size get more stripes, so that the last round over the targets comes out even."""
    if not most or not len(requests) or (requests.fixed is not None and bool(requests.fixed.any())):
        return requests
    stripe = requests.stripe_bytes
    if float(stripe.max()) > 1.05 * float(stripe.min()):
        return requests
    counts = np.minimum(requests.counts, targets)
    for i in range(len(counts) - 1, max(-1, len(counts) - 1 - most), -1):
        counts[i] += min(targets - int(counts[i]), int(-counts.sum() % targets))
    return Requests(requests.bytes, counts, requests.pool)


def allocate(requests: Requests, targets: Sequence[Target], settings: AllocationSettings) -> Allocation:
    """Largest stripes first, each to where it is finished first."""
    able = usable(targets, requests.pool)
    found: list[tuple[int, ...]] = [()] * len(requests)
    if not able or not len(requests):
        return Allocation(found)
    requests = widened(requests, len(able), settings.widen)
    counts = np.minimum(requests.counts, len(able))
    stripes = requests.bytes / np.maximum(counts, 1)
    heaps = _Heaps(able, settings)
    ids = [t.id for t in able]
    order = np.argsort(-stripes, kind="stable")
    heaps.least_bytes = float(stripes[order[-1]])
    heaps.renew(float(stripes[order[0]]))
    for i, size, count in zip(order.tolist(), stripes[order].tolist(), counts[order].tolist(), strict=True):
        if size < heaps.size_bytes * RENEW:
            heaps.renew(size)
        found[i] = tuple(ids[j] for j in heaps.take(count, size))
    return Allocation(found)


FINISH = Allocator("finish", ALL_LAWS, allocate)
