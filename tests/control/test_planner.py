# SPDX-License-Identifier: Apache-2.0
"""The site's planner as values: what is promised is what is answered, and who is refused is promised nothing."""

import asyncio
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import NoControllerError
from penstock.control import planner, plans, wire
from penstock.policy import guard
from penstock.policy.placing import central, planning
from penstock.policy.placing.contract import (
    Allocation,
    Expected,
    Match,
    PlanSettings,
    Situation,
    Target,
)
from penstock.policy.placing.ledger import Ledger, outstanding, written

GIB = 1 << 30
TARGETS = tuple(
    Target(i, f"oss{i % 3}", 100 * GIB, 100 * GIB, pools=frozenset({"fast"} if i < 4 else ()))
    for i in range(12)
)
FIGURES = central.Figures(100.0, TARGETS, {}, True)


def wanted(*rows: tuple[float, int, int, int], pools: tuple[str, ...] = ()) -> central.Wanted:
    """Rows of (bytes, count, files, pool)."""
    size, count, files, pool = (np.array(column) for column in zip(*rows, strict=True))
    return central.Wanted(size.astype(float), count, files, pool, np.ones(len(rows), dtype=bool), pools)


def load(found: central.Allotted) -> Counter[int]:
    return Counter(t for row in found.targets for file in row for t in file)


def test_jobs_that_ask_one_after_the_other_do_not_pile_up() -> None:
    ledger = Ledger()
    seen: Counter[int] = Counter()
    for job in range(12):
        found, ledger = central.decide(wanted((1e9, 2, 3, 0)), [FIGURES], ledger, f"n/{job}", 101.0)
        seen += load(found)
    assert set(seen.values()) == {6} and len(seen) == 12
    assert sum(outstanding(ledger, 101.0).values()) == pytest.approx(36e9)


def test_what_a_running_job_has_written_takes_no_room_twice() -> None:
    """Four targets of 10 TB; a job was promised half of each and has written most of that."""
    TB = 1e12
    targets = tuple(Target(i, "oss0", 10 * TB, 10 * TB) for i in range(4))
    _, ledger = central.decide(
        wanted((20 * TB, 4, 1, 0)), [replace(FIGURES, targets=targets)], Ledger(), "n/a", 101.0
    )
    later = replace(FIGURES, at_s=160.0, targets=tuple(replace(t, free_bytes=6 * TB) for t in targets))
    found, ledger = central.decide(wanted((0.8 * TB, 1, 1, 0)), [later], ledger, "n/b", 161.0)
    assert len(found.targets[0][0]) == 1
    assert sum(written(ledger, 161.0).values()) == pytest.approx(16 * TB)
    found, _ = central.decide(wanted((4.2 * TB, 1, 1, 0)), [later], ledger, "n/c", 161.0)
    assert len(found.targets[0][0]) == 1  # of 6 TB free, one is promised still


@settings(max_examples=60)
@given(
    rows=st.lists(
        st.tuples(st.floats(0, 1e12), st.integers(1, 20), st.integers(1, 5), st.integers(0, 1)),
        min_size=1,
        max_size=8,
    ),
    busy=st.lists(st.floats(0, 1e12), min_size=12, max_size=12),
)
def test_what_is_promised_is_what_is_answered(
    rows: list[tuple[float, int, int, int]], busy: list[float]
) -> None:
    figures = replace(FIGURES, moved=dict(enumerate(busy)))
    asked = wanted(*rows, pools=("fast",))
    found, ledger = central.decide(asked, [figures], Ledger(), "n/1", 110.0)
    assert not found.why and found.age_s == pytest.approx(10)
    sums: Counter[int] = Counter()
    for (size, count, files, pool), row in zip(rows, found.targets, strict=True):
        assert len(row) == files
        for file in row:
            assert len(set(file)) == len(file) and len(file) in (0, min(count, 4 if pool else 12))
            assert not pool or set(file) <= {0, 1, 2, 3}
            for target in file:
                sums[target] += max(size, 1.0) / len(file)
    assert set(found.promises) == set(sums)
    assert all(found.promises[t] == pytest.approx(sums[t]) for t in sums)
    held = outstanding(ledger, 110.0)
    assert all(held[t] == pytest.approx(sums[t]) for t in sums)


