# SPDX-License-Identifier: Apache-2.0
"""Prediction: workloads as papers have them, odd names that nobody wrote a rule for, and histories made to hurt."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import writers
from penstock.policy.placing.contract import DIGITS, MARKS
from penstock.policy.predicting import arima, names
from penstock.policy.predicting.contract import Coming, RunFiles, Seen
from penstock.policy.predicting.forecast import Forecast, learn, learn_anew, surprise, to_place


def runs_of(writer: writers.Writer, count: int = 4) -> list[RunFiles]:
    return [
        RunFiles(
            tuple(Seen(name, size, rank, order=i) for i, (name, size, rank) in enumerate(rows)),
            writer.ranks(run),
            b"%d" % writers.job_of(run),
        )
        for run, rows in enumerate(writers.runs(writer, count))
    ]


def accuracy(forecast: Forecast, run: RunFiles) -> float:
    guess = forecast.sizes([f.name for f in run.files], run.ranks)
    return float(
        np.mean(
            [
                1 - abs(g.bytes - f.bytes) / max(g.bytes, f.bytes, 1)
                for g, f in zip(guess, run.files, strict=True)
            ]
        )
    )


PREDICTABLE = [w for w in (*writers.PLAIN, *writers.ODD) if w.predictable]


@pytest.mark.parametrize("writer", PREDICTABLE, ids=lambda w: w.name)
def test_three_runs_foretell_the_fourth(writer: writers.Writer) -> None:
    """P06: exact names would never match; templates do."""
    *past, last = runs_of(writer)
    forecast = learn(past)

    assert accuracy(forecast, last) >= 0.99
    assert surprise(forecast, last.files).expected == len(last.files)


@pytest.mark.parametrize("writer", PREDICTABLE, ids=lambda w: w.name)
def test_the_number_of_files_is_foretold(writer: writers.Writer) -> None:
    *past, last = runs_of(writer)
    expected = learn(past).expected(Coming(last.ranks, last.job))

    assert sum(p.files for p in expected) == len(last.files)
    assert all(0 <= p.error <= 1 for p in expected)
    index = learn(past).index()
    entries = {(p.match.pieces, p.match.values) for p in expected}
    for f in last.files:  # each name meets an entry, stated or wide
        found = index.find(f.name)
        assert found is not None
        pieces = index.templates[found[0]].pieces
        assert any(
            pieces == p and all(want in (None, got) for want, got in zip(values, found[1], strict=True))
            for p, values in entries
        )


@pytest.mark.parametrize(
    "writer",
    [w for w in writers.PLAIN if w.predictable and "more processes" not in w.name],
    ids=lambda w: w.name,
)
def test_one_run_is_enough_where_nothing_scales(writer: writers.Writer) -> None:
    runs = runs_of(writer)

    assert accuracy(learn(runs[2:3]), runs[3]) >= 0.99


def test_sizes_by_chance_have_a_large_error() -> None:
    (logs,) = [w for w in writers.PLAIN if not w.predictable]
    forecast = learn(runs_of(logs)[:3])

    errors = [g.error for g in forecast.sizes([f.name for f in runs_of(logs)[3].files])]
    assert min(errors) > 0.35


def test_a_name_of_no_template_is_unknown_or_like_its_namesakes() -> None:
    forecast = learn(runs_of(writers.PLAIN[0])[:3])

    assert forecast.size(b"/s/ior/other/thing.txt").error == 1.0
    namesake = forecast.size(b"/elsewhere/x/testfile.00000003")
    assert namesake.bytes == pytest.approx(1e9) and namesake.error == 0.3
    assert learn([]).size(b"/a").error == 1.0


def test_ranks_told_change_the_files_and_make_sizes_less_sure() -> None:
    forecast = learn(runs_of(writers.PLAIN[0])[:1])

    sixteen = [p for p in forecast.expected(Coming(ranks=16)) if p.files]
    assert [p.name for p in sixteen] == [b"/s/ior/testfile.%08d" % r for r in range(16)]
    assert sixteen[0].error == 0.3
    assert len([p for p in forecast.expected(Coming(ranks=128)) if p.files]) == 128


def test_names_counted_from_one_follow_the_ranks() -> None:
    run = RunFiles(tuple(Seen(b"/o/p%d" % (r + 1), 10**8, r) for r in range(8)), 8)

    found = [p.name for p in learn([run, run]).expected(Coming(ranks=10)) if p.files]

    assert found == [b"/o/p%d" % (r + 1) for r in range(10)]


def test_steps_that_go_on_are_told_by_name() -> None:
    (restarts,) = [w for w in writers.ODD if "restart" in w.name]
    runs = runs_of(restarts)

    told = {p.name for p in learn(runs[:3]).expected() if p.files}

    assert told == {f.name for f in runs[3].files}


def test_more_than_half_unexpected_triggers_learning() -> None:
    """P06: N changes, the program changes."""
    old, new = runs_of(writers.PLAIN[0])[:3], runs_of(writers.ODD[1])[:1]

    assert surprise(learn(old), new[0].files).learn
    assert not surprise(learn(old), old[0].files).learn
    anew = learn_anew([*old, *new])
    assert anew.runs == 1
    assert surprise(anew, new[0].files).expected == len(new[0].files)
    assert learn_anew(old).runs == 3
    assert surprise(learn([]), old[0].files).learn
    assert not surprise(learn(old), ()).learn


def test_shared_files_are_told_from_files_of_one() -> None:
    shared = RunFiles((Seen(b"/o/all.h5", 10**9, 0, writers=8, communicator=8),), 8)
    single = RunFiles(tuple(Seen(b"/o/p%d" % r, 10**9, r) for r in range(8)), 8)

    (one,) = [p for p in learn([shared]).expected() if p.files]
    many = [p for p in learn([single]).expected() if p.files]

    assert (one.shared, one.rank, one.communicator) == (True, -1, 8)
    assert [(p.shared, p.rank) for p in many] == [(False, r) for r in range(8)]


def test_what_a_plan_takes_lies_on_its_file_system() -> None:
    both = RunFiles((Seen(b"/fast/a.1", 10**9), Seen(b"/home/b.1", 10**9)))

    (only,) = [e for e in to_place(learn([both]).expected(), b"/fast") if e.files]

    assert only.match.pieces[0] == b"/fast/a."


# -- laws ----------------------------------------------------------------------------------------------------

word = st.one_of(
    st.sampled_from([b"out", b"rank", b"7", b"0042", b"a1b2c3", b"x", b"model", b"\xff", b""]),
    st.binary(max_size=4),
    st.from_regex(rb"[a-z]{1,3}[0-9]{1,3}", fullmatch=True),
)
name = st.builds(
    lambda parts, between: b"/" + between.join(parts),
    st.lists(word, min_size=1, max_size=4),
    st.sampled_from([b"_", b"/", b"."]),
).map(lambda n: n.replace(b"\0", b"0"))
size = st.one_of(st.integers(0, 10**12), st.just(0), st.just(2**63), st.just(-5))


@given(st.lists(st.lists(st.tuples(name, size, st.integers(-1, 5)), max_size=12), max_size=4))
def test_anything_can_be_learned_from(rows: list[list[tuple[bytes, int, int]]]) -> None:
    """Poisoned: no files, sizes of zero, negative, beyond all; names of any bytes, twice."""
    runs = [RunFiles(tuple(Seen(n, s, r) for n, s, r in run), len(run)) for run in rows]
    forecast = learn(runs)

    for p in forecast.expected(Coming(3)):
        assert np.isfinite(p.bytes) and p.bytes >= 0 and 0 <= p.error <= 1
        marks = [piece for piece in p.match.pieces if piece in MARKS]
        assert len(marks) == len(p.match.values)
        assert all(literal for literal in p.match.pieces)
    for run in runs:
        found = surprise(forecast, run.files)
        assert found.expected == found.files
    assert forecast == learn(runs) or [p.how for p in forecast.expected()] == [
        p.how for p in learn(runs).expected()
    ]


@given(st.lists(name, min_size=1, max_size=30), st.integers(1, 3))
def test_every_name_is_of_its_template(given_names: list[bytes], runs: int) -> None:
    groups = names.group(given_names, [i % runs for i in range(len(given_names))])

    assert sorted(row for g in groups for row in g.rows) == list(range(len(given_names)))
    index = names.Index([g.template for g in groups])
    for g in groups:
        for row in g.rows:
            values = g.template.values(given_names[row])
            assert values is not None
            assert index.find(given_names[row]) is not None
            assert g.template.name_with(given_names[row], values) == given_names[row]


@given(st.lists(name, min_size=1, max_size=20))
def test_literals_do_not_go_on_with_a_mark(given_names: list[bytes]) -> None:
    """What the board's matching from left to right relies on."""
    for g in names.group(given_names, [0] * len(given_names)):
        pieces = g.template.pieces
        for one, two in itertools.pairwise(pieces):
            if one == DIGITS and two not in MARKS:
                assert not two[:1].isdigit()
            if two == DIGITS and one not in MARKS:
                assert not one[-1:].isdigit()
            assert not (one in MARKS and two in MARKS) or {one, two} <= {DIGITS, b"\0l"}


