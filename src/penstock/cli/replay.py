# SPDX-License-Identifier: Apache-2.0
"""Replay a trace of metadata operations against a folder; make one; draw what one is like.

penstock replay make --seed 1 -o day.csv                       # a synthetic day after published statistics
penstock replay stats day.csv -o figures/
penstock replay day.csv --scale 0.01 --speed 60 --on /pfs/me   # a minute a second, a hundredth of the rate
penstock run -- penstock replay day.csv --scale 0.01 --speed 60 --on /pfs/me

What cannot begin in time is done later, none is left out, and the time that an operation waited counts from when it
was meant to begin.  Everything happens in a new folder that is removed at the end.
"""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.tools.replay import How, Outcome
    from penstock.tools.traces import Trace

HELP = "replay a trace of metadata operations"
STATISTICS_S = 60.0


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="TRACE", help="the trace; or: make; or: stats and the trace"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    replay = parser.add_argument_group("replay")
    replay.add_argument("--on", default=".", metavar="DIR", help="where: a folder on the file system (.)")
    replay.add_argument("--scale", type=float, default=1.0, metavar="X", help="rates times this (1)")
    replay.add_argument(
        "--speed", type=float, default=1.0, metavar="X", help="time shortened by this, rates as they are (1)"
    )
    replay.add_argument(
        "--only", metavar="OP,OP", help="only these operations, for instance open,close,getattr"
    )
    replay.add_argument(
        "--threads", action="append", default=[], metavar="OP=N", help="threads of an operation (1)"
    )
    replay.add_argument("--files", type=int, default=256, metavar="N", help="files that are worked on (256)")
    replay.add_argument("--io-size", default="64KiB", metavar="SIZE", help="of a read or write (64KiB)")
    replay.add_argument("--file-size", default="16MiB", metavar="SIZE", help="of a file of data (16MiB)")
    replay.add_argument("--every", default="1s", metavar="TIME", help="an interval of the answer (1s)")
    replay.add_argument("-n", "--dry-run", action="store_true", help="only say what it would do")
    replay.add_argument("-q", "--quiet", action="store_true", help="no progress")
    make = parser.add_argument_group("make")
    make.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed, the same trace (0)")
    make.add_argument("--days", type=int, default=1, metavar="N", help="how long (1)")
    parser.add_argument("-o", "--output", metavar="PATH", help="make: the file; stats: a folder for figures")


def run(args: argparse.Namespace) -> int:
    from penstock.base.errors import UsageError

    first, *rest = args.words
    if len(rest) != (first == "stats"):
        raise UsageError("name one trace: penstock replay TRACE, penstock replay stats TRACE")
    if first == "make":
        return _make(args)
    return _stats(args, rest[0]) if first == "stats" else _replay(args, first)


# -- replay ------------------------------------------------------------------------------------------------


def _replay(args: argparse.Namespace, name: str) -> int:
    import math
    from pathlib import Path

    from penstock.base.errors import IncompleteError, PenstockError, UsageError
    from penstock.tools import replay, traces

    for option in ("scale", "speed"):
        if not 1e-9 <= getattr(args, option) <= 1e9 or not math.isfinite(getattr(args, option)):
            raise UsageError(f"--{option} is to be a number above 0")
    how = _how(args)
    only = set(args.only.split(",")) if args.only else set(traces.OPERATIONS)
    if only - set(traces.OPERATIONS):
        raise UsageError(f"--only: there are {', '.join(traces.OPERATIONS)}")
    trace = traces.Trace(Path(name))
    lines = list(traces.schedule((span for span in trace if span.operation in only), args.scale, args.speed))
    _tell_damage(trace)
    if args.dry_run:
        return _dry_run(args, lines)
    found = replay.run(lines, how, _progress(args, how))
    if args.json:
        _common.print_json(_as_json(args, trace, found))
    else:
        for line in _table(found):
            print(line)
    if found.signal:
        return 128 + found.signal
    if why := replay.failures(found):
        raise PenstockError(why)
    if trace.damaged:
        raise IncompleteError(f"{trace.damaged:,} damaged lines of {name} were passed over")
    return 0


def _how(args: argparse.Namespace) -> "How":
    from pathlib import Path

    from penstock.base import units
    from penstock.base.errors import UsageError
    from penstock.tools.replay import How
    from penstock.tools.traces import OPERATIONS

    for word in args.threads:
        name, _, number = word.partition("=")
        if name not in OPERATIONS or not number.isdecimal() or not 1 <= int(number) <= 64:
            raise UsageError(f"--threads {word}: write it like getattr=2, up to 64")
    if not 1 <= args.files <= 1_000_000:
        raise UsageError("--files is to be from 1 to 1000000")
    sizes = units.parse_size(args.io_size), units.parse_size(args.file_size)
    if not 1 <= sizes[0] <= 1 << 30 or sizes[1] < 1:
        raise UsageError("--io-size is to be from 1 byte to 1 GiB, and --file-size not 0")
    every_s = units.parse_duration(args.every) / 1e9
    if not 0.001 <= every_s <= 86400:
        raise UsageError("--every is to be from 1ms to 1d")
    return How(Path(args.on), tuple(args.threads), args.files, sizes[0], sizes[1], every_s)


def _tell_damage(trace: "Trace") -> None:
    for damage in trace.damages:
        _common.note(f"{trace.path}:{damage.line} {damage.text}; passed over")
    if trace.damaged > len(trace.damages):
        _common.note(f"{trace.path}: {trace.damaged - len(trace.damages):,} more damaged lines")
    if trace.unknown:
        _common.note(f"{trace.path}: columns of no known operation, passed over: {', '.join(trace.unknown)}")


