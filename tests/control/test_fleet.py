# SPDX-License-Identifier: Apache-2.0
"""What a controller makes of its members' columns: no socket, no clock.  Traps of group C by their numbers."""

import functools
import operator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.control import fleet as fleets
from penstock.control import wire
from penstock.control.aggregator import Upstream
from penstock.control.fleet import Fleet, Member
from penstock.policy.rules import Guard, Job, JobRule, Limit, Match, Policy

SITE = Policy(limits=(Limit("m", 1000.0),), lease_s=2.0)


def member(fleet: Fleet, node: str, jobs: list[str], limits: int = 1, now_s: float = 0.0) -> Member:
    """A node with these jobs under the first limits."""
    made = Member(node, heard_s=now_s)
    fleet.join(made)
    pairs = [(j, x) for j in range(len(jobs)) for x in range(limits)]
    said = wire.Rows(
        epoch=1,
        policy=fleet.number,
        jobs=[wire.Job(id=name, user="u") for name in jobs],
        job=np.array([j for j, _ in pairs], "<u4").tobytes(),
        limit=np.array([x for _, x in pairs], "<u4").tobytes(),
    )
    fleets.hear(fleet, made, (wire.FromAgent(rows=said),), now_s)
    return made


def report(fleet: Fleet, of: Member, asked: list[float], waiting: list[float], now_s: float) -> None:
    said = wire.Report(
        epoch=of.epoch, asked=np.array(asked, "<f8").tobytes(), waiting=np.array(waiting, "<f8").tobytes()
    )
    fleets.hear(fleet, of, (wire.FromAgent(report=said),), now_s)


def rates(cycle: fleets.Cycle) -> dict[str, list[float]]:
    return {m.node: list(np.frombuffer(rate)) for m, rate in cycle.grants}


def test_grants_come_back_in_the_order_of_each_members_rows() -> None:
    fleet = Fleet(SITE)
    a, b = member(fleet, "a", ["1", "2"]), member(fleet, "b", ["2"])
    report(fleet, a, [10, 0], [0, 0], 1.0)
    report(fleet, b, [500], [0], 1.0)

    got = rates(fleet.cycle(1.0, 1.0))

    assert len(got["a"]) == 2
    assert got["b"][0] > 625  # what it asks for, and room to grow
    assert sum(got["a"]) + sum(got["b"]) <= 1000 * (1 + 1e-9)


@pytest.mark.parametrize("change", ["fewer rows", "gone", "another policy"])
def test_who_asks_between_a_change_and_the_next_cycle_is_answered(change: str) -> None:
    """People ask at any moment; rows and columns of one answer are of one moment."""
    fleet = Fleet(SITE)
    a, b = member(fleet, "a", ["1", "2"]), member(fleet, "b", ["2"])
    report(fleet, a, [10, 20], [1, 1], 1.0)
    report(fleet, b, [500], [3], 1.0)
    fleet.cycle(1.0, 1.0)
    assert [row[:3] for row in fleet.sums()] == [(0, 0, 1), (1, 0, 2)]
    if change == "fewer rows":
        member(fleet, "a", ["1"])
    elif change == "gone":
        fleet.drop(a)
    else:
        fleet.set_policy(Policy(lease_s=2.0), 2)

    assert len(fleet.sums()) == {"fewer rows": 2, "gone": 1, "another policy": 0}[change]
    assert len(fleet.above()[0]) == len(fleet.sums())
    fleet.note_held(5.0)
    if change == "gone":
        assert fleet.sums()[0][3] == 500


