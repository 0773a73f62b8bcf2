# SPDX-License-Identifier: Apache-2.0
"""Stripe counts and sizes from experience: what is known of a program, what its next run would get, and why.

penstock tune show ior
penstock tune explain 3f2a9c41
penstock tune pin ior -c 8 -S 4M
penstock tune forget ior
penstock tune mode advise

`penstock run --tune -- ./app` gives the choice to the new files of that run.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.base.settings import Settings
    from penstock.control.tuner import Choice, Given, Known
    from penstock.policy.tuning.contract import Decision, Sample
    from penstock.runs.history import History

HELP = "stripe counts and sizes from experience"


def register(parser: argparse.ArgumentParser) -> None:
    rows = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    show = rows.add_parser("show", help="what is known of a program, and what its next run would get")
    show.add_argument("name", metavar="NAME", help="the program, as penstock runs names it")
    explain = rows.add_parser("explain", help="why a run was given its layout, made again from the record")
    explain.add_argument("which", metavar="RUN", help="the start of its id, or its job's id")
    for sub in (show, explain):
        sub.add_argument("--mount", metavar="PATH", help="ask this file system for its targets and default")
        sub.add_argument("--targets", metavar="N", type=int, help="as if there were so many targets")
        sub.add_argument("--json", action="store_true", help="as one JSON document")
        _common.add_settings(sub)
    pin = rows.add_parser("pin", help="always this layout for a program; without -c, as before again")
    pin.add_argument("name", metavar="NAME")
    pin.add_argument("-c", "--stripe-count", metavar="N", type=int, help="so many stripes")
    pin.add_argument("-S", "--stripe-size", metavar="SIZE", default="1M", help="of this size (1M)")
    forget = rows.add_parser("forget", help="learn anew: no run before now counts any more in tuning")
    forget.add_argument("name", metavar="NAME")
    mode = rows.add_parser("mode", help="what becomes of choices: nothing, shown, or applied")
    mode.add_argument("mode", choices=("observe", "advise", "apply"))
    mode.add_argument("name", metavar="NAME", nargs="?", help="of this program only (default: see tune.mode)")
    for sub in (pin, forget, mode):
        _common.add_settings(sub)


def run(args: argparse.Namespace) -> int:
    from penstock.runs.history import History, show_progress

    held = _common.settings_of(args)
    if args.what in ("pin", "forget", "mode"):
        return _say(held, args)
    history = History(held, _common.note, show_progress)
    if args.what == "show":
        return _show(history, held, args)
    return _explain(history, held, args)


def _whole_name(held: Settings, name: str) -> str:
    """As `show` takes it: the program of which it is a part; what never ran has the name that was typed."""
    from penstock.runs import learned
    from penstock.runs.history import History, show_progress

    found = learned.named(History(held, _common.note, show_progress), name)
    if not found:
        _common.note(f"no run of {name!r} is recorded; this holds for a program of just that name")
    return found or name


def _say(held: Settings, args: argparse.Namespace) -> int:
    import time

    from penstock.base.errors import UsageError
    from penstock.base.text import plural
    from penstock.base.units import exact_size, parse_size
    from penstock.control import tuner

    path = tuner.path_of(held.state_dir)
    said = tuner.words(path, _common.note)
    if args.what == "mode" and args.name is None:
        raise UsageError(
            f'for all programs it is a setting: write mode = "{args.mode}" under [tune] in your settings'
        )
    args.name = _whole_name(held, args.name)
    own = said.programs.setdefault(args.name, tuner.Said())
    if args.what == "mode":
        own.mode = args.mode
        print(f"{args.name}: {args.mode}")
    elif args.what == "forget":
        own.since_ns, own.pin = time.time_ns(), None
        print(f"{args.name}: learned anew from its next run on; the history keeps its runs")
    elif args.stripe_count is None:
        own.pin = None
        print(f"{args.name}: not pinned")
    else:
        size = parse_size(args.stripe_size)
        if not 1 <= args.stripe_count <= 2000 or size % 65536 or not 0 < size < 1 << 32:
            raise UsageError(
                f"-c {args.stripe_count} -S {args.stripe_size}: counts are 1 to 2000, sizes multiples of 64k below 4G"
            )
        own.pin = (args.stripe_count, size)
        print(f"{args.name}: {plural(args.stripe_count, 'stripe')} of {exact_size(size)}, always")
    tuner.say(path, said)
    return 0


def _choice(
    history: History, held: Settings, args: argparse.Namespace, name: str, before_ns: int = 0
) -> tuple[Choice, Known]:
    """The choice for a program's next run; `before_ns`: for the one that began then."""
    from penstock.control import tuner
    from penstock.policy.tuning.contract import Layout

    said = tuner.words(tuner.path_of(held.state_dir), _common.note)
    known = tuner.known(history, name, said, held.state_dir)
    # What a program's first run had is its default, as far as the record tells.
    first = known.samples[0].layout if known.samples else Layout(1, 1 << 20)
    targets, default = tuner.places_seen(history, known), first
    if args.mount:
        targets, default = _of_mount(args.mount)
    if before_ns:
        known = tuner.known(history, name, said, held.state_dir, before_ns)
    return tuner.choose(history, held, said, known, args.targets or targets, default, before_ns), known


def _of_mount(where: str) -> tuple[int, Any]:
    """How many targets a file system has, and its default."""
    from penstock.base.errors import PenstockError
    from penstock.policy.tuning.contract import Layout
    from penstock.targets.driver import driver_for

    driver = driver_for(where)
    targets = len(driver.targets())
    try:
        first = driver.layout(where).components[0]
    except (PenstockError, IndexError):
        return targets, Layout(1, 1 << 20)
    count = targets if first.stripe_count < 0 else max(first.stripe_count, 1)
    return targets, Layout(count, first.stripe_size_bytes or 1 << 20)


