# SPDX-License-Identifier: Apache-2.0
"""`penstock runs stats` and `penstock runs import`."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.runs.stats import Stats


def register(rows: Any) -> None:
    stats = rows.add_parser(
        "stats", help="stripe counts and sizes over all runs, programs, what could be gained"
    )
    stats.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(stats)
    brought = rows.add_parser("import", help="bring in what other recorders saw")
    kinds = brought.add_subparsers(dest="kind", metavar="KIND", required=True)
    darshan = kinds.add_parser(
        "darshan",
        help="Darshan's logs, or what darshan-parser printed of them",
        description="Bring Darshan's logs into the history. Logs that are there already are passed over, so an import "
        "that was interrupted is taken up by calling it again. Example: penstock runs import darshan /logs/2026/11",
    )
    darshan.add_argument(
        "logs", metavar="LOG", nargs="+", help="logs, or folders of them (*.darshan, *.darshan.txt)"
    )
    darshan.add_argument(
        "-j", "--jobs", metavar="N", type=int, default=0, help="so many at once (default: all cores)"
    )
    darshan.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(darshan)


class Progress:
    """A line on a terminal, or one each ten seconds elsewhere, once it takes longer than two."""

    def __init__(self, what: str) -> None:
        self.what, self.began_s, self.told_s = what, time.monotonic(), 0.0

    def __call__(self, done: int, total: int) -> None:
        now_s = time.monotonic()
        tty = sys.stderr.isatty()
        if now_s - self.began_s < 2 or now_s - self.told_s < (0.2 if tty else 10):
            return
        self.told_s = now_s
        left_s = (now_s - self.began_s) / max(done, 1) * (total - done)
        text = f"penstock: {self.what}: {done:,} of {total:,}, about {left_s:.0f} s left"
        sys.stderr.write(f"\r{text}\x1b[K" if tty else text + "\n")
        if tty and done >= total:
            sys.stderr.write("\n")
        sys.stderr.flush()


def bring_in(args: argparse.Namespace) -> int:
    import os
    from pathlib import Path

    from penstock.base.errors import IncompleteError, NothingMatchedError
    from penstock.base.text import plural
    from penstock.runs import darshan_import
    from penstock.runs.history import History, show_progress

    settings = _common.settings_of(args)
    history = History(settings, _common.note, show_progress)
    known = frozenset(bytes.fromhex(s.id) for s in history.summaries)
    began_s = time.monotonic()
    found = darshan_import.bring_in(
        history.folder,
        [Path(log) for log in args.logs],
        known,
        args.jobs or len(os.sched_getaffinity(0)),
        settings["history.readers"] == "group",
        Progress("importing"),
    )
    if not found.found:
        raise NothingMatchedError(
            f"there is no log in {', '.join(args.logs)}; logs end in .darshan or .darshan.txt"
        )
    History(settings, _common.note, show_progress)  # brings the index up to date
    took_s = time.monotonic() - began_s
    if args.json:
        document = {
            "schema_version": 1,
            "found": found.found,
            "imported": found.imported,
            "known": found.known,
            "broken": [{"log": log, "why": why} for log, why in found.broken],
            "time_s": took_s,
        }
        _common.print_json(document)
    else:
        print(
            f"{plural(found.imported, 'log')} brought in, {found.known} there already, {len(found.broken)} broken"
        )
        for log, why in found.broken[:20]:
            print(f"  {log}: {why}")
    if found.broken:
        raise IncompleteError(
            f"{len(found.broken)} of {plural(found.found, 'log')} could not be read; the others are in the history"
        )
    return 0


def stats(args: argparse.Namespace) -> int:
    from penstock.base.errors import NothingMatchedError
    from penstock.runs import stats as all_runs
    from penstock.runs.history import NOTHING

    settings = _common.settings_of(args)
    if not settings.history_dir.is_dir():
        raise NothingMatchedError(NOTHING)
    found = all_runs.stats(all_runs.walk(settings.history_dir, Progress("reading the history")))
    if args.json:
        _common.print_json(
            {
                "schema_version": 1,
                "runs": found.runs,
                "programs": found.programs,
                "without_layout": found.without_layout,
                "distinct_targets": _classes(found.by_targets),
                "stripe_count": _classes(found.by_widest),
                "stripe_size": [{"bytes": size, "runs": n} for size, n in found.by_size.items()],
                "single_stripe": {
                    "runs": found.single,
                    "bytes": found.single_bytes,
                    "shared": found.single_shared,
                },
                "programs_with_several_layouts": found.tuned,
                "gain_ratio": found.gain,
            }
        )
        return 0
    for line in lines(found):
        print(line)
    return 0


def _classes(table: Any) -> list[dict[str, int]]:
    return [{"from": _from(end), "to": end, "runs": n} for end, n in table.items()]


def _from(end: int) -> int:
    return end // 2 + 1 if end > 1 else 1


def lines(found: Stats) -> list[str]:
    """The tables, and what could be gained."""
    from penstock.base.text import plural
    from penstock.base.units import show_ratio, show_size

    shown = [f"{plural(found.runs, 'run')} of {plural(found.programs, 'program')}"]
    if found.without_layout:
        shown.append(f"in no table: {plural(found.without_layout, 'run')} without a known layout")
    whole = found.runs - found.without_layout
    if whole:
        ends = sorted(set(found.by_targets) | set(found.by_widest))
        shown += ["", f"{'STRIPES':>10}{'BY TARGETS TOUCHED':>28}{'BY THE WIDEST LAYOUT':>28}"]
        for end in ends:
            name = str(end) if end <= 2 else f"{_from(end)}-{end}"
            cells = [
                f"{n:,} ({show_ratio(n, whole)})"
                for n in (found.by_targets.get(end, 0), found.by_widest.get(end, 0))
            ]
            shown.append(f"{name:>10}{cells[0]:>28}{cells[1]:>28}")
        shown += ["", f"{'SIZE':>10}{'RUNS':>28}"]
        shown += [
            f"{show_size(size):>10}{f'{n:,} ({show_ratio(n, whole)})':>28}"
            for size, n in found.by_size.items()
        ]
    shown.append("")
    if found.single:
        shared = f", {found.single_shared:,} of them to shared files" if found.single_shared else ""
        shown.append(
            f"{plural(found.single, 'run')} of several processes moved {show_size(found.single_bytes)} "
            f"through files of one stripe{shared}"
        )
    if found.gain is not None:
        shown.append(
            f"{plural(found.tuned, 'program')} ran with several layouts: the middle one's best was "
            f"{found.gain:.2f} times its usual one"
        )
    else:
        shown.append("no program has run with two layouts yet: what could be gained is not known")
    return shown
