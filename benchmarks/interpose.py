# SPDX-License-Identifier: Apache-2.0
"""What the interposer adds to calls, to the start of a process, and to its memory.

Plain, floor and Penstock in turn.  Time is CPU time (user and system), the low decile of short
batches; instructions are callgrind's, user side, as the difference of two lengths.  /dev/null and
a path outside the recorded folder stand for what is not under control.  Memory is that of one of a
node's eight ranks, which share the library's text, and of a process alone.  PEERS="name=lib.so ..."
adds other interposers, for the eye: they have no targets.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.frame import (
    Row,
    at_most,
    compiled,
    instructions,
    interleave,
    minus,
    number,
    over,
    scratch,
    seen,
)
from penstock.cli import verbs

TITLE = "interpose: what recording adds"
CELLS = ("other", "known", "read", "write", "file")
CELL_NAMES = {
    "other": "call by descriptor, not under control",
    "known": "call by path with a known prefix, not under control",
    "read": "read 4 KiB, recorded",
    "write": "write 4 KiB, recorded",
    "file": "open, write, close of a new file, recorded",
    "spawn": "start and exit of a process",
}
FILES = 1000


class Kind:
    """One way to start the program `calls`: with these words before it and this environment."""

    def __init__(self, before: tuple[object, ...] = (), env: dict[str, str] | None = None) -> None:
        self.before = before
        self.env = env or {}

    def calls(self, calls: Path, cell: str, place: Path | str, *turns: int) -> float:
        return number([*self.before, calls, cell, place, *turns], self.env)

    def spawn(self, calls: Path) -> float:
        """The library is for the processes that are started, not for the one that starts them."""
        env = dict(self.env)
        if "LD_PRELOAD" in env:
            env["PRELOAD"] = env.pop("LD_PRELOAD")
        return number([*self.before, calls, "spawn", "/bin/true"], env)

    def turn(self, calls: Path, cell: str, place: Path, few: int, many: int) -> float:
        """Instructions of one turn of a cell."""

        def command(turns: int) -> list[object]:
            return [calls, cell, tempfile.mkdtemp(dir=place), turns]

        return instructions(command, few, many, self.env, self.before)


def kinds(place: Path) -> dict[str, Kind]:
    found = {"plain": Kind()}
    for clock, name in ((0, "floor"), (2, "floor with clock")):
        library = compiled(
            "interpose/preload.c", "-fPIC", "-shared", f"-DCLOCK={clock}", "-ldl", name=f"preload{clock}.so"
        )
        board = str(place / f"board{clock}")
        found[name] = Kind(env={"LD_PRELOAD": str(library), "FLOOR_BOARD": board, "FLOOR_PREFIX": str(place)})
    if "run" in verbs():
        penstock = Path(sys.executable).with_name("penstock")
        found["penstock"] = Kind((penstock, "run", "--"))
    for peer in os.environ.get("PEERS", "").split():
        name, library_path = peer.split("=", 1)
        found[name] = Kind(env={"LD_PRELOAD": library_path})
    return found


def times(
    found: dict[str, Kind], calls: Path, place: Path, rounds: int
) -> dict[tuple[str, str], list[float]]:
    """CPU ns of each cell under each kind, round by round."""
    cells = {
        (cell, name): (lambda c=cell, k=kind: k.calls(calls, c, place))
        for cell in CELLS
        for name, kind in found.items()
    }
    starts = {("spawn", name): (lambda k=kind: k.spawn(calls)) for name, kind in found.items()}
    memory = {
        (f"{cell} {n}", name): (lambda k=found[name], c=cell, n=n: k.calls(calls, c, place, n))
        for cell in ("ranks", "memory")
        for n in (0, FILES)
        for name in ("plain", "penstock")
        if name in found
    }
    return interleave({**cells, **starts, **memory}, rounds, "interpose")


def counts(found: dict[str, Kind], calls: Path, place: Path) -> dict[tuple[str, str], float]:
    """Instructions that one call has above the plain one; a count, so once is enough."""
    got = {}
    for cell in CELLS:
        plain = found["plain"].turn(calls, cell, place, 1000, 3000)
        for name, kind in found.items():
            if name != "plain":
                got[cell, name] = kind.turn(calls, cell, place, 1000, 3000) - plain
        print(f"interpose: instructions of '{cell}' counted", file=sys.stderr, flush=True)
    return got


def rows(rounds: int) -> list[Row]:
    place = scratch(memory=True)
    calls = compiled("interpose/calls.c")
    found = kinds(place)
    ns = times(found, calls, place, rounds)
    count = counts(found, calls, place)
    others = [name for name in found if name not in ("plain", "penstock")]
    table = [seen(f"{CELL_NAMES[c]}: plain", ns[c, "plain"], "ns CPU") for c in CELL_NAMES]
    for cell, what in CELL_NAMES.items():
        for name in others:
            table.append(seen(f"{what}: {name}", minus(ns[cell, name], ns[cell, "plain"]), "ns CPU added"))
            if cell != "spawn":
                table.append(seen(f"{what}: {name}", [count[cell, name]], "instructions added"))
    if "penstock" in found:
        table += targets(ns, count)
    return table


def targets(ns: dict[tuple[str, str], list[float]], count: dict[tuple[str, str], float]) -> list[Row]:
    """Penstock's rows, against what was promised."""

    def added(cell: str, name: str = "penstock") -> list[float]:
        return minus(ns[cell, name], ns[cell, "plain"])

    def time_row(cell: str, bound_ns: float, target: str = "", **words: object) -> Row:
        return at_most(
            f"{CELL_NAMES[cell]}: penstock", added(cell), "ns CPU added", bound_ns, target, **words
        )

    def count_row(cell: str, bound: float, target: str = "") -> Row:
        what = f"{CELL_NAMES[cell]}: penstock"
        return at_most(
            what,
            [count[cell, "penstock"]],
            "instructions added",
            bound,
            target,
            against=f"floor {count[cell, 'floor']:.0f}",
        )

    clock = statistics.median(added("read", "floor with clock"))
    share = [100 * x for x in over(added("file"), ns["file", "plain"])]
    start_floor = statistics.median(added("spawn", "floor"))
    memory = {
        (cell, n): minus(ns[f"{cell} {n}", "penstock"], ns[f"{cell} {n}", "plain"])
        for cell in ("ranks", "memory")
        for n in (0, FILES)
    }
    return [
        count_row("other", count["other", "floor"] + 10, "floor + 10"),
        time_row("other", statistics.median(added("other", "floor")) + 5, "floor + 5"),
        time_row("known", 40),
        time_row("read", 20, against=f"floor with clock {clock:.0f}"),
        count_row("read", 120),
        time_row(
            "write",
            20,
            against=f"floor with clock {statistics.median(added('write', 'floor with clock')):.0f}",
        ),
        count_row("write", 120),
        count_row("file", 2 * count["file", "floor"], "2 × floor"),
        at_most(f"{CELL_NAMES['file']}: penstock", share, "% of the time", 4),
        time_row("spawn", 3 * start_floor, "3 × floor", against=f"floor {start_floor:,.0f}"),
        at_most("memory of a rank, no file: penstock", memory["ranks", 0], "KiB Pss", 64),
        at_most(
            f"memory of a rank, {FILES} files: penstock",
            memory["ranks", FILES],
            "KiB Pss",
            64 + FILES * 512 / 1024,
            "64 + 0.5 a file",
        ),
        seen("memory of a process alone, no file: penstock", memory["memory", 0], "KiB Pss"),
        seen(f"memory of a process alone, {FILES} files: penstock", memory["memory", FILES], "KiB Pss"),
    ]
