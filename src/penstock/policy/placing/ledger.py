# SPDX-License-Identifier: Apache-2.0
"""The ledger of promises: bytes that plans have put on targets and that the targets' figures do not show yet.

Figures of targets are up to a minute old.  A hundred jobs that start within that minute would all find the
same targets empty; with the promises added they do not.

A promise belongs to a run, and goes through these:

    event       while it stands                             while there is none
    promise     is replaced                                 stands until its expiry
    seen        shrinks by what the figures now show        nothing
    look        part of it is written: of what the targets' nothing
                free bytes fell since the last look
    close       goes                                        nothing
    expire      goes when its time is over                  nothing

Invariants:
1. Outstanding bytes are finite and at least 0, whatever was promised or seen.
2. What is promised is outstanding until it is seen, closed or expired: events of one run touch no other's promise.
   What is written of it (`written`) takes no room twice, but the run goes on: it is outstanding until the run is over.
   A look finds no more written on a target than it fell, below the least that it had free since it was promised.
3. Without a keeper who was heard of lately nobody may rely on it (`kept`): planners take two random choices then.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

EXPIRY_S = 3600.0
HEARD_S = 120.0
RUNS_MAX = 100_000


@dataclass(frozen=True)
class Promise:
    """What one run was promised, by target."""

    bytes: Mapping[int, float]
    expires_s: float
    free: Mapping[int, float] = field(default_factory=dict)  # of the targets, the least since then
    written: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ledger:
    """All promises, by run; when its keeper was last heard of."""

    runs: Mapping[str, Promise] = field(default_factory=dict)
    heard_s: float = -math.inf


def _clean(amounts: Mapping[int, float]) -> dict[int, float]:
    return {t: float(b) for t, b in amounts.items() if math.isfinite(b) and b > 0}


def promise(
    ledger: Ledger,
    run: str,
    amounts: Mapping[int, float],
    now_s: float,
    for_s: float = EXPIRY_S,
    free: Mapping[int, float] | None = None,
) -> Ledger:
    """A plan was made for a run: its bytes are outstanding until they are seen, it closes, or time is over.
    `free`: what the targets had free in the figures of the plan."""
    kept = _clean(amounts)
    runs = {**expire(ledger, now_s).runs}
    runs.pop(run, None)
    if kept and len(runs) < RUNS_MAX:
        marks = {t: free[t] for t in kept if t in free and math.isfinite(free[t])} if free else {}
        runs[run] = Promise(kept, now_s + for_s, marks)
    return Ledger(runs, max(ledger.heard_s, now_s))


def seen(ledger: Ledger, run: str, amounts: Mapping[int, float]) -> Ledger:
    """So many more of a run's bytes are in the targets' figures now."""
    held = ledger.runs.get(run)
    if held is None:
        return ledger
    gone = _clean(amounts)
    left = _clean({t: b - gone.get(t, 0.0) for t, b in held.bytes.items()})
    runs = {**ledger.runs, run: replace(held, bytes=left)}
    if not left:
        del runs[run]
    return replace(ledger, runs=runs)


def look(ledger: Ledger, free: Mapping[int, float]) -> Ledger:
    """The targets have so many bytes free now: what each fell is what its runs wrote, in proportion to what they had
    yet to write.  Whose bytes they really were nobody knows; where as much was freed meanwhile, nothing is found."""
    now = {t: b for t, b in free.items() if math.isfinite(b)}
    left = {
        run: {t: b - held.written.get(t, 0.0) for t, b in held.bytes.items()}
        for run, held in ledger.runs.items()
    }
    total: dict[int, float] = {}
    for amounts in left.values():
        _add(total, amounts)
    runs = {}
    for run, held in ledger.runs.items():
        wrote = dict(held.written)
        for target, rest in left[run].items():
            fell = held.free.get(target, -math.inf) - now.get(target, math.inf)
            if fell > 0 and rest > 0:
                wrote[target] = held.bytes[target] - rest + min(rest, fell * (rest / total[target]))
        least = {t: min(held.free.get(t, math.inf), now[t]) for t in held.bytes if t in now}
        runs[run] = replace(held, free={**held.free, **least}, written=wrote)
    return replace(ledger, runs=runs)


def _add(total: dict[int, float], amounts: Mapping[int, float]) -> None:
    for target, amount in amounts.items():
        total[target] = total.get(target, 0.0) + amount


def close(ledger: Ledger, run: str) -> Ledger:
    """A run ended: what it did not write it will not."""
    return replace(ledger, runs={r: p for r, p in ledger.runs.items() if r != run})


def expire(ledger: Ledger, now_s: float) -> Ledger:
    """Promises whose time is over are gone."""
    return replace(ledger, runs={r: p for r, p in ledger.runs.items() if p.expires_s > now_s})


def outstanding(ledger: Ledger, now_s: float) -> dict[int, float]:
    """Bytes by target that are promised and not yet seen."""
    total: dict[int, float] = {}
    for held in ledger.runs.values():
        if held.expires_s > now_s:
            _add(total, held.bytes)
    return total


def written(ledger: Ledger, now_s: float) -> dict[int, float]:
    """Bytes by target that are outstanding, and of which a look found that they take room already."""
    total: dict[int, float] = {}
    for held in ledger.runs.values():
        if held.expires_s > now_s:
            _add(total, {t: min(b, held.bytes.get(t, 0.0)) for t, b in held.written.items()})
    return total


def kept(ledger: Ledger, now_s: float, within_s: float = HEARD_S) -> bool:
    """Was its keeper heard of lately?"""
    return 0 <= now_s - ledger.heard_s <= within_s
