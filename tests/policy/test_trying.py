# SPDX-License-Identifier: Apache-2.0
"""A policy tried on recorded work: who ends when, by arithmetic that can be done by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.policy import rules_toml, trying
from penstock.policy.rules import Job, Limit, Match, Policy
from penstock.policy.trying import Work


def work(run: str, start_s: float, length_s: float, calls: float, node: str = "n1") -> Work:
    return Work(run, Job(run, run, "ann"), node, start_s, length_s, {0: calls})


def per_job(rate: float, **more: object) -> Policy:
    return Policy((Limit("each", rate, per="job", **more),))  # type: ignore[arg-type]


def site(rate: float) -> Policy:
    return Policy((Limit("all", rate),))


def test_one_run_at_half_its_rate_takes_twice_as_long() -> None:
    fate = trying.simulate(per_job(50), [work("a", 0, 10, 1000)]).fates["a"]

    assert (fate.length_s, fate.delay_s, fate.held_s) == pytest.approx((10, 10, 20))
    assert fate.limit == 0


def test_a_limit_that_is_wide_enough_changes_nothing() -> None:
    fate = trying.simulate(per_job(500), [work("a", 0, 10, 1000)]).fates["a"]

    assert (fate.delay_s, fate.held_s, fate.limit) == (0, 0, -1)


def test_two_runs_share_and_the_second_speeds_up_when_the_first_is_done() -> None:
    """200 calls a second for two that ask 200 each: half each for 10 s, then the rest of b alone."""
    trial = trying.simulate(site(200), [work("a", 0, 5, 1000), work("b", 0, 10, 2000)])

    assert trial.fates["a"].delay_s == pytest.approx(5)
    assert trial.fates["b"].delay_s == pytest.approx(5)
    assert trial.served[0].most == pytest.approx(200)
    assert trial.asked[0].most == pytest.approx(400)


def test_runs_after_each_other_do_not_meet() -> None:
    trial = trying.simulate(site(100), [work("a", 0, 10, 1000), work("b", 20, 10, 1000)])

    assert [fate.delay_s for fate in trial.fates.values()] == [0, 0]


def test_a_run_on_two_nodes_ends_with_its_slower_one() -> None:
    fate = trying.simulate(per_job(100), [work("a", 0, 10, 1000, "n1"), work("a", 0, 10, 3000, "n2")]).fates[
        "a"
    ]

    assert fate.delay_s == pytest.approx(30, rel=0.01)  # 4,000 calls at 100 a second


def test_a_rate_of_nothing_never_ends() -> None:
    fates = trying.simulate(per_job(0), [work("a", 0, 10, 1000), work("b", 50, 1, 0)]).fates

    assert math.isinf(fates["a"].delay_s)
    assert fates["b"].delay_s == 0


def test_shadows_and_limits_of_others_hold_back_nobody() -> None:
    for policy in (per_job(1, shadow=True), per_job(1, match=Match(jobs=("other",)))):
        assert trying.simulate(policy, [work("a", 0, 10, 1000)]).fates["a"].delay_s == 0


def test_short_work_at_times_of_today_comes_to_an_end() -> None:
    """Times since 1970 move in steps of 0.2 us: what is left of a millisecond may be less."""
    now_s = 1.795e9
    works = [work(f"r{i}", now_s + i * 0.0007, 0.001 + i * 1e-5, 7 + i) for i in range(40)]
    told: list[float] = []

    def tell(share: float) -> None:
        told.append(share)
        assert len(told) < 400, "it goes round without an end"

    trial = trying.simulate(site(3000), works, tell)

    assert told[-1] == 1
    assert all(math.isfinite(fate.delay_s) for fate in trial.fates.values())


def test_a_timetable_is_followed() -> None:
    """Nothing for the first half hour, then enough."""
    text = """
    [[limit]]
    name = "all"
    rate = "1k/s"
    sharing = "timetable"
    [timetable.all]
    "0s" = {default = "0/s"}
    "30min" = {default = "1k/s"}
    """
    policy, mistakes = rules_toml.parse(text, frozenset())
    assert policy is not None, mistakes

    fate = trying.simulate(policy, [work("a", 1000, 10, 1000)]).fates["a"]
    assert fate.delay_s == pytest.approx(1800, abs=61)


WORKS = st.lists(
    st.tuples(st.floats(0, 1000), st.floats(0, 100), st.floats(0, 1e5)), min_size=1, max_size=8
).map(lambda rows: [work(f"r{i}", *row) for i, row in enumerate(rows)])


@settings(deadline=None, max_examples=60)
@given(WORKS, st.floats(1, 1e5))
def test_nobody_is_early_and_the_total_holds(works: list[Work], rate: float) -> None:
    trial = trying.simulate(site(rate), works)

    assert set(trial.fates) == {w.run for w in works}
    assert all(fate.delay_s >= 0 for fate in trial.fates.values())
    assert trial.served[0].most <= rate * (1 + 1e-6)


@settings(deadline=None, max_examples=30)
@given(WORKS)
def test_without_limits_all_ends_as_it_ended(works: list[Work]) -> None:
    for policy in (Policy(), site(1e12)):
        assert {fate.delay_s for fate in trying.simulate(policy, works).fates.values()} == {0.0}
