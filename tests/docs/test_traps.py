# SPDX-License-Identifier: Apache-2.0
"""The page of traps names tests that exist; and what it says about the tests themselves is so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
ROWS = re.findall(
    r"^\| ([A-Z]\d\d) \| (.*) \| (.*) \|$", (TOP / "docs/reference/traps.md").read_text(), re.MULTILINE
)
SOURCES = "\n".join(p.read_text() for kind in ("py", "c") for p in TOP.glob(f"tests/**/*.{kind}"))


@pytest.mark.parametrize(("trap", "tests"), [(row[0], row[2]) for row in ROWS], ids=[row[0] for row in ROWS])
def test_each_trap_has_a_test_or_a_reason(trap: str, tests: str) -> None:
    named = re.findall(r"`(\w+)`", tests)
    assert named or tests.startswith("does not apply"), trap
    for name in named:
        assert re.search(rf"^(def|static void) {name}\(", SOURCES, re.MULTILINE), name


@pytest.mark.parametrize(
    ("group", "count"),
    [("I", 28), ("B", 11), ("R", 6), ("F", 16), ("D", 5), ("L", 17), ("K", 17), ("G", 7), ("S", 6)],
)
def test_no_trap_is_left_out(group: str, count: int) -> None:
    assert [row[0] for row in ROWS if row[0][0] == group] == [f"{group}{n:02}" for n in range(1, count + 1)]


def test_each_id_in_a_tests_name_is_on_the_page() -> None:
    used = {i.upper() for i in re.findall(r"def test_(?:[a-z]\d\d_)*?([ibrgk]\d\d)_", SOURCES)}
    assert used <= {row[0] for row in ROWS}


# ---- traps about tests ----


def test_g07_the_test_runner_is_not_preloaded() -> None:
    """Tools and tests run alone; what is tested runs in processes of its own."""
    assert "LD_PRELOAD" not in os.environ
    assert "libpenstock" not in Path("/proc/self/maps").read_text()


def test_g03_a_missing_testbed_fails_where_nothing_may_be_skipped(tmp_path: Path) -> None:
    """CI sets PENSTOCK_TEST_NO_SKIP: a green run without the testbed is red."""
    (tmp_path / "test_it.py").write_text("import pytest\ndef test_it(): pytest.skip('no testbed: no FUSE')\n")
    (tmp_path / "conftest.py").write_text(
        f"import sys; sys.path.insert(0, {str(TOP)!r})\nfrom tests.conftest import *\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    for word, status in (("", 0), ("1", 1)):
        env = {**os.environ, "PENSTOCK_TEST_NO_SKIP": word}
        done = subprocess.run(
            words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == status, done.stdout
    assert "no testbed: no FUSE" in done.stdout
    assert "PENSTOCK_TEST_NO_SKIP=1" in (TOP / ".ci/run").read_text()


def test_g06_no_test_sleeps_a_fixed_while() -> None:
    """They poll with a deadline, looking at least ten times a second; a comment says why where it is meant."""
    found = {float(word) for word in re.findall(r"^ *time\.sleep\(([\d.]+)\)$", SOURCES, re.MULTILINE)}
    assert found
    assert max(found) <= 0.1
