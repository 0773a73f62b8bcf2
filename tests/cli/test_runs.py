# SPDX-License-Identifier: Apache-2.0
"""penstock runs, as a user types it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runs import made


@pytest.fixture
def history(tmp_path: Path) -> Path:
    for number in (1, 2, 3):
        made.put(tmp_path / "history", number, made.payloads(number))
    python = {"exe": b"/usr/bin/python3.11", "argv": [b"python", b"/h/tr\xff\x1b[31main.py"]}
    frames = [
        made.begin(4, user="bob", expected_ranks=0),
        made.record.Node(node="n1", final=True, processes=[made.process(-1, made.T0, size=0, **python)]),
        made.end(4, status=None, signal=9),
    ]
    made.put(tmp_path / "history", 4, frames)
    made.put(tmp_path / "history", 5, made.payloads(5)[:2])
    return tmp_path / "history"


def test_list_newest_first(run_penstock: Any, history: Path) -> None:
    shown = run_penstock("runs")

    lines = shown.stdout.splitlines()
    assert shown.returncode == 0
    assert shown.stderr == ""
    assert lines[0].split()[:4] == ["run", "began", "job", "program"]
    assert [line.split()[3] for line in lines[1:]] == ["4705", "4704", "4703", "4702", "4701"]
    assert lines[1].endswith("partial")
    assert "signal 9" in lines[2]
    assert r"tr\xff\x1b[31main.py" in lines[2]


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (["--job", "4702"], ["4702"]),
        (["--user", "bob"], ["4704"]),
        (["--program", "IO"], ["4705", "4703", "4702", "4701"]),
        (["--since", "2026-09-21T14:18:00+00:00"], ["4705", "4704", "4703"]),
        (["--partial"], ["4705"]),
        (["--limit", "1"], ["4705"]),
        (["list", "--limit", "1"], ["4705"]),
        (["--job", "none"], []),
        (["--since", "1s"], []),
    ],
)
def test_filters(run_penstock: Any, history: Path, words: list[str], jobs: list[str]) -> None:
    document = json.loads(run_penstock("runs", *words, "--json").stdout)

    assert document["schema_version"] == 1
    assert [run["job"] for run in document["runs"]] == jobs


def test_filters_hold_before_and_behind_list(run_penstock: Any, history: Path) -> None:
    one, two = run_penstock("runs", "--job", "4702", "list"), run_penstock("runs", "list", "--job", "4702")

    assert one.stdout == two.stdout
    assert len(one.stdout.splitlines()) == 2


def test_json_row(run_penstock: Any, history: Path) -> None:
    row = json.loads(run_penstock("runs", "--json", "--job", "4701").stdout)["runs"][0]

    assert row["run"] == made.run_of(1).hex()
    assert row["bytes_written"] == 8 * 128 * made.MIB
    assert row["duration_s"] == 11
    assert (row["ranks"], row["files"], row["exit_status"], row["partial"]) == (8, 1, 0, [])


def test_show(run_penstock: Any, history: Path) -> None:
    shown = run_penstock("runs", "show", "4705")
    document = json.loads(run_penstock("runs", "show", "4705", "--json").stdout)

    assert "4 ranks of the job were not seen" in shown.stdout
    assert "try: start the program itself through penstock-run" in shown.stdout
    assert document["partial"][0]["word"] == "ranks_missing"
    assert [row["rank"] for row in document["process_rows"]] == [0, 1, 2, 3]
    assert document["process_rows"][0]["argv"] == ["./ior", "-a", "POSIX"]


def test_empty_history_says_what_to_type(run_penstock: Any) -> None:
    shown = run_penstock("runs")

    assert (shown.returncode, shown.stdout) == (0, "")
    assert shown.stderr == "penstock: no runs are recorded yet; start one with: penstock run -- ./app\n"
    assert json.loads(run_penstock("runs", "--json").stdout)["runs"] == []


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (["runs", "show", "zz"], 4, "there is no run 'zz'; penstock runs lists them"),
        (["runs", "forget", "zz"], 4, "there is no run 'zz'; penstock runs lists them"),
        (["runs", "--since", "2026-19-01"], 2, "--since 2026-19-01: write a date like 2026-11-01"),
        (["runs", "--since", "soon"], 2, "'soon' is not a time"),
        (["runs", "--set", "history.dir=/proc/1/mem"], 12, "the history /proc/1/mem cannot be read"),
    ],
)
def test_errors_are_one_sentence(
    run_penstock: Any, history: Path, words: list[str], status: int, sentence: str
) -> None:
    shown = run_penstock(*words)

    assert shown.returncode == status
    assert shown.stderr.startswith(f"penstock runs: {sentence}")
    assert len(shown.stderr.splitlines()) == 1


def test_forget(run_penstock: Any, history: Path) -> None:
    dry = run_penstock("runs", "forget", "-n", "4702", "4703")
    assert len(run_penstock("runs").stdout.splitlines()) == 6

    done = run_penstock("runs", "forget", "4702", "4703")

    assert dry.stdout.replace("would be ", "") == done.stdout
    assert [line.split()[3] for line in run_penstock("runs").stdout.splitlines()[1:]] == [
        "4705",
        "4704",
        "4701",
    ]
    assert run_penstock("report", "4702").returncode == 4


def test_forget_what_is_old(run_penstock: Any, history: Path) -> None:
    (history / "n1/2020-01.seg").write_bytes(b"")

    dry = run_penstock("runs", "forget", "--dry-run", PENSTOCK_HISTORY_KEEP="0")

    assert dry.stdout == ""
    assert "nothing is older" in dry.stderr
