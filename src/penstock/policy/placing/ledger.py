# SPDX-License-Identifier: Apache-2.0
"""The ledger of promises: bytes that plans have put on targets and that the targets' figures do not show yet.

Figures of targets are up to a minute old.  A hundred jobs that start within that minute would all find the
same targets empty; with the promises added they do not.

A promise belongs to a run, and goes through these:

    event       while it stands                             while there is none
    promise     is replaced                                 stands until its expiry
    seen        shrinks by what the figures now show        nothing
    close       goes                                        nothing
    expire      goes when its time is over                  nothing

Invariants:
1. Outstanding bytes are finite and at least 0, whatever was promised or seen.
2. What is promised is outstanding until it is seen, closed or expired: events of one run touch no other's promise.
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


@dataclass(frozen=True)
class Ledger:
    """All promises, by run; when its keeper was last heard of."""

    runs: Mapping[str, Promise] = field(default_factory=dict)
    heard_s: float = -math.inf


def _clean(amounts: Mapping[int, float]) -> dict[int, float]:
    return {t: float(b) for t, b in amounts.items() if math.isfinite(b) and b > 0}


def promise(
    ledger: Ledger, run: str, amounts: Mapping[int, float], now_s: float, for_s: float = EXPIRY_S
) -> Ledger:
    """A plan was made for a run: its bytes are outstanding until they are seen, it closes, or time is over."""
    kept = _clean(amounts)
    runs = {**expire(ledger, now_s).runs}
    runs.pop(run, None)
    if kept and len(runs) < RUNS_MAX:
        runs[run] = Promise(kept, now_s + for_s)
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
            for target, amount in held.bytes.items():
                total[target] = total.get(target, 0.0) + amount
    return total


def sharers(ledger: Ledger, now_s: float) -> dict[int, int]:
    """By target how many runs have promises there."""
    count: dict[int, int] = {}
    for held in ledger.runs.values():
        if held.expires_s > now_s:
            for target in held.bytes:
                count[target] = count.get(target, 0) + 1
    return count


def kept(ledger: Ledger, now_s: float, within_s: float = HEARD_S) -> bool:
    """Was its keeper heard of lately?"""
    return 0 <= now_s - ledger.heard_s <= within_s
