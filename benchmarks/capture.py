# SPDX-License-Identifier: Apache-2.0
"""What keeping a catalog costs a run that hashes and writes files, on the emulated Lustre with its model on.

With and without --catalog in turn, on the same board and stages but for that.  The program's time is its own, from its
first file to its last close; what the helper uses of the processors stands apart.
"""

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.frame import Row, at_most, interleave, minus, output, over, scratch, seen
from penstock.catalog.build import build
from penstock.testbed import emulated

TITLE = "capture: what keeping a catalog costs"
PENSTOCK = Path(sys.executable).with_name("penstock")
SIZES = {"32 KiB": 32 << 10, "1 MiB": 1 << 20, "4 MiB": 4 << 20}
FILES = {"32 KiB": 800, "1 MiB": 400, "4 MiB": 200}
BOUNDS = {"32 KiB": 1.03, "1 MiB": 1.01, "4 MiB": 1.002}
MANY = 20_000
REWRITE = """
import sys
for path in sys.argv[1:]:
    with open(path, "r+b") as file:
        file.write(b"x" * 4096)
"""
PROGRAM = """
import hashlib, os, sys, time
top, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
content = bytes(size)
began = time.perf_counter()
for i in range(count):
    hashlib.sha256(content).digest()
    fd = os.open(f"{top}/f{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    os.write(fd, content)
    os.close(fd)
print(time.perf_counter() - began)
"""


def cpu_s_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


class Bed:
    """A tree with its catalog on an emulated Lustre, and places for runs."""

    def __init__(self) -> None:
        self.top = scratch()
        self.path = self.top / "pfs"
        emulated.up(self.path, emulated.Shape(1, 2, 2))
        self.tree, self.turn = self.path / "set", 0
        self.tree.mkdir()
        self.catalog = self.top / "set.cat"
        build(self.tree, self.catalog)
        self.env = {
            "PENSTOCK_STATE_DIR": str(self.top / "state"),
            "PENSTOCK_CATALOG_ROOT": str(self.tree),
        }

    def seconds(self, size: int, count: int, captured: bool) -> float:
        """The program's own time for so many new files of a size."""
        self.turn += 1
        folder = self.tree / f"turn{self.turn}"
        folder.mkdir()
        keeps = ["--catalog", self.catalog] if captured else []
        words = [PENSTOCK, "run", *keeps, "--", sys.executable, "-c", PROGRAM, folder, size, count]
        took = float(output(words, self.env))
        shutil.rmtree(folder)
        return took

    def helper_ms(self, size: int, count: int) -> float:
        """Processor time of helper, agent and launcher for a file: with a catalog less without, of a whole run."""
        spent = []
        for captured in (False, True):
            before = cpu_s_of_children()
            self.seconds(size, count, captured)
            spent.append(cpu_s_of_children() - before)
        return (spent[1] - spent[0]) / count * 1e3

    def down(self) -> None:
        emulated.down(f"{self.path}.testbed", purge=True)

    def plant(self) -> list[Path]:
        """Many files, the model off while they are made; a hundredth of them."""
        emulated.ask(f"{self.path}.testbed", "set model=off")
        top = self.tree / "many"
        for f in range(MANY // 100):
            (top / f"d{f}").mkdir(parents=True)
            for i in range(100):
                (top / f"d{f}/f{i}").touch()
        emulated.ask(f"{self.path}.testbed", "set model=on")
        return sorted(top.glob("d*/f50"))

    def build_s(self) -> float:
        emulated.ask(f"{self.path}.testbed", "drop")
        began = time.perf_counter()
        build(self.tree, self.catalog, fresh=True)
        return time.perf_counter() - began

    def run_s(self, some: list[Path], captured: bool) -> float:
        """A whole run that writes into files that are there, until the catalog is whole."""
        keeps = ["--catalog", self.catalog] if captured else []
        began = time.perf_counter()
        output([PENSTOCK, "run", *keeps, "--", sys.executable, "-c", REWRITE, *some], self.env)
        return time.perf_counter() - began


def updates(rounds: int, it: Bed) -> Row:
    """Contents of 1 % changed under Penstock: what the run takes longer for that, against a build."""
    some = it.plant()
    cells = {
        "build": it.build_s,
        "without": lambda: it.run_s(some, False),
        "with": lambda: it.run_s(some, True),
    }
    got = interleave(cells, rounds, "capture, update")
    return at_most(
        f"run that rewrites 1 % of {MANY} files: what keeping the catalog true adds, in builds",
        over(minus(got["with"], got["without"]), got["build"]),
        "×",
        0.1,
        "10 × faster than the build",
        against="build",
        emulated=True,
    )


@contextlib.contextmanager
def bed() -> Iterator[Bed]:
    made = Bed()
    try:
        yield made
    finally:
        made.down()


def rows(rounds: int) -> list[Row]:
    found = []
    with bed() as it:
        for name, size in SIZES.items():
            count = FILES[name]
            got = interleave(
                {
                    "without": lambda size=size, count=count: it.seconds(size, count, False),
                    "with": lambda size=size, count=count: it.seconds(size, count, True),
                },
                rounds,
                f"capture, {name}",
            )
            what = f"time of hashing and writing {count} files of {name}, with a catalog over without"
            bound = BOUNDS[name]
            found.append(
                at_most(what, over(got["with"], got["without"]), "×", bound, against="without", emulated=True)
            )
        count = FILES["32 KiB"]
        helper = interleave(
            {"helper": lambda: it.helper_ms(SIZES["32 KiB"], count)}, min(rounds, 3), "capture, helper"
        )
        found.append(
            seen("processor time of the helper, a file of 32 KiB", helper["helper"], "ms", emulated=True)
        )
        found.append(updates(min(rounds, 5), it))
    return found
