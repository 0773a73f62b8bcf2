# SPDX-License-Identifier: Apache-2.0
"""Make docs/reference/lustre-conformance.md of tests/testbed/lustre_rows.toml."""

import tomllib
from pathlib import Path
from typing import Any

TOP = Path(__file__).parents[1]
ROWS = TOP / "tests/testbed/lustre_rows.toml"
PAGE = TOP / "docs/reference/lustre-conformance.md"
INTRODUCTION = """\
# What the testbed does as Lustre does

The emulated file system answers these calls as Lustre 2.17 was observed to. Each row marked `code` or
`mount` is held by a test under its number: `code` against the layout code alone, `mount` through a real
mount. What is not emulated says why.

NL is a regular file without a layout, SET `setxattr` of `lustre.lov`, GET `getxattr` of it, IOC the ioctl
SETSTRIPE, DELAY the open flag `O_LOV_DELAY_CREATE`; V1, V3, SPEC (a list of OSTs) and COMP (components) are
kinds of templates. Four OSTs on one OSS, default layout 1 × 4 MiB.

Assumed, where nothing was observed: a template that says nothing means the default of the directory; a list
default that names an unusable OST makes the open fail as the list would.

<!-- made by tools/conformance_doc.py from tests/testbed/lustre_rows.toml -->
"""


def sections() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(ROWS.read_text(encoding="utf-8"))["section"]
    return found


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def held(row: dict[str, Any]) -> str:
    by = row["held"].replace("lov", "code").replace(" ", ", ")
    return "; ".join(part for part in (by or "not emulated", row.get("but")) if part)


def page() -> str:
    lines = [INTRODUCTION]
    for section in sections():
        lines += [f"\n## {section['title']}\n", "| | call | answer | held by |", "|---|---|---|---|"]
        for row in section["rows"]:
            lines.append(f"| {row['n']} | {cell(row['what'])} | {cell(row['answer'])} | {cell(held(row))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
