# SPDX-License-Identifier: Apache-2.0
"""Tuning on performance surfaces that it was not made for; each goes wrong in another way."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from penstock.model import surfaces
from penstock.model.surfaces import MIB, Floats, Job
from penstock.policy.tuning.contract import Grid
from penstock.policy.tuning.simulate import Outcome, Trial, past, play


def _top(job: Job) -> float:
    return math.log2(job.machine.targets)


def odd_peak(job: Job, counts: Floats, sizes: Floats) -> Floats:
    """Best at some number of targets that is no power of two, whatever the program is like."""
    peak = 3 / 2 * 2 ** ((0.2 + 0.6 * _share(job.taste[0])) * _top(job))
    off = np.log2(counts) - math.log2(min(peak, job.machine.targets))
    found: Floats = 1e9 * np.exp(-0.12 * off**2) * (1 - 0.02 * np.abs(np.log2(sizes / (4 * MIB))))
    return found


def cliff(job: Job, counts: Floats, sizes: Floats) -> Floats:
    """Better and better up to an edge; past it everything falls to a third."""
    edge = 2 ** round(_share(job.taste[0]) * _top(job))
    rate = 1e9 * np.minimum(counts, edge) ** 0.5
    found: Floats = np.where((counts > edge) | (sizes > 16 * MIB), rate / 3, rate)
    return found


def plateau(job: Job, counts: Floats, sizes: Floats) -> Floats:
    """All the same, but twice as quick from some number of targets on."""
    step = 2 ** max(1, round(_share(job.taste[0]) * _top(job)))
    found: Floats = np.where(counts >= step, 2e9, 1e9) * (1 + 0.001 * np.log2(sizes / MIB))
    return found


def against_the_rule(job: Job, counts: Floats, sizes: Floats) -> Floats:
    """Own files gain from every target, a shared one loses by each: the opposite of what is usually said."""
    slope = -0.5 if job.shape.shared else 0.7
    found: Floats = 1e9 * counts**slope * (sizes / MIB) ** -0.02
    return found


def default_is_best(job: Job, counts: Floats, sizes: Floats) -> Floats:
    """Nothing is to be had: every other layout is worse."""
    found: Floats = 1e9 * np.exp(-0.25 * np.log2(counts) - 0.1 * np.log2(sizes / MIB))
    return found


def crowded(job: Job, counts: Floats, sizes: Floats) -> Floats:
    """Few targets, each slower for every process that comes; stripes beyond a file's end hold nothing."""
    s = job.shape
    files = 1 if s.shared else s.processes
    used = np.minimum(counts, np.maximum(np.ceil(s.bytes / files / sizes), 1))
    touched = np.minimum(files * used, job.machine.targets)
    streams = files * used / touched
    slower = streams * (1 + (0.2 + 0.4 * _share(job.taste[0])) * np.log2(np.maximum(streams, 1)))
    found: Floats = 2e8 * files * used / slower
    return found


def tired_when_busy(job: Job, counts: Floats, sizes: Floats) -> Floats:
    """On idle targets the more the better, on busy ones a few: load bends the surface, it does not only scale it."""
    found: Floats = 1e9 * counts**0.6 * (1 - job.load) ** (0.8 * np.log2(counts))
    return found


def _share(taste: float) -> float:
    """A number between 0 and 1."""
    return 0.5 + 0.5 * math.tanh(0.8 * taste)


UNSEEN: dict[str, Callable[[Job, Floats, Floats], Floats]] = {
    f.__name__: f
    for f in (odd_peak, cliff, plateau, against_the_rule, default_is_best, crowded, tired_when_busy)
}


def outcomes(trial: Trial) -> tuple[Outcome, Outcome, Outcome, Outcome]:
    """Ours where others have been tuned, ours where nobody has, DCA-IO, the default."""
    others, fleet = past(trial, Grid(trial.machine.targets))
    taught, alone = (play(trial, "gauss", (others, given)) for given in (fleet, None))
    return taught, alone, play(trial, "dca", (others, None)), play(trial, "default", (others, None))


@pytest.mark.parametrize("machine", surfaces.MACHINES)
@pytest.mark.parametrize("name", UNSEEN)
def test_nearly_the_best_is_found(monkeypatch: pytest.MonkeyPatch, name: str, machine: str) -> None:
    """Less is lost than with the published policy, and than by staying at the default."""
    monkeypatch.setitem(surfaces.SURFACES, name, UNSEEN[name])
    trial = Trial(surfaces.MACHINES[machine], name, jobs=12, runs=16, seed=7)

    taught, alone, published, default = outcomes(trial)

    assert taught.total <= 0.9 * published.total and alone.total <= 0.9 * published.total
    if name != "default_is_best":
        assert taught.total <= 0.7 * default.total and alone.total <= 0.7 * default.total
    assert min(taught.recommended[:, -1].mean(), alone.recommended[:, -1].mean()) >= 0.75
    assert taught.bad <= 0.12 and alone.bad <= 0.12
    assert taught.unsafe == alone.unsafe == 0


def test_noise_of_a_half_does_not_lead_astray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(surfaces.SURFACES, "plateau", plateau)
    trial = Trial(surfaces.SMALL, "plateau", jobs=16, runs=20, sigma=0.5, seed=7)

    taught, alone, _, default = outcomes(trial)

    assert taught.total < 0.5 * default.total and alone.total < 0.6 * default.total


@pytest.mark.parametrize("kind", ["own", "shared"])
def test_a_rule_that_is_wrong_is_left(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The rule says one stripe for own files, so the second run is the default again; it goes on from there."""
    monkeypatch.setitem(surfaces.SURFACES, "against_the_rule", against_the_rule)
    shape = surfaces.Shape(8, kind == "shared", float(MIB), 16.0 * MIB)
    trial = Trial(surfaces.SMALL, "against_the_rule", jobs=6, runs=10, sigma=0.03, shapes=(shape,))

    alone = play(trial, "gauss", ([], None))

    assert alone.within(0.1, 8) == 1
