# SPDX-License-Identifier: Apache-2.0
"""penstock report, as a user types it."""

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runs import made


@pytest.fixture
def history(tmp_path: Path) -> Path:
    made.put(tmp_path / "history", 1, made.payloads(1))
    made.put(tmp_path / "history", 2, made.payloads(2, shared=False))
    return tmp_path / "history"


def test_one_screen(run_penstock: Any, history: Path) -> None:
    """The last run, in no more lines than a terminal has."""
    shown = run_penstock("report")

    assert shown.returncode == 0
    assert shown.stderr == ""
    assert len(shown.stdout.splitlines()) <= 40
    assert max(map(len, shown.stdout.splitlines())) <= 100
    for words in (
        "job 4702",
        "8 ranks",
        "sampled and scaled",
        "512 MiB",
        "1 GiB",
        "stat 240",
        "a file per rank",
    ):
        assert words in shown.stdout


def test_shared_file_is_told(run_penstock: Any, history: Path) -> None:
    assert "one shared file, used by all 8 ranks" in run_penstock("report", "4701").stdout


def test_top_and_files(run_penstock: Any, history: Path) -> None:
    top = run_penstock("report", "--top", "2").stdout
    whole = run_penstock("report", "--files").stdout

    assert top.count("/scratch/ann/out.0") == 2
    assert "and 6 more files and folders: penstock report " in top
    assert whole.count("/scratch/ann/out.0") == 8


def test_csv(run_penstock: Any, history: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run_penstock("report", "4701", "--csv").stdout)))

    assert [row["rank"] for row in rows] == [str(rank) for rank in range(8)]
    assert sum(int(row["bytes_written"]) for row in rows) == 2**30
    assert {row["stripe_count"] for row in rows} == {"4"}
    assert rows[0]["targets"] == "0 1 2 3"
    assert rows[0]["common_sizes"] == "1048576:180 4096:12"


def test_json(run_penstock: Any, history: Path) -> None:
    document = json.loads(run_penstock("report", "4701", "--json").stdout)

    assert document["schema_version"] == 1
    assert document["write"]["bytes"] == 2**30
    assert document["write"]["slowest_process_s"] == 3
    assert len(document["files"]) == 8
    assert document["operations"][0]["name"] == "write"
    assert document["targets"] == [{"target": n, "files": 1, "bytes": 3 * 2**27} for n in range(4)]


@pytest.mark.parametrize("form", [[], ["--csv"], ["--json"]])
def test_names_that_are_no_text(run_penstock: Any, tmp_path: Path, form: list[str]) -> None:
    """Bytes that are no UTF-8, newlines and terminal codes are shown as what they are, in every form."""
    hostile = b'/s/\xff\n\x1b]0;x\x07\xe2\x80\xae,"\\<b>&'
    node = made.record.Node(node="n1", final=True, files=[made.file(hostile, 0, 0, made.T0)])
    made.put(tmp_path / "history", 1, [made.begin(1), node, made.end(1)])

    shown = run_penstock("report", *form, LC_ALL="C")

    text = shown.stdout
    if form == ["--csv"]:
        text = next(csv.DictReader(io.StringIO(text)))["path"]
    elif form:
        text = json.loads(text)["files"][0]["path"]
    assert shown.returncode == 0
    assert r"/s/\xff\x0a\x1b]0;x\x07\u202e," + '"' + r"\\<b>&" in text


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        ([], 4, "no runs are recorded yet; start one with: penstock run -- ./app"),
        (["--set", "history.dir=/proc/1/mem"], 12, "the history /proc/1/mem cannot be read"),
    ],
)
def test_errors_are_one_sentence(run_penstock: Any, words: list[str], status: int, sentence: str) -> None:
    shown = run_penstock("report", *words)

    assert (shown.returncode, shown.stdout) == (status, "")
    assert shown.stderr.startswith(f"penstock report: {sentence}")
    assert len(shown.stderr.splitlines()) == 1


def test_page(run_penstock: Any, history: Path, tmp_path: Path) -> None:
    shown = run_penstock("report", "--html", str(tmp_path / "job.html"))

    text = (tmp_path / "job.html").read_text()
    assert (shown.returncode, shown.stdout) == (0, "")
    assert shown.stderr == f"penstock: wrote {tmp_path}/job.html\n"
    assert text.startswith("<!DOCTYPE html>")
    assert text.count("<svg") == 7
    assert "/scratch/ann/out.0007" in text


def test_page_that_cannot_be_written(run_penstock: Any, history: Path) -> None:
    shown = run_penstock("report", "--html", "/proc/no/page.html")

    assert shown.returncode == 12
    assert shown.stderr.startswith("penstock report: the page /proc/no/page.html cannot be written")


PROGRAM = """
import os, sys
folder = sys.argv[1]
for i in range(3):
    with open(f"{folder}/f{i}", "wb", buffering=0) as file:
        for k in range(10):
            file.write(b"x" * 65536)
with open(f"{folder}/f0", "rb", buffering=0) as file:
    while file.read(4096):
        pass
"""


def test_a_real_run(run_penstock: Any, tmp_path: Path) -> None:
    """What a program did is what the report says, from the preloaded library to the CSV."""
    script = tmp_path / "work.py"
    script.write_text(PROGRAM)
    (tmp_path / "data").mkdir()

    ran = run_penstock("run", "--", sys.executable, str(script), str(tmp_path / "data"))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    shown = run_penstock("report", "--csv")
    document = json.loads(run_penstock("report", "--json").stdout)
    listed = json.loads(run_penstock("runs", "--json").stdout)["runs"]

    rows = {Path(row["path"]).name: row for row in csv.DictReader(io.StringIO(shown.stdout))}
    for i in range(3):
        assert (rows[f"f{i}"]["writes"], rows[f"f{i}"]["bytes_written"]) == ("10", str(10 * 65536))
    assert (rows["f0"]["opens"], rows["f0"]["reads"], rows["f0"]["bytes_read"]) == ("2", "161", "655360")
    assert rows["f0"]["common_sizes"].split()[0] == "4096:161"  # the one at the end of the file too
    assert document["write"]["bytes"] == 30 * 65536
    assert document["run"]["partial"] == []
    assert [(run["program"], run["exit_status"], run["ended"]) for run in listed] == [("work.py", 0, True)]
