# SPDX-License-Identifier: Apache-2.0
"""Policies to compare with: DCA-IO as it is meant and as it is printed, TAPP-IO, fixed, the default.

DCA-IO.  First run: among records with the same number of processes the count with the best mean rate, and on its own
the size with the best.  Second: one stripe for own files, as many as processes for a shared one, 1 MiB.  Then, as
meant: the count is doubled as long as each run is quicker than the one before, one step back, the size likewise, and
that stays.  As printed: a quicker run doubles the count, and the size only where the count could not be doubled;
nothing ever goes back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.policy.tuning.contract import (
    MIB,
    SIZES,
    Decision,
    Law,
    Layout,
    Observation,
    Policy,
    State,
    TuneSettings,
    lessons,
)

LAWS = Law.LEGAL | Law.STEADY


def _plain(seen: Observation, layout: Layout, why: str) -> Decision:
    near = seen.grid.layouts[seen.grid.nearest(layout.count, layout.size_bytes)]
    return Decision(near, near, False, 1.0, 1.0, why)


def default(seen: Observation, settings: TuneSettings, state: State = None) -> tuple[Decision, State]:
    """What the folder says."""
    layout = seen.grid.default
    return Decision(layout, layout, False, 1.0, 1.0, "the default"), state


def fixed(seen: Observation, settings: TuneSettings, state: State = None) -> tuple[Decision, State]:
    """What the settings say, to the byte; no more stripes than there are targets."""
    layout = Layout(min(settings.fixed.count, seen.grid.targets), settings.fixed.size_bytes)
    return Decision(layout, layout, False, 1.0, 1.0, "fixed by the settings"), state


def _tapp_layout(seen: Observation) -> Layout:
    return Layout(min(seen.context.processes, seen.grid.targets) if seen.context.shared else 1, MIB)


def tapp(seen: Observation, settings: TuneSettings, state: State = None) -> tuple[Decision, State]:
    """By the kind of file alone."""
    kind = "shared: as many stripes as processes" if seen.context.shared else "own files: one stripe"
    return _plain(seen, _tapp_layout(seen), kind), state


@dataclass(frozen=True)
class Climb:
    """Where DCA-IO's climbing stands."""

    layout: Layout
    moving: str = "count"  # then "size", then "frozen"


def _first(seen: Observation) -> Layout:
    """The best count and the best size on the mean, each on its own, among runs with the same number of processes."""
    rows = [o for o in seen.others if o.rate_bytes_per_s > 0]
    same = [o for o in rows if o.context.processes == seen.context.processes] or rows
    if not same:
        return seen.grid.default

    def best(pairs: Sequence[tuple[int, float]]) -> int:
        values = sorted({value for value, _ in pairs})
        mean = {v: [r for w, r in pairs if w == v] for v in values}
        return max(values, key=lambda v: sum(mean[v]) / len(mean[v]))

    return Layout(
        best([(o.layout.count, o.rate_bytes_per_s) for o in same]),
        best([(o.layout.size_bytes, o.rate_bytes_per_s) for o in same]),
    )


def _dca(seen: Observation, state: Climb | None, literal: bool) -> tuple[Decision, Climb | None]:
    rates = [s.rate_bytes_per_s for s in lessons(seen.samples)]
    if not rates:
        return _plain(
            seen, _first(seen), "first run: the best on the mean with this number of processes"
        ), None
    if len(rates) == 1 or state is None:
        second = Climb(_tapp_layout(seen))
        return _plain(seen, second.layout, "second run: by the kind of file"), second
    up = rates[-1] > rates[-2]
    after = (
        _printed(state, up, seen.grid.targets)
        if literal
        else _meant(state, up, len(rates), seen.grid.targets)
    )
    word = "quicker" if up else "not quicker"
    return _plain(seen, after.layout, f"the last run was {word} than the one before; {after.moving}"), after


def _printed(at: Climb, up: bool, most: int) -> Climb:
    if not up:
        return at
    count = min(at.layout.count * 2, most)
    size = min(at.layout.size_bytes * 2, SIZES[-1]) if count == at.layout.count else at.layout.size_bytes
    return Climb(Layout(count, size), "count")


def _meant(at: Climb, up: bool, runs: int, most: int) -> Climb:
    count, size = at.layout.count, at.layout.size_bytes
    if at.moving == "count" and up and count < most:
        return Climb(Layout(min(count * 2, most), size), "count")
    if at.moving == "count":
        back = count if up or runs == 2 else max(1, count // 2)
        return Climb(Layout(back, size * 2), "size")
    if at.moving == "size" and up and size < SIZES[-1]:
        return Climb(Layout(count, size * 2), "size")
    if at.moving == "size":
        return Climb(Layout(count, size if up else max(MIB, size // 2)), "frozen")
    return at


def dca(seen: Observation, settings: TuneSettings, state: State = None) -> tuple[Decision, State]:
    """DCA-IO as its text means it."""
    return _dca(seen, state, literal=False)


def dca_printed(seen: Observation, settings: TuneSettings, state: State = None) -> tuple[Decision, State]:
    """DCA-IO as its listing is printed."""
    return _dca(seen, state, literal=True)


DEFAULT = Policy("default", LAWS | Law.FIRST | Law.SAFE, default)
FIXED = Policy("fixed", Law.STEADY, fixed)
TAPP = Policy("tapp", LAWS, tapp)
DCA = Policy("dca", LAWS, dca)
DCA_PRINTED = Policy("dca-printed", LAWS, dca_printed)