def _dry_run(args: argparse.Namespace, lines: list[str]) -> int:
    from penstock.tools.traces import OPERATIONS

    counts: dict[str, int] = {}
    end_s = 0.0
    for line in lines:
        name, start, length, times = line.split()
        counts[name] = counts.get(name, 0) + int(times)
        end_s = max(end_s, (int(start) + int(length)) / 1e9)
    if args.json:
        _common.print_json({"schema_version": 1, "length_s": end_s, "operations": counts})
        return 0
    for name, count in sorted(counts.items(), key=lambda item: OPERATIONS.index(item[0])):
        print(f"{name:<8}{count:>14,}")
    print(f"{'all':<8}{sum(counts.values()):>14,}  in {end_s:g} s")
    return 0


def _progress(args: argparse.Namespace, how: "How") -> Any:
    """A line a second on a terminal, else one in ten seconds."""
    from penstock.base import units

    terminal = sys.stderr.isatty()
    step = max(1, round((1 if terminal else 10) / how.interval_s))

    def tell(found: "Outcome") -> None:
        if args.quiet or len(found.intervals) % step:
            return
        last = found.intervals[-step:]
        demanded, served = (
            sum(pair[i] for row in last for pair in row["operations"].values()) / (step * how.interval_s)
            for i in (0, 1)
        )
        done_s = len(found.intervals) * how.interval_s
        text = (
            f"replay: {done_s:.0f} of {found.begin['length_s']:.0f} s, {units.show_count(demanded)}/s demanded, "
            f"{units.show_count(served)}/s served, {units.show_count(max(0, found.behind))} behind"
        )
        print(
            f"\r{text:<79}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True
        )

    return tell


def _table(found: "Outcome") -> list[str]:
    from penstock.base import units

    head = ("operation", "demanded", "served", "failed", "waited", "99 %", "most", "took")
    lines: list[tuple[str, ...]] = [head]
    for name, row in found.operations.items():
        waited = row["waited_ns"]
        times = (waited["mean"], waited["p99"], waited["max"], row["took_ns"]["mean"])
        counts = (f"{row[key]:,}" for key in ("demanded", "served", "failed"))
        lines.append((name, *counts, *(units.show_duration(t) for t in times)))
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    table = [
        "  ".join(
            f"{c:>{w}}" if i else f"{c:<{w}}" for i, (c, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    rate = found.total("served") / found.elapsed_s if found.elapsed_s else 0.0
    extra = found.total("extra")
    table.append(
        f"{found.total('served'):,} of {found.total('demanded'):,} operations in {found.elapsed_s:.1f} s, "
        f"{units.show_count(rate)}/s"
    )
    if extra:
        table.append(f"{extra:,} calls more, where the trace takes away more than it brings")
    return table


def _as_json(args: argparse.Namespace, trace: "Trace", found: "Outcome") -> dict[str, Any]:
    return {
        "schema_version": 1,
        "trace": str(trace.path),
        "synthetic": trace.synthetic,
        "scale": args.scale,
        "speed": args.speed,
        "damaged": trace.damaged,
        "damages": [damage._asdict() for damage in trace.damages],
        "elapsed_s": found.elapsed_s,
        "signal": found.signal,
        "begin_monotonic_ns": found.begin.get("begin_monotonic_ns"),
        "interval_s": found.begin.get("interval_s"),
        "operations": found.operations,
        "intervals": [
            {
                "start_s": row["start_s"],
                "demanded": {name: pair[0] for name, pair in row["operations"].items()},
                "served": {name: pair[1] for name, pair in row["operations"].items()},
            }
            for row in found.intervals
        ],
    }


# -- make and stats ----------------------------------------------------------------------------------------


def _make(args: argparse.Namespace) -> int:
    from pathlib import Path

    from penstock.base.errors import UsageError
    from penstock.tools import trace_make

    if not 1 <= args.days <= 366:
        raise UsageError("--days is to be from 1 to 366")
    text = "".join(trace_make.lines(args.days, args.seed))
    if args.output is None:
        sys.stdout.write(text)
        return 0
    place = Path(args.output)
    aside = place.with_name(f"{place.name}.new")
    aside.write_text(text)
    aside.replace(place)
    return 0


def _stats(args: argparse.Namespace, name: str) -> int:
    from pathlib import Path

    from penstock.base import units
    from penstock.tools import traces

    trace = traces.Trace(Path(name))
    found = traces.statistics(trace, STATISTICS_S)
    _tell_damage(trace)
    facts = traces.facts(found)
    figures = []
    if args.output:
        from penstock.report import traces as figures_of

        figures = figures_of.draw(found, Path(args.output), trace.synthetic or f"{Path(name).name}")
    if args.json:
        document = {
            "schema_version": 1,
            "trace": name,
            "synthetic": trace.synthetic,
            "damaged": trace.damaged,
        }
        _common.print_json(document | facts | {"figures": [str(path) for path in figures]})
        return 0
    for key, value in facts.items():
        if isinstance(value, float):
            what, unit = (key.removesuffix("_ops_per_s"), "/s") if key.endswith("_per_s") else (key, "")
            text = units.show_count(value) + unit if unit else f"{value:.1f}"
            print(f"{what.replace('_', ' '):<36}{text:>10}")
    for operation, share in sorted(facts["share"].items(), key=lambda item: -item[1]):  # type: ignore[attr-defined]
        print(f"{operation:<36}{100 * share:>8.2f} %")
    for path in figures:
        _common.note(f"drawn: {path}")
    return 0
