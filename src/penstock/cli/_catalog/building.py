# SPDX-License-Identifier: Apache-2.0
"""penstock catalog build, update, check."""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.cli import _common

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from pathlib import Path

    from penstock.catalog.scanning import Limits, Outcome, Progress

NAMED = 20
"""So many problems are named on the screen; --json has all."""


def register(rows: Any) -> None:
    make = rows.add_parser(
        "build",
        help="read a tree into a catalog",
        epilog="example: penstock catalog build /scratch/data -o data.cat",
    )
    make.add_argument("tree", metavar="DIR")
    make.add_argument(
        "-o", "--output", metavar="FILE", help="the catalog, a folder; default: DIR's name with .cat, here"
    )
    make.add_argument(
        "-x", "--one-file-system", action="store_true", help="do not go into other file systems"
    )
    make.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out names, or paths relative to DIR if it has a slash: tmp, run*/old",
    )
    make.add_argument(
        "--no-default-excludes", action="store_true", help="also .snapshot, .snapshots, /.lustre"
    )
    make.add_argument("--no-layouts", action="store_true", help="do not ask for layouts")
    make.add_argument(
        "--lazy",
        action="store_true",
        help="take attributes that the client has; sizes may be old (no glimpses)",
    )
    make.add_argument("--fresh", action="store_true", help="begin anew where a killed build could go on")
    make.add_argument(
        "--checksums",
        nargs="?",
        const="xxh3",
        choices=("xxh3", "blake3"),
        help="read all files, keep checksums",
    )
    make.add_argument(
        "--executor",
        metavar="KIND",
        help="spread: processes:N, mpi (under mpiexec -m mpi4py.futures), dask:ADDRESS",
    )
    make.add_argument(
        "--checkpoint",
        default="10s",
        metavar="TIME",
        help="how often to put aside what was read, until it runs long (10s, then a sixteenth of the time)",
    )
    _limits(make)
    make.set_defaults(act=build)
    _with_kinds(make)
    again = rows.add_parser(
        "update", help="bring a catalog up to date", epilog="example: penstock catalog update data.cat"
    )
    again.add_argument("file", metavar="FILE")
    again.add_argument(
        "--full", action="store_true", help="ask for every entry, not only in folders that changed"
    )
    again.add_argument(
        "--checksums",
        nargs="?",
        const="xxh3",
        choices=("xxh3", "blake3"),
        help="also of files that have none",
    )
    _limits(again)
    again.set_defaults(act=update)
    _with_kinds(again)
    test = rows.add_parser(
        "check",
        help="is it still true? what is not, is mended",
        epilog="example: penstock catalog check data.cat --sample 1%",
    )
    test.add_argument("file", metavar="FILE")
    test.add_argument(
        "--sample",
        default="100%",
        metavar="SHARE",
        help="of the folders, in percent: 1%% or 0.1 (default: all)",
    )
    test.add_argument(
        "--checksums", action="store_true", help="read the files, compare with the checksums kept"
    )
    test.add_argument("--seed", type=int, default=None, help="of the sample, to draw the same again")
    test.add_argument("-n", "--dry-run", action="store_true", help="only say what is not true")
    test.add_argument("--json", action="store_true", help="as one JSON document")
    test.set_defaults(act=check)


def _limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-j",
        "--threads",
        type=int,
        default=None,
        metavar="N",
        help="exactly so many; default: as many as help",
    )
    parser.add_argument("--rate", metavar="RATE", help="not more calls than this: 5k/s")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def _limits_of(args: argparse.Namespace) -> "Limits":
    from penstock.base import units
    from penstock.base.errors import UsageError
    from penstock.catalog.scanning import Limits

    if args.threads is not None and not 1 <= args.threads <= 1024:
        raise UsageError(f"-j {args.threads}: between 1 and 1024")
    rate = units.parse_rate(args.rate) if args.rate else 0.0
    return Limits(args.threads or 0, rate)