@pytest.mark.parametrize(
    ("asked", "figures", "why"),
    [
        (wanted((1e9, 1, 1, 0)), [], "no agent has told"),
        (wanted((1e9, 1, 1, 0)), [replace(FIGURES, at_s=100.0 - central.STALE_S)], "no agent has told"),
        (wanted((1e9, 1, 1, 0)), [replace(FIGURES, at_s=1e6)], "no agent has told"),
        (wanted((float("nan"), 1, 1, 0)), [FIGURES], "size is absurd"),
        (wanted((-1.0, 1, 1, 0)), [FIGURES], "size is absurd"),
        (wanted((1e9, 0, 1, 0)), [FIGURES], "number of stripes is absurd"),
        (wanted((1e9, 1, 1 << 40, 0)), [FIGURES], "for more than"),
        (wanted((1e9, 1, 1, 2), pools=("x",)), [FIGURES], "names a pool"),
        (
            wanted((1e9, 1, 1, 0)),
            [replace(FIGURES, mds=(guard.Busy("mds0", 0.71, 0.1, 0),))],
            "mds0 uses 71%",
        ),
        (
            wanted((1e9, 1, 1, 0)),
            [replace(FIGURES, mds=(guard.Busy("mds0", 0.1, 0.51, 0),))],
            "mds0 uses 51%",
        ),
    ],
)
def test_who_is_refused_is_promised_nothing(
    asked: central.Wanted, figures: list[central.Figures], why: str
) -> None:
    held = Ledger()
    found, ledger = central.decide(asked, figures, held, "n/1", 101.0)
    assert why in found.why and ledger is held and not found.targets and not found.promises


def test_traffic_is_everybodys_where_servers_count_it_else_the_sum_of_the_nodes() -> None:
    rate = float(200 << 20)
    parts = [replace(FIGURES, whole=False, moved={0: rate / 4}, at_s=100.0 + i) for i in range(2)]
    assert central.site_targets(parts, rate, 102.0)[0].busy == pytest.approx(0.5)
    whole = [*parts, replace(FIGURES, moved={0: rate / 10})]
    assert central.site_targets(whole, rate, 102.0)[0].busy == pytest.approx(0.1)


# -- plans from answers --------------------------------------------------------------------------------------

FILES = [
    Expected(Match((b"/m/a",)), 1e9, stripe_count=2),
    Expected(Match((b"/m/b",)), 2e9, files=3, pool="fast"),
    Expected(Match((b"/m/c",)), 10.0),
]
NOW = Situation("/m", 100.0, TARGETS, 1)
SMALL = PlanSettings(small_bytes=1000.0)


def answered(number: int = 1) -> tuple[list[planning.Asked], dict[str, bytes]]:
    """What the files ask for, and what a planner answers, both over the wire."""
    asked = planning.asked(FILES, NOW, SMALL)
    held = planner.Planner()
    held.hear("n1", wire.FromAgent(targets=planner.message_of("x", FIGURES, 100.0)), 100.0)
    said = wire.Wanted(number=number, file_system="x", **planner.wanted_columns(asked))
    answer = held.hear("n1", wire.FromAgent(wanted=said), 101.0).allotted
    assert not answer.why
    assert held.outstanding("x", 101.0)
    held.hear("n2", wire.FromAgent(over=wire.Over(file_system="x", number=[number])), 101.0)
    assert held.outstanding("x", 101.0)  # not another's to close
    held.hear("n1", wire.FromAgent(over=wire.Over(file_system="x", number=[number])), 101.0)
    assert not held.outstanding("x", 101.0)
    return asked, {key: getattr(answer, key) for key in plans.ANSWERS}


