# SPDX-License-Identifier: Apache-2.0
"""The default policy: a Gaussian process over log2 of count and size, expected improvement, and safety.

The process is over the logarithm of the rate, so that halves and doubles weigh the same; its mean is the prior
(prior.py), its level unknown.  Samples of another kind of run (other input, other number of processes) count by how
alike they are.  A sample far from what the others say counts less; when the last three all say that the surface has
changed, what is older counts less.

Where no fleet has taught the prior, whether more targets gain or lose is unknown too: what one doubling showed is
expected of the next.  Then the count goes up by STEP at the most, and once a layout has turned out badly, estimates are
taken as cautiously as where there is a fleet.

The first run is the default, the second the prior's best, if it is safe.  Then what promises most is tried, as long as
the budget lasts and some gain is to be expected; no layout is tried whose cautious estimate is below 0.9 of the
default's.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from penstock.policy.placing.contract import Floats, Ints
from penstock.policy.tuning.contract import (
    Context,
    Decision,
    Grid,
    Law,
    Observation,
    Policy,
    Sample,
    State,
    TuneSettings,
    lessons,
    quiet_rate,
)
from penstock.policy.tuning.prior import alike, prior_of

LENGTHS = np.array([2.0, 3.0])
LEVEL = 25.0  # variance of the unknown level: any
OUTLIER = 1.5
CHANGED = 2.0
STEP = 2.0  # doublings of the count at a time, where no fleet has shown what lies beyond
TREND = 0.3  # by so much, times the amplitude, each doubling of the count may gain or lose throughout
REPEATS = 6  # so many degrees of freedom has the assumed noise against the job's own repeats
SAMPLES_MAX = 120
WIDER = ((1.0, 0.0), (2.0, 0.5), (4.0, 1.0))  # times the assumed amplitude, and how much that is doubted


@lru_cache(maxsize=32)
def _kernel(grid: Grid, trend: bool) -> Floats:
    """How much layouts go together: the nearer the more; and, where a trend is not known, all beyond one another."""
    away = (grid.x[:, None] - grid.x[None]) / LENGTHS
    kernel: Floats = np.exp(-0.5 * (away**2).sum(2))
    if trend:
        steps = (grid.x[:, 0] - grid.x[grid.default_index, 0]) * TREND
        kernel += np.outer(steps, steps)
    return kernel


class Posterior:
    """Mean and variance of every layout, and the covariance with the default, given samples."""

    def __init__(self, seen: Observation, settings: TuneSettings) -> None:
        self.grid = seen.grid
        self.start, amplitude, self.source = prior_of(seen, settings)
        self.amplitude = amplitude
        self.from_fleet = seen.fleet is not None and seen.fleet.jobs >= settings.fleet_from
        self.unit = _kernel(seen.grid, trend=not self.from_fleet)
        self.kernel = amplitude**2 * self.unit
        self.used = lessons(seen.samples)[-SAMPLES_MAX:]
        self.at: Ints = np.array(
            [seen.grid.nearest(s.layout.count, s.layout.size_bytes) for s in self.used], dtype=np.int64
        )
        self.y = np.log([quiet_rate(s) for s in self.used]) if self.used else np.zeros(0)
        self.noise = settings.noise
        self.likeness = _likeness(seen.context, self.used)
        self.mean, self.variance = self.start, np.diag(self.kernel).copy()
        self.with_default = self.kernel[:, seen.grid.default_index]
        if self.used:
            self.noise = self._own_noise(settings.noise)
            self._learn()

    def _own_noise(self, assumed: float) -> float:
        """From repeats of one layout, as far as there are any."""
        squares, free = REPEATS * assumed**2, float(REPEATS)
        for index in np.unique(self.at):
            own = self.y[self.at == index]
            if len(own) > 1:
                squares += float(np.minimum((own - np.median(own)) ** 2, (3 * assumed) ** 2).sum())
                free += len(own) - 1
        return math.sqrt(squares / free)

    def _learn(self) -> None:
        weight = np.full(len(self.used), self.noise**2) / np.maximum(self.likeness, 0.02)
        if len(np.unique(self.at)) > 1:
            self.kernel = self._widened(weight) ** 2 * self.unit
        self._solve(weight)
        rest = (self.y - self.mean[self.at]) / self.noise
        far = np.abs(rest) > OUTLIER
        weight = np.where(far & (len(rest) > 2), weight * (rest / OUTLIER) ** 2, weight)
        if len(rest) >= 6 and abs(float(rest[-3:].mean())) > CHANGED:
            weight[:-3] *= 10
            weight[-3:] = self.noise**2
        self._solve(weight)

    def _pooled(self, variance: Floats) -> tuple[Ints, Floats, Floats]:
        """Samples of one layout as one, with the precision of all: the posterior is the same and the sums small."""
        at, index = np.unique(self.at, return_inverse=True)
        precision = np.bincount(index, 1 / variance)
        z = np.bincount(index, (self.y - self.start[self.at]) / variance) / precision
        return at, z, 1 / precision

    def _widened(self, variance: Floats) -> float:
        """How far layouts differ from the prior: as assumed, or more where the samples say so."""
        at, z, variance = self._pooled(variance)
        unit = self.unit[np.ix_(at, at)]
        best, held = -math.inf, self.amplitude
        for factor, doubt in WIDER:
            amplitude = self.amplitude * factor
            inner = amplitude**2 * unit + np.diag(variance) + LEVEL
            lower = np.linalg.cholesky(inner)
            part = np.linalg.solve(lower, z)
            likely = -0.5 * float(part @ part) - float(np.log(np.diag(lower)).sum()) - doubt
            if likely > best:
                best, held = likely, amplitude
        return held

    def _solve(self, variance: Floats) -> None:
        at, z, variance = self._pooled(variance)
        inner = self.kernel[np.ix_(at, at)] + np.diag(variance) + LEVEL
        cross = self.kernel[:, at] + LEVEL
        gain = np.linalg.solve(inner, cross.T).T
        d = self.grid.default_index
        self.mean = self.start + gain @ z
        self.variance = np.diag(self.kernel) + LEVEL - (gain * cross).sum(1)
        self.with_default = self.kernel[:, d] + LEVEL - gain @ cross[d]

    def over_default(self) -> tuple[Floats, Floats]:
        """Log of the rate over the default's, and its standard deviation."""
        d = self.grid.default_index
        variance = self.variance + self.variance[d] - 2 * self.with_default
        return self.mean - self.mean[d], np.sqrt(np.maximum(variance, 1e-12))

    def bitten(self, safety: float) -> bool:
        """Has a layout turned out to be below the default's safe share?"""
        own = {i: float(np.median(self.y[self.at == i])) for i in set(self.at.tolist())}
        usual = own.get(self.grid.default_index, -math.inf)
        return min(own.values()) < usual + math.log(safety)

    def within_reach(self) -> npt.NDArray[np.bool_]:
        """Layouts whose count is not too far from one that was tried."""
        away = np.abs(self.grid.x[:, None, 0] - self.grid.x[np.unique(self.at), 0]).min(1)
        near: npt.NDArray[np.bool_] = away <= STEP
        return near

    def improvement(self) -> Floats:
        """Expected improvement over the best of what was tried."""
        best = max(self.mean[self.at]) if len(self.at) else float(self.mean.max())
        sd = np.sqrt(np.maximum(self.variance, 1e-12))
        u = (self.mean - best) / sd
        below = 0.5 * (1 + np.tanh(0.7979 * (u + 0.0447 * u**3)))  # the normal distribution, near enough
        found: Floats = sd * (np.exp(-u * u / 2) / 2.5066 + u * below)
        return found


