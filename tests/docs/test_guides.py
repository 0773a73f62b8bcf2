# SPDX-License-Identifier: Apache-2.0
"""What the guides show is what happens: their console blocks are run, and the output they show is compared.

A block is lines of `$ command` and what it prints; a command that shows no output is only run.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.runs import made

TOP = Path(__file__).parents[2]
GUIDES = TOP / "docs/guide"
RUN = (
    "catalog.md",
    "history.md",
    "limits.md",
    "place.md",
    "policies.md",
    "predict.md",
    "replay.md",
    "report.md",
    "run.md",
    "settings.md",
    "tune.md",
)


class Step(NamedTuple):
    """A command, what it prints, and where it stands."""

    line: int
    command: str
    output: str


def steps(text: str) -> Iterator[Step]:
    """The commands of all console blocks of a guide."""
    for block in re.finditer(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        line = text.count("\n", 0, block.start()) + 2
        for part in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block[1], re.MULTILINE):
            yield Step(line + block[1].count("\n", 0, part.start()), part[1], part[2])


@pytest.fixture
def boards() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-test-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("guide", RUN)
def test_console_blocks(guide: str, tmp_path: Path, boards: Path) -> None:
    """In order, in one folder, with the history that the guides speak of."""
    history = tmp_path / ".local/state/penstock/history"
    made.put(history, 1, made.payloads(1))
    made.put(history, 2, made.payloads(2, shared=False))
    found = list(steps((GUIDES / guide).read_text(encoding="utf-8")))
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"HOME": str(tmp_path), "PATH": path, "TZ": "UTC", "LC_ALL": "C.UTF-8", "COLUMNS": "100"}
    # What other tests' killed runs left in this user's folder of boards is none of this history's.
    env |= {"PENSTOCK_BOARD_DIR": str(boards), "PENSTOCK_RUN_DETECT": "none"}
    if guide == "report.md":  # there the last run is the first
        env["PENSTOCK_STATE_DIR"] = str(tmp_path / "one")
        made.put(tmp_path / "one/history", 1, made.payloads(1))

    assert found
    for step in found:
        shown = subprocess.run(
            ["bash", "-c", step.command],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=env,
            timeout=60,
            check=False,
        )
        assert shown.returncode == 0, f"{guide}:{step.line}: {shown.stderr}"
        if step.output:
            assert shown.stdout == step.output, f"{guide}:{step.line}"


def test_blocks_are_found_with_their_lines() -> None:
    text = "a\n```console\n$ one\nx\n\ny\n$ two\n```\n```sh\n$ not\n```\n"

    assert list(steps(text)) == [Step(3, "one", "x\n\ny\n"), Step(7, "two", "")]


PAGES = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", [str(page.relative_to(TOP)) for page in PAGES])
def test_links_lead_somewhere(page: str) -> None:
    """Links between pages name files that are there."""
    path = TOP / page
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target
