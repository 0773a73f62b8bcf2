# SPDX-License-Identifier: Apache-2.0
"""Write the tables of settings into the guide, each behind its marker."""

from collections.abc import Callable
from pathlib import Path

from penstock.base import settings
from penstock.testbed import settings as testbed

GUIDE = Path(__file__).parents[1] / "docs/guide"
MARKER = "<!-- made by tools/settings_doc.py from {} -->\n"
TABLES: list[tuple[str, str, Callable[[], str]]] = [
    ("settings.md", "src/penstock/base/settings.py", settings.markdown),
    ("testbed-model.md", "native/testbed/model_settings.def", testbed.markdown),
]


def main() -> None:
    for page, source, table in TABLES:
        path = GUIDE / page
        before, marker, _ = path.read_text(encoding="utf-8").partition(MARKER.format(source))
        path.write_text(before + marker + table(), encoding="utf-8")


if __name__ == "__main__":
    main()
