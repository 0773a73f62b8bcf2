# SPDX-License-Identifier: Apache-2.0
"""What `place` adds: to a create on the emulated Lustre (requests, time on the modelled metadata server), to calls that
create nothing, and a look-up of a name in a plan.

Without and with a plan in turn.  Creates: open with O_CREAT, close, wall time of one process, the service model on.
Calls: CPU time of `record` and `place` less that of `record` alone (benchmarks/interpose.py has the calls).
"""

import os
import sys
import time
from pathlib import Path

from benchmarks.frame import Row, at_most, compiled, interleave, minus, number, over, scratch, seen
from benchmarks.interpose import CELL_NAMES, Kind
from penstock.policy.placing.contract import DIGITS, WORD, Action, Entry, Match, Plan
from penstock.runs import limits, place_section
from penstock.testbed import emulated

TITLE = "create: what placing adds"
FILES = 100
ENTRIES = 20_000
NATIVE = Path(__file__).resolve().parent.parent / "native"
PENSTOCK_RUN = Path(sys.executable).with_name("penstock-run")
CELLS = ("other", "known", "read", "write")
PROGRAM = """
import os, sys, time
top, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
began = time.perf_counter()
for i in range(first, first + count):
    os.close(os.open(f"{top}/f{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
print((time.perf_counter() - began) / count * 1e6)
"""
# The same between two looks at what the client sent: what the agent asks afterwards is not among it.
COUNTED = (
    """
import sys, time
from penstock.testbed import emulated
def sent():
    last = -1
    while True:
        rows = dict(line.split() for line in emulated.ask(sys.argv[4], "counters 0").splitlines())
        now = sum(int(rows.get(name, 0)) for name in ("enq:open", "enq:layout", "enq:getattr", "close", "cancel"))
        if now == last:
            return now
        last = now
        time.sleep(0.1)
before = sent()
"""
    + PROGRAM
    + "print((sent() - before) / count)"
)


def plan_file(
    where: Path, mount: Path, entries: list[Entry], folders: dict[bytes, place_section.Default]
) -> Path:
    """A plan by hand, as `penstock run --plan-file` writes it."""
    plan = Plan(str(mount), time.time(), tuple(entries), (0, 1, 2, 3), 0.0, 0, 0.0, 0.0)
    place = place_section.Place("lustre", str(mount), mount.stat().st_dev, folders=folders)
    section = place_section.encode(plan, place).data
    where.write_bytes(limits.plan_file((place_section.KIND, place_section.VERSION, section)))
    return where


class Bed:
    """The emulated Lustre with its model on, and a counter for names."""

    def __init__(self) -> None:
        self.path = scratch() / "pfs"
        emulated.up(self.path, emulated.Shape(1, 2, 2))
        self.folder, self.first = f"{self.path}.testbed", 0
        entry = Entry(
            Match((os.fsencode(self.path) + b"/f", DIGITS), (None,)),
            Action.PLACE,
            2,
            1 << 20,
            ((0, 1), (2, 3)),
        )
        root = {os.fsencode(self.path): place_section.Default()}
        self.plan = plan_file(scratch() / "plan", self.path, [entry], root)

    def run(self, program: str, placed: bool) -> float:
        self.first += FILES
        env = {"PENSTOCK_PLAN": str(self.plan)} if placed else {}
        words = [PENSTOCK_RUN, sys.executable, "-c", program, self.path, self.first, FILES, self.folder]
        return number(words, env)

    def create_us(self, placed: bool) -> float:
        return self.run(PROGRAM, placed)

    def requests(self, placed: bool) -> float:
        """Sent to the metadata server for one create and close."""
        return self.run(COUNTED, placed)

    def down(self) -> None:
        emulated.down(self.folder, purge=True)


