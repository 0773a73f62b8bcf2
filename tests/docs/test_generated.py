# SPDX-License-Identifier: Apache-2.0
"""Pages that are made from the code are what the code would make now; `make docs` makes them anew."""

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]


def test_page_of_calls() -> None:
    words = [sys.executable, TOP / "tools/calls.py", "doc", TOP / "native/calls.def"]
    made = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert (TOP / "docs/reference/calls.md").read_text() == made, "make docs"


def test_make_docs_makes_all_of_them() -> None:
    makefile = (TOP / "Makefile").read_text()
    for tool in ("man.py", "settings_doc.py", "report_doc.py", "board_doc.py", "calls.py doc"):
        assert f"tools/{tool}" in makefile, tool
