# SPDX-License-Identifier: Apache-2.0
"""Where new files go: the plan for a program's next run, and what became of plans.

penstock place plan --job ior --mount /scratch
penstock place show
penstock place show 3f2a9c41

`penstock run --place -- ./app` makes the same plan and carries it out.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.control.placing import Made

HELP = "where new files go, and what became of plans"
LAST = 5


def register(parser: argparse.ArgumentParser) -> None:
    # One parser for both: each further one makes penstock --help slower.
    parser.add_argument(
        "what",
        choices=("plan", "show"),
        help="plan: which files are expected, where they would go, and why; show: plans in force, how many files were "
        "expected, promises by target",
    )
    parser.add_argument(
        "which", metavar="RUN", nargs="?", help="show one run (default: those running, and the last)"
    )
    parser.add_argument("--job", metavar="NAME", help="plan for this program, as penstock runs names it")
    parser.add_argument(
        "--mount", action="append", default=[], metavar="PATH", help="plan for this file system only"
    )
    parser.add_argument("--ranks", metavar="N", type=int, default=0, help="the planned run has so many ranks")
    parser.add_argument(
        "--dry-run", action="store_true", help="promise nothing: so it is here, only a run promises"
    )
    parser.add_argument("--all", action="store_true", help="plan: each file, not a line a pattern")
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    return _plan(args) if args.what == "plan" else _show(args)


def _plan(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from penstock.base.errors import UsageError
    from penstock.control import placing
    from penstock.report import placed
    from penstock.runs import learned
    from penstock.runs.history import History, show_progress

    if not args.job:
        raise UsageError("which program? penstock place plan --job NAME")
    settings = _common.settings_of(args)
    history = History(settings, _common.note, show_progress)
    program = learned.runs_of(history, args.job)[0].program
    expected = placing.expected_of(history, program, args.ranks)
    wish = replace(
        placing.wish_of(settings, args.mount),
        expected=expected,
        promise=False,
        tune=placing.tune_of(history, settings, program, False),
    )
    made = placing.make(wish)
    for note in made.notes:
        _common.note(note)
    if args.json:
        _common.print_json(
            {"schema_version": 1, "program": program, "plans": [_document(one) for one in made.made]}
        )
        return 0
    for one in made.made:
        for line in placed.plan_lines(program, one.plan, args.all):
            print(line)
        for count, size, why in one.given.layouts if one.given else ():
            print(placed.tuned_line(count, size, why, one.given is not None and one.given.applied))
    return 0


def _document(one: Made) -> dict[str, Any]:
    from penstock.policy.predicting import names

    plan = one.plan
    return {
        "file_system": plan.file_system,
        "allocator": plan.allocator,
        "small_bytes": plan.small_bytes,
        "extra_requests": plan.extra_requests,
        "cost_s": plan.cost_s,
        "gain_s": plan.gain_s,
        "left_out": one.left_out,
        "tuned": None
        if one.given is None
        else {
            "applied": one.given.applied,
            "policy": one.given.policy,
            "layouts": [
                {"stripe_count": count, "stripe_size_bytes": size, "why": why}
                for count, size, why in one.given.layouts
            ],
        },
        "notes": list(plan.notes),
        "promised_bytes": {str(t): b for t, b in sorted(plan.promises.items())},
        "spare": list(plan.spare),
        "entries": [
            {
                "pattern": names.show(e.match.pieces),
                "values": [None if v is None else v.decode(errors="replace") for v in e.match.values],
                "action": e.action.value,
                "files": e.files,
                "bytes_each": e.bytes_each,
                "stripe_count": e.stripe_count,
                "stripe_size_bytes": e.stripe_size_bytes,
                "targets": [list(turn) for turn in e.turns],
                "why": e.why,
            }
            for e in plan.entries
        ],
    }


def _show(args: argparse.Namespace) -> int:
    from penstock.control import placing
    from penstock.report import placed
    from penstock.runs.history import History

    settings = _common.settings_of(args)
    now_s = time.time()
    rows = [] if args.which else placing.running(settings)
    history = History(settings, _common.note)
    summaries = [history.find(args.which)] if args.which else history.summaries[:LAST]
    listed = {row.run for row in rows}
    for summary in summaries:
        if summary.id in listed:
            continue
        counts = history.load(summary).placed
        if counts or args.which:
            rows.append(placing.Shown(summary.id, summary.program, False, counts))
    promises = placing.outstanding(str(settings.state_dir), now_s)
    site = placing.of_site(settings)["plans"]
    for one in site:
        held = promises.setdefault(one["file_system"], {})
        for target, amount in one["promised_bytes"].items():
            held[int(target)] = held.get(int(target), 0.0) + amount
    if args.json:
        document = {
            "schema_version": 1,
            "runs": [row._asdict() for row in rows],
            "promised_bytes": {
                name: {str(t): b for t, b in sorted(held.items())} for name, held in promises.items()
            },
            "site_plans": site,
        }
        _common.print_json(document)
        return 0
    for line in placed.show_lines(
        rows, promises, now_s, {one["plan_ns"]: one["figures_age_s"] for one in site}
    ):
        print(line)
    return 0
