# SPDX-License-Identifier: Apache-2.0
"""The site's decision: its laws on any rows, and how it moves rates between nodes and jobs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from penstock.policy import deciding, demand, segments
from penstock.policy.deciding import Memory, Rows
from penstock.policy.rules import Guard, Job, JobRule, Limit, Match, Policy
from penstock.policy.sharing import water

hostile = st.one_of(st.floats(0, 1e9), st.sampled_from([0.0, -1.0, 1e300, float("nan"), float("inf")]))


@given(st.data())
def test_filling_columns_is_filling_basins(data: st.DataObject) -> None:
    count, pools = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 5))
    pool = data.draw(arrays.arrays(np.int64, count, elements=st.integers(0, pools - 1)))
    wish = data.draw(arrays.arrays(float, count, elements=st.floats(0, 1e6)))
    weight = data.draw(arrays.arrays(float, count, elements=st.floats(0.1, 10)))
    totals = data.draw(arrays.arrays(float, pools, elements=st.floats(0, 1e6)))

    got = segments.fill(totals, pool, wish, weight)

    for p in range(pools):
        mine = np.flatnonzero(pool == p)
        basins = [water.Basin(0.0, float(wish[i]), float(weight[i])) for i in mine]
        assert got[mine] == pytest.approx(water.fill(float(totals[p]), basins), rel=1e-6, abs=1e-6)


def rows_of(*rows: tuple[int, int, float, float, float], limit: int = 0) -> Rows:
    """job, node, asked, waiting, grant."""
    table = np.array(rows, dtype=float).reshape(-1, 5)
    return Rows(
        job=table[:, 0].astype(np.int64),
        node=table[:, 1].astype(np.int64),
        limit=np.full(len(table), limit, dtype=np.int64),
        asked=table[:, 2],
        waiting=table[:, 3],
        grant=table[:, 4],
        jobs=tuple(Job(f"id{i}", f"name{i}", "alice" if i < 2 else "bob") for i in range(4)),
    )


row = st.tuples(st.integers(0, 3), st.integers(0, 5), hostile, st.floats(0, 100), hostile)


@given(st.lists(row, max_size=12), st.sampled_from(["maxmin", "proportional", "drf"]), st.floats(1, 1e6))
def test_rates_are_finite_and_never_above_the_sites_limit(
    rows: list[tuple[int, int, float, float, float]], sharing: str, rate: float
) -> None:
    policy = Policy(limits=(Limit("m", rate, sharing=sharing),))

    grants, _ = deciding.decide(0.0, rows_of(*rows), policy, Memory())

    assert np.isfinite(grants.rate).all()
    assert (grants.rate >= 0).all()
    assert grants.rate.sum() <= rate * (1 + 1e-9)


@given(st.lists(row, min_size=1, max_size=10), st.randoms())
def test_the_order_of_rows_changes_nothing(
    rows: list[tuple[int, int, float, float, float]], chance: object
) -> None:
    policy = Policy(limits=(Limit("m", 1000.0),))
    order = list(range(len(rows)))
    chance.shuffle(order)  # type: ignore[attr-defined]

    first, _ = deciding.decide(0.0, rows_of(*rows), policy, Memory())
    second, _ = deciding.decide(0.0, rows_of(*(rows[i] for i in order)), policy, Memory())

    assert second.rate == pytest.approx(first.rate[order], rel=1e-6, abs=1e-6)


def test_the_busy_node_of_a_job_gets_what_the_idle_ones_leave() -> None:
    policy = Policy(limits=(Limit("m", 100.0, per="job"),))

    grants, _ = deciding.decide(
        0.0, rows_of((0, 0, 25, 3, 25), (0, 1, 0, 0, 25), (0, 2, 4, 0, 50)), policy, Memory()
    )

    busy, idle, little = grants.rate
    assert busy == pytest.approx(100 - 1 - 5.2)
    assert idle == pytest.approx(1)
    assert little == pytest.approx(5.2)


@settings(max_examples=30)
@given(st.floats(1.0, 1e5))
def test_a_greedy_job_is_back_within_three_decisions_after_its_neighbour_left(total: float) -> None:
    policy = Policy(limits=(Limit("m", total),))
    memory, rate = Memory(), np.array([total / 2, total / 2])
    for step in range(4):
        idle = 0.0 if step else total / 2
        rows = rows_of((0, 0, rate[0], 4, rate[0]), (2, 1, idle, 0 if step else 4, rate[1]))
        grants, memory = deciding.decide(float(step), rows, policy, memory)
        rate = grants.rate

    assert rate[0] >= total * 0.95 - 2


class Loop:
    """Jobs with buckets, and the deciding over them by intervals.  Each asks for a mean, by chance, or for all."""

    def __init__(self, total: float, shares: list[float], burst_s: float) -> None:
        count = len(shares)
        rules = tuple(JobRule(Match(jobs=(f"id{i}",)), {"m": total / count}) for i in range(count))
        self.policy = Policy(limits=(Limit("m", total, sharing="proportional", burst_s=burst_s),), jobs=rules)
        self.means = np.array(shares) * total
        self.burst_s = burst_s
        self.chance = np.random.default_rng(7)
        self.memory, self.steps = Memory(), 0
        self.rate = np.full(count, total / 100)
        self.saved, self.owed = np.zeros(count), np.zeros(count)
        self.waits = np.zeros(count)

    def step(self) -> np.ndarray[Any, Any]:
        """What passed in an interval."""
        dt = self.policy.interval_s
        self.owed += np.where(
            np.isinf(self.means), 1e12, self.chance.poisson(np.minimum(self.means, 1e9) * dt)
        )
        passed = np.minimum(self.owed, self.saved + self.rate * dt)
        self.saved = np.minimum(self.saved + self.rate * dt - passed, self.rate * self.burst_s)
        self.owed -= passed
        waiting = np.where(self.owed > 0, 1.0, 0.0)
        self.waits += waiting
        rows = rows_of(*((i, i, passed[i] / dt, waiting[i], self.rate[i]) for i in range(len(self.rate))))
        grants, self.memory = deciding.decide(self.steps * dt, rows, self.policy, self.memory)
        self.rate, self.steps = grants.rate, self.steps + 1
        return passed / dt


@pytest.mark.parametrize("total", [3e3, 3e4, 3e5])
@pytest.mark.parametrize("burst_s", [0.05, 0.1])
def test_what_content_jobs_do_not_use_is_used_by_who_wants_more(total: float, burst_s: float) -> None:
    """Three jobs ask for a fifth each, one for all there is: nearly nothing stays unused, and the three hardly wait."""
    loop = Loop(total, [0.2, 0.2, 0.2, np.inf], burst_s)
    passed = [loop.step().sum() for _ in range(400)][50:]

    assert sum(passed) / len(passed) >= 0.96 * total
    assert (loop.waits[:3] <= 0.03 * 400).all()


@pytest.mark.parametrize("total", [3e3, 3e5])
def test_an_idle_reservation_is_back_in_three_intervals(total: float) -> None:
    loop = Loop(total, [0.0, 0.2, 0.2, np.inf], 0.1)
    for _ in range(100):
        loop.step()
    loop.means[0] = np.inf
    back = [loop.step()[0] for _ in range(4)]

    assert back[3] >= 0.95 * total / 4


def test_a_limit_per_user_is_shared_by_the_users_jobs() -> None:
    policy = Policy(limits=(Limit("m", 100.0, per="user"),))

    grants, _ = deciding.decide(
        0.0, rows_of((0, 0, 99, 9, 50), (1, 0, 99, 9, 50), (2, 0, 99, 9, 50)), policy, Memory()
    )

    assert grants.rate == pytest.approx([50, 50, 100])


def test_reservations_units_and_reasons_reach_the_grants() -> None:
    policy = Policy(
        limits=(Limit("m", 100.0, sharing="proportional"),),
        jobs=(JobRule(Match(jobs=("id0",)), {"m": 75.0}), JobRule(Match(), {"m": 25.0})),
    )

    grants, _ = deciding.decide(0.0, rows_of((0, 0, 99, 9, 50), (2, 0, 99, 9, 50)), policy, Memory())

    assert grants.rate == pytest.approx([75, 25])
    assert "fair share" in grants.shares[0, 0].why


def test_the_guard_lowers_and_raises() -> None:
    policy = Policy(limits=(Limit("m", 100.0),), guard=Guard("m", latency_s=0.02, least=30.0))
    memory = Memory()
    seen = []
    for latency in [0.05] * 20 + [0.001] * 60:
        memory = deciding.guard(policy, memory, latency)
        seen.append(memory.rates["m"])

    assert min(seen) == 30.0
    assert seen[-1] == 100.0


def test_demand_of_those_who_wait_is_open() -> None:
    got = demand.estimate(
        np.array([10.0, 10.0, 0.1]), np.array([0.0, 2.0, 1.0]), np.array([100.0, 10.0, 100.0]), 1e3
    )

    assert got.tolist() == pytest.approx([11.5, 1000.0, 1.105])


@given(st.lists(row, min_size=1, max_size=12), st.floats(1, 1e6))
def test_jobs_without_rules_get_what_the_algorithm_gives_them(
    rows: list[tuple[int, int, float, float, float]], rate: float
) -> None:
    """The way in columns, against one rule that says nothing, which takes the other way."""
    limits = (Limit("m", rate),)

    quick, _ = deciding.decide(0.0, rows_of(*rows), Policy(limits=limits), Memory())
    other, _ = deciding.decide(0.0, rows_of(*rows), Policy(limits=limits, jobs=(JobRule(Match()),)), Memory())

    assert quick.rate == pytest.approx(other.rate, rel=1e-6, abs=1e-6)
    assert {pair: share.why for pair, share in quick.shares.items()} == {
        pair: share.why for pair, share in other.shares.items()
    }


def test_dominant_shares_are_decided_for_all_resources_at_once() -> None:
    """One needs metadata, one bytes: each has most of what it needs most; apart both would have half and half."""
    limits = (Limit("meta", 100.0, sharing="drf"), Limit("data", 1000.0, bytes=True, sharing="drf"))
    rows = Rows(
        job=np.array([0, 0, 1, 1, 1]),
        node=np.array([0, 0, 1, 1, 2]),
        limit=np.array([0, 1, 0, 1, 1]),
        asked=np.array([70.0, 250.0, 25.0, 400.0, 400.0]),
        waiting=np.array([1.0, 0, 0, 1, 1]),
        grant=np.array([70.0, 250.0, 30.0, 400.0, 400.0]),
        jobs=(Job("a"), Job("b")),
    )
    grants, memory = deciding.decide(0.0, rows, Policy(limits=limits), Memory())
    sums = {
        (j, x): float(grants.rate[(rows.job == j) & (rows.limit == x)].sum()) for j in (0, 1) for x in (0, 1)
    }
    dominant = [sums[0, 0] / 100, sums[1, 1] / 1000]
    apart, _ = deciding.decide(
        0.0, rows, Policy(limits=(limits[0], replace(limits[1], sharing="maxmin"))), memory
    )

    assert sums[0, 0] + sums[1, 0] <= 100 + 1e-6
    assert sums[0, 1] + sums[1, 1] <= 1000 + 1e-6
    assert dominant[0] == pytest.approx(dominant[1], rel=0.02)
    assert sums[0, 0] > float(apart.rate[0]) + 1  # of what its data is worth less to it
    assert "which it needs most" in grants.shares[0, 0].why


@given(st.lists(st.tuples(row, st.integers(0, 1)), max_size=12), st.floats(1, 1e6))
def test_dominant_shares_keep_each_limit(rows: list[Any], rate: float) -> None:
    policy = Policy(limits=(Limit("m", rate, sharing="drf"), Limit("d", 2 * rate, sharing="drf")))
    found = rows_of(*(r for r, _ in rows))
    found = replace(found, limit=np.array([x for _, x in rows], dtype=np.int64))

    grants, _ = deciding.decide(0.0, found, policy, Memory())

    assert deciding.broken(found, grants.rate, policy) == ""
