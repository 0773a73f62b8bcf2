# SPDX-License-Identifier: Apache-2.0
"""`penstock layout` and `penstock targets` as a user types them, on a plain file system."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from penstock.base.errors import UsageError
from penstock.cli.layout import describe, parse_targets
from penstock.report.layout import drawn, page, shares
from penstock.targets.layouts import EOF, Component, Layout

PENSTOCK = Path(sys.executable).with_name("penstock")
MIB = 1 << 20


def penstock(*words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in (PENSTOCK, *words)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, done.stderr
    return done


def test_file_without_stripes(tmp_path: Path) -> None:
    file = tmp_path / "a\nb"
    file.write_bytes(b"x" * 5000)
    assert penstock("layout", "get", file).stdout == f"{tmp_path}/a\\x0ab: on target 0\n"
    (row,) = json.loads(penstock("layout", "get", "--json", file).stdout)["files"]
    assert (row["file"], row["components"][0]["targets"]) == (str(file), [0])
    held = json.loads(penstock("layout", "explain", "--json", file).stdout)
    assert (held["size_bytes"], held["targets"]) == (5000, [{"target": 0, "bytes": 5000}])
    assert "█" * 64 in penstock("layout", "explain", file).stdout


def test_folder_has_no_bytes(tmp_path: Path) -> None:
    assert penstock("layout", "explain", tmp_path).stdout.splitlines()[-1] == "no bytes to show"


def test_one_missing_file_does_not_hide_the_others(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("x")
    done = penstock("layout", "get", tmp_path / "absent", tmp_path / "here", status=1)
    assert "here: on target 0" in done.stdout
    assert "absent: reading the layout: No such file" in done.stderr


def test_plain_file_system_sets_no_layouts(tmp_path: Path) -> None:
    done = penstock("layout", "set", "-c", 4, tmp_path / "new", status=1)
    assert "has no layouts to set" in done.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-c", "2", "--osts", "1,2,3"], "contradict"),
        (["-c", "-2"], "-1 for all"),
        (["-S", "big"], "big"),
        (["--osts", "1,x"], "'x' is no target"),
        (["--osts", "0-9999999"], "too many"),
    ],
)
def test_impossible_wishes(tmp_path: Path, words: list[str], said: str) -> None:
    assert said in penstock("layout", "set", *words, tmp_path / "f", status=2).stderr


def test_targets_of_a_plain_mount(tmp_path: Path) -> None:
    lines = penstock("targets", tmp_path, "--every", "100ms").stdout.splitlines()
    assert lines[0].split()[:3] == ["TARGET", "NAME", "SERVER"]
    assert lines[-1].startswith("1 target, ")
    said = json.loads(penstock("targets", tmp_path, "--every", "100ms", "--json").stdout)
    assert said["file_system"] == "posix"
    assert said["targets"][0]["id"] == 0
    assert said["targets"][0]["stale"] is False


def test_watch_goes_on_until_interrupted(tmp_path: Path) -> None:
    words = [PENSTOCK, "targets", tmp_path, "--watch", "--json", "--every", "100ms"]
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for _ in range(3):
            assert json.loads(process.stdout.readline())["targets"]
        process.terminate()


def test_this_machine_as_a_server() -> None:
    (said,) = json.loads(penstock("targets", "--server", "--every", "100ms", "--json").stdout)["servers"]
    assert 0 <= said["cpu"] <= 1
    assert "processors" in penstock("targets", "--server", "--every", "100ms").stdout


@pytest.mark.parametrize("words", [[], ["/", "--every", "1ms"]])
def test_targets_wants_one_thing(words: list[str]) -> None:
    penstock("targets", *words, status=2)


def test_no_targets_of_a_place_that_is_not_there(tmp_path: Path) -> None:
    done = penstock("targets", tmp_path / "nowhere", status=2)
    assert done.stderr.count("\n") == 1
    assert "is not there" in done.stderr


def test_table_fits_the_screen() -> None:
    from penstock.cli.targets import fitting

    lines = ["HEAD", *(f"row {i}" for i in range(1024)), "sum"]
    shown = fitting(lines, 24)
    assert len(shown) == 23
    assert shown[:2] == ["HEAD", "row 0"]
    assert shown[-2:] == ["and 1004 more: make the window taller, or say --json", "sum"]
    assert fitting([*lines[:10], "sum"], 24) == [*lines[:10], "sum"]
    assert fitting(lines, 1)[-1] == "sum"


def test_servers_that_cannot_be_seen() -> None:
    assert "run --server on them" in penstock("targets", "/", "--server", status=4).stderr


def test_lists_of_targets() -> None:
    assert parse_targets("3,5,7-9") == (3, 5, 7, 8, 9)
    assert parse_targets("") == ()
    for wrong in ("-3", "1-", "1.5", "²", "9" * 13):
        with pytest.raises(UsageError):
            parse_targets(wrong)


PFL = Layout(
    "lustre",
    (Component(0, MIB, MIB, 1, (2,)), Component(MIB, EOF, MIB, -1, pool="flash")),
)


def test_progressive_layout_in_words() -> None:
    assert describe("f", PFL) == [
        "f:",
        "  [0 B, 1 MiB)  1 stripe of 1 MiB, on target 2",
        "  [1 MiB, end)  as many stripes as targets of 1 MiB, pool flash",
    ]
    assert describe("f", Layout("unknown", (), b"12345")) == ["f: unknown layout of 5 bytes"]


def test_drawing_shows_what_lies_where() -> None:
    striped = Layout("lustre", (Component(0, EOF, MIB, 2, (4, 9)),))
    lines = drawn(striped, 64 * MIB)
    assert lines[1].startswith(f"     4  {'█ ' * 32}  32 MiB (50 %)")
    assert lines[2].startswith(f"     9  {' █' * 32}  32 MiB (50 %)")
    assert drawn(striped, 0) == ["no bytes to show"]
    assert any(line.startswith("?") or "     ?" in line for line in drawn(PFL, 10 * MIB))


def test_shares_of_each_range_add_up() -> None:
    for size in (1, 63, 64, 65, 1000, 10 * MIB + 3, 10**15):
        rows = shares(PFL, size)
        for column in zip(*rows.values(), strict=True):
            assert sum(column) == pytest.approx(1)


def test_page_is_html_and_hides_no_script() -> None:
    text = page("<script>x", ["<b>"], PFL, 3 * MIB)
    assert "<script>" not in text
    assert "<b>" not in text
    HTMLParser().feed(text)
    assert text.count("<tr>") == 2
