# SPDX-License-Identifier: Apache-2.0
"""What the testbed's server costs with its model off and nothing cached, against the least striped file system; what
clients see of its model, against theory (_service.py); how long it and the CephFS lab need to come up.

CPU time of client and server together, stores on a tmpfs, one thread, in turn.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import _service, frame
from benchmarks.frame import Row, at_most, compiled, cpu_s_of, interleave, number, over, scratch, seen
from penstock.testbed import ceph, emulated

TITLE = "testbed: CPU of a call with the model off and nothing cached; the model against theory"
FILES = 400
BYTES = 48 << 20
NAMES = ("create", "stat", "open", "unlink")
TARGETS = {"create": 1.6, "stat": 1.3, "open": 1.3, "write": 1.3, "read": 1.3}
STARTS = 5


class Place:
    """A mounted file system and its server."""

    def __init__(self, path: Path, server: "subprocess.Popen[bytes]") -> None:
        self.path, self.server, self.turn = path, server, 0

    def cost_us(self, calls: Path, cell: str, turns: int, size: int = 0) -> float:
        """CPU microseconds of one call; each round of names has files of its own."""
        if cell == "create":
            self.turn += FILES
        before = cpu_s_of(self.server)
        words = [calls, cell, self.path, turns, self.turn, *([size] if size else [])]
        mine = number(words)
        return mine + (cpu_s_of(self.server) - before) * 1e6 / turns


def floor(stripefs: Path, name: str, stripes: int) -> Place:
    store, point = scratch(memory=True), scratch() / name
    return Place(point, frame.mount([stripefs, "-n", 4, "-k", stripes, store], [point]))


def penstock(name: str, stripes: int) -> Place:
    store, point = scratch(memory=True), scratch() / name
    for part in ("run", "state"):
        (store / part).mkdir()
    wishes = f"model=off\nlayout.stripe_size={1 << 20}\nlayout.stripe_count={stripes}\n"
    (store / "settings").write_text(wishes)
    program = Path(sys.executable).with_name("penstock-testbed")
    shape = ["--osts", 4, "--osss", 2, "--settings", store / "settings"]
    return Place(point, frame.mount([program, "--folder", store, *shape], [point]))


def start_s() -> float:
    """Seconds of bringing up and mounting 15 OSTs, as the command does it."""
    where = scratch() / "pfs"
    began = time.monotonic()
    emulated.up(where, emulated.Shape(1, 3, 5))
    took = time.monotonic() - began
    emulated.down(f"{where}.testbed", purge=True)
    return took


def lab_s() -> float:
    """Seconds until a CephFS of three OSDs is up and was tried."""
    where = scratch()
    began = time.monotonic()
    ceph.up(where, osds=3)
    took = time.monotonic() - began
    ceph.down(where)
    return took


def starts(rounds: int) -> list[Row]:
    turns = range(min(rounds, STARTS))
    rows = [at_most("15 OSTs up and mounted", [start_s() for _ in turns], "s", 1)]
    if why := ceph.missing():
        print(f"bench: testbed: no CephFS lab: {why}", file=sys.stderr)
        return rows
    return [*rows, at_most("CephFS of 3 OSDs up and tried", [lab_s() for _ in turns], "s", 10)]


def looked_up(point: Path, clients: Path) -> float:
    """Names a second that four clients look up on the floor."""
    return number([clients, "names", 1, *[point] * 4])


def names(calls: Path, places: dict[str, Place], rounds: int) -> dict[tuple[str, str], list[float]]:
    """Calls on names: a round is a life of its files, so cells go in order and only places take turns."""
    lives = {kind: (lambda k=kind: life(calls, places[k], got, k)) for kind in places}
    got: dict[tuple[str, str], list[float]] = {(cell, kind): [] for cell in NAMES for kind in places}
    interleave(lives, rounds, "testbed, names")
    return got


def life(calls: Path, place: Place, got: dict[tuple[str, str], list[float]], kind: str) -> float:
    costs = [place.cost_us(calls, cell, FILES) for cell in NAMES]
    for cell, cost in zip(NAMES, costs, strict=True):
        got[cell, kind].append(cost)
    return sum(costs)


def rows(rounds: int) -> list[Row]:
    if why := emulated.missing():
        raise SystemExit(f"bench: no testbed: {why}")
    stripefs = compiled("fuse/stripefs.c", "-I/usr/include/fuse3", "-lfuse3")
    calls = compiled("fuse/calls.c")
    small = {"floor": floor(stripefs, "s", 1), "penstock": penstock("s", 1)}
    large = {"floor": floor(stripefs, "l", 4), "penstock": penstock("l", 4)}
    bytes_cells = {
        (f"{cell} {size >> 10} KiB", kind): (
            lambda p=place, c=cell, s=size: p.cost_us(calls, c, BYTES // s, s)
        )
        for kind, place in large.items()
        for size in (128 << 10, 1 << 20)
        for cell in ("write", "read")
    }
    for place in large.values():
        place.cost_us(calls, "write", BYTES >> 20, 1 << 20)  # the bytes are there before rounds go backwards
    got = names(calls, small, rounds)
    got |= interleave(bytes_cells, rounds, "testbed")
    table = []
    for cell, kind in got:
        if kind != "penstock":
            continue
        floor_us, own_us = (statistics.median(got[cell, k]) for k in ("floor", "penstock"))
        against = f"floor {floor_us:.1f} µs, penstock {own_us:.1f}"
        ratio = over(got[cell, kind], got[cell, "floor"])
        bound = TARGETS.get(cell.split()[0])
        if bound is None:
            table.append(seen(f"{cell}: penstock / floor", ratio, "×", against=against))
        else:
            table.append(at_most(f"{cell}: penstock / floor", ratio, "×", bound, against=against))
    model = _service.rows(rounds, lambda clients: looked_up(small["floor"].path, clients))
    return [*table, *model, *starts(rounds)]
