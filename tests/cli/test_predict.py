# SPDX-License-Identifier: Apache-2.0
"""`penstock predict` as people type it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.model import writers
from tests.runs import written


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


def program(history: Path, name: str, title: str, runs: int = 3) -> None:
    (writer,) = [w for w in (*writers.PLAIN, *writers.ODD) if w.name == title]
    for number, rows in enumerate(writers.runs(writer, runs)):
        written.put(history, name, number, rows, writer.ranks(number))


def test_templates_on_the_screen(run_penstock: Any, history: Path) -> None:
    program(history, "amr", "growth a step times rank")

    shown = run_penstock("predict", "amr")

    assert "/s/amr/plt{returning}/Level_{constant}/Cell_D_{rank}" in shown.stdout
    assert "640 files from 3 runs" in shown.stdout
    assert "100 % of the names" in shown.stdout


def test_every_file_as_json_with_a_pattern_that_matches(run_penstock: Any, history: Path) -> None:
    program(history, "ior", "file per process, constant")

    found = json.loads(run_penstock("predict", "ior", "--json").stdout)

    assert found["last_error_ratio"] == 0
    stated = [f for f in found["files"] if f["files"]]
    assert len(stated) == 64
    assert sorted(f["name"] for f in stated) == [f"/s/ior/testfile.{r:08d}" for r in range(64)]
    assert all(re.fullmatch(f["regex"], f["name"]) for f in stated)
    assert {f["bytes"] for f in stated} == {10**9}
    assert sorted(f["rank"] for f in stated) == list(range(64))


def test_more_ranks(run_penstock: Any, history: Path) -> None:
    program(history, "hacc", "more processes each run")

    found = json.loads(run_penstock("predict", "hacc", "--ranks", "64", "--json").stdout)

    stated = [f for f in found["files"] if f["files"]]
    assert len(stated) == 64
    assert {f["bytes"] for f in stated} == {13_500_000_000 // 64}


def test_some_names(run_penstock: Any, history: Path) -> None:
    program(history, "flash", "every tenth is large, one name")

    found = json.loads(
        run_penstock(
            "predict", "flash", "--json", "--for", "/s/flash/dump_0040", "/s/flash/dump_0041", "/x"
        ).stdout
    )

    large, small, stranger = found["files"]
    assert large["bytes"] > 40 * small["bytes"]
    assert (large["known"], stranger["known"]) == (True, False)


def test_the_last_run_checked(run_penstock: Any, history: Path) -> None:
    program(history, "train", "three kinds of checkpoint, date and job in the path")

    shown = run_penstock("predict", "train", "--check")

    assert "100 % right in size" in shown.stdout
    assert "100 % of 36 names were expected" in shown.stdout


def test_another_program_under_the_same_name_is_learned_anew(run_penstock: Any, history: Path) -> None:
    """More than half of the names were not expected: what was learned is dropped, without being asked."""
    program(history, "app", "file per process, constant")
    (other,) = [w for w in writers.ODD if w.name == "times with a point as folders"]
    written.put(history, "app", 7, writers.runs(other, 1)[0], 16)

    found = json.loads(run_penstock("predict", "app", "--json").stdout)

    assert len(found["learned_from"]) == 1
    assert all("/w/cfd/" in f["template"] for f in found["files"])


def test_failed_runs_do_not_teach(run_penstock: Any, history: Path) -> None:
    """N03."""
    program(history, "ior", "file per process, constant")
    written.put(history, "ior", 9, [(b"/s/ior/testfile.00000000", 17, 0)], 64, status=1)

    found = json.loads(run_penstock("predict", "ior", "--json").stdout)

    assert {f["bytes"] for f in found["files"]} == {10**9}


def test_arima_by_order(run_penstock: Any, history: Path) -> None:
    program(history, "ior", "file per process, constant")

    shown = run_penstock("predict", "ior", "--method", "arima", "--check")

    assert "100.0 % right in size" in shown.stdout


def test_a_program_that_never_ran(run_penstock: Any, history: Path) -> None:
    program(history, "ior", "file per process, constant", 1)

    assert run_penstock("predict", "nobody").returncode == 4
    assert run_penstock("predict", "ior", "--check").returncode == 4
