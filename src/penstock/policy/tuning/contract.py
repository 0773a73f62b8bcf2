# SPDX-License-Identifier: Apache-2.0
"""What tuning takes and gives: from earlier runs, the stripe count and size of the next one.

    decide(observation, settings, state) -> (decision, state)

Laws, of which each policy names those that it holds:
    LEGAL       the layout is of the grid
    SAFE        no layout is chosen to explore whose cautious estimate is below `safety` times the default's
    STEADY      samples of failed or degraded runs, and rates that are no rates, change nothing
    FIRST       the first run of a program is the default: what everything else is measured against
Rates are bytes a second; a sample's rate is bytes over the time of the slowest process.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from functools import cached_property
from typing import Any

import numpy as np

from penstock.policy.placing.contract import Floats

MIB = 1 << 20
SIZES = tuple(MIB << i for i in range(7))


class Law(Flag):
    LEGAL = auto()
    SAFE = auto()
    STEADY = auto()
    FIRST = auto()


@dataclass(frozen=True, slots=True)
class Layout:
    count: int
    size_bytes: int


@dataclass(frozen=True)
class Context:
    """What is known of a kind of run before it starts: who writes how much in which pieces."""

    processes: int = 1
    shared: bool = False
    bytes: float = 1e9  # of a run
    request_bytes: float = float(MIB)

    @cached_property
    def place(self) -> tuple[float, float, float, float]:
        """Where it stands among others, in doublings."""
        return (
            math.log2(max(self.processes, 1)),
            math.log2(max(self.bytes, 1.0)),
            math.log2(max(self.request_bytes, 1.0)),
            float(self.shared),
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """What one run (or one group of its files) showed of one layout."""

    layout: Layout
    rate_bytes_per_s: float
    context: Context
    run: str = ""
    load: float = 0.0  # the share of the targets that others used meanwhile
    teaches: bool = True  # False: failed, partial, on degraded targets


@dataclass(frozen=True)
class Grid:
    """The layouts to choose among: counts doubled up to all targets, sizes doubled."""

    targets: int
    default: Layout = Layout(1, MIB)

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        counts = {1 << i for i in range(20) if 1 << i <= self.targets} | {max(self.targets, 1)}
        found = [Layout(c, s) for c in sorted(counts) for s in SIZES]
        return tuple(found) if self.default in found else (self.default, *found)

    @cached_property
    def x(self) -> Floats:
        """By layout: log2 of count and of size in MiB."""
        return np.array([(math.log2(a.count), math.log2(a.size_bytes / MIB)) for a in self.layouts])

    @cached_property
    def default_index(self) -> int:
        return self.layouts.index(self.default)

    def nearest(self, count: float, size_bytes: float) -> int:
        """The layout of the grid next to this one; the count matters first."""
        count = min(max(count, 1.0), float(self.targets))
        size_bytes = min(max(size_bytes, 1.0), float(1 << 40))
        away = np.abs(self.x - [math.log2(count), math.log2(size_bytes / MIB)])
        return int(np.argmin(away[:, 0] * 100 + away[:, 1]))


@dataclass(frozen=True)
class Fleet:
    """What many programs have shown together: weights of `features` (prior.py)."""

    weights: tuple[float, ...]
    jobs: int


@dataclass(frozen=True)
class Observation:
    """What is known before a run.  `samples` are the program's own, oldest first; `others` those of other programs, in
    multiples of their own defaults' rates (`log_ratio`)."""

    grid: Grid
    context: Context
    samples: Sequence[Sample] = ()
    others: Sequence["Other"] = ()
    fleet: Fleet | None = None


@dataclass(frozen=True, slots=True)
class Other:
    """A layout as another program's run showed it."""

    layout: Layout
    context: Context
    rate_bytes_per_s: float
    log_ratio: float | None = None  # over that program's own default; None: it never ran with the default


@dataclass(frozen=True)
class TuneSettings:
    safety: float = 0.9
    caution: float = 1.0  # standard deviations taken off an estimate before it is held against the safety
    caution_alone: float = (
        0.1  # the same where no fleet has taught the prior: else nothing would ever be tried
    )
    budget: int = 20  # exploratory runs of a program
    freeze_gain: float = 0.0  # no more exploring below this expected gain
    fixed: Layout = Layout(1, MIB)
    noise: float = 0.2
    fleet_from: int = 20  # explored jobs that a fleet's prior needs


@dataclass(frozen=True)
class Decision:
    """The layout of the next run, and what would be recommended now if nothing were tried any more:
    the best of those that the safety allows."""

    layout: Layout
    recommended: Layout
    explores: bool
    ratio: float  # expected rate over the default's; 1: not known
    ratio_low: float  # the same, as cautious as the settings say
    why: str
    table: tuple[tuple[Layout, float, float], ...] = field(
        default_factory=tuple
    )  # layout, ratio, cautious ratio: the best few


State = Any
Decide = Callable[[Observation, TuneSettings, State], tuple[Decision, State]]


@dataclass(frozen=True)
class Policy:
    name: str
    laws: Law
    decide: Decide


def lessons(samples: Sequence[Sample]) -> list[Sample]:
    """The samples that teach: of runs that ended well, with a rate that is one."""
    return [
        s
        for s in samples
        if s.teaches and math.isfinite(s.rate_bytes_per_s) and 0 < s.rate_bytes_per_s < 1e18
    ]


def quiet_rate(sample: Sample) -> float:
    """The rate that it would have been on idle targets: what others used is not the layout's fault."""
    load = sample.load if 0 <= sample.load < 1 else 0.0
    return sample.rate_bytes_per_s / max(1 - load, 0.1)