def test_a_member_silent_for_a_lease_leaves_its_share_and_comes_back() -> None:
    """C02, C09: what a lost node had is given to others after its lease, by the controller's own clock."""
    fleet = Fleet(SITE)
    a, b = member(fleet, "a", ["1"]), member(fleet, "b", ["1"])
    for now_s in (0.5, 1.0):
        report(fleet, a, [500], [3], now_s)
        report(fleet, b, [500], [3], now_s)
        both = rates(fleet.cycle(now_s, now_s))
    report(fleet, a, [500], [3], 3.0)
    alone = rates(fleet.cycle(3.5, 3.5))
    report(fleet, b, [500], [3], 3.6)
    report(fleet, a, [999], [3], 3.6)
    again = rates(fleet.cycle(3.7, 3.7))

    assert both["a"] == pytest.approx([500])
    assert alone == {"a": pytest.approx([1000])}
    assert again["a"][0] + again["b"][0] == pytest.approx(1000)


@pytest.mark.parametrize("wild", [float("nan"), float("inf"), -1.0, 1e300])
def test_c03_absurd_numbers_are_refused_and_do_no_harm(wild: float) -> None:
    fleet = Fleet(SITE)
    a, b = member(fleet, "a", ["1"]), member(fleet, "b", ["2"])
    report(fleet, a, [wild], [0], 1.0)
    report(fleet, b, [2000], [5], 1.0)

    found = fleet.cycle(1.0, 1.0)

    assert found.refused == [(a, "the report of a holds absurd numbers; what it said before counts")]
    assert rates(found)["b"][0] > 990


def test_c03_what_a_member_said_before_it_said_nonsense_counts() -> None:
    fleet = Fleet(SITE)
    a, b = member(fleet, "a", ["1"]), member(fleet, "b", ["2"])
    report(fleet, b, [2000], [5], 1.0)
    report(fleet, a, [400], [0], 1.0)
    before = rates(fleet.cycle(1.0, 1.0))
    report(fleet, a, [4e16], [0], 1.1)
    found = fleet.cycle(1.1, 1.1)

    assert [m for m, _ in found.refused] == [a]
    assert rates(found)["a"] == pytest.approx(before["a"])
    assert fleet.cycle(1.2, 1.2).refused == []


def test_one_node_that_lies_about_its_latency_lowers_nothing() -> None:
    fleet = Fleet(replace(SITE, guard=Guard("m", 0.05, 10.0)))
    for number in range(9):
        made = member(fleet, f"n{number}", [str(number)])
        said = wire.Report(epoch=1, asked=bytes(8), waiting=bytes(8), latency_s=0.001 if number else 3599.0)
        fleets.hear(fleet, made, (wire.FromAgent(report=said),), 1.0)
    fleet.cycle(1.0, 1.0)
    for _ in range(60):
        fleet.guard()

    assert fleet.latency_s() == 0.001
    assert fleet.memory.rates == {"m": 1000.0}


def test_a_job_that_begins_as_another_ends_is_told_upwards_and_has_nothing_of_its() -> None:
    """An aggregator: the two have the same number one after the other, and the same pairs."""
    fleet, sent = Fleet(SITE), []
    up = Upstream.__new__(Upstream)
    up.epoch, up.told, up.keys, up.rates, up.until_s = 0, (), [], np.zeros(0), 0.0
    up.uplink = SimpleNamespace(connected=True, send=lambda said: sent.append(said) or True)  # type: ignore[assignment]
    a, b = member(fleet, "x", ["A"]), member(fleet, "y", [])
    report(fleet, a, [10], [0], 1.0)
    fleet.cycle(1.0, 1.0, up.totals(fleet))
    up.report(fleet)
    up.rates = np.array([700.0])
    of_a = rates(fleet.cycle(1.1, 1.1, up.totals(fleet)))
    a, b = member(fleet, "x", []), member(fleet, "y", ["B"])
    report(fleet, a, [], [], 1.2)
    report(fleet, b, [10], [0], 1.2)
    of_b = rates(fleet.cycle(1.2, 1.2, up.totals(fleet)))
    up.report(fleet)
    told = [[job.id for job in said.rows.jobs] for said in sent if said.WhichOneof("what") == "rows"]

    assert (of_a["x"], of_b["y"]) == ([700.0], [0.0])
    assert told == [["A"], ["B"]]


