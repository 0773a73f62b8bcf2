# SPDX-License-Identifier: Apache-2.0
"""What a policy would have done to the recorded runs: who would have been held back, by what, for how long.

penstock policy try new.toml --since 7d
penstock policy try new.toml --since 2026-11-01 --user ann -o try.svg

Nothing is limited by this: it is a simulation.  Each run's calls are taken as spread evenly over its time, which hides
short bursts; a run that is held back ends later, and what came after it begins when it did.
"""

import argparse
import math
from typing import TYPE_CHECKING, Any

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.control.trying import Works
    from penstock.policy.rules import Policy
    from penstock.policy.trying import Fate, Trial
    from penstock.runs.merge import Summary

HELP = "what a policy would have done to the recorded runs"
SHOWN = 20


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the policy")
    parser.add_argument(
        "--since", metavar="TIME", default="7d", help="runs of the last 7d, 12h, or since a date (7d)"
    )
    parser.add_argument("--user", metavar="NAME", default="", help="only runs of this user")
    parser.add_argument(
        "--limit", metavar="N", type=int, default=SHOWN, help="list at most so many runs (20)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="draw it: a file .svg or .png")
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from penstock.cli import _policy
    from penstock.policy import trying
    from penstock.runs.history import NOTHING

    policy = _policy.load(args.file)
    summaries, works = _works(args, policy)
    if not works.pieces:
        _common.note(NOTHING if not summaries else "none of these runs has ended")
        if args.json:
            _common.print_json({"schema_version": 1, "runs": []})
        return 0
    trial = trying.simulate(policy, works.pieces, _progress(len(works.pieces)))
    if args.output:
        from penstock.report import trial as figure

        figure.draw(policy, trial, Path(args.output))
    if args.json:
        _common.print_json(_as_json(policy, summaries, works, trial))
        return 0
    for line in _table(policy, summaries, trial, args.limit):
        print(line)
    for text in _passed_over(works):
        _common.note(text)
    return 0


def _works(args: argparse.Namespace, policy: "Policy") -> "tuple[dict[str, Summary], Works]":
    import time

    from penstock.control import trying
    from penstock.runs import query
    from penstock.runs.history import History, show_progress

    history = History(_common.settings_of(args), _common.note, show_progress)
    wanted = query.Filter(user=args.user, since_ns=query.since_ns(args.since, time.time_ns()))
    found = [s for s in history.summaries if query.matches(s, wanted)]
    works = trying.Works()
    for summary in reversed(found):
        works.add(summary, history.load(summary), policy)
    return {s.id: s for s in found}, works


def _progress(count: int) -> Any:
    import sys
    import time

    began = time.monotonic()
    shown = [began]

    def tell(share: float) -> None:
        now = time.monotonic()
        if now - began > 2 and now - shown[0] > 1 and sys.stderr.isatty():
            shown[0] = now
            end = "\n" if share >= 1 else ""
            print(
                f"\rpenstock: trying {count:,} pieces of work: {100 * share:.0f} %{end}",
                end="",
                file=sys.stderr,
            )

    return tell


def _passed_over(works: "Works") -> list[str]:
    from penstock.base.text import plural

    found = []
    if works.not_ended:
        found.append(f"{plural(works.not_ended, 'run')} without an end or without counts: passed over")
    if works.partial:
        found.append(f"{plural(works.partial, 'run')} with a partial record, which may have asked for more")
    return found


def _held(trial: "Trial") -> "list[Fate]":
    return sorted(
        (f for f in trial.fates.values() if f.limit >= 0), key=lambda f: (-f.delay_s, -f.held_s, f.run)
    )


def _table(policy: "Policy", summaries: "dict[str, Summary]", trial: "Trial", most: int) -> list[str]:
    from penstock.base import units
    from penstock.base.text import cut, visible

    held = _held(trial)
    lines = [_sentence(held, len(trial.fates)), *_limits(policy, trial)]
    rows = [("run", "job", "program", "user", "time", "later by", "held by")]
    for fate in held[: max(0, most)]:
        s = summaries[fate.run]
        later = "never done" if math.isinf(fate.delay_s) else units.show_duration(fate.delay_s * 1e9)
        name = (s.id[:8], visible(s.job) or "–", cut(s.program or "–", 20), visible(s.user) or "–")
        rows.append((*name, units.show_duration(fate.length_s * 1e9), later, policy.limits[fate.limit].name))
    if held:
        widths = [max(len(row[i]) for row in rows) for i in range(7)]
        lines.append("")
        lines += ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    if len(held) > most:
        lines.append(f"... and {len(held) - most:,} more; --limit {len(held)} lists them")
    return lines


def _sentence(held: "list[Fate]", count: int) -> str:
    from penstock.base import units

    runs = f"{count:,} run{'s' * (count != 1)}"
    if not held:
        return f"None of {runs} would have been held back."
    delays = [fate.delay_s for fate in held if math.isfinite(fate.delay_s)]
    text = f"{len(held):,} of {runs} would have been held back"
    if delays:
        mean, most = (units.show_duration(value * 1e9) for value in (sum(delays) / len(delays), max(delays)))
        text += f", by {mean} in the mean, {most} at most"
    never = len(held) - len(delays)
    return text + (f"; {never:,} would never have ended." if never else ".")


def _limits(policy: "Policy", trial: "Trial") -> list[str]:
    """A line for each limit: what was asked at most, and what it would have let through."""
    from penstock.base import units

    lines = []
    for number, limit in enumerate(policy.limits):
        if limit.shadow:
            lines.append(f"{limit.name}: a shadow, holds back nobody")
            continue
        asked, served = trial.asked[number].most, trial.served[number].most
        show = units.show_size if limit.bytes else units.show_count
        lines.append(
            f"{limit.name}: at most {show(asked)}/s asked, {show(served)}/s served, the limit {show(limit.rate)}/s"
        )
    return lines


def _as_json(
    policy: "Policy", summaries: "dict[str, Summary]", works: "Works", trial: "Trial"
) -> dict[str, Any]:
    rows = []
    for fate in sorted(trial.fates.values(), key=lambda f: (-f.delay_s, f.run)):
        s = summaries[fate.run]
        rows.append(
            {
                "run": s.id,
                "job": s.job,
                "program": s.program,
                "user": s.user,
                "time_s": fate.length_s,
                "delay_s": fate.delay_s if math.isfinite(fate.delay_s) else None,
                "never_done": math.isinf(fate.delay_s),
                "held_s": fate.held_s,
                "limit": policy.limits[fate.limit].name if fate.limit >= 0 else None,
            }
        )
    return {
        "schema_version": 1,
        "not_ended": works.not_ended,
        "partial": works.partial,
        "runs": rows,
        "limits": [
            {
                "limit": policy.limits[number].name,
                "most_asked_per_s": asked.most,
                "most_served_per_s": trial.served[number].most,
            }
            for number, asked in trial.asked.items()
        ],
    }
