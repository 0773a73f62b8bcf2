# SPDX-License-Identifier: Apache-2.0
"""What a run did with storage, on one screen, as a page, or for programs.

penstock report
penstock report 3f2a9c41 --html job.html
penstock report 4711 --csv > files.csv
"""

import argparse
import gc
import shutil
import sys
from typing import TYPE_CHECKING

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.report.facts import Facts

MANY_FILES = 10_000
HELP = "what a run did with storage"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "which",
        metavar="RUN",
        nargs="?",
        help="the start of its id, or its job's id (default: your last run)",
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--html", metavar="FILE", help="write one self-contained page with figures")
    forms.add_argument("--csv", action="store_true", help="a row for each file and process, as CSV")
    forms.add_argument("--json", action="store_true", help="everything, as one JSON document")
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument(
        "--top", metavar="N", type=_common.count, help="how many files to name (setting: report.top)"
    )
    rows.add_argument("--files", action="store_true", help="name all files")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.control import unseen
    from penstock.report import facts, table
    from penstock.runs.history import History, show_progress

    held = _common.settings_of(args)
    history = History(held, _common.note, show_progress)
    summary = history.find(args.which)
    if summary.files > MANY_FILES:
        gc.disable()  # rows make no cycles, and looking for some would take as long as the report
        if sys.stderr.isatty():
            _common.note(f"adding up {summary.files:,} files")
    found = facts.gather(unseen.fill(history, held, summary))
    if args.html:
        _write_page(found, args)
    elif args.csv:
        table.write_csv(found, sys.stdout)
    elif args.json:
        _common.print_json(table.document(found, _common.settings_of(args)["report.small_request"]))
    else:
        _show(found, args)
    return 0


def _write_page(found: "Facts", args: argparse.Namespace) -> None:
    from pathlib import Path

    from penstock.report import page

    small = _common.settings_of(args)["report.small_request"]
    top = sys.maxsize if args.files else page.TOP if args.top is None else args.top
    page.write(Path(args.html), page.page(found, top, small))
    _common.note(f"wrote {args.html}")


def _show(found: "Facts", args: argparse.Namespace) -> None:
    from penstock.report import screen

    settings = _common.settings_of(args)
    wanted = settings["report.top"] if args.top is None else args.top
    top = sys.maxsize if args.files else wanted
    for line in screen.screen(
        found, top, settings["report.small_request"], shutil.get_terminal_size((100, 40)).columns
    ):
        print(line)
