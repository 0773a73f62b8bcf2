# SPDX-License-Identifier: Apache-2.0
"""The page about the board says what the header says."""

import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tools"))
import board_doc  # noqa: E402

TEXT = board_doc.HEADER.read_text()


def test_page_is_up_to_date() -> None:
    subprocess.run([sys.executable, TOP / "tools" / "board_doc.py", "--check"], check=True)


def test_every_structure_and_field_is_in_the_table() -> None:
    found = {name: rows for name, _, rows in board_doc.structures(TEXT)}
    assert sorted(found) == sorted(re.findall(r"^struct (penstock_\w+) \{$", TEXT, re.MULTILINE))
    for name, rows in found.items():
        body = TEXT.split(f"struct {name} {{\n")[1].split("\n};")[0]
        assert len(rows) == len(re.findall(r";", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)))


def test_comments_belong_to_their_fields() -> None:
    rows = board_doc.fields("  uint32_t a; /* one\n of two | */\n  char b[4], c;\n  int64_t d;")
    assert rows == [("uint32_t", "a", "one of two \\|"), ("char", "b[4], c", ""), ("int64_t", "d", "")]