def lookup_ns() -> dict[str, list[float]]:
    """Of a plan of many entries: names that are in it by value, and names that are not."""
    where = scratch()
    top = b"/scratch/project/user/run"
    pieces = (top, DIGITS, b"/step", DIGITS, b"/rank", DIGITS, b".", WORD)
    entries = [
        Entry(
            Match(pieces, (None, b"%d" % (i // 1000), b"%d" % (i % 1000), None)),
            Action.PLACE,
            4,
            1 << 20,
            ((0, 1, 2, 3),),
        )
        for i in range(ENTRIES)
    ]
    others = [
        Entry(Match((top, DIGITS, b"/other%d-" % i, WORD), (None, None)), Action.STOCK) for i in range(20)
    ]
    plan = Plan("/scratch", time.time(), (*entries, *others), (0, 1), 0.0, 0, 0.0, 0.0)
    section = place_section.encode(plan, place_section.Place("lustre", "/scratch"), 8 << 20)
    assert not section.left_out
    (where / "section").write_bytes(section.data)
    there = [b"%s4711/step%04d/rank%05d.dat\n" % (top, i // 1000, i % 1000) for i in range(ENTRIES)]
    strange = [b"%s4711/strange/name-%d.dat\n" % (top, i) for i in range(ENTRIES)]
    program = compiled("place/lookup.c", f"-I{NATIVE}", str(NATIVE / "board" / "place.c"))
    cells = {}
    for name, names in (("expected", there), ("not expected", strange)):
        (where / name).write_bytes(b"".join(names))
        cells[name] = lambda n=name: number([program, where / "section", where / n])
    return interleave(cells, 11, "create: look-ups")


def calls_ns(rounds: int) -> dict[tuple[str, str], list[float]]:
    """CPU of calls that create nothing: `record` alone, and with a plan for the very folder."""
    place = scratch(memory=True)
    calls = compiled("interpose/calls.c")
    entries = [Entry(Match((os.fsencode(place) + b"/planned", DIGITS), (None,)), Action.PLACE, 1, 0, ((0,),))]
    plan = plan_file(scratch() / "plan", place, entries, {})
    kinds = {
        "record": Kind((PENSTOCK_RUN,), {"PENSTOCK_RUN_MOUNTS": str(place)}),
        "place": Kind((PENSTOCK_RUN,), {"PENSTOCK_PLAN": str(plan)}),
    }
    cells = {(c, n): (lambda c=c, k=k: k.calls(calls, c, place)) for c in CELLS for n, k in kinds.items()}
    return interleave(cells, rounds, "create: calls")


def rows(rounds: int) -> list[Row]:
    os.environ["PENSTOCK_STATE_DIR"] = str(scratch())
    bed = Bed()
    try:
        requests = interleave(
            {p: (lambda p=p: bed.requests(p)) for p in (False, True)}, 3, "create: requests"
        )
        us = interleave({p: (lambda p=p: bed.create_us(p)) for p in (False, True)}, rounds, "create: time")
    finally:
        bed.down()
    lookups, calls = lookup_ns(), calls_ns(rounds)
    emulation = {"emulated": True, "note": "the emulated Lustre"}
    table = [
        seen("create and close, not placed", requests[False], "requests to the MDS", **emulation),
        at_most(
            "create and close, placed",
            requests[True],
            "requests to the MDS",
            5,
            "as on a real Lustre",
            **emulation,
        ),
        seen("create and close, not placed", us[False], "us", **emulation),
        seen("create and close, placed", us[True], "us", **emulation),
        at_most(
            "create and close, placed over not placed", over(us[True], us[False]), "times", 2.5, **emulation
        ),
        at_most(f"look-up in a plan of {ENTRIES:,}: expected", lookups["expected"], "ns CPU", 1000),
        at_most(f"look-up in a plan of {ENTRIES:,}: not expected", lookups["not expected"], "ns CPU", 1000),
    ]
    for cell in CELLS:
        added = minus(calls[cell, "place"], calls[cell, "record"])
        table.append(at_most(f"{CELL_NAMES[cell]}: place on, over record", added, "ns CPU added", 15))
    return table