class Meter:
    """Progress on standard error: a line that is overwritten on a terminal, else one each ten seconds."""

    def __init__(self, expected: int = 0) -> None:
        self.expected = expected
        self.terminal = sys.stderr.isatty()
        self.next_s = time.monotonic() + 2
        self.shown = False

    def __call__(self, progress: "Progress") -> None:
        now = time.monotonic()
        if now < self.next_s:
            return
        self.next_s = now + (0.5 if self.terminal else 10)
        text = f"{show(progress)}{self.left(progress)}"
        print(
            f"\r\x1b[K{text}" if self.terminal else f"penstock: {text}",
            end="" if self.terminal else "\n",
            file=sys.stderr,
            flush=True,
        )
        self.shown = self.terminal

    def left(self, progress: "Progress") -> str:
        """How long it will take: from the entries expected, else from the folders known."""
        done, whole = (
            (progress.entries, self.expected)
            if self.expected > progress.entries
            else (progress.folders, progress.folders + progress.pending)
        )
        if not done or not progress.seconds:
            return ""
        left = (whole - done) * progress.seconds / done
        return f", about {left:.0f} s left" + (
            "" if self.expected > progress.entries else " if no more folders appear"
        )

    def end(self) -> None:
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr)


def show(progress: "Progress") -> str:
    from penstock.base.units import show_count

    rate = progress.entries / progress.seconds if progress.seconds else 0
    return (
        f"{show_count(progress.entries)} entries, {show_count(progress.folders)} folders, "
        f"{show_count(progress.pending)} waiting, {show_count(rate)}/s, {progress.threads} at once"
    )


@contextlib.contextmanager
def _executor(kind: str | None) -> "Iterator[tuple[Executor | None, int]]":
    """The executor that was asked for, and how many workers it has."""
    from penstock.base.errors import UsageError

    name, _, value = (kind or "").partition(":")
    if not name:
        yield None, 0
    elif name == "processes" and value.isdecimal() and int(value) > 0:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(int(value), mp_context=multiprocessing.get_context("spawn")) as pool:
            yield pool, int(value)
    elif name == "mpi":
        futures = _extra("mpi4py.futures", "mpi")
        with futures.MPIPoolExecutor() as pool:
            pool.bootup()
            yield pool, pool.num_workers
    elif name == "dask" and value:
        distributed = _extra("distributed", "dask")
        with distributed.Client(value) as client, client.get_executor() as pool:
            yield pool, len(client.scheduler_info()["workers"])
    else:
        raise UsageError(f"--executor {kind}: write processes:N, mpi or dask:ADDRESS")


def _extra(module: str, extra: str) -> Any:
    import importlib

    from penstock.base.errors import PenstockError

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PenstockError(f"{module} is not installed; pip install 'penstock[{extra}]'") from error


def build(args: argparse.Namespace) -> int:
    import os
    from pathlib import Path

    from penstock.base import units
    from penstock.catalog import build as building
    from penstock.catalog import store
    from penstock.catalog.scanning import EXCLUDES

    output = Path(args.output or f"{Path(args.tree).resolve().name or 'root'}.cat")
    excludes = (*(() if args.no_default_excludes else EXCLUDES), *map(os.fsencode, args.exclude))
    options = store.Options(args.one_file_system, args.lazy, not args.no_layouts, tuple(excludes))
    known = store.read(output).manifest if output.is_dir() else None
    meter = Meter(sum(part.entries for part in known.parts) if known else 0)
    with _executor(args.executor) as (executor, workers):
        said = quiet if args.quiet else meter
        limits = _limits_of(args)._replace(checkpoint_s=units.parse_duration(args.checkpoint) / 1e9)
        built = building.build(args.tree, output, options, limits, said, args.fresh, executor, workers)
        meter.end()
    figures: dict[str, Any] = {}
    if args.checksums:
        figures = summed(output, args.checksums, quiet if args.quiet else meter)
    manifest = built.manifest
    figures |= {"entries": sum(part.entries for part in manifest.parts), "resumed": built.resumed}
    return told(args, str(output), built.outcome, figures)


def summed(folder: "Path", kind: str, say: "Callable[[Progress], None]") -> dict[str, Any]:
    """Adds checksums; how many, and how long it took."""
    from penstock.catalog import sums

    begin = time.monotonic()
    return {"checksums": sums.add(folder, kind, say), "checksum_seconds": round(time.monotonic() - begin, 6)}


def valued(words: list[str]) -> list[str]:
    """--checksums without =KIND is the usual kind: the word behind it is DIR or FILE."""
    kinds = ("xxh3", "blake3")
    return [
        f"{word}=xxh3" if word == "--checksums" and after not in kinds else word
        for word, after in zip(words, [*words[1:], ""], strict=True)
    ]