def test_names_that_users_make_up_take_no_room() -> None:
    """Whoever asks for hundreds of file systems closes the planner to none."""
    held = planner.Planner()
    columns = planner.wanted_columns(planning.asked(FILES, NOW, SMALL))
    for number in range(2 * planner.FILE_SYSTEMS_MAX):
        said = wire.Wanted(number=number, file_system=f"no{number}", **columns)
        assert "no agent has told" in held.hear("n1", wire.FromAgent(wanted=said), 101.0).allotted.why
        held.hear("n1", wire.FromAgent(over=wire.Over(file_system=f"no{number}", number=[number])), 101.0)
        assert held.outstanding(f"no{number}", 101.0) == {}
    held.hear("n1", wire.FromAgent(targets=planner.message_of("x", FIGURES, 100.0)), 100.0)
    assert list(held.known) == ["x"]


def test_an_answer_becomes_a_plan() -> None:
    asked, said = answered()
    given_ = planner.given_of(said, asked)
    assert planning.unfit(given_, asked, NOW) == ""
    made = planning.plan(FILES, NOW, SMALL, given_)
    assert made.allocator == "site" and made.promises == given_.promises
    entries = {e.match.pieces[0]: e for e in made.entries}
    assert len(entries[b"/m/a"].turns[0]) == 2 and len(entries[b"/m/b"].turns) == 3
    assert {t for turn in entries[b"/m/b"].turns for t in turn} <= {0, 1, 2, 3}
    assert not entries[b"/m/c"].turns


def test_foreign_answers_are_refused() -> None:
    asked, said = answered()
    for key, value in (("width", b"\0" * 4), ("target", said["target"] + b"\0" * 4), ("amount", b"\0")):
        with pytest.raises(wire.WireError, match="the controller's plan"):
            planner.given_of(said | {key: value}, asked)
    good = planner.given_of(said, asked)
    other = [Allocation([(99,) for _ in one.targets]) for one in good.found]
    twice = [Allocation([(1, 1) for _ in one.targets]) for one in good.found]
    for found in (other, twice):
        assert "may not get these files" in planning.unfit(good._replace(found=found), asked, NOW)
    assert "other files" in planning.unfit(good._replace(found=good.found[1:]), asked, NOW)
    assert "spare" in planning.unfit(good._replace(spare=(77,)), asked, NOW)


# -- in an agent -----------------------------------------------------------------------------------------------


def question() -> dict[str, str]:
    columns = planner.wanted_columns(planning.asked(FILES, NOW, SMALL))
    words = {name: columns[name].hex() for name in plans.COLUMNS}
    return {"file_system": "x", "pools": "/".join(columns["pools"]), **words}


def test_an_agent_without_a_controller_plans_for_its_node() -> None:
    held = plans.Plans("n1", lambda _: False, planner.Planner())
    held.told("x", replace(FIGURES, at_s=time.monotonic()))
    first = asyncio.run(held.allot(7, question()))
    second = asyncio.run(held.allot(7, question()))
    assert first["number"] != second["number"] and not first["why"]
    assert [row["plan_ns"] for row in held.of_user(7)] == [int(first["number"]), int(second["number"])]
    assert held.of_user(8) == []
    for one in held.standing.values():
        one.until_s -= plans.UNBOUND_S / 2
    held.look()
    assert len(held.standing) == 2
    for one in held.standing.values():
        one.until_s -= plans.UNBOUND_S
    held.look()  # no board took them
    assert not held.standing and not held.own.outstanding("x", time.monotonic())


def test_nobody_waits_for_a_controller_that_is_lost() -> None:
    async def ask() -> None:
        sent: list[object] = []
        held = plans.Plans("n1", lambda value: sent.append(value) or True, None)
        asking = asyncio.ensure_future(held.allot(7, question()))
        while not sent:
            await asyncio.sleep(0)
        held.lost()
        with pytest.raises(NoControllerError, match="lost while it planned"):
            await asking
        assert not held.pending
        held.send = lambda _: False
        with pytest.raises(NoControllerError, match="lost its controller"):
            await held.allot(7, question())

    asyncio.run(ask())
