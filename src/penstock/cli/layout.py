# SPDX-License-Identifier: Apache-2.0
"""Layouts: which bytes of a file lie on which storage targets.

penstock layout get FILE...
penstock layout set -c 4 -S 1M --osts 3,5,7,9 NEWFILE
penstock layout set -c 2 FOLDER                      for new files in it
penstock layout explain FILE --html > file.html
"""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.targets.layouts import Component, Layout

HELP = "show, set and explain the layout of files"


def register(parser: argparse.ArgumentParser) -> None:
    rows = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    get = rows.add_parser("get", help="the layouts of files, the defaults of folders")
    get.add_argument("files", metavar="FILE", nargs="+")
    get.add_argument("--json", action="store_true", help="as one JSON document")
    put = rows.add_parser("set", help="make a file with a layout, or give one to an empty file or a folder")
    put.add_argument("-c", "--count", type=int, default=0, metavar="N", help="stripes; -1 for all targets")
    put.add_argument("-S", "--size", default="0", metavar="SIZE", help="of a stripe: 1M, 64KiB, ...")
    put.add_argument("--osts", "--targets", default="", metavar="LIST", help="exactly these targets: 3,5,7-9")
    put.add_argument("--pool", default="", metavar="NAME", help="targets of this pool")
    put.add_argument("files", metavar="FILE|FOLDER", nargs="+")
    explain = rows.add_parser("explain", help="which bytes are on which target, drawn")
    explain.add_argument("file", metavar="FILE")
    form = explain.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as one JSON document")
    form.add_argument("--html", action="store_true", help="as a page with a drawing")


def run(args: argparse.Namespace) -> int:
    return {"get": get, "set": put, "explain": explain}[args.what](args)


def parse_targets(text: str) -> tuple[int, ...]:
    """`3,5,7-9` in its order."""
    from penstock.base.errors import UsageError

    found: list[int] = []
    for word in filter(None, text.split(",")):
        first, dash, last = word.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(word) > 12:
            raise UsageError(f"{word!r} is no target; write them like 3,5,7-9")
        if int(last or first) - int(first) > 65535:
            raise UsageError(f"{word!r} names too many targets")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def get(args: argparse.Namespace) -> int:
    from penstock.base.errors import PenstockError
    from penstock.targets.driver import NoLayoutError, driver_for

    failed = 0
    rows: list[dict[str, Any]] = []
    for file in args.files:
        try:
            layout = driver_for(file).layout(file)
        except PenstockError as error:
            failed = failed or error.status
            reason = "none" if isinstance(error, NoLayoutError) else "unreadable"
            rows.append({"file": file, "kind": reason, "error": str(error)})
            if not args.json:
                _common.note(str(error))
            continue
        rows.append({"file": file, **as_json(layout)})
        if not args.json:
            print("\n".join(describe(file, layout)))
    if args.json:
        _common.print_json({"schema_version": 1, "files": rows})
    return failed


def as_json(layout: "Layout") -> dict[str, Any]:
    from penstock.targets.layouts import EOF

    rows = [
        {**c._asdict(), "end_bytes": None if c.end_bytes == EOF else c.end_bytes} for c in layout.components
    ]
    return {"kind": layout.kind, "components": rows}


def describe(file: str, layout: "Layout") -> list[str]:
    from penstock.base.text import visible

    name = visible(file)
    if not layout.known:
        return [f"{name}: unknown layout of {len(layout.blob)} bytes"]
    if len(layout.components) == 1:
        return [f"{name}: {component(layout.components[0])}"]
    return [f"{name}:", *(f"  {extent(c)}  {component(c)}" for c in layout.components)]


def extent(c: "Component") -> str:
    from penstock.base.units import show_size
    from penstock.targets.layouts import EOF

    end = "end" if c.end_bytes == EOF else show_size(c.end_bytes)
    return f"[{show_size(c.start_bytes)}, {end})"


def component(c: "Component") -> str:
    """One component in words."""
    from penstock.base.units import show_size
    from penstock.targets.layouts import ALL

    if c.on_mds:
        return "on the metadata server"
    if not c.stripe_size_bytes and len(c.targets) == 1:
        return f"on target {c.targets[0]}"
    count = (
        "as many stripes as targets"
        if c.stripe_count == ALL
        else f"{c.stripe_count} stripe{'s' * (c.stripe_count != 1)}"
    )
    words = [f"{count} of {show_size(c.stripe_size_bytes)}" if c.stripe_size_bytes else count]
    if c.targets:
        words.append(f"on target{'s' * (len(c.targets) != 1)} {', '.join(map(str, c.targets))}")
    if c.object_size_bytes:
        words.append(f"objects of {show_size(c.object_size_bytes)}")
    if c.pool:
        words.append(f"pool {c.pool}")
    if c.mirror:
        words.append(f"mirror {c.mirror}")
    if c.stale:
        words.append("stale")
    return ", ".join(words)


def put(args: argparse.Namespace) -> int:
    from pathlib import Path

    from penstock.base import units
    from penstock.base.errors import UsageError
    from penstock.targets.driver import driver_for
    from penstock.targets.layouts import ALL, wish

    targets = parse_targets(args.osts)
    if targets and args.count not in (0, len(targets)):
        raise UsageError(f"-c {args.count} and {len(targets)} targets contradict each other; leave -c out")
    if args.count < ALL:
        raise UsageError(f"-c {args.count}: a number of stripes, or -1 for all targets")
    asked = wish(args.count, units.parse_size(args.size), targets, args.pool)
    for file in args.files:
        driver = driver_for(file)
        if Path(file).is_dir():
            driver.set_default(file, asked)
        else:
            driver.create(file, asked)
    return 0


def explain(args: argparse.Namespace) -> int:
    import os
    import stat

    from penstock.base.errors import PenstockError
    from penstock.report import layout as drawing
    from penstock.targets.driver import driver_for
    from penstock.targets.layouts import bytes_on

    try:
        facts = os.stat(args.file)  # noqa: PTH116 - a string in, as typed
    except OSError as error:
        raise PenstockError(f"{args.file}: {error.strerror}; name a file") from error
    size = facts.st_size if stat.S_ISREG(facts.st_mode) else 0  # a folder has a default, and no bytes
    layout = driver_for(args.file).layout(args.file)
    if args.json:
        held = [{"target": target, "bytes": count} for target, count in bytes_on(layout, size).items()]
        document = {"schema_version": 1, "file": args.file, "size_bytes": size, **as_json(layout)}
        _common.print_json({**document, "targets": held})
    elif args.html:
        print(drawing.page(args.file, describe(args.file, layout), layout, size))
    else:
        print("\n".join([*describe(args.file, layout), *drawing.drawn(layout, size, sys.stdout.isatty())]))
    return 0
