# SPDX-License-Identifier: Apache-2.0
"""`make demo`: every step works, a page is there at the end, and nothing else, however it ends."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testbed import emulated

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import demo  # noqa: E402


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Temporary files of this test alone, so that what is left can be seen."""
    if why := emulated.missing():
        pytest.skip(f"no testbed: {why}")
    tmp_path.chmod(0o755)
    yield {**os.environ, "TMPDIR": str(tmp_path)}
    for folder in tmp_path.glob(f"{demo.PREFIX}*"):
        demo.take_away(folder)


def start(env: dict[str, str], *steps: str) -> "subprocess.Popen[str]":
    words = [sys.executable, str(ROOT / "tools/demo.py"), "--pages", f"{env['TMPDIR']}/pages", *steps]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, env=env, text=True, start_new_session=True, **pipes)  # type: ignore[call-overload,no-any-return]


def left(env: dict[str, str]) -> list[str]:
    """Files, mounts, shared memory and processes that demos of this test left behind."""
    top = Path(env["TMPDIR"])
    found = [str(p) for p in top.iterdir() if p.name != "pages"]
    found += [m.path for m in emulated.mounts() if m.path.startswith(f"{top}/")]
    folders = {Path(name).name for name in found if demo.PREFIX in name}
    found += [str(p) for p in Path("/dev/shm").glob(f"{demo.PREFIX}*") if p.name in folders]
    mark = os.fsencode(f"TMPDIR={top}/")
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append(str(path))
        except OSError:
            continue
    return found


def test_all_of_it(env: dict[str, str]) -> None:
    with start(env) as process:
        shown, said = process.communicate(timeout=240)
        boards = demo.boards_of(Path(env["TMPDIR"], f"{demo.PREFIX}{process.pid}"))

    assert process.returncode == 0, said
    titles = [re.search(r"^# (.*)", p.read_text(), re.M)[1] for p in sorted(demo.STEPS.glob("*.md"))]  # type: ignore[index]
    assert [line[3:].rstrip(" ═") for line in shown.splitlines() if line.startswith("══ ")] == titles
    pages = re.findall(r"^  (/.*\.html)$", shown, re.MULTILINE)
    assert pages == [f"{env['TMPDIR']}/pages/report.html"]
    assert "checkpoint.dat" in Path(pages[0]).read_text()
    assert left(env) == []
    assert not boards.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(number: signal.Signals, env: dict[str, str]) -> None:
    with start(env, "record") as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("$ mpirun"):
                break
        process.send_signal(number)
        process.communicate(timeout=120)

    assert process.returncode == 128 + number
    assert left(env) == []


def test_the_next_takes_away_what_a_killed_one_left(env: dict[str, str]) -> None:
    with start(env, "record") as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("$ mpirun"):
                break
        process.kill()
    assert left(env) != []
    with start(env, "nothing") as process:
        process.communicate(timeout=120)

    assert process.returncode == 0
    assert left(env) == []


def test_a_step_that_fails_fails_the_demo(env: dict[str, str], tmp_path: Path) -> None:
    made = demo.Demo(tmp_path / "pages")
    try:
        made.begin()
        with pytest.raises(SystemExit, match="'false' ended with status 1"):
            made.command("false")
    finally:
        demo.take_away(made.folder)


def test_parts_of_a_step() -> None:
    text = "# Title\n\nOne\nparagraph.\n\n```console\n$ a | b\n$ c\n```\n\nMore.\n"
    expected = [("prose", "# Title"), ("prose", "One\nparagraph."), ("command", "a | b"), ("command", "c")]
    assert list(demo.blocks(text)) == [*expected, ("prose", "More.")]
