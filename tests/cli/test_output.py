# SPDX-License-Identifier: Apache-2.0
"""Where answers go: full disks, terminals that know little, and words that cannot be."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PENSTOCK = Path(sys.executable).parent / "penstock"


@pytest.mark.parametrize("words", [["config", "show"], ["config", "show", "--json"], ["doctor"]])
def test_a_full_disk_under_the_answer_is_one_sentence(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [PENSTOCK, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert done.stderr == f"penstock {words[0]}: the answer cannot be written: No space left on device\n"


def test_a_terminal_that_knows_only_ascii(run_penstock: Any) -> None:
    assert run_penstock("run", "--", "cp", "/etc/hostname", "/dev/null").returncode == 0
    done = run_penstock("report", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


def test_a_page_into_standard_output(run_penstock: Any) -> None:
    assert run_penstock("run", "--", "cp", "/etc/hostname", "/dev/null").returncode == 0
    done = run_penstock("report", "--html", "/dev/stdout")
    assert done.stdout.startswith("<!")
    assert "wrote /dev/stdout" in done.stderr


@pytest.mark.parametrize(
    "words", [["report", "--top", "-1"], ["runs", "--limit", "-3"], ["runs", "--limit", "x"]]
)
def test_counts_are_counts(words: list[str], run_penstock: Any) -> None:
    done = run_penstock(*words)
    assert done.returncode == 2
    assert "is not a whole number of at least 0" in done.stderr


@pytest.mark.parametrize("words", [["completion", "bash"], ["completion", "zsh"], ["completion", "fish"]])
def test_completions_hold_no_marks_of_argparse(words: list[str], run_penstock: Any) -> None:
    done = run_penstock(*words)
    assert done.returncode == 0
    assert "95%%" not in done.stdout


@pytest.mark.parametrize("words", [["catalog", "check"], ["catalog", "find"], ["testbed", "-h"]])
def test_help_shows_percent_signs_once(words: list[str], run_penstock: Any) -> None:
    assert "%%" not in run_penstock(*words, "--help").stdout
