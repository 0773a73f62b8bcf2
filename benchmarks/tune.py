# SPDX-License-Identifier: Apache-2.0
"""Layouts from experience: recurring jobs on two model surfaces under each policy, and what a decision costs.

The surfaces are made up (model/surfaces.py): figures of policies in the same run may be compared, nothing else may be
read from them.  Jobs of three seeds are pooled.  `regret` is the sum over 30 runs of how far each fell short of the
best layout.
"""

import time
from collections.abc import Callable

import numpy as np

from benchmarks.frame import Row, at_least, at_most, interleave, seen
from penstock.model import surfaces
from penstock.policy.tuning import gauss, prior
from penstock.policy.tuning.contract import Fleet, Grid, Observation, Other, Sample, TuneSettings
from penstock.policy.tuning.simulate import Outcome, Trial, context_of, past, play

TITLE = "tune: stripe counts and sizes from experience (model)"
SEEDS = (1, 2, 3)
JOBS = 120
MODEL = "model"


class Pool:
    """Outcomes of all seeds."""

    def __init__(self, make: Callable[[int], Outcome]) -> None:
        self.parts = [make(seed) for seed in SEEDS]

    def mean(self, of: Callable[[Outcome], float]) -> list[float]:
        return [float(np.mean([of(part) for part in self.parts]))]

    def percent(self, of: Callable[[Outcome], float]) -> list[float]:
        return [100 * value for value in self.mean(of)]


def bad(o: Outcome) -> float:
    return o.bad


History = tuple[list[Other], Fleet | None]


def pooled(trial: dict[str, object], policy: str, histories: dict[int, History]) -> Pool:
    return Pool(lambda seed: play(Trial(**trial, jobs=JOBS, seed=seed), policy, histories[seed]))  # type: ignore[arg-type]


def of_machine(machine: surfaces.Machine, surface: str, regret: float, within: float) -> list[Row]:
    trial: dict[str, object] = {"machine": machine, "surface": surface}
    histories = {seed: past(Trial(machine, surface, seed=seed), Grid(machine.targets)) for seed in SEEDS}
    alone: dict[int, History] = {seed: (others, None) for seed, (others, _) in histories.items()}
    ours, theirs = pooled(trial, "gauss", histories), pooled(trial, "dca", histories)
    without = pooled(trial, "gauss", alone)
    tapp = pooled(trial, "tapp", histories)
    where = f"{machine.name} system, surface `{surface}`"
    ratio = ours.mean(lambda o: o.total)[0] / theirs.mean(lambda o: o.total)[0]
    lonely = without.mean(lambda o: o.total)[0] / theirs.mean(lambda o: o.total)[0]
    unsafe = [float(sum(p.unsafe for p in ours.parts + without.parts))]
    near = ours.percent(lambda o: o.within(0.1, 6))
    return [
        at_most(f"regret over DCA-IO's as intended, {where}", [ratio], "times", regret, note=MODEL),
        at_most(f"the same without any tuned program, {where}", [lonely], "times", 1.0, note=MODEL),
        at_least(f"recommended within 10 % of the best by run 6, {where}", near, "%", within, note=MODEL),
        at_most(f"runs below 0.9 of the default, {where}", ours.percent(bad), "%", 1.5, note=MODEL),
        seen(f"the same without any tuned program, {where}", without.percent(bad), "%", note=MODEL),
        at_most(f"explored though the estimate was unsafe, {where}", unsafe, "runs", 0, note=MODEL),
        seen(f"regret of DCA-IO as intended, {where}", theirs.mean(lambda o: o.total), "", note=MODEL),
        seen(f"regret of TAPP-IO, {where}", tapp.mean(lambda o: o.total), "", note=MODEL),
    ]


def others() -> list[Row]:
    large = surfaces.LARGE
    histories = {seed: past(Trial(large, seed=seed), Grid(large.targets)) for seed in SEEDS}
    printed = pooled({"machine": large}, "dca-printed", histories)
    shifted = pooled({"machine": large, "shift_at": 15}, "gauss", histories)
    several = pooled({"machine": large, "runs": 12, "per_run": 4}, "gauss", histories)
    after = shifted.percent(lambda o: o.within(0.1, 30))
    third = several.percent(lambda o: o.within(0.1, 3))
    return [
        seen(
            "runs below 0.9 of the default, DCA-IO as printed, large", printed.percent(bad), "%", note=MODEL
        ),
        at_least("within 10 % fifteen runs after the input changed, large", after, "%", 72, note=MODEL),
        at_least("within 10 % by run 3 with four samples a run, large", third, "%", 75, note=MODEL),
    ]


def decision_ms(observation: Observation) -> float:
    began = time.process_time_ns()
    gauss.decide(observation, TuneSettings(), 0)
    return (time.process_time_ns() - began) / 1e6


def fleet_s(data: list[tuple[object, Grid, int, float]]) -> float:
    began = time.process_time_ns()
    prior.fit(data, 400)  # type: ignore[arg-type]
    return (time.process_time_ns() - began) / 1e9


def costs(rounds: int) -> list[Row]:
    grid = Grid(256)
    chance = np.random.default_rng(1)
    data = []
    for _ in range(400):
        context = context_of(surfaces.draw_job(surfaces.LARGE, chance).shape)
        data += [
            (context, grid, int(i), float(chance.normal()))
            for i in chance.integers(len(grid.layouts), size=8)
        ]
    context = context_of(surfaces.draw_job(surfaces.LARGE, chance).shape)
    own = [
        Sample(grid.layouts[int(i)], float(chance.lognormal(20, 0.5)), context)
        for i in chance.integers(len(grid.layouts), size=120)
    ]
    observation = Observation(grid, context, own, (), prior.fit(data, 400))
    got = interleave(
        {"decision": lambda: decision_ms(observation), "fleet": lambda: fleet_s(data)}, rounds, "tune"
    )
    return [
        at_most("a decision with 120 samples", got["decision"], "ms CPU", 5),
        at_most("the fit over 400 programs", got["fleet"], "s CPU", 0.5),
    ]


def rows(rounds: int) -> list[Row]:
    found = costs(rounds)
    for surface in surfaces.SURFACES:
        found += of_machine(surfaces.LARGE, surface, 0.6, 72)
        found += of_machine(surfaces.SMALL, surface, 0.3, 85)
    return found + others()