def test_templates_are_shown() -> None:
    (g,) = names.group([b"/a/x.007", b"/a/x.008"], [0, 0])

    assert names.show(g.template.pieces) == "/a/x.{#}"
    assert names.show(g.template.pieces, ["rank"]) == "/a/x.{rank}"
    assert re.fullmatch(g.template.regex, b"/a/x.9")


# -- ARIMA ---------------------------------------------------------------------------------------------------


class Clock:
    """Each look costs a tenth of a second."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.1
        return self.now_s


@pytest.mark.parametrize("series", [[], [5e9], [5e9] * 20, [0.0] * 9, [float("nan")] * 3, [1e9, 2e9, 3e9]])
def test_p10_short_and_constant_series_need_no_fit(series: list[float]) -> None:
    """P10."""
    found = arima.forecast(series, 3, Clock())

    assert found.tried == 0
    assert np.isfinite(found.values).all() and len(found.values) == 3


def test_p10_the_grid_ends_with_its_budget() -> None:
    """P10: 216 orders would take minutes."""
    draw = np.random.default_rng(1)
    series = list(1e9 + 1e8 * np.sin(np.arange(48)) + 1e7 * draw.normal(size=48))

    found = arima.forecast(series, 8, Clock(), budget_s=1.5)

    assert 0 < found.tried < 10
    assert np.isfinite(found.values).all() and (found.values >= 0).all()


def test_the_published_grid() -> None:
    assert len(arima.GRID) == 216
    assert {(5, 1, 2), (2, 1, 1)} <= set(arima.GRID)
