# SPDX-License-Identifier: Apache-2.0
"""One table of laws over all sharing algorithms; examples by hand; max-min against a linear program."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.sharing import ALGORITHMS, groups, maxmin, timetable
from penstock.policy.sharing.contract import Claim, Decision, Law, Observation, Settings

RESOURCES = ("metadata", "data")
rates = st.one_of(st.just(0.0), st.floats(0.01, 1e9))
SETTINGS = Settings(
    rates={"default": {"metadata": 75e3}, "a": {"metadata": 40e3}, "high": {"metadata": 120e3}}
)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    claims = []
    for number in range(draw(st.integers(0, 6))):
        claims.append(
            Claim(
                f"job{number}",
                demand={r: draw(rates) for r in RESOURCES},
                reservation={r: draw(rates) for r in RESOURCES if draw(st.booleans())},
                weight=draw(st.floats(0.1, 10)),
                priority=draw(st.sampled_from(["", "high"])),
            )
        )
    return Observation(0.0, {r: draw(st.floats(1, 1e9)) for r in RESOURCES}, tuple(claims))


def decided(name: str, seen: Observation, headroom: bool = True) -> Decision:
    settings = Settings(SETTINGS.rates, headroom=headroom)
    return ALGORITHMS[name].decide(seen, settings, None)[0]


def holding(law: Law) -> list[str]:
    return [name for name, algorithm in ALGORITHMS.items() if law in algorithm.laws]


@pytest.mark.parametrize("name", ALGORITHMS)
@given(seen=observations(), headroom=st.booleans())
def test_every_claim_gets_a_finite_grant_and_a_reason(name: str, seen: Observation, headroom: bool) -> None:
    decision = decided(name, seen, headroom)

    names = {claim.name for claim in seen.claims}
    assert set(decision.grants) == set(decision.why) == names
    for grant in decision.grants.values():
        assert set(grant) == set(seen.total)
        assert all(math.isfinite(rate) and rate >= 0 for rate in grant.values())


@pytest.mark.parametrize("name", holding(Law.TOTAL))
@given(seen=observations(), headroom=st.booleans())
def test_never_above_the_total(name: str, seen: Observation, headroom: bool) -> None:
    decision = decided(name, seen, headroom)

    for resource, total in seen.total.items():
        assert sum(grant[resource] for grant in decision.grants.values()) <= total * (1 + 1e-9)


@pytest.mark.parametrize("name", holding(Law.RESERVED))
@given(seen=observations())
def test_nobody_below_demand_or_reservation(name: str, seen: Observation) -> None:
    fits = all(
        sum(claim.reservation.get(r, 0.0) for claim in seen.claims) <= total
        for r, total in seen.total.items()
    )
    if not fits or name == "drf":  # a job's reservations need not be in the proportion of its demands
        return
    decision = decided(name, seen)

    for claim in seen.claims:
        for resource in seen.total:
            least = min(claim.demand[resource], claim.reservation.get(resource, 0.0))
            assert decision.grants[claim.name][resource] >= least * (1 - 1e-9)


@pytest.mark.parametrize("name", holding(Law.THRIFTY))
@given(seen=observations())
def test_nobody_above_demand_while_others_want(name: str, seen: Observation) -> None:
    decision = decided(name, seen, headroom=False)

    for claim in seen.claims:
        for resource in seen.total:
            assert decision.grants[claim.name][resource] <= claim.demand[resource] * (1 + 1e-9)


@pytest.mark.parametrize("name", holding(Law.FULL))
@given(seen=observations())
def test_nothing_is_left_while_somebody_wants(name: str, seen: Observation) -> None:
    decision = decided(name, seen, headroom=False)

    for resource, total in seen.total.items():
        got = sum(grant[resource] for grant in decision.grants.values())
        asked = sum(claim.demand[resource] for claim in seen.claims)
        assert got == pytest.approx(min(total, asked), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", holding(Law.NAMELESS))
@given(seen=observations(), seed=st.integers())
def test_names_and_order_change_nothing(name: str, seen: Observation, seed: int) -> None:
    order = list(range(len(seen.claims)))
    random.Random(seed).shuffle(order)
    renamed = tuple(
        Claim(f"other{i}", c.demand, c.reservation, c.weight, c.priority)
        for i, c in ((i, seen.claims[i]) for i in order)
    )

    first, second = decided(name, seen), decided(name, Observation(0.0, seen.total, renamed))

    for i, claim in enumerate(seen.claims):
        for resource in seen.total:
            assert second.grants[f"other{i}"][resource] == pytest.approx(
                first.grants[claim.name][resource], rel=1e-6, abs=1e-6
            )


@given(
    parts=st.lists(st.floats(0.1, 10), min_size=2, max_size=5),
    pair=st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)),
)
def test_dominant_shares_are_equal_when_all_ask_for_too_much(
    parts: list[float], pair: tuple[float, float]
) -> None:
    """All want more than there is, in different proportions, and all want both."""
    claims = tuple(
        Claim(f"j{i}", {"metadata": 1e3 * p * pair[0], "data": 1e3 * pair[1]}) for i, p in enumerate(parts)
    )
    seen = Observation(0.0, {"metadata": 10.0, "data": 10.0}, claims)

    decision = decided("drf", seen, headroom=False)

    shares = [max(grant.values()) / 10 for grant in decision.grants.values()]
    assert shares == pytest.approx([shares[0]] * len(shares), rel=1e-6)


def test_the_textbook_example_of_dominant_shares() -> None:
    """9 of one and 18 of the other; A wants 1:4 for ever, B 3:1: A runs 3 tasks, B 2."""
    claims = (Claim("A", {"cpu": 1e6, "mem": 4e6}), Claim("B", {"cpu": 3e6, "mem": 1e6}))
    decision = decided("drf", Observation(0.0, {"cpu": 9.0, "mem": 18.0}, claims), headroom=False)

    assert decision.grants["A"] == pytest.approx({"cpu": 3.0, "mem": 12.0})
    assert decision.grants["B"] == pytest.approx({"cpu": 6.0, "mem": 2.0})


def test_reservations_of_the_paper() -> None:
    """Cap 300k, reserved 40/60/80/120k: all greedy get theirs; one idle, the others share its part."""
    reserved = {"a": 40e3, "b": 60e3, "c": 80e3, "d": 120e3}
    greedy = tuple(Claim(n, {"metadata": 1e6}, {"metadata": r}) for n, r in reserved.items())
    idle = (*greedy[:3], Claim("d", {"metadata": 0.0}, {"metadata": 120e3}))

    all_active = decided("proportional", Observation(0.0, {"metadata": 300e3}, greedy), headroom=False)
    d_idle = decided("proportional", Observation(0.0, {"metadata": 300e3}, idle), headroom=False)

    assert {n: g["metadata"] for n, g in all_active.grants.items()} == pytest.approx(reserved)
    assert {n: round(g["metadata"]) for n, g in d_idle.grants.items()} == {
        "a": 66667, "b": 100000, "c": 133333, "d": 0,
    }  # fmt: skip


def test_a_timetable_changes_its_rates_and_begins_again() -> None:
    steps = ((0.0, {"default": {"metadata": 10.0}}), (60.0, {"default": {"metadata": 20.0}}))
    settings = Settings(steps=steps, period_s=120.0)
    claim = (Claim("a", {"metadata": 5.0}),)
    state, got = None, []
    for time_s in (1000.0, 1059.0, 1060.0, 1119.0, 1120.0):
        decision, state = timetable.decide(Observation(time_s, {"metadata": 100.0}, claim), settings, state)
        got.append(decision.grants["a"]["metadata"])

    assert got == [10.0, 10.0, 20.0, 20.0, 10.0]


def test_a_group_is_one_unit_whatever_its_size() -> None:
    claims = (
        *(Claim(f"g{i}", {"metadata": 1e6}, group="team") for i in range(9)),
        Claim("x", {"metadata": 1e6}),
    )
    seen = Observation(0.0, {"metadata": 100.0}, claims)

    decision, _ = groups.decide(maxmin.decide, seen, Settings(headroom=False), None)

    assert decision.grants["x"]["metadata"] == pytest.approx(50.0)
    assert decision.grants["g0"]["metadata"] == pytest.approx(50.0 / 9)
    assert "group team" in decision.why["g0"]


MIXES, MIXES_A_PROGRAM = 20_000, 2_000


def test_maxmin_is_that_of_a_linear_program() -> None:
    """Rounds of linear programs, thousands of mixes in each: raise the level, fix who is satisfied."""
    chance = random.Random(11)
    for _ in range(MIXES // MIXES_A_PROGRAM):
        mixes = [_mix(chance) for _ in range(MIXES_A_PROGRAM)]
        wanted = _by_linear_programs(mixes)
        for (total, jobs), levels in zip(mixes, wanted, strict=True):
            claims = tuple(Claim(str(i), {"m": d}, weight=w) for i, (d, w) in enumerate(jobs))
            decision, _ = maxmin.decide(
                Observation(0.0, {"m": total}, claims), Settings(headroom=False), None
            )
            got = [decision.grants[str(i)]["m"] for i in range(len(jobs))]
            assert got == pytest.approx(levels, rel=0.01, abs=total * 1e-6)


def _mix(chance: random.Random) -> tuple[float, list[tuple[float, float]]]:
    jobs = [
        (10 ** chance.uniform(0, 3), chance.choice([1, 1, 2, 4, 0.5])) for _ in range(chance.randint(2, 7))
    ]
    return 10 ** chance.uniform(1, 3.3), jobs


def _by_linear_programs(mixes: list[tuple[float, list[tuple[float, float]]]]) -> list[list[float]]:
    """max Σ level_k so that Σ_j (fixed or level_k·weight_j) ≤ total_k: blocks do not touch."""
    fixed: list[dict[int, float]] = [{} for _ in mixes]
    got: list[list[float]] = [[0.0] * len(jobs) for _, jobs in mixes]
    open_mixes = set(range(len(mixes)))
    while open_mixes:
        order = sorted(open_mixes)
        levels = _highest_levels(
            [
                (
                    mixes[k][0] - sum(fixed[k].values()),
                    sum(w for j, (_, w) in enumerate(mixes[k][1]) if j not in fixed[k]),
                )
                for k in order
            ]
        )
        for k, level in zip(order, levels, strict=True):
            jobs = mixes[k][1]
            full = [j for j, (d, w) in enumerate(jobs) if j not in fixed[k] and d <= level * w * (1 + 1e-9)]
            for j, (_, w) in enumerate(jobs):
                got[k][j] = fixed[k].get(j, level * w)
            fixed[k] |= {j: jobs[j][0] for j in full}
            for j in full:
                got[k][j] = jobs[j][0]
            if not full or len(fixed[k]) == len(jobs):
                open_mixes.discard(k)
    return got


def _highest_levels(blocks: list[tuple[float, float]]) -> list[float]:
    import highspy
    import numpy as np

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    count = len(blocks)
    zeros, inf = np.zeros(count), np.full(count, highspy.kHighsInf)
    solver.addVars(count, zeros, inf)
    for k, (room, weight) in enumerate(blocks):
        solver.changeColCost(k, -1.0)
        solver.addRow(-highspy.kHighsInf, room, 1, np.array([k], dtype=np.int32), np.array([weight]))
    solver.run()
    return list(solver.getSolution().col_value)
