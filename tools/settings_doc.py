# SPDX-License-Identifier: Apache-2.0
"""Write the table of settings into docs/guide/settings.md, behind its marker."""

from pathlib import Path

from penstock.base import settings

GUIDE = Path(__file__).parents[1] / "docs/guide/settings.md"
MARKER = "<!-- made by tools/settings_doc.py from src/penstock/base/settings.py -->\n"


def main() -> None:
    before, marker, _ = GUIDE.read_text(encoding="utf-8").partition(MARKER)
    GUIDE.write_text(before + marker + settings.markdown(), encoding="utf-8")


if __name__ == "__main__":
    main()
