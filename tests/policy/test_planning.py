# SPDX-License-Identifier: Apache-2.0
"""Plans: what is placed and what is left, what it costs and gains; examples and laws."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.placing import ledger, planning
from penstock.policy.placing.contract import (
    ALIGN_BYTES,
    DIGITS,
    Action,
    Expected,
    Match,
    PlanSettings,
    Situation,
    Target,
)
from penstock.policy.placing.planning import plan
from penstock.runs import place_section
from penstock.targets import lov

MB = 1e6
TARGETS = [Target(i, f"oss{i // 5}", 1e11, 9e10) for i in range(15)]


def where(**fields: object) -> Situation:
    return replace(Situation("/scratch", 1000.0, TARGETS, default_count=4), **fields)  # type: ignore[arg-type]


def file(name: str, megabytes: float, **fields: object) -> Expected:
    return Expected(Match((name.encode(),)), megabytes * MB, **fields)  # type: ignore[arg-type]


def test_large_files_are_placed_and_promised() -> None:
    made = plan([file(f"/scratch/out.{i}", 800) for i in range(8)], where())

    assert [e.action for e in made.entries] == [Action.PLACE] * 8
    assert all(e.stripe_count == 4 and len(e.turns[0]) == 4 for e in made.entries)
    assert sum(made.promises.values()) == pytest.approx(8 * 800 * MB)
    assert made.extra_requests == 24
    assert made.gain_s > made.cost_s
    assert len(made.spare) == 15 and len(set(made.spare)) == 15


def test_small_appended_unknown_and_composite_files_are_left() -> None:
    made = plan(
        [
            file("/s/small", 0.01),
            file("/s/log", 900, append=True),
            file("/s/any", 900, error=0.8),
            file("/s/pfl", 900, composite=True, gain_known=True),
            file("/s/big", 900),
        ],
        where(),
    )

    actions = {e.match.pieces[0]: e.action for e in made.entries}
    assert actions == {
        b"/s/small": Action.STOCK,
        b"/s/log": Action.STOCK,
        b"/s/pfl": Action.STOCK,
        b"/s/big": Action.PLACE,
    }
    assert "unknown" in made.notes[0]
    assert all(e.why for e in made.entries)


def test_the_threshold_can_be_set() -> None:
    made = plan([file("/s/small", 0.01)], where(), PlanSettings(small_bytes=0))

    assert made.entries[0].action is Action.PLACE


def test_components_only_where_they_are_allowed_and_the_gain_is_known() -> None:
    may = PlanSettings(parts=True)
    known = file("/s/a", 6400, composite=True, gain_known=True, stripe_count=8, stripe_size_bytes=4 << 20)

    (entry,) = plan([known], where(), may).entries
    (guessed,) = plan([replace(known, gain_known=False)], where(), may).entries

    assert guessed.action is Action.STOCK
    assert entry.turns == ()
    first, rest = entry.parts
    assert (first.stripe_count, rest.stripe_count, rest.end_bytes) == (1, 8, 0)
    assert first.end_bytes % first.stripe_size_bytes == 0
    assert first.targets == rest.targets[:1]


@pytest.mark.parametrize(
    "fields", [{"composite": True, "gain_known": True, "stripe_count": 8}, {"stripe_count": 40}]
)
def test_files_alike_with_one_layout_are_not_all_on_one_list(fields: dict[str, object]) -> None:
    many = [Target(i, f"oss{i // 8}", 1e11, 9e10) for i in range(48)]
    alike = replace(Expected(Match((b"/s/", DIGITS), (None,)), 6400 * MB, files=6), **fields)  # type: ignore[arg-type]

    made = plan([alike], where(targets=many), PlanSettings(parts=True))

    (entry,) = made.entries
    assert entry.action is Action.PLACE and entry.turns == () and made.promises == {}
    assert not any(part.targets for part in entry.parts) and "file system chooses" in entry.why
    (one,) = plan([replace(alike, files=1)], where(targets=many), PlanSettings(parts=True)).entries
    assert one.turns or one.parts[1].targets
    section = place_section.encode(made, place_section.Place("lustre", "/s"))
    assert section.left_out == 0
    assert struct.pack("<I", lov.SPECIFIC) not in section.data


def test_files_alike_take_turns() -> None:
    alike = Expected(Match((b"/s/", DIGITS), (None,)), 500 * MB, files=6)

    (entry,) = plan([alike], where()).entries

    assert len(entry.turns) == 6
    assert len({t for row in entry.turns for t in row}) == 15


def test_without_room_files_go_stock() -> None:
    full = [replace(t, free_bytes=1e6) for t in TARGETS]

    made = plan([file("/s/a", 5000)], where(targets=full))

    assert made.entries[0].action is Action.STOCK
    assert "room" in made.entries[0].why
    assert made.promises == {}


def test_no_usable_target_is_said() -> None:
    """P07."""
    none = [replace(t, usable=False, why_not="inactive") for t in TARGETS]

    made = plan([file("/s/a", 5000)], where(targets=none))

    assert made.spare == ()
    assert any("no target" in note for note in made.notes)


def test_without_a_keeper_two_random_choices() -> None:
    alone = planning.with_ledger(where(), ledger.Ledger())
    shared = planning.with_ledger(where(), ledger.promise(ledger.Ledger(), "x", {3: 7e9}, 999.0))

    assert plan([file("/s/a", 500)], alone).allocator == "two-choices"
    made = plan([file("/s/a", 500)], shared)
    assert made.allocator == "finish"
    assert 3 not in made.entries[0].turns[0]
    assert made.spare.index(3) >= 10


def test_a_count_of_minus_one_is_all_usable() -> None:
    able = [replace(t, usable=t.id != 2) for t in TARGETS]

    (entry,) = plan([file("/s/a", 5000)], where(default_count=-1, targets=able)).entries

    assert entry.stripe_count == 14


def test_more_entries_than_a_board_takes() -> None:
    """The largest stay; the rest is said."""
    made = plan([file(f"/s/{i}", 100 + i) for i in range(20)], where(), PlanSettings(entries_max=5))

    assert [e.match.pieces[0] for e in made.entries] == [b"/s/15", b"/s/16", b"/s/17", b"/s/18", b"/s/19"]
    assert any("15 of 20" in note for note in made.notes)


def test_names_expected_twice_are_one() -> None:
    made = plan([file("/s/a", 500), file("/s/a", 900)], where())

    assert [e.bytes_each for e in made.entries] == [500 * MB]


@given(
    size=st.floats(1, 1e12),
    count=st.integers(1, 200),
    stripe=st.sampled_from([65536, 1 << 20, 4 << 20, 1 << 26]),
)
def test_even_stripes_are_legal_and_never_less_even(size: float, count: int, stripe: int) -> None:
    """D03: multiples of 64 KiB, below 4 GiB."""
    made = planning.even_stripe_bytes(size, count, stripe)

    def most(stripe_bytes: int) -> float:
        rounds, rest = divmod(size, stripe_bytes * count)
        return rounds * stripe_bytes + min(rest, stripe_bytes)

    assert made % ALIGN_BYTES == 0 and 0 < made < 1 << 32
    assert most(made) <= most(stripe) + ALIGN_BYTES * max(size // (stripe * count), 1)


sizes = st.one_of(st.floats(), st.floats(0, 1e13))


@given(
    st.lists(
        st.tuples(sizes, st.one_of(st.floats(), st.just(0.1)), st.integers(-5, 300), st.integers(-2, 40))
    )
)
def test_any_expectation_makes_a_sane_plan(rows: list[tuple[float, float, int, int]]) -> None:
    """Poisoned sizes, errors and counts (zero, infinite, negative)."""
    expected = [
        Expected(Match((b"/s/%d" % i,)), size, error, files, stripe_count=count)
        for i, (size, error, count, files) in enumerate(rows)
    ]
    made = plan(expected, where())

    placed = sum(e.bytes_each * e.files for e in made.entries if e.action is Action.PLACE)
    assert sum(made.promises.values()) == pytest.approx(placed, rel=1e-6, abs=len(rows) + 1)
    for entry in made.entries:
        if entry.action is Action.PLACE:
            assert entry.turns and all(len(row) == entry.stripe_count for row in entry.turns)
            assert all(len(set(row)) == len(row) for row in entry.turns)
            assert entry.stripe_size_bytes % ALIGN_BYTES == 0
