# SPDX-License-Identifier: Apache-2.0
"""Write the tables of columns and of reasons into docs/guide/report.md, behind their markers."""

from pathlib import Path

from penstock.report import table
from penstock.runs import reasons

GUIDE = Path(__file__).parents[1] / "docs/guide/report.md"
TABLES = {
    "<!-- made by tools/report_doc.py from src/penstock/runs/reasons.py -->\n": reasons.markdown,
    "<!-- made by tools/report_doc.py from src/penstock/report/table.py -->\n": table.markdown,
}


def main() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for marker, make in TABLES.items():
        before, found, after = text.partition(marker)
        rest = (
            after.lstrip("|").split("\n\n", 1)[1] if found and after.startswith("|") else after.lstrip("\n")
        )
        text = before + marker + make() + "\n" + rest
    GUIDE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
