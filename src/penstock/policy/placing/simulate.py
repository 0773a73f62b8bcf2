# SPDX-License-Identifier: Apache-2.0
"""What-if: jobs that place files on targets under each allocator; balance and time of a simple model.  Pure.

The model: a target's time is what lies on it over what is left of its bandwidth; a server's what lies on its targets
over its own; the makespan is the longest of these, and the ideal is all bytes over all bandwidth.  OSTCost is the
largest load of a target over the mean.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.policy.placing import ALLOCATORS, ledger, stock
from penstock.policy.placing.contract import (
    Allocate,
    Allocation,
    AllocationSettings,
    Floats,
    Requests,
    Target,
    available_bytes_per_s,
)

GB = 1e9


@dataclass(frozen=True)
class System:
    """Targets, numbered server by server, and what is known of them."""

    targets: int = 15
    servers: int = 3
    size_bytes: float = 10 * GB
    rate_bytes_per_s: float = 200e6
    server_bytes_per_s: float = 800e6
    used: tuple[float, float] = (0.0, 0.0)  # each target's filling is drawn from between these
    busy: int = 0  # so many targets are half busy with others

    def draw(self, chance: np.random.Generator) -> list[Target]:
        used = chance.uniform(*self.used, self.targets)
        shares = chance.permutation([0.5] * self.busy + [0.0] * (self.targets - self.busy))
        return [
            Target(
                i,
                f"oss{i * self.servers // self.targets}",
                self.size_bytes,
                self.size_bytes * (1 - used[i]),
                self.rate_bytes_per_s,
                float(shares[i]),
            )
            for i in range(self.targets)
        ]


@dataclass(frozen=True)
class Job:
    """Files of one job.  `mixed`: sizes are lognormal round their mean, half the bytes, and counts 1, 2, 4 or 8."""

    files: int
    bytes: float
    stripes: int
    mixed: bool = False

    def draw(self, chance: np.random.Generator) -> Requests:
        if not self.mixed:
            return Requests(
                np.full(self.files, self.bytes / self.files),
                np.full(self.files, self.stripes, dtype=np.int64),
            )
        share = np.minimum(chance.lognormal(0, 1, self.files), 6)
        return Requests(
            share * 0.5 * self.bytes / share.sum(), chance.choice([1, 2, 4, 8], self.files).astype(np.int64)
        )


PUBLISHED = {
    "8 files of 8 stripes": Job(8, 16 * GB, 8),
    "16 files of 8 stripes": Job(16, 32 * GB, 8),
    "64 files of 8 stripes": Job(64, 64 * GB, 8),
    "64 files of 4 stripes": Job(64, 64 * GB, 4),
    "8 files, 4 GB": Job(8, 4 * GB, 8),
    "16 files, 7.7 GB": Job(16, 7.7 * GB, 8),
    "32 files, 13.5 GB": Job(32, 13.5 * GB, 8),
    "a shared file of 8 stripes": Job(1, 16 * GB, 8),
}


@dataclass(frozen=True)
class Score:
    """How one draw came out."""

    ostcost: float
    server: float  # the most loaded server over the mean
    makespan: float  # over the ideal
    floor: float  # the OSTCost that whole stripes allow
    full: int  # targets with more than they hold


def score(targets: Sequence[Target], load: Floats, server_rate: float, stripes: int = 0) -> Score:
    """Of bytes by target."""
    rate = np.array([available_bytes_per_s(t) for t in targets])
    names = {s: i for i, s in enumerate(sorted({t.server for t in targets}))}
    server = np.array([names[t.server] for t in targets])
    by_server = np.bincount(server, load)
    together = (
        np.minimum(np.bincount(server, rate), server_rate) if server_rate else np.bincount(server, rate)
    )
    slowest = max(float((load / rate).max()), float((by_server / together).max()))
    each = stripes / len(targets) if stripes else 1.0
    held = np.array([t.free_bytes for t in targets])
    return Score(
        float(load.max() / load.mean()),
        float(by_server.max() / by_server.mean()),
        slowest / float(load.sum() / together.sum()),
        float(np.ceil(each) / each),
        int((load > held * 1.0001).sum()),
    )


def loads(requests: Requests, found: Allocation, targets: Sequence[Target]) -> Floats:
    """Bytes by target; what has no targets is spread by the stock allocator's chance: it is not lost."""
    at = {t.id: i for i, t in enumerate(targets)}
    load = np.zeros(len(targets))
    for size, row in zip(requests.bytes.tolist(), found.targets, strict=True):
        for target in row:
            load[at[target]] += size / len(row)
        if not row:
            load += size / len(targets)
    return load


