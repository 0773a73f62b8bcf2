# SPDX-License-Identifier: Apache-2.0
"""penstock policy try on a history, as an administrator types it."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Penstock
from tests.runs import made

TIGHT = '[[limit]]\nname = "each job"\nrate = "{}"\nper = "job"\ncalls = "{}"\n'


@pytest.fixture
def history(tmp_path: Path) -> Path:
    made.put(tmp_path / "history", 1, made.payloads(1))
    made.put(tmp_path / "history", 2, made.payloads(2))
    return tmp_path


def policy(folder: Path, text: str) -> str:
    path = folder / "new.toml"
    path.write_text(text)
    return str(path)


def test_who_would_have_been_held_back(run_penstock: Penstock, history: Path) -> None:
    """The recorded runs wrote for ten seconds; a tenth of their rate makes that a hundred."""
    runs = json.loads(run_penstock("runs", "--json").stdout)["runs"]
    seconds = (runs[0]["end_ns"] - runs[0]["start_ns"]) / 1e9
    report = json.loads(run_penstock("report", runs[0]["run"], "--json").stdout)
    written = next(op["bytes"] for op in report["operations"] if op["name"] == "write")
    rate = round(written / seconds / 10)
    words = ("--since", "2020-01-01", "-o", str(history / "try.svg"), "--json")
    shown = run_penstock("policy", "try", policy(history, TIGHT.format(f"{rate}/s", "data")), *words)
    assert shown.returncode == 0, shown.stderr
    rows = json.loads(shown.stdout)["runs"]

    assert {row["run"] for row in rows} == {row["run"] for row in runs}
    for row in rows:
        assert row["limit"] == "each job"
        assert row["delay_s"] == pytest.approx(9 * seconds, rel=0.02)
    assert "each job" in (history / "try.svg").read_text()


def test_a_wide_policy_holds_back_nobody(run_penstock: Penstock, history: Path) -> None:
    shown = run_penstock(
        "policy", "try", policy(history, TIGHT.format("1G/s", "metadata")), "--since", "2020-01-01"
    )

    assert shown.stdout.splitlines()[0] == "None of 2 runs would have been held back."
    assert "the limit 1G/s" in shown.stdout


def test_the_table_names_run_delay_and_limit(run_penstock: Penstock, history: Path) -> None:
    shown = run_penstock(
        "policy", "try", policy(history, TIGHT.format("0/s", "metadata")), "--since", "2020-01-01"
    )

    assert "2 of 2 runs would have been held back; 2 would never have ended." in shown.stdout
    assert "never done  each job" in shown.stdout


def test_no_runs_is_no_error(run_penstock: Penstock, tmp_path: Path) -> None:
    shown = run_penstock("policy", "try", policy(tmp_path, TIGHT.format("1/s", "metadata")))

    assert (shown.returncode, shown.stdout) == (0, "")
    assert "no runs are recorded yet" in shown.stderr
