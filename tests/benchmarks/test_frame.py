# SPDX-License-Identifier: Apache-2.0
"""The frame of the benchmarks: medians, spreads, bounds, rounds in turn, and nothing left behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP))
from benchmarks import frame  # noqa: E402


def test_a_row_is_the_median_with_the_middle_half() -> None:
    row = frame.seen("x", [1, 2, 3, 4, 100], "ns")
    assert (row.measured, row.spread, row.holds) == (3, 2, None)


def test_bounds_hold_or_not() -> None:
    assert frame.at_most("x", [4, 5, 6], "ns", 5).holds is True
    assert frame.at_most("x", [4, 5.1, 6], "ns", 5).holds is False
    assert frame.at_least("x", [4, 5, 6], "op/s", 5).holds is True
    assert frame.at_least("x", [4, 4.9, 6], "op/s", 5).holds is False


def test_cells_are_measured_in_turn_and_not_one_after_the_other() -> None:
    order: list[str] = []
    cells = {name: (lambda name=name: order.append(name) or 1.0) for name in "abc"}
    got = frame.interleave(cells, 3)
    assert "".join(order) == "abccbaabc"
    assert got == {name: [1.0, 1.0, 1.0] for name in "abc"}


def test_differences_and_ratios_pair_the_rounds() -> None:
    assert frame.minus([3, 5], [1, 2]) == [2, 3]
    assert frame.over([3, 5], [1, 2]) == [3, 2.5]


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.000123, "0.000123"), (12.345, "12.35"), (1234567, "1,234,567")]
)
def test_figures_are_printed_without_powers(value: float, text: str) -> None:
    assert frame.short(value) == text


def test_a_table_is_printed_kept_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """As a user would: one table by name, its JSON, and no file or mount of it afterwards."""
    results, scratch = tmp_path / "results", tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "benchmarks", "interpose", "--rounds", "1", "--into", str(results)]
    done = subprocess.run(
        command,
        check=False,
        cwd=TOP,
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    assert done.returncode == 0, done.stderr
    assert "read 4 KiB, recorded: floor" in done.stdout
    kept = json.loads((results / "interpose.json").read_text())
    assert kept["schema"] == 1
    assert {"cpu", "kernel", "load", "date", "commit"} <= set(kept["machine"])
    added = [
        r for r in kept["rows"] if r["what"].endswith("recorded: floor") and r["unit"] == "instructions added"
    ]
    assert all(row["measured"] > 5 for row in added)
    assert len(added) == 3
    assert list(scratch.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_an_unknown_table_is_refused_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "nonesuch"], check=False, cwd=TOP, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "no table named nonesuch" in done.stderr