@dataclass(frozen=True)
class What:
    """What is simulated."""

    system: System
    jobs: tuple[Job, ...]
    draws: int = 40
    seed: int = 1
    error: float = 0.0  # of predicted sizes, lognormal
    widen: int = 0
    together: bool = False  # the jobs are planned as one; else one after another, with promises


def _allocate(name: str) -> Allocate:
    return stock.RACY.allocate if name == stock.RACY.name else ALLOCATORS[name].allocate


def _joined(parts: Sequence[Requests]) -> Requests:
    return Requests(np.concatenate([p.bytes for p in parts]), np.concatenate([p.counts for p in parts]))


def play(what: What, name: str) -> list[Score]:
    """All draws under one allocator."""
    scores = []
    for draw in range(what.draws):
        chance = np.random.default_rng([what.seed, draw])
        targets = what.system.draw(chance)
        load = np.zeros(len(targets))
        stripes = 0
        seen = targets
        settings = AllocationSettings(what.system.server_bytes_per_s, seed=draw, widen=what.widen)
        drawn = [job.draw(chance) for job in what.jobs]
        for requests in [_joined(drawn)] if what.together else drawn:
            wrong = chance.lognormal(-(what.error**2) / 2, what.error, len(requests)) if what.error else 1.0
            guess = Requests(requests.bytes * wrong, requests.counts)
            found = _allocate(name)(guess, seen, settings)
            more = loads(requests, found, targets)
            load += more
            stripes += sum(len(row) for row in found.targets)
            seen = [
                replace(t, promised_bytes=t.promised_bytes + b)
                for t, b in zip(seen, more.tolist(), strict=True)
            ]
        scores.append(score(targets, load, what.system.server_bytes_per_s, stripes))
    return scores


def burst(name: str, kept: bool, draws: int, seed: int = 1, jobs: int = 100) -> list[float]:
    """A hundred jobs at once on a view of the targets that is a minute old: makespan over the ideal."""
    results = []
    for draw in range(draws):
        chance = np.random.default_rng([seed, draw])
        queue = chance.exponential(2 * GB, 60)
        used = chance.uniform(0.3, 0.5, 60) * 400 * GB
        old = queue * chance.uniform(0.5, 1.5, 60)
        load, book = queue.copy(), ledger.Ledger()
        view = [
            Target(i, f"oss{i // 5}", 400 * GB, 400 * GB - used[i], promised_bytes=float(old[i]))
            for i in range(60)
        ]
        for job in range(jobs):
            files, stripes = int(chance.choice([4, 8, 16, 32])), int(chance.choice([1, 2, 4, 8]))
            size = float(chance.lognormal(np.log(0.2 * GB), 0.7))
            requests = Requests(np.full(files, size), np.full(files, stripes, dtype=np.int64))
            promised = ledger.outstanding(book, 0.0) if kept else {}
            seen = [replace(t, promised_bytes=t.promised_bytes + promised.get(t.id, 0.0)) for t in view]
            found = _allocate(name)(requests, seen, AllocationSettings(800e6, seed=draw * 1000 + job))
            more = loads(requests, found, view)
            load += more
            book = ledger.promise(book, str(job), {i: float(b) for i, b in enumerate(more)}, 0.0)
        results.append(float(load.max() / load.mean()))
    return results


def mean(scores: Sequence[Score], of: Callable[[Score], float]) -> tuple[float, float]:
    """Mean and 95th percentile of a figure."""
    values = [of(s) for s in scores]
    return float(np.mean(values)), float(np.percentile(values, 95))