def _with_kinds(parser: argparse.ArgumentParser) -> None:
    plain = parser.parse_known_args

    def parse(args: Any = None, namespace: Any = None) -> Any:
        return plain(args if args is None else valued(list(args)), namespace)

    parser.parse_known_args = parse  # type: ignore[method-assign]


def quiet(progress: Any) -> None:
    """No progress."""


def update(args: argparse.Namespace) -> int:
    from pathlib import Path

    from penstock.catalog import marks, store
    from penstock.catalog import update as updating

    meter = Meter()
    said = quiet if args.quiet else meter
    held = store.read(Path(args.file)).manifest
    if held and marks.lost(held.doubts) and not args.full:
        _common.note(
            f"{args.file}: the helper of a run has not ended here, or runs and updates met; everything is looked at"
        )
    outcome = updating.update(args.file, _limits_of(args), args.full, said)
    meter.end()
    figures: dict[str, Any] = {}
    if args.checksums:
        figures = summed(Path(args.file), args.checksums, said)
    return told(args, args.file, outcome, figures)


def told(args: argparse.Namespace, file: str, outcome: "Outcome", figures: dict[str, Any]) -> int:
    """Says what came of it; 3 if something could not be read."""
    from penstock.base.text import visible
    from penstock.base.units import show_count

    status = 3 if outcome.problems else 0
    if args.json:
        problems = [
            {"path": visible(it.path), "error": it.say().rpartition(": ")[2], "errno": it.errno}
            for it in outcome.problems
        ]
        read = {
            "entries_read": outcome.entries,
            "folders_read": outcome.folders,
            "calls": outcome.calls,
            "seconds": round(outcome.seconds, 6),
        }
        moved = [visible(path) for path in outcome.moved]
        _common.print_json(
            {"schema_version": 1, "catalog": file, **read, **figures, "problems": problems, "moved": moved}
        )
        return status
    for problem in outcome.problems[:NAMED]:
        _common.note(problem.say())
    if len(outcome.problems) > NAMED:
        _common.note(f"... and {len(outcome.problems) - NAMED} more; --json names all")
    for path in outcome.moved[:NAMED]:
        _common.note(f"{visible(path) or '.'}: changed while it was read")
    if outcome.moved:
        _common.note(
            f"{len(outcome.moved)} folders changed while they were read; penstock catalog update {file} looks again"
        )
    rate = f", {show_count(outcome.entries / outcome.seconds)}/s" if outcome.seconds > 0 else ""
    whole = f"{figures['entries']} entries, " if "entries" in figures else ""
    also = (
        f", {figures['checksums']} checksums in {figures['checksum_seconds']:.2f} s"
        if "checksums" in figures
        else ""
    )
    print(f"{file}: {whole}{outcome.entries} read in {outcome.seconds:.2f} s{rate}{also}")
    if outcome.problems:
        _common.note(f"{len(outcome.problems)} could not be read; the catalog says so of them")
    return status


def check(args: argparse.Namespace) -> int:
    from penstock.base.errors import UsageError
    from penstock.base.text import visible
    from penstock.catalog import check as checking

    try:
        share = float(args.sample.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UsageError(f"--sample {args.sample}: a share like 1% or 0.1%")
    found = checking.check(args.file, share, args.checksums, not args.dry_run, args.seed)
    rows = [{"path": visible(it.path), "what": it.what} for it in found.differences]
    if args.json:
        damaged = [{"path": visible(path), "errno": code} for path, code in found.damaged]
        figures = {
            "folders": found.folders,
            "entries": found.entries,
            "files_read": found.files_read,
            "mended": found.mended,
            "entries_differing": found.differing,
        }
        _common.print_json(
            {"schema_version": 1, "catalog": args.file, **figures, "differences": rows, "damaged": damaged}
        )
    else:
        for row in rows:
            print(f"{row['path'] or '.'}: {row['what']}")
        for path, _ in found.damaged[:NAMED]:
            print(f"{visible(path) or '.'}: the catalog is damaged here")
        if len(found.damaged) > NAMED:
            print(f"... and {len(found.damaged) - NAMED} more; --json names all")
        damage = f"; in {len(found.damaged)} folders the catalog was damaged" if found.damaged else ""
        mended = ", mended" if found.mended else ""
        whole = f"{found.entries} entries in {found.folders} folders"
        print(f"{args.file}: {found.differing} of {whole} differ{damage}{mended}")
    return 3 if found.damaged and not found.mended else 1 if rows and args.dry_run else 0