def _layout(layout: Any) -> str:
    from penstock.base.units import exact_size

    return f"{layout.count} x {exact_size(layout.size_bytes)}"


def _decision_json(d: Decision) -> dict[str, Any]:
    def one(layout: Any) -> dict[str, int]:
        return {"stripe_count": layout.count, "stripe_size_bytes": layout.size_bytes}

    return {
        "layout": one(d.layout),
        "recommended": one(d.recommended),
        "explores": d.explores,
        "ratio": d.ratio,
        "ratio_low": d.ratio_low,
        "why": d.why,
        "best": [one(layout) | {"ratio": ratio, "ratio_low": low} for layout, ratio, low in d.table],
    }


def _samples_json(samples: tuple[Sample, ...] | list[Sample]) -> list[dict[str, Any]]:
    return [
        {
            "run": s.run,
            "stripe_count": s.layout.count,
            "stripe_size_bytes": s.layout.size_bytes,
            "bytes_per_s": s.rate_bytes_per_s,
            "load": s.load,
            "teaches": s.teaches,
        }
        for s in samples
    ]


def _show(history: History, held: Settings, args: argparse.Namespace) -> int:
    from penstock.base.text import plural
    from penstock.base.units import show_size

    choice, known = _choice(history, held, args, args.name)
    c = known.context
    if args.json:
        _common.print_json(
            {
                "schema_version": 1,
                "program": known.program,
                "mode": choice.mode,
                "pinned": choice.pinned,
                "policy": held["tune.policy"],
                "processes": c.processes if known.described else None,
                "shared": c.shared if known.described else None,
                "bytes": c.bytes if known.described else None,
                "request_bytes": c.request_bytes if known.described else None,
                "targets": choice.seen.grid.targets,
                "samples": _samples_json(known.samples),
                "next": _decision_json(choice.decision),
            }
        )
        return 0
    if known.described:
        kind = "a shared file" if c.shared else "a file each"
        print(
            f"{known.program}: {plural(c.processes, 'writer')}, {kind}, {show_size(c.bytes)} "
            f"in requests of {show_size(c.request_bytes)}"
        )
    else:
        print(f"{known.program}: nothing is known of how it writes: {_why_nothing(history, held, known)}")
    for line in sample_table(known.samples):
        print(line)
    for line in decision_lines(choice.decision):
        print(line)
    print(f"mode {choice.mode}" + (": choices are only recorded" if choice.mode == "observe" else ""))
    return 0


def _why_nothing(history: History, held: Settings, known: Known) -> str:
    from penstock.control import tuner

    said = tuner.words(tuner.path_of(held.state_dir), lambda _: None).programs.get(known.program)
    if said is not None and said.since_ns and not known.summaries:
        return "no run has written since it was forgotten"
    return "no run that ended well has written"


def sample_table(samples: tuple[Sample, ...] | list[Sample]) -> list[str]:
    """Runs, their layouts and rates."""
    from penstock.base.units import show_size

    if not samples:
        return ["no run of it has shown a layout yet"]
    lines = [f"{'RUN':<10}{'LAYOUT':>14}{'RATE':>16}"]
    for s in samples[-20:]:
        note = "" if s.teaches else "  failed, partial, or on a degraded target: does not teach"
        lines.append(
            f"{s.run[:8]:<10}{_layout(s.layout):>14}{show_size(s.rate_bytes_per_s) + '/s':>16}{note}"
        )
    return lines


def decision_lines(d: Decision) -> list[str]:
    lines = [f"next run: {_layout(d.layout)}, {d.why}"]
    if d.recommended != d.layout:
        lines.append(f"recommended, if nothing were tried any more: {_layout(d.recommended)}")
    for layout, ratio, low in d.table[:3]:
        lines.append(f"{_layout(layout):>18}  {ratio:.2f} times the default, cautiously {low:.2f}")
    return lines


def _explain(history: History, held: Settings, args: argparse.Namespace) -> int:
    import msgspec

    from penstock.control import tuner

    summary = history.find(args.which)
    choice, known = _choice(history, held, args, summary.program, summary.start_ns)
    decision, before = tuner.explained(choice, held), known.samples
    run = history.load(summary)
    given = tuner.given_to(held.state_dir, run)
    own = tuner.samples_of(run, summary, given)
    if args.json:
        _common.print_json(
            {
                "schema_version": 1,
                "run": summary.id,
                "program": known.program,
                "showed": _samples_json(own),
                "before": _samples_json(before),
                "choice": _decision_json(decision),
                "given": None if given is None else msgspec.to_builtins(given),
            }
        )
        return 0
    print(
        f"run {summary.id[:8]} of {known.program}: {len(before)} sample{'s' * (len(before) != 1)} stood before it"
    )
    for line in sample_table(before):
        print(line)
    print(f"by {held['tune.policy']} it would have been {_layout(decision.layout)}: {decision.why}")
    for line in given_lines(given):
        print(line)
    print("it had " + (", ".join(_layout(s.layout) for s in own) or "no layout that is known"))
    return 0


def given_lines(given: Given | None) -> list[str]:
    """What the tuner did to a run, as it was remembered then."""
    from penstock.policy.tuning.contract import Layout

    if given is None:
        return ["the tuner had no part in it"]
    verb = "applied" if given.applied else "chosen, not applied"
    lines = [
        f"{verb}: {_layout(Layout(count, size)) + ': ' if count else ''}{why}"
        for count, size, why in given.layouts
    ]
    return [*lines, f"targets were {given.load:.0%} busy at its start"]
