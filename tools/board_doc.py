# SPDX-License-Identifier: Apache-2.0
"""The table of the board's fields, made from native/board/board.h for docs/guide/board.md.

    tools/board_doc.py            prints it
    tools/board_doc.py --check    exits 1 when the page says something else

The page holds it between two marks; `tools/board_doc.py --write` puts it there.
"""

import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
HEADER = TOP / "native" / "board" / "board.h"
PAGE = TOP / "docs" / "guide" / "board.md"
BEGIN, END = "<!-- made by tools/board_doc.py -->", "<!-- end -->"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def fields(body: str) -> list[tuple[str, str, str]]:
    """(type, names, comment) of each declaration, in order; a comment belongs to what stands before it."""
    rows = []
    pattern = re.compile(
        r"\s*([\w ]+?)\s*((?:\w+(?:\[[^\]]*\])*(?:,\s*)?)+);[ \t]*(?:/\*(.*?)\*/)?", re.DOTALL
    )
    for found in pattern.finditer(body):
        rows.append((found[1], found[2], cell(found[3] or "")))
    return rows


def structures(text: str) -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """(name, what the comment before it says, its fields)."""
    found = []
    for match in re.finditer(
        r"(?:/\*((?:(?!\*/).)*)\*/\n)?struct (penstock_\w+) \{\n(.*?)\n\};", text, re.DOTALL
    ):
        found.append((match[2], cell(match[1] or ""), fields(match[3])))
    return found


def table(text: str) -> str:
    lines = []
    for name, about, rows in structures(text):
        lines += [f"### `{name}`", ""]
        lines += [about, ""] if about else []
        lines += ["| type | field | meaning |", "|---|---|---|"]
        lines += [f"| `{kind}` | `{names}` | {comment} |" for kind, names, comment in rows]
        lines.append("")
    return "\n".join(lines)


def page(old: str, made: str) -> str:
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{made}\n{END}{after}"


def main() -> int:
    made, old = table(HEADER.read_text()), PAGE.read_text()
    if "--check" in sys.argv:
        if page(old, made) != old:
            print(f"{PAGE} is not what the header says; run tools/board_doc.py --write", file=sys.stderr)
            return 1
    elif "--write" in sys.argv:
        PAGE.write_text(page(old, made))
    else:
        print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
