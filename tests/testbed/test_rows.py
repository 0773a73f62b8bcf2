# SPDX-License-Identifier: Apache-2.0
"""The table of what Lustre does claims what the tests hold, and the reference says what the table does."""

import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tools"), str(TOP / "tests/c"), str(TOP / "tests/testbed")]
import conformance_doc  # noqa: E402
import test_c_programs  # noqa: E402
import test_conformance  # noqa: E402


def claimed(by: str) -> set[str]:
    rows = [row for section in conformance_doc.sections() for row in section["rows"]]
    return {str(row["n"]) for row in rows if by in row["held"].split()}


def test_reference_is_current() -> None:
    assert conformance_doc.PAGE.read_text(encoding="utf-8") == conformance_doc.page()


def test_every_row_is_held_or_excused() -> None:
    for section in conformance_doc.sections():
        for row in section["rows"]:
            assert row["held"] or row["but"], row


def test_layout_code_holds_what_is_claimed() -> None:
    held: set[str] = set()
    for name in ("lov_test", "alloc_test"):
        done = subprocess.run(
            [test_c_programs.build("plain") / name], check=True, capture_output=True, text=True, timeout=60
        )
        held |= set(re.findall(r"^row (\w+)$", done.stdout, re.MULTILINE))
    assert held == claimed("lov")


def test_mount_holds_what_is_claimed() -> None:
    held = test_conformance.HELD
    assert held == claimed("mount")
