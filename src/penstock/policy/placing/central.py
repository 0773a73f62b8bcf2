# SPDX-License-Identifier: Apache-2.0
"""One planner for a site: which targets the files of a run get, from what agents tell and from one ledger of all jobs.

The run itself knows what it is expected to create; names stay with it.  What is asked here are columns of numbers
(`Wanted`), what is answered are targets (`Allotted`), from which the run makes its plan (planning.py, `given`).

    decide(wanted, figures, ledger, run, now_s, settings) -> (Allotted, ledger)

Invariants:
1. Whoever is refused (`why`) was promised nothing.
2. What is promised is what the answer places, to the byte.
3. Figures older than STALE_S are none; without any nothing is placed by them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from penstock.policy import guard
from penstock.policy.placing import ALLOCATORS, planning
from penstock.policy.placing import ledger as books
from penstock.policy.placing.contract import ALLOCATION, AllocationSettings, Ints, Requests, Situation, Target

STALE_S = 180.0
FILES_MAX = 20_000  # of one question: a tenth of a second
ABSURD_BYTES = float(1 << 60)


@dataclass(frozen=True)
class Figures:
    """What one agent told of a file system's targets; times by the planner's clock."""

    at_s: float
    targets: tuple[Target, ...]
    moved: Mapping[int, float]  # bytes a second by target, as far as this agent can count
    whole: bool  # the servers' own counts: everybody's traffic; else this node's share
    mds: tuple[guard.Busy, ...] = ()  # their age as of at_s


@dataclass(frozen=True)
class Wanted:
    """Files in columns, alike ones in one row.  `pool`: 0 any target, else 1 + index in `pools`."""

    bytes: np.ndarray  # of each file
    count: Ints  # stripes
    files: Ints  # how many alike
    pool: Ints
    fixed: np.ndarray
    pools: tuple[str, ...] = ()


class Allotted(NamedTuple):
    """By row of what was wanted: the targets of each of its files (empty: none could be found)."""

    why: str = ""  # nothing is placed, and this is why
    age_s: float = 0.0  # of the figures
    targets: tuple[tuple[tuple[int, ...], ...], ...] = ()
    spare: tuple[int, ...] = ()
    promises: Mapping[int, float] = {}


@dataclass(frozen=True)
class CentralSettings:
    allocator: str = "finish"
    allocation: AllocationSettings = ALLOCATION
    target_rate_bytes_per_s: float = float(200 << 20)
    busy_from: guard.GuardSettings = guard.DEFAULTS
    promise_s: float = books.EXPIRY_S


DEFAULTS = CentralSettings()


def wrong(wanted: Wanted) -> str:
    """What in a question is absurd; nothing if it makes sense."""
    rows = len(wanted.bytes)
    if not all(len(column) == rows for column in (wanted.count, wanted.files, wanted.pool, wanted.fixed)):
        return "its columns are not of one length"
    if not rows:
        return ""
    if not ((wanted.bytes >= 0) & (wanted.bytes <= ABSURD_BYTES)).all():
        return "a file's size is absurd"
    if int(wanted.files.min()) < 1 or int(wanted.files.sum()) > FILES_MAX:
        return f"it is for no files or for more than {FILES_MAX}"
    if int(wanted.count.min()) < 1 or int(wanted.count.max()) > 1 << 16:
        return "a number of stripes is absurd"
    if int(wanted.pool.min()) < 0 or int(wanted.pool.max()) > len(wanted.pools):
        return "it names a pool that it does not have"
    return ""


def site_targets(figures: Sequence[Figures], rate_bytes_per_s: float, now_s: float) -> list[Target]:
    """The newest figures' targets; how busy each is by the servers' counts, else by all nodes' together."""
    newest = max(figures, key=lambda f: f.at_s)
    whole = [f for f in figures if f.whole]
    counted = [max(whole, key=lambda f: f.at_s)] if whole else figures
    moved: dict[int, float] = {}
    for f in counted:
        for target, rate in f.moved.items():
            moved[target] = moved.get(target, 0.0) + rate
    return [
        replace(
            t,
            rate_bytes_per_s=rate_bytes_per_s,
            busy=min(moved.get(t.id, 0.0) / rate_bytes_per_s, 1.0),
            age_s=now_s - newest.at_s,
        )
        for t in newest.targets
    ]


def _objection(figures: Sequence[Figures], now_s: float, settings: guard.GuardSettings) -> str:
    """Why the metadata servers say no; where nobody can see them, nobody objects."""
    seen = [f for f in figures if f.mds]
    if not seen:
        return ""
    newest = max(seen, key=lambda f: f.at_s)
    servers = tuple(replace(m, age_s=m.age_s + now_s - newest.at_s) for m in newest.mds)
    decision, _ = guard.decide(guard.Observation(servers), settings)
    return "" if decision.allowed else decision.why


def decide(
    wanted: Wanted,
    figures: Sequence[Figures],
    ledger: books.Ledger,
    run: str,
    now_s: float,
    settings: CentralSettings = DEFAULTS,
) -> tuple[Allotted, books.Ledger]:
    """Targets for a run's files, promised to it."""
    fresh = [f for f in figures if 0 <= now_s - f.at_s <= STALE_S]
    said = wrong(wanted)
    if said or not fresh:
        return Allotted(said or "no agent has told of its targets lately"), ledger
    said = _objection(fresh, now_s, settings.busy_from)
    if said:
        return Allotted(said), ledger
    targets = site_targets(fresh, settings.target_rate_bytes_per_s, now_s)
    free = {t.id: t.free_bytes for t in targets}
    held = books.look(replace(books.expire(ledger, now_s), heard_s=now_s), free)
    situation = planning.with_ledger(Situation("", now_s, targets), held)
    before = {t.id: t.promised_bytes for t in situation.targets}
    found: list[tuple[tuple[int, ...], ...]] = [()] * len(wanted.bytes)
    now = list(situation.targets)
    for pool in sorted(set(wanted.pool.tolist())):
        rows = np.flatnonzero(wanted.pool == pool)
        of = np.repeat(rows, wanted.files[rows])
        requests = Requests(
            np.maximum(wanted.bytes[of], 1.0),
            wanted.count[of],
            wanted.pools[pool - 1] if pool else "",
            wanted.fixed[of],
        )
        given = planning.whole(
            ALLOCATORS[settings.allocator].allocate(requests, now, settings.allocation), of.tolist()
        )
        now = planning.loaded(now, requests, given)
        at = 0
        for row, files in zip(rows.tolist(), wanted.files[rows].tolist(), strict=True):
            found[row] = tuple(given.targets[at : at + files])
            at += files
    promises = {t.id: t.promised_bytes - before[t.id] for t in now if t.promised_bytes > before[t.id]}
    answer = Allotted("", now_s - max(f.at_s for f in fresh), tuple(found), planning.spare(now), promises)
    return answer, books.promise(held, run, promises, now_s, settings.promise_s, free)
