# SPDX-License-Identifier: Apache-2.0
"""Which files the next run of a program will write: names, sizes, ranks, and how sure that is.

penstock predict ior
penstock predict ior --ranks 128 --all
penstock predict train.py --check
penstock predict ior --for /scratch/out.0007
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.policy.predicting.contract import Predicted, RunFiles
    from penstock.policy.predicting.forecast import Forecast

HELP = "the files that a program's next run will write"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the program, as penstock runs names it")
    parser.add_argument("--ranks", metavar="N", type=int, default=0, help="the next run has so many ranks")
    parser.add_argument("--job", metavar="ID", default="", help="the next run's job, where names hold it")
    parser.add_argument(
        "--method",
        choices=("templates", "arima"),
        default="templates",
        help="arima: the published one, by order",
    )
    parser.add_argument(
        "--for", dest="names", metavar="PATH", nargs="+", default=[], help="sizes of these names only"
    )
    parser.add_argument(
        "--check", action="store_true", help="predict the last run from those before it, and compare"
    )
    parser.add_argument(
        "--all", action="store_true", help="each file; without it files of one template are a line"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.base.errors import NothingMatchedError
    from penstock.policy.predicting.contract import Coming
    from penstock.policy.predicting.forecast import learn_anew
    from penstock.runs import learned
    from penstock.runs.history import History, show_progress

    history = History(_common.settings_of(args), _common.note, show_progress)
    found = learned.runs_of(history, args.name)
    teachers = learned.teachers(found)
    if not teachers:
        raise NothingMatchedError(f"no run of {args.name} wrote a file; there is nothing to learn from")
    runs = [learned.files_of(history.load(s)) for s in teachers]
    if args.method == "arima":
        return _arima(args, runs)
    forecast = learn_anew(runs)
    coming = Coming(args.ranks, args.job.encode("utf-8", "surrogateescape"))
    checked = _checked(runs)
    document: dict[str, Any] = {
        "schema_version": 1,
        "program": found[0].program,
        "learned_from": [s.id for s in teachers][-forecast.runs :],
        "ranks": args.ranks or forecast.ranks,
        "last_error_ratio": checked["error_ratio"] if checked else None,
        "last_expected_ratio": checked["expected_ratio"] if checked else None,
    }
    if args.check:
        return _show_check(args, document, checked)
    if args.names:
        return _show_names(args, document, forecast)
    return _show(args, document, forecast, forecast.expected(coming))


def _checked(runs: list[RunFiles]) -> dict[str, Any] | None:
    """How well the last run would have been predicted from those before it."""
    from penstock.policy.predicting.forecast import learn_anew, surprise
    from penstock.policy.predicting.sizes import mean_error

    if len(runs) < 2 or not runs[-1].files:
        return None
    forecast, last = learn_anew(runs[:-1]), runs[-1]
    guess = forecast.sizes([f.name for f in last.files], last.ranks)
    seen = surprise(forecast, last.files)
    rows = [
        {
            "name": _text(f.name),
            "bytes": f.bytes,
            "predicted_bytes": round(g.bytes),
            "error_estimate_ratio": g.error,
            "how": g.how,
        }
        for f, g in zip(last.files, guess, strict=True)
    ]
    return {
        "error_ratio": mean_error([g.bytes for g in guess], [float(f.bytes) for f in last.files]),
        "expected_ratio": seen.expected / seen.files,
        "learn": seen.learn,
        "files": rows,
    }


def _text(name: bytes) -> str:
    """A name for JSON and screens; odd bytes as Python writes them."""
    return name.decode("utf-8", "backslashreplace")


def _show_check(args: argparse.Namespace, document: dict[str, Any], checked: dict[str, Any] | None) -> int:
    from penstock.base.errors import NothingMatchedError
    from penstock.base.text import plural
    from penstock.base.units import show_ratio, show_size

    if checked is None:
        raise NothingMatchedError(
            f"only one run of {args.name} is recorded; run it again, then there is something to check"
        )
    if args.json:
        _common.print_json({**document, "check": checked})
        return 0
    count = len(checked["files"])
    print(
        f"the last run, predicted from those before it: {show_ratio(1 - checked['error_ratio'], 1)} right in size"
    )
    were = "was" if count == 1 else "were"
    print(f"{show_ratio(checked['expected_ratio'], 1)} of {plural(count, 'name')} {were} expected")
    if checked["learn"]:
        print("more than half were not: what was learned before is dropped")
    for row in sorted(checked["files"], key=lambda r: -abs(r["bytes"] - r["predicted_bytes"]))[:8]:
        print(f"  {show_size(row['predicted_bytes']):>9} of {show_size(row['bytes']):>9}  {row['name']}")
    return 0


def _show_names(args: argparse.Namespace, document: dict[str, Any], forecast: Forecast) -> int:
    import os

    from penstock.base.units import show_size

    sizes = forecast.sizes([os.fsencode(name) for name in args.names], args.ranks)
    if args.json:
        rows = [
            {
                "name": n,
                "bytes": round(s.bytes),
                "error_estimate_ratio": s.error,
                "how": s.how,
                "known": s.error <= 0.5,
            }
            for n, s in zip(args.names, sizes, strict=True)
        ]
        _common.print_json({**document, "files": rows})
        return 0
    for name, s in zip(args.names, sizes, strict=True):
        print(f"{_size(s.bytes, s.error, show_size):>20}  {name}  ({s.how})")
    return 0


def _size(size: float, error: float, show: Any) -> str:
    return "unknown" if error > 0.5 else f"{show(size)} ± {100 * error:.0f} %"


def _kinds_of(forecast: Forecast, pieces: tuple[bytes, ...]) -> tuple[str, ...]:
    return next((k.kinds for k in forecast.known if k.template.pieces == pieces), ())


def _as_json(p: Predicted, forecast: Forecast) -> dict[str, Any]:
    from penstock.policy.predicting import names as naming

    template = naming.template_of(p.match.pieces)
    return {
        "template": naming.show(p.match.pieces, _kinds_of(forecast, p.match.pieces)),
        "regex": template.regex.pattern.decode("latin-1"),  # one character a byte
        "values": [v.decode() if v is not None else None for v in p.match.values],
        "name": _text(p.name) if p.name else None,
        "files": p.files,
        "bytes": round(p.bytes),
        "error_estimate_ratio": p.error,
        "known": p.known,
        "rank": p.rank if p.rank >= 0 else None,
        "shared": p.shared,
        "communicator": p.communicator or None,
        "how": p.how,
    }


def _show(
    args: argparse.Namespace, document: dict[str, Any], forecast: Forecast, found: list[Predicted]
) -> int:
    from penstock.base.text import plural
    from penstock.base.units import show_ratio

    if args.json:
        _common.print_json({**document, "files": [_as_json(p, forecast) for p in found]})
        return 0
    for line in table(forecast, found, args.all):
        print(line)
    total = sum(p.files for p in found)
    print(f"{plural(total, 'file')} from {plural(forecast.runs, 'run')}", end="")
    wrong = document["last_error_ratio"]
    print("" if wrong is None else f"; the last prediction was wrong by {show_ratio(wrong, 1)} in size, and expected "
          f"{show_ratio(document['last_expected_ratio'], 1)} of the names")  # fmt: skip
    return 0


def table(forecast: Forecast, found: list[Predicted], every: bool) -> list[str]:
    """Predictions in columns: a template a line, or a file a line."""
    from penstock.base.units import show_size
    from penstock.policy.predicting import names as naming

    head = ("FILES", "EACH", "BY", "HOW", "NAME")
    rows = [head]
    groups: dict[tuple[bytes, ...], list[Predicted]] = {}
    for p in found:
        if p.files:
            groups.setdefault(p.match.pieces, []).append(p)
    for pieces, parts in groups.items():
        template = naming.show(pieces, _kinds_of(forecast, pieces))
        for p in parts if every else parts[:1]:
            files = p.files if every else sum(q.files for q in parts)
            low, high = min(q.bytes for q in parts), max(q.bytes for q in parts)
            error = p.error if every else max(q.error for q in parts)
            one = every or high - low <= 0.01 * high
            each = (
                _size(p.bytes, error, show_size)
                if one or error > 0.5
                else f"{show_size(low)} – {show_size(high)}"
            )
            by = "all ranks" if p.shared else "rank" if p.rank >= 0 else "–"
            if every and p.rank >= 0:
                by = f"rank {p.rank}"
            shown = _text(p.name) if every and p.name else template
            rows.append((str(files), each, by, p.how, shown))
    wide = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return [
        "  ".join(
            c.rjust(w) if i < 2 else c.ljust(w) for i, (c, w) in enumerate(zip(row, wide, strict=True))
        ).rstrip()
        for row in rows
    ]


def _arima(args: argparse.Namespace, runs: list[RunFiles]) -> int:
    import time

    from penstock.base.errors import PenstockError
    from penstock.base.units import show_size
    from penstock.policy.predicting import arima
    from penstock.policy.predicting.sizes import mean_error

    past, last = (runs[:-1], runs[-1]) if args.check and len(runs) > 1 else (runs, runs[-1])
    series = [float(f.bytes) for run in past for f in run.files]
    try:
        found = arima.forecast(series, len(last.files), time.monotonic)
    except ImportError as error:
        raise PenstockError("--method arima needs statsmodels; install penstock[arima]") from error
    wrong = mean_error(found.values.tolist(), [float(f.bytes) for f in last.files]) if args.check else None
    order = "none: the series is constant or short" if found.order is None else str(found.order)
    if args.json:
        rows = [{"order": i, "bytes": round(v)} for i, v in enumerate(found.values.tolist())]
        head = {
            "schema_version": 1,
            "program": args.name,
            "method": "arima",
            "pdq": found.order,
            "tried": found.tried,
        }
        _common.print_json({**head, "error_ratio": wrong, "error_estimate_ratio": found.error, "files": rows})
        return 0
    print(
        f"ARIMA (p, d, q): {order}; {found.tried} of {len(arima.GRID)} orders tried within {arima.BUDGET_S:.0f} s"
    )
    for i, value in enumerate(found.values.tolist()[:20]):
        print(f"{i:>6}  {show_size(value)}")
    if wrong is not None:
        print(f"{100 * (1 - wrong):.1f} % right in size, by order of creation")
    return 0
