# SPDX-License-Identifier: Apache-2.0
"""Recurring jobs on a model surface under each policy: regret, how soon the recommendation is good, bad runs.  Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.model import surfaces
from penstock.policy.placing.contract import Floats
from penstock.policy.tuning import POLICIES, gauss, prior
from penstock.policy.tuning.contract import (
    Context,
    Fleet,
    Grid,
    Observation,
    Other,
    Sample,
    State,
    TuneSettings,
)

HISTORY = 400
AT_DEFAULT = 0.993  # of a site's runs that never were tuned


@dataclass(frozen=True)
class Trial:
    """What to simulate."""

    machine: surfaces.Machine
    surface: str = "series"
    jobs: int = 60
    runs: int = 30
    sigma: float = 0.2
    seed: int = 1
    per_run: int = 1  # groups of files with a layout each
    shift_at: int = 0  # other input from this run on
    explored: float = 0.15  # share of the other programs that have been tuned
    settings: TuneSettings = field(default_factory=TuneSettings)
    shapes: tuple[surfaces.Shape, ...] = ()  # of the jobs, in turn; empty: drawn by chance


@dataclass(frozen=True)
class Outcome:
    """Of one policy over all jobs: arrays [jobs, runs]."""

    regret: Floats
    recommended: Floats  # rate of the recommended layout over the best
    ratio: Floats  # rate over the default's
    unsafe: int  # explored though the cautious estimate was below the safety

    @property
    def total(self) -> float:
        """Regret of a job over all its runs."""
        return float(self.regret.sum(1).mean())

    def within(self, share: float, run: int) -> float:
        """Of the jobs, those whose recommendation after `run` runs is that near to the best."""
        return float((self.recommended[:, run - 1] > 1 - share).mean())

    @property
    def bad(self) -> float:
        """Share of runs after the second that were below 0.9 of the default."""
        return float((self.ratio[:, 2:] < 0.9).mean())


def context_of(shape: surfaces.Shape) -> Context:
    return Context(shape.processes, shape.shared, shape.bytes, shape.request_bytes)


def _rates(trial: Trial, job: surfaces.Job, grid: Grid) -> Floats:
    return surfaces.rates(trial.surface, job, [(a.count, a.size_bytes) for a in grid.layouts])


def past(trial: Trial, grid: Grid) -> tuple[list[Other], Fleet | None]:
    """The history of other programs: nearly all at the default; some were tuned."""
    chance = np.random.default_rng(trial.seed + 999)
    others: list[Other] = []
    rows: list[tuple[Context, Grid, int, float]] = []
    explored = 0
    for _ in range(HISTORY):
        job = surfaces.draw_job(trial.machine, chance)
        rate, context = _rates(trial, job, grid), context_of(job.shape)
        usual = chance.random() < AT_DEFAULT
        index = grid.default_index if usual else int(chance.integers(len(rate)))
        seen = surfaces.observed(float(rate[index]), trial.sigma, chance)
        others.append(Other(grid.layouts[index], context, seen))
        if chance.random() < trial.explored:
            explored += 1
            own = [surfaces.observed(float(rate[grid.default_index]), trial.sigma, chance) for _ in range(2)]
            base = float(np.mean(np.log(own)))
            for index in chance.integers(len(rate), size=8).tolist():
                seen = surfaces.observed(float(rate[index]), trial.sigma, chance)
                rows.append((context, grid, index, math.log(seen) - base))
    return others, prior.fit(rows, explored)


def play(trial: Trial, policy: str, history: tuple[Sequence[Other], Fleet | None] | None = None) -> Outcome:
    """All jobs under one policy.  The same jobs and the same noise for every policy as far as it chooses alike."""
    grid = Grid(trial.machine.targets)
    others, fleet = past(trial, grid) if history is None else history
    regret, recommended, ratio, unsafe = [], [], [], 0
    for number in range(trial.jobs):
        chance = np.random.default_rng([trial.seed, number])
        job = surfaces.draw_job(trial.machine, chance)
        if trial.shapes:
            job = replace(job, shape=trial.shapes[number % len(trial.shapes)])
        one = _Played(trial, policy, grid, others, fleet)
        one.all_runs(job, chance)
        regret.append(one.regret)
        recommended.append(one.recommended)
        ratio.append(one.ratio)
        unsafe += one.unsafe
    return Outcome(np.array(regret), np.array(recommended), np.array(ratio), unsafe)


class _Played:
    """One job's runs."""

    def __init__(
        self, trial: Trial, policy: str, grid: Grid, others: Sequence[Other], fleet: Fleet | None
    ) -> None:
        self.trial, self.policy, self.grid = trial, policy, grid
        self.others = others if policy.startswith("dca") else ()
        self.fleet = fleet
        self.samples: list[Sample] = []
        self.state: State = None
        self.regret: list[float] = []
        self.recommended: list[float] = []
        self.ratio: list[float] = []
        self.unsafe = 0

    def _seen(self, context: Context) -> Observation:
        return Observation(self.grid, context, self.samples, self.others, self.fleet)

    def all_runs(self, job: surfaces.Job, chance: np.random.Generator) -> None:
        t = self.trial
        rate = _rates(t, job, self.grid)
        for run in range(t.runs):
            if t.shift_at and run == t.shift_at:
                job = surfaces.changed(job, 8, 4)
                rate = _rates(t, job, self.grid)
            context = context_of(job.shape)
            got = [self._one(context, rate, run, chance) for _ in range(t.per_run)]
            mean = float(np.mean(got))
            self.regret.append(1 - mean / float(rate.max()))
            self.ratio.append(mean / float(rate[self.grid.default_index]))
            best = self._recommended(context)
            self.recommended.append(float(rate[best]) / float(rate.max()))

    def _one(self, context: Context, rate: Floats, run: int, chance: np.random.Generator) -> float:
        t = self.trial
        decision, self.state = POLICIES[self.policy].decide(self._seen(context), t.settings, self.state)
        self.unsafe += decision.explores and decision.ratio_low < t.settings.safety * (1 - 1e-9)
        index = self.grid.layouts.index(decision.layout)
        seen = surfaces.observed(float(rate[index]), t.sigma, chance)
        self.samples.append(Sample(decision.layout, seen, context, str(run)))
        return float(rate[index])

    def _recommended(self, context: Context) -> int:
        if self.policy == gauss.GAUSS.name:
            p = gauss.Posterior(self._seen(context), self.trial.settings)
            return int(np.argmax(p.mean))
        return self.grid.layouts.index(self.samples[-1].layout)