def _likeness(context: Context, samples: Sequence[Sample]) -> Floats:
    known: dict[int, float] = {}
    for s in samples:
        if id(s.context) not in known:
            known[id(s.context)] = 1.0 if s.context == context else alike(context, s.context)
    return np.array([known[id(s.context)] for s in samples])


def decide(seen: Observation, settings: TuneSettings, state: State = None) -> tuple[Decision, State]:
    """The layout of the next run.  The state counts the runs that explored."""
    explored = int(state or 0)
    p = Posterior(seen, settings)
    ratio, sd = p.over_default()
    default = seen.grid.default_index
    careful = p.from_fleet or (bool(p.used) and p.bitten(settings.safety))
    low = ratio - (settings.caution if careful else settings.caution_alone) * sd
    safe = low >= math.log(settings.safety)
    if p.used and not p.from_fleet:
        safe &= p.within_reach()
    safe[default] = True
    if not p.used:
        return _said(
            p,
            ratio,
            low,
            default,
            default,
            False,
            "the first run is the default: the rest is measured against it",
        ), explored
    steady = int(np.argmax(np.where(safe, p.mean, -np.inf)))
    if len(p.used) == 1:  # the second run goes where the prior points, on its mean alone
        by_mean = ratio >= math.log(settings.safety)
        promising = int(np.argmax(np.where(by_mean, p.mean, -np.inf)))
        return _said(p, ratio, low, promising, steady, False, "second run: the best by the prior"), explored
    value = np.where(safe, p.improvement(), -np.inf)
    promising = int(np.argmax(value))
    tried = bool((p.at == promising).any())
    if explored >= settings.budget:
        return _said(
            p, ratio, low, steady, steady, False, f"the budget of {settings.budget} exploring runs is spent"
        ), explored
    if float(value[promising]) < settings.freeze_gain:
        return _said(
            p, ratio, low, steady, steady, False, f"no layout promises {settings.freeze_gain:.0%} more"
        ), explored
    why = "what promises most" if tried else "not tried yet, promises most"
    explores = promising != steady
    return _said(p, ratio, low, promising, steady, explores, why), explored + explores


def _said(
    p: Posterior, ratio: Floats, low: Floats, chosen: int, best: int, explores: bool, why: str
) -> Decision:
    layouts = p.grid.layouts
    order = np.argsort(-p.mean)[:5].tolist()
    text = (
        f"{why}; {len(p.used)} sample{'s' * (len(p.used) != 1)}, prior from {p.source}, noise {p.noise:.2f}"
    )
    return Decision(
        layouts[chosen],
        layouts[best],
        explores,
        float(np.exp(ratio[chosen])),
        float(np.exp(low[chosen])),
        text,
        tuple((layouts[i], float(np.exp(ratio[i])), float(np.exp(low[i]))) for i in order),
    )


def decide_several(
    seen: Observation, settings: TuneSettings, state: State, groups: int
) -> tuple[list[Decision], State]:
    """Layouts for several groups of files of one run: each as if the ones before had turned out as expected."""
    decisions: list[Decision] = []
    imagined = list(seen.samples)
    for _ in range(max(groups, 1)):
        decision, state = decide(replace(seen, samples=imagined), settings, state)
        decisions.append(decision)
        p = Posterior(replace(seen, samples=imagined), settings)
        if not p.used:
            break
        index = seen.grid.layouts.index(decision.layout)
        imagined.append(Sample(decision.layout, float(np.exp(min(p.mean[index], 40.0))), seen.context))
    return decisions, state


GAUSS = Policy("gauss", Law.LEGAL | Law.SAFE | Law.STEADY | Law.FIRST, decide)
