# SPDX-License-Identifier: Apache-2.0
"""The history of runs: list them, show one, forget one, bring in what a killed collector left.

penstock runs
penstock runs --program ior --since 7d
penstock runs show 3f2a9c41
penstock runs forget --dry-run
penstock runs collect
penstock runs import darshan /logs/2026/11
penstock runs stats
"""

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.cli import _common, _runs_more

if TYPE_CHECKING:
    from penstock.runs.history import History
    from penstock.runs.merge import Summary

HELP = "list the history of runs"


def register(parser: argparse.ArgumentParser) -> None:
    _filters(parser)
    rows = parser.add_subparsers(dest="what", metavar="WHAT")
    _filters(rows.add_parser("list", help="list runs, newest first (what `penstock runs` alone does)"), True)
    show = rows.add_parser("show", help="all that is known of one run")
    show.add_argument("which", metavar="RUN", help="the start of its id, or its job's id")
    show.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(show)
    forget = rows.add_parser(
        "forget",
        help="hide runs; without RUN, remove what history.keep and history.max_size do not allow",
    )
    forget.add_argument("which", metavar="RUN", nargs="*", help="the start of its id, or its job's id")
    forget.add_argument("-n", "--dry-run", action="store_true", help="only say what would go")
    _common.add_settings(forget)
    _runs_more.register(rows)
    collect = rows.add_parser("collect", help="bring in what killed collectors left in shared memory")
    collect.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(collect)


def _filters(parser: argparse.ArgumentParser, below: bool = False) -> None:
    """Options of the list; it can be typed with and without `list`."""
    keep: dict[str, Any] = {"default": argparse.SUPPRESS} if below else {}
    parser.add_argument("--job", metavar="ID", help="only of this job", **keep)
    parser.add_argument("--user", metavar="NAME", help="only of this user", **keep)
    parser.add_argument("--program", metavar="NAME", help="only of programs whose name holds this", **keep)
    parser.add_argument(
        "--since", metavar="TIME", help="only that began within 7d, 12h, ..., or since 2026-11-01", **keep
    )
    parser.add_argument("--partial", action="store_true", help="only whose record is partial", **keep)
    parser.add_argument(
        "--limit",
        metavar="N",
        type=_common.count,
        help="at most so many (default: 20 on a terminal)",
        **keep,
    )
    parser.add_argument("--json", action="store_true", help="as one JSON document", **keep)
    group = parser.add_argument_group("settings")
    group.add_argument("--config", metavar="FILE", help="read this file of settings too", **keep)
    given: dict[str, Any] = {"default": argparse.SUPPRESS if below else []}
    group.add_argument("--set", action="append", metavar="NAME=VALUE", help="one setting", **given)


def run(args: argparse.Namespace) -> int:
    from penstock.runs.history import History, show_progress

    if args.what == "collect":
        return _collect(args)
    if args.what == "import":
        return _runs_more.bring_in(args)
    if args.what == "stats":
        return _runs_more.stats(args)
    history = History(_common.settings_of(args), _common.note, show_progress)
    if args.what == "show":
        return _show(history, args)
    if args.what == "forget":
        return _forget(history, args)
    return _list(history, args)


def _list(history: "History", args: argparse.Namespace) -> int:
    from penstock.base.text import plural
    from penstock.runs import query
    from penstock.runs.history import NOTHING

    wanted = query.Filter(
        job=args.job or "",
        user=args.user or "",
        program=args.program or "",
        since_ns=query.since_ns(args.since, time.time_ns()) if args.since else 0,
        partial=args.partial,
    )
    found = [s for s in history.summaries if query.matches(s, wanted)]
    limit = (
        args.limit if args.limit is not None else 20 if sys.stdout.isatty() and not args.json else len(found)
    )
    shown = found[:limit]
    if args.json:
        _common.print_json({"schema_version": 1, "runs": [query.as_json(s) for s in shown]})
        return 0
    for line in query.table(shown):
        print(line)
    if not history.summaries:
        _common.note(NOTHING)
    elif not found:
        _common.note(f"none of {plural(len(history.summaries), 'run')} is like that")
    elif len(found) > len(shown):
        _common.note(f"{len(found) - len(shown):,} more; --limit {len(found)} lists them")
    return 0


def _show(history: "History", args: argparse.Namespace) -> int:
    from penstock.runs import merge, query

    summary = history.find(args.which)
    whole = history.load(summary)
    if args.json:
        _common.print_json({"schema_version": 1} | query.whole_as_json(summary, whole, merge.partial(whole)))
    else:
        for line in query.whole_as_text(summary, whole, merge.partial(whole)):
            print(line)
    return 0


def _forget(history: "History", args: argparse.Namespace) -> int:
    from penstock.base import units

    would = "would be " if args.dry_run else ""
    found: list[Summary] = [history.find(word) for word in args.which]
    for summary in found:
        if not args.dry_run:
            history.forget(summary)
        print(f"run {summary.id} of {summary.program or 'no known program'} {would}forgotten")
    if not args.which:
        gone = history.expire(args.dry_run)
        for item in gone:
            print(f"{item.name} ({units.show_size(item.size_bytes)}) {would}removed")
        if not gone:
            _common.note("nothing is older than history.keep or beyond history.max_size")
    return 0


def _collect(args: argparse.Namespace) -> int:
    from penstock.base.errors import IncompleteError
    from penstock.base.text import plural
    from penstock.control import unrecorded
    from penstock.runs import collect

    settings = _common.settings_of(args)
    found = [*collect.collect(settings), *unrecorded.collect(settings)]
    brought = [board for board in found if not board.served and not board.error]
    if args.json:
        rows = [
            {"run": b.run, "board": str(b.path), "served": b.served, "living": b.living, "error": b.error}
            for b in found
        ]
        _common.print_json({"schema_version": 1, "boards": rows})
    else:
        for board in brought:
            still = f"; {board.living} of its processes still run" if board.living else ""
            print(f"run {board.run} brought in{still}")
        if not brought:
            _common.note("no collector left anything behind on this node")
    failed = [board for board in found if board.error]
    if failed:
        raise IncompleteError(
            f"{len(failed)} of {plural(len(found), 'board')} could not be brought in "
            f"({failed[0].path}: {failed[0].error}); "
            "mend that and call it again"
        )
    return 0
