# SPDX-License-Identifier: Apache-2.0
"""One table of laws over all tuning policies; what each is known for; recurring jobs on two model surfaces."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import surfaces
from penstock.policy.placing.contract import DIGITS, Expected, Match
from penstock.policy.tuning import POLICIES, decide_after, gauss, groups, prior, several_after
from penstock.policy.tuning.contract import (
    MIB,
    Context,
    Decision,
    Grid,
    Law,
    Layout,
    Observation,
    Other,
    Sample,
    TuneSettings,
    lessons,
    quiet_rate,
)
from penstock.policy.tuning.simulate import Trial, past, play

GRID = Grid(64)
PLAIN = TuneSettings()
SHARED = Context(32, True, 64e9, 4 * MIB)
OWN = Context(32, False, 64e9, 4 * MIB)


def sample(count: int, size: int, rate: float, **fields: object) -> Sample:
    return Sample(Layout(count, size * MIB), rate, SHARED, **fields)  # type: ignore[arg-type]


def decided(name: str, seen: Observation, settings_: TuneSettings = PLAIN) -> Decision:
    return decide_after(name, seen, settings_)


def holding(law: Law) -> list[str]:
    return [name for name, policy in POLICIES.items() if law in policy.laws]


rates = st.one_of(st.floats(1e3, 1e12), st.sampled_from([0.0, math.inf, -math.inf, math.nan, -1.0, 1e300]))
samples = st.lists(
    st.builds(
        Sample,
        st.builds(Layout, st.integers(-1, 500), st.sampled_from([0, 1, 65536, MIB, 64 * MIB, 1 << 40])),
        rates,
        st.sampled_from([SHARED, OWN, Context(0, False, 0.0, 0.0), Context(10**9, True, 1e30, 1e30)]),
        st.just("r"),
        st.one_of(st.floats(), st.floats(0, 1)),
        st.booleans(),
    ),
    max_size=8,
)


@pytest.mark.parametrize("name", holding(Law.LEGAL))
@settings(max_examples=40)
@given(given_samples=samples, targets=st.integers(1, 300))
def test_any_history_gives_a_layout_of_the_grid(name: str, given_samples: list[Sample], targets: int) -> None:
    """N03 and poisoned histories: throughput of zero, infinite, negative, no number."""
    grid = Grid(targets)

    decision = decided(name, Observation(grid, SHARED, given_samples))

    assert decision.layout in grid.layouts and decision.recommended in grid.layouts
    assert math.isfinite(decision.ratio) and decision.why


@given(samples)
def test_nothing_is_recommended_that_would_not_be_tried(own: list[Sample]) -> None:
    found = decided("gauss", Observation(GRID, SHARED, own))
    low = {layout: cautious for layout, _, cautious in found.table}

    assert found.recommended == GRID.default or low.get(found.recommended, 1.0) >= PLAIN.safety * (1 - 1e-9)


@pytest.mark.parametrize("name", holding(Law.STEADY))
@settings(max_examples=30)
@given(given_samples=samples)
def test_what_does_not_teach_changes_nothing(name: str, given_samples: list[Sample]) -> None:
    """N03: failed, killed, partial, cache-served, degraded."""
    sound = lessons(given_samples)
    policy = POLICIES[name].decide

    with_all, _ = policy(Observation(GRID, SHARED, given_samples), TuneSettings(), None)
    with_sound, _ = policy(Observation(GRID, SHARED, sound), TuneSettings(), None)

    assert (with_all.layout, with_all.recommended) == (with_sound.layout, with_sound.recommended)


@pytest.mark.parametrize("name", holding(Law.FIRST))
def test_the_first_run_is_the_default(name: str) -> None:
    grid = Grid(64, Layout(4, MIB))

    assert decided(name, Observation(grid, SHARED)).layout == Layout(4, MIB)


@pytest.mark.parametrize("name", holding(Law.SAFE))
@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 48), st.floats(1e6, 1e10)), min_size=2, max_size=10))
def test_nothing_is_explored_that_looks_unsafe(name: str, shown: list[tuple[int, float]]) -> None:
    own = [Sample(GRID.layouts[i % len(GRID.layouts)], rate, SHARED) for i, rate in shown]

    decision = decided(name, Observation(GRID, SHARED, own))

    assert not decision.explores or decision.ratio_low >= 0.9 * (1 - 1e-9)
    assert decision.ratio >= 0.9 * (1 - 1e-9)


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_history_the_same_decision(name: str) -> None:
    seen = Observation(GRID, SHARED, [sample(1, 1, 1e9), sample(8, 1, 2e9), sample(8, 4, 2.2e9)])

    assert decided(name, seen) == decided(name, seen)


# -- the default ---------------------------------------------------------------------------------------------


def test_one_lucky_run_does_not_move_the_choice() -> None:
    """N02: a run that interference halved, or luck doubled, among many that agree."""
    steady = (
        [sample(1, 1, 1e9)]
        + [sample(8, 4, 3e9 * f) for f in (1, 1.1, 0.9, 1.05)]
        + [sample(16, 4, 2.5e9)] * 3
    )

    before = decided("gauss", Observation(GRID, SHARED, steady)).recommended
    halved = decided("gauss", Observation(GRID, SHARED, [*steady, sample(8, 4, 1.5e9)])).recommended

    assert halved == before


def test_rates_are_those_of_idle_targets() -> None:
    busy = sample(8, 4, 1e9, load=0.5)

    assert quiet_rate(busy) == 2e9
    assert quiet_rate(sample(8, 4, 1e9, load=math.nan)) == 1e9


def test_after_a_change_of_the_surface_old_samples_count_less() -> None:
    old = [sample(1, 1, 1e9)] + [sample(32, 8, 4e9)] * 4 + [sample(2, 1, 1.2e9)] * 3
    new = [sample(32, 8, 2e8), sample(32, 8, 2.2e8), sample(32, 8, 1.9e8)]

    decision = decided("gauss", Observation(GRID, SHARED, old + new))

    assert decision.recommended.count < 32


def test_other_input_counts_by_how_alike_it_is() -> None:
    """N04: runs of the same name with another number of ranks or other files."""
    assert prior.alike(SHARED, SHARED) == 1
    assert prior.alike(SHARED, replace(SHARED, processes=64)) > 0.8
    assert prior.alike(SHARED, OWN) < 0.01
    own_good = [Sample(Layout(1, MIB), 1e9, OWN), Sample(Layout(64, 64 * MIB), 9e9, OWN)]
    start = decided("gauss", Observation(GRID, SHARED, [sample(1, 1, 1e9)]))

    taught = decided("gauss", Observation(GRID, SHARED, [sample(1, 1, 1e9), *own_good]))

    assert taught.recommended.count <= 4 * start.recommended.count


def test_neighbours_teach_a_program_that_never_ran() -> None:
    """The first runs learn from programs of the same shape, not only the same number of processes."""
    near = replace(SHARED, processes=24, bytes=80e9)
    others = [Other(Layout(32, 16 * MIB), near, 4e9, math.log(5)) for _ in range(6)]
    after_first = Observation(GRID, SHARED, [sample(1, 1, 1e9)], others)

    second = decided("gauss", after_first)

    assert second.layout.count >= 16 and second.layout.size_bytes >= 4 * MIB
    assert "programs like it" in second.why


def test_a_spent_budget_stays() -> None:
    own = [sample(1, 1, 1e9), sample(8, 4, 3e9)]
    seen = Observation(GRID, SHARED, own)

    decision, state = POLICIES["gauss"].decide(seen, TuneSettings(budget=5), 5)

    assert not decision.explores and state == 5
    assert "budget" in decision.why


def test_no_more_exploring_when_little_is_to_be_gained() -> None:
    own = [sample(1, 1, 1e9)] + [sample(c, s, 1e9) for c in (1, 2, 8, 32) for s in (1, 8, 64)] * 3

    decision, _ = POLICIES["gauss"].decide(Observation(GRID, SHARED, own), TuneSettings(freeze_gain=0.2), 3)

    assert not decision.explores
    assert "promises 20%" in decision.why


def test_groups_of_one_run_get_different_layouts() -> None:
    own = [sample(1, 1, 1e9), sample(8, 4, 3e9)]

    decisions, _ = gauss.decide_several(Observation(GRID, SHARED, own), TuneSettings(), 0, 4)

    assert len({d.layout for d in decisions}) >= 2


def test_every_choice_says_why() -> None:
    decision = decided("gauss", Observation(GRID, SHARED, [sample(1, 1, 1e9), sample(8, 4, 3e9)]))

    assert "2 samples" in decision.why and "rule of thumb" in decision.why
    assert len(decision.table) == 5


# -- the peers, with their faults --------------------------------------------------------------------------


def climb(name: str, rates_seen: list[float], context: Context = SHARED) -> Layout:
    state, own = None, []
    for rate in rates_seen:
        decision, state = POLICIES[name].decide(Observation(GRID, context, own), TuneSettings(), state)
        own.append(Sample(decision.layout, rate, context))
    return POLICIES[name].decide(Observation(GRID, context, own), TuneSettings(), state)[0].layout


def test_n01_as_printed_it_never_goes_back() -> None:
    """N01: it compares, doubles, and a worse step stays; as meant it steps back."""
    worse = [1e9, 2e9, 3e9, 4e9, 1e9, 1e9, 1e9]

    assert climb("dca-printed", worse, OWN).count == 8
    assert climb("dca", worse, OWN).count == 4


def test_as_printed_luck_climbs_to_the_top() -> None:
    lucky = [1e9, 1e9] + [1.1e9, 1e9] * 12

    assert climb("dca-printed", lucky, OWN).count == 64
    assert climb("dca-printed", lucky + [1.1e9, 1e9] * 8, OWN).size_bytes == 64 * MIB


def test_n04_the_first_run_averages_over_everybody() -> None:
    """N04: a count that only large jobs use looks good for a small one."""
    others = [Other(Layout(1, MIB), replace(OWN, bytes=1e6), 1e7)] * 50 + [Other(Layout(64, MIB), OWN, 9e9)]

    assert decided("dca", Observation(GRID, OWN, others=others)).layout.count == 64


def test_the_one_process_example() -> None:
    """Counts 1, 8, 16, 32, 64, 128 are present; 128 has the best mean."""
    one, grid = Context(1, True, 1e10), Grid(256)
    others = [Other(Layout(c, MIB), one, 1e8 * (1 + i)) for i, c in enumerate((1, 8, 16, 32, 64, 128))]

    decision, _ = POLICIES["dca"].decide(Observation(grid, one, (), others), TuneSettings(), None)

    assert decision.layout == Layout(128, MIB)


def test_tapp_and_fixed() -> None:
    assert decided("tapp", Observation(GRID, SHARED)).layout == Layout(32, MIB)
    assert decided("tapp", Observation(GRID, OWN)).layout == Layout(1, MIB)
    assert decided("fixed", Observation(GRID, OWN), TuneSettings(fixed=Layout(8, 4 * MIB))).layout == Layout(
        8, 4 * MIB
    )
    odd = Layout(3, 3 * 65536)  # what is set is not rounded
    assert decided("fixed", Observation(GRID, OWN), TuneSettings(fixed=odd)).layout == odd
    assert decided("fixed", Observation(Grid(2), OWN), TuneSettings(fixed=odd)).layout.count == 2


# -- on surfaces ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surface", surfaces.SURFACES)
@pytest.mark.parametrize("machine", surfaces.MACHINES)
def test_it_beats_the_published_one(surface: str, machine: str) -> None:
    """On both surfaces, with a fleet and alone; and few runs are bad."""
    trial = Trial(surfaces.MACHINES[machine], surface, jobs=24, runs=20, seed=4)
    others, fleet = past(trial, Grid(trial.machine.targets))

    ours, alone, theirs = (
        play(trial, name, (others, prior_))
        for name, prior_ in (("gauss", fleet), ("gauss", None), ("dca", None))
    )

    assert ours.total <= 0.8 * theirs.total
    assert alone.total <= theirs.total
    assert ours.bad <= 0.02 and alone.bad <= 0.04
    assert ours.unsafe == alone.unsafe == 0


def test_the_printed_one_shows_its_faults() -> None:
    trial = Trial(surfaces.LARGE, jobs=24, runs=20, seed=4)

    printed, meant = play(trial, "dca-printed"), play(trial, "dca")

    assert printed.bad > 0.2 > meant.bad
    assert printed.total > 2 * meant.total


def test_surfaces_differ_in_shape() -> None:
    """The best layout of one is not that of the other."""
    chance = np.random.default_rng(0)
    layouts = [(a.count, a.size_bytes) for a in Grid(256).layouts]
    best = []
    for _ in range(40):
        job = surfaces.draw_job(surfaces.LARGE, chance)
        best.append([int(np.argmax(surfaces.rates(name, job, layouts))) for name in surfaces.SURFACES])

    assert sum(a != b for a, b in best) >= 20
    assert all(np.isfinite(surfaces.rates(name, job, layouts)).all() for name in surfaces.SURFACES)


def file(*values: bytes, size: float = 1e9, **words: object) -> Expected:
    return Expected(Match((b"/s/rank", DIGITS, b".", DIGITS), values), size, **words)  # type: ignore[arg-type]


def test_checkpoints_are_groups_and_ranks_are_not() -> None:
    files = [file(b"%d" % rank, b"%d" % step, rank=rank) for step in (9, 10) for rank in range(3)]
    assert groups.groups_of(files) == [0, 0, 0, 1, 1, 1]
    one_each = [file(b"%d" % rank, b"1", rank=rank) for rank in range(8)]
    assert set(groups.groups_of(one_each)) == {0}
    shared = [file(b"0", b"%d" % step, shared=True) for step in range(6)]
    assert groups.groups_of(shared) == [0, 1, 2, 3, 0, 1]
    small = [file(b"1", b"%d" % step, size=1e9 if step % 2 else 1e3) for step in range(4)]
    assert groups.groups_of(small) == [0, 0, 0, 1]
    assert groups.groups_of([]) == []
    nobody_knows = [file(b"%d" % part, b"1") for part in range(8)]  # of a process each, or all of one
    assert set(groups.groups_of(nobody_knows, 8)) == {0}
    assert set(groups.groups_of(nobody_knows, 1)) == {0, 1, 2, 3}


def test_several_samples_of_one_run_are_one_run_of_the_budget() -> None:
    own = [Sample(GRID.default, 1e9, SHARED, "a")]
    own += [Sample(Layout(1 << i, MIB), 1e9 * (2 + i), SHARED, "b") for i in range(1, 4)]
    seen = Observation(GRID, SHARED, own)
    settings = TuneSettings(budget=1)
    assert "budget" not in decide_after("gauss", seen, settings).why
    assert len(several_after("gauss", seen, settings, 3)) == 3
    few = Observation(GRID, SHARED, own[:2])
    assert len({d.layout for d in several_after("gauss", few, TuneSettings(), 4)}) > 1
    assert len(several_after("dca", seen, settings, 3)) == 1