hostile = st.one_of(st.floats(0, 1e6), st.sampled_from([-1.0, 1e300, float("nan"), float("inf")]))


@given(
    st.lists(st.tuples(hostile, hostile), min_size=1, max_size=8), st.sampled_from(["maxmin", "proportional"])
)
def test_c05_whatever_is_reported_the_sum_holds(rows: list[tuple[float, float]], sharing: str) -> None:
    fleet = Fleet(Policy(limits=(Limit("m", 777.0, sharing=sharing),)))
    for number, (asked, waiting) in enumerate(rows):
        made = member(fleet, f"n{number}", [f"j{number % 3}"])
        report(fleet, made, [asked], [waiting], 1.0)
    for now_s in (1.0, 1.1, 1.2):
        found = fleet.cycle(now_s, now_s)
        assert found.wrong == ""
        given_out = np.array(functools.reduce(operator.iadd, rates(found).values(), []))
        assert np.isfinite(given_out).all()
        assert (given_out >= 0).all()
        assert given_out.sum() <= 777 * (1 + 1e-6)


def test_c06_the_order_of_joining_changes_nothing() -> None:
    got = []
    for order in ("abc", "cab"):
        fleet = Fleet(SITE)
        for node in order:
            made = member(fleet, node, [f"job-{node}"])
            report(
                fleet,
                made,
                [{"a": 100.0, "b": 900.0, "c": 900.0}[node]],
                [{"a": 0, "b": 2, "c": 2}[node]],
                1.0,
            )
        got.append(rates(fleet.cycle(1.0, 1.0)))

    for node in "abc":
        assert got[0][node] == pytest.approx(got[1][node])


def test_c07_a_job_is_split_by_backlog_with_remainders_kept() -> None:
    fleet = Fleet(Policy(limits=(Limit("m", 2.0, per="job"),)))
    nodes = [member(fleet, f"n{i}", ["1"]) for i in range(10)]
    for number, made in enumerate(nodes):
        busy = number == 3
        report(fleet, made, [2.0 * busy], [4.0 * busy], 1.0)

    got = rates(fleet.cycle(1.0, 1.0))

    assert sum(map(sum, got.values())) == pytest.approx(2.0)
    assert all(rate[0] > 0 for rate in got.values())
    assert got["n3"][0] == max(rate[0] for rate in got.values())


def test_c04_a_greedy_job_is_back_within_three_cycles_after_its_neighbour_left() -> None:
    fleet = Fleet(SITE)
    a, b = member(fleet, "a", ["greedy"]), member(fleet, "b", ["other"])
    has = 500.0
    for step in range(4):
        report(fleet, a, [has], [4], 1 + step / 10)
        report(fleet, b, [500.0 if step == 0 else 0.0], [4 if step == 0 else 0], 1 + step / 10)
        has = rates(fleet.cycle(1 + step / 10, 1.0))["a"][0]

    assert has > 950


def test_columns_of_the_wrong_length_and_unknown_names_are_refused() -> None:
    fleet = Fleet(SITE)
    a = member(fleet, "a", ["1"])

    with pytest.raises(wire.WireError, match="columns of a are not as long as its rows"):
        report(fleet, a, [1, 2], [0, 0], 1.0)
    rows = wire.Rows(epoch=2, policy=1, jobs=[], job=bytes(4), limit=bytes(4))
    with pytest.raises(wire.WireError, match="name what is not there"):
        fleet.rows_of(a, rows)
    with pytest.raises(wire.WireError, match="speaks of policy 99"):
        fleet.rows_of(a, wire.Rows(epoch=2, policy=99))
    with pytest.raises(wire.WireError, match="do not fit together"):
        fleet.rows_of(a, wire.Rows(epoch=2, policy=1, job=bytes(4)))


