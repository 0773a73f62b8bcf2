# SPDX-License-Identifier: Apache-2.0
"""Traces: read from both formats, damaged lines named; scaled and sped up without losing operations; made up like
the published ones."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import UsageError
from penstock.tools import trace_make, traces

COUNTS = """# interval_s = 10
time_s,open,close,cached
100,20,30,1
110,0,5,1
"""
SINGLE = "time_s,operation\n0.5,open\n0.5,close\n0.75,getattr\n"


def read(tmp_path: Path, text: str) -> tuple[list[traces.Span], traces.Trace]:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    trace = traces.Trace(path)
    return list(trace), trace


def test_counts_by_interval(tmp_path: Path) -> None:
    """Time begins with the first row; a column of no operation is named."""
    spans, trace = read(tmp_path, COUNTS)

    assert spans == [(0, 10, "open", 20), (0, 10, "close", 30), (10, 10, "close", 5)]
    assert trace.unknown == ["cached"]
    assert trace.damaged == 0


def test_single_operations(tmp_path: Path) -> None:
    spans, _ = read(tmp_path, SINGLE)

    assert spans == [(0, 0, "open", 1), (0, 0, "close", 1), (0.25, 0, "getattr", 1)]


def test_dates_as_time(tmp_path: Path) -> None:
    spans, _ = read(tmp_path, "time,open\n2026-11-01T00:00:00+00:00,1\n2026-11-01T00:01:00+00:00,2\n")

    assert spans == [(0, 60, "open", 1), (60, 60, "open", 2)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("20,1", "has 2 fields, not 3"),
        ("20,1,x", "holds 'x', which is no number"),
        ("20,1,-5", "holds '-5', which is out of range"),
        ("20,1,nan", "holds 'nan', which is out of range"),
        ("20,1,1e99", "holds '1e99', which is out of range"),
        ("soon,1,2", "has no time: 'soon'"),
        ("\udcff\udcfe,1,2", r"has no time: '\xff\xfe'"),
        ("5,1,2", "goes back in time, or overlaps the interval before it"),
    ],
)
def test_a_damaged_line_is_named_and_passed_over(tmp_path: Path, line: str, why: str) -> None:
    spans, trace = read(tmp_path, f"# interval_s = 10\ntime_s,open,close\n0,1,2\n{line}\n30,5,6\n")

    assert trace.damages == [(4, why)]
    assert spans[-2:] == [(30, 10, "open", 5), (30, 10, "close", 6)]
    assert len(spans) == 4


def test_many_damaged_lines_are_counted(tmp_path: Path) -> None:
    _, trace = read(tmp_path, "time_s,operation\n0,open\n" + "0,fly\n" * 100)

    assert trace.damaged == 100
    assert len(trace.damages) == traces.MAX_NAMED


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b\n1,2\n", "does not begin as a trace"),
        ("time_s,fly,swim\n1,2,3\n", "has no column of a known operation"),
        ("time_s,open,open\n1,2,3\n", "has two columns of one name"),
        ("", "holds no operation that can be replayed"),
        ("time_s,open\n0,x\n", "holds no operation that can be replayed: line 2 holds 'x'"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read(tmp_path, text)


SPANS = st.lists(st.integers(0, 500), min_size=1, max_size=50).map(
    lambda counts: [traces.Span(10.0 * i, 10.0, "open", count) for i, count in enumerate(counts)]
)


@given(SPANS, st.floats(0.001, 10), st.floats(0.01, 1000))
def test_scaling_loses_nothing_over_the_whole(spans: list[traces.Span], scale: float, speed: float) -> None:
    """The operations are what scale and speed leave, to one; their spans are in order and do not overlap."""
    rows = [line.split() for line in traces.schedule(spans, scale, speed)]
    wanted = sum(span.times for span in spans) * scale / speed
    ends = [0]
    for _, start, length, _ in rows:
        assert int(start) >= ends[-1]
        ends.append(int(start) + int(length))

    assert wanted - 1 < sum(int(row[3]) for row in rows) <= wanted + 1e-3
    assert ends[-1] <= round(spans[-1].start_s / speed * 1e9 + 10e9 / speed) + 1


@pytest.mark.parametrize("seed", range(4))
def test_made_up_traces_are_like_the_published_one(tmp_path: Path, seed: int) -> None:
    spans, trace = read(tmp_path, "".join(trace_make.lines(1, seed)))
    found = traces.facts(traces.statistics(spans))
    share = found["share"]
    assert isinstance(share, dict)

    assert trace.damaged == 0
    assert trace.synthetic.startswith("synthetic: made by penstock replay make")
    assert found["mean_ops_per_s"] == pytest.approx(200_000, rel=0.01)
    assert found["most_ops_per_s"] == pytest.approx(1_000_000, rel=0.001)
    assert found["least_ops_per_s"] < 50_000  # type: ignore[operator]
    assert found["longest_stretch_above_400k_hours"] >= 2  # type: ignore[operator]
    assert share["getattr"] == pytest.approx(95.8 / 200, rel=0.01)
    assert share["close"] == pytest.approx(43.5 / 200, rel=0.01)
    assert share["open"] == pytest.approx(29 / 200, rel=0.01)
    assert sum(share[n] for n in ("open", "close", "getattr", "rename")) == pytest.approx(0.98, abs=0.002)


def test_the_same_seed_makes_the_same_trace() -> None:
    assert list(trace_make.lines(1, 7)) == list(trace_make.lines(1, 7))
    assert list(trace_make.lines(1, 7)) != list(trace_make.lines(1, 8))


def test_the_longest_stretch_is_of_hourly_means() -> None:
    quarter = 900.0
    assert traces.longest_above([1.0, 9, 9, 9, 9, 9, 1, 1], 5, quarter) == pytest.approx(7 / 4)
    assert traces.longest_above([1.0] * 8, 5, quarter) == 0
