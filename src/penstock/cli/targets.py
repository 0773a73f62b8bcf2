# SPDX-License-Identifier: Apache-2.0
"""Storage targets of a mounted file system: room, load, latency, state.

penstock targets /scratch
penstock targets /scratch --watch
penstock targets --server --watch --json   on an OSS or MDS: its processors and memory
penstock targets /tmp/pfs --server         the emulated servers of a testbed
"""

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.targets.observe import View
    from penstock.targets.servers import Server

HELP = "storage targets of a file system and what they are doing"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("mount", metavar="PATH", nargs="?", help="a mount point, or any file below it")
    parser.add_argument(
        "--server", action="store_true", help="servers instead of targets: this machine, or a testbed's"
    )
    parser.add_argument("--watch", action="store_true", help="go on until interrupted")
    parser.add_argument(
        "--every", metavar="TIME", help="how often to look (1s; with --server: targets.server_every)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON; with --watch a document a line")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.base import units
    from penstock.base.errors import UsageError

    if not args.server and not args.mount:
        raise UsageError("name a mount point, or say --server for this machine")
    every_ns = units.parse_duration(args.every) if args.every else None
    if every_ns is not None and every_ns < 100_000_000:
        raise UsageError(f"--every {args.every}: not more often than each 100ms")
    if args.server:
        held = _common.settings_of(args)
        return servers(args, (every_ns or held["targets.server_every"]) / 1e9)
    return targets(args, (every_ns or 1_000_000_000) / 1e9)


def targets(args: argparse.Namespace, every_s: float) -> int:
    import os

    from penstock.base.errors import UsageError
    from penstock.targets.driver import driver_for
    from penstock.targets.observe import Observer, Watch

    driver = driver_for(args.mount)
    if driver.kind == "posix" and not os.path.lexists(args.mount):
        raise UsageError(f"{args.mount} is not there; name a mount point, or a file below it")
    observer = Observer(driver, stale_after_s=max(5.0, 3 * every_s))
    if not args.watch:
        observer.collect(time.monotonic())
        if not observer.trouble:
            time.sleep(every_s)  # load is the difference of two readings
            observer.collect(time.monotonic())
        return show(args, driver.kind, observer.view(time.monotonic()), observer.trouble)
    watch = Watch(observer, every_s)
    try:
        watch.first.wait(timeout=10)
        while True:
            time.sleep(every_s)
            if sys.stdout.isatty() and not args.json:
                print("\x1b[H\x1b[2J", end="")
            show(args, driver.kind, observer.view(time.monotonic()), observer.trouble)
    finally:
        watch.stop()


def show(args: argparse.Namespace, kind: str, views: "list[View]", trouble: str) -> int:
    import os

    from penstock.base.errors import PenstockError

    if trouble and not views:
        raise PenstockError(trouble)
    if args.json:
        document = {"schema_version": 1, "file_system": kind, "trouble": trouble}
        rows = [as_json(view) for view in views]
        _common.print_json({**document, "targets": rows}) if not args.watch else _line(
            {**document, "targets": rows}
        )
    else:
        on_screen = args.watch and sys.stdout.isatty()
        print("\n".join(fitting(table(views), os.get_terminal_size().lines) if on_screen else table(views)))
        if trouble:
            _common.note(trouble)
    sys.stdout.flush()
    return 0


def _line(document: dict[str, Any]) -> None:
    import json

    print(json.dumps(document))


def as_json(view: "View") -> dict[str, Any]:
    return {**view.target._asdict(), **{k: v for k, v in view._asdict().items() if k != "target"}}


def table(views: "list[View]") -> list[str]:
    """The targets in columns, and all of them together."""
    from penstock.base.units import show_count, show_duration, show_ratio, show_size

    def rate(value: float | None) -> str:
        return "–" if value is None else f"{show_size(value)}/s"

    head = ("TARGET", "NAME", "SERVER", "SIZE", "FREE", "READ", "WRITE", "OPS/S", "LATENCY", "STATE")
    rows = [head]
    for v in views:
        t = v.target
        room = (
            f"{show_size(t.free_bytes)} ({show_ratio(t.free_bytes, t.size_bytes)})" if t.size_bytes else "–"
        )
        rows.append(
            (
                str(t.id),
                t.name,
                t.server or "–",
                show_size(t.size_bytes) if t.size_bytes else "–",
                room,
                rate(v.read_bytes_per_s),
                rate(v.written_bytes_per_s),
                "–" if v.ops_per_s is None else show_count(v.ops_per_s),
                "–" if v.latency_ns is None else show_duration(v.latency_ns),
                f"stale ({v.age_s:.0f} s)" if v.stale else v.state,
            )
        )
    wide = [max(len(row[i]) for row in rows) for i in range(len(head))]
    left = (1, 2, 9)
    lines = [
        "  ".join(
            c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, wide, strict=True))
        )
        for row in rows
    ]
    whole, free = sum(v.target.size_bytes for v in views), sum(v.target.free_bytes for v in views)
    count = f"{len(views)} target{'s' * (len(views) != 1)}"
    lines.append(f"{count}, {show_size(free)} free of {show_size(whole)}")
    return [line.rstrip() for line in lines]


def fitting(lines: list[str], height: int) -> list[str]:
    """Of a table as much as a screen shows; its head and its sum always, and how much is left out."""
    room = max(height - 4, 1)  # head, what is left out, the sum, and the line of the cursor
    left = len(lines) - 2 - room
    if left < 1:
        return lines
    return [*lines[: room + 1], f"and {left} more: make the window taller, or say --json", lines[-1]]


def servers(args: argparse.Namespace, every_s: float) -> int:
    """The servers that can be seen from here, once or for ever."""
    from dataclasses import asdict

    from penstock.base.errors import NothingMatchedError
    from penstock.policy.guard import State
    from penstock.targets.driver import driver_for
    from penstock.targets.servers import here, may_place, watch

    places = driver_for(args.mount).servers() if args.mount else here()
    if not places:
        raise NothingMatchedError(f"{args.mount}: its servers cannot be seen from here; run --server on them")
    state = State()
    for found in watch(places, every_s):
        decision, state = may_place(found, time.time(), state)
        if args.json:
            rows = [server._asdict() for server in found]
            may = asdict(decision) if args.mount else None
            _line({"schema_version": 1, "servers": rows, "placement": may})
        else:
            print("\n".join(map(server_line, found)))
            if args.mount:
                print(f"placement work {'may be done' if decision.allowed else 'waits'}: {decision.why}")
        sys.stdout.flush()
        if not args.watch:
            break
    return 0


def server_line(server: "Server") -> str:
    def share(value: float | None) -> str:
        return "–" if value is None else f"{value:.0%}"

    waiting = ", ".join(
        f"{name} {share(value)}"
        for name, value in (
            ("processors", server.cpu_pressure),
            ("I/O", server.io_pressure),
            ("memory", server.memory_pressure),
        )
    )
    return (
        f"{server.name}: processors {share(server.cpu)}, memory {share(server.memory)}; waiting for {waiting}"
    )