def test_another_policy_keeps_rows_under_limits_of_the_same_name() -> None:
    fleet = Fleet(SITE)
    a = member(fleet, "a", ["1"])
    report(fleet, a, [900], [5], 1.0)
    fleet.cycle(1.0, 1.0)
    fleet.set_policy(Policy(limits=(Limit("new", 5.0), Limit("m", 600.0))), 2)
    b = member(fleet, "b", ["2"], limits=2)
    report(fleet, b, [5, 600], [1, 5], 1.1)
    found = fleet.cycle(1.2, 1.2)

    assert rates(found)["b"][1] < 400  # `a` has not answered yet, and still counts
    assert "a" not in rates(found)
    assert fleet.grants.rate.sum() <= 605 * (1 + 1e-9)


def test_jobs_are_forgotten_with_the_last_node_that_has_them() -> None:
    fleet = Fleet(SITE)
    a, b = member(fleet, "a", ["1", "2"]), member(fleet, "b", ["2"])
    fleet.drop(a)
    assert [known.job.id for known in fleet.known().values()] == ["2"]
    fleet.drop(b)
    c = member(fleet, "c", ["3", "4"])
    report(fleet, c, [1, 1], [0, 0], 1.0)
    fleet.cycle(1.0, 1.0)

    assert sorted(known.job.id for known in fleet.known().values()) == ["3", "4"]
    assert len(fleet.sums()) == 2


def test_an_aggregator_sums_upwards_and_splits_what_it_is_given() -> None:
    policy = Policy(limits=(Limit("m", 1000.0), Limit("n", 50.0, per="node")))
    fleet = Fleet(policy)
    a, b = member(fleet, "a", ["1", "2"], limits=2), member(fleet, "b", ["1"], limits=2)
    report(fleet, a, [100, 9, 20, 9], [2, 0, 0, 0], 1.0)
    report(fleet, b, [30, 9], [0, 0], 1.0)
    fleet.cycle(1.0, 1.0, {})
    pairs, (asked, waiting, _) = fleet.above()
    known = fleet.known()
    sums = {known[job].job.id: (asked[i], waiting[i]) for i, (_, job) in enumerate(pairs)}
    given_out = {pair: {"1": 90.0, "2": 10.0}[known[pair[1]].job.id] for pair in pairs}
    got = rates(fleet.cycle(1.1, 1.1, given_out))

    assert sums == {"1": (130, 2), "2": (20, 0)}
    assert got["a"][0] + got["b"][0] == pytest.approx(90)
    assert got["a"][2] == pytest.approx(10)
    assert got["a"][1] + got["a"][3] <= 50 * (1 + 1e-9)


def test_an_unjust_decision_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    """C05: what the arithmetic gives is checked, not believed."""
    fleet = Fleet(SITE)
    a = member(fleet, "a", ["1"])
    report(fleet, a, [1], [0], 1.0)
    real = fleets.deciding.decide

    def twice(*args: Any) -> Any:
        grants, memory = real(*args)
        return fleets.Grants(grants.rate * 3, grants.shares), memory

    monkeypatch.setattr(fleets.deciding, "decide", twice)
    found = fleet.cycle(1.0, 1.0)

    assert found.grants == []
    assert found.wrong == "the rates of 'm' sum to 3000, above 1000"


def test_reasons_go_out_once_until_they_change() -> None:
    policy = Policy(
        limits=(Limit("m", 100.0, sharing="proportional"),), jobs=(JobRule(Match(jobs=("1",)), {"m": 75.0}),)
    )
    fleet = Fleet(policy)
    a = member(fleet, "a", ["1", "2"])
    report(fleet, a, [99, 99], [9, 9], 1.0)
    fleet.cycle(1.0, 1.0)
    first, second = fleet.whys_of(a), fleet.whys_of(a)

    assert next(iter(first.text)) == "its fair share of m: it asks for 100/s"
    assert second is None
    assert fleet.known()[0].job == Job("1", "", "u", "")
