# SPDX-License-Identifier: Apache-2.0
"""What a call costs that a catalog answers, against the file system's own answer, and what serving costs all others.

Plain, recorded, and recorded and served in turn.  On a tmpfs, where the real call costs least: CPU time,
and user-side instructions by callgrind.  On the emulated Lustre with its model on: wall time of asking
about every file once, with nothing cached.  The last three calls have nothing to do with the tree: a
file outside opened for writing, which is looked at in case it leads into it, a path, and a descriptor.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.frame import (
    Row,
    at_least,
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
from penstock.catalog.build import build
from penstock.testbed import emulated

TITLE = "serve: calls answered from a catalog"
PENSTOCK = Path(sys.executable).with_name("penstock")
FOLDERS, FILES = 20, 100
CELLS = {
    "stat": "stat of a file",
    "missing": "stat of a name that is not there",
    "list": f"a folder of {FILES} names",
    "change": "open of a file outside for writing, close",
    "path": "call by path outside",
    "fd": "call by descriptor outside",
}
ASKED = ("stat", "missing", "list")
ONCE = {"stat": FOLDERS * FILES, "missing": FOLDERS * FILES, "list": FOLDERS}


def plant(tree: Path) -> Path:
    for i in range(FOLDERS):
        (tree / f"d{i}").mkdir(parents=True)
        for k in range(FILES):
            (tree / f"d{i}/f{k}").write_bytes(b"x" * k)
    return tree


def kinds(catalog: Path) -> dict[str, tuple[object, ...]]:
    return {
        "plain": (),
        "recorded": (PENSTOCK, "run", "--"),
        "served": (PENSTOCK, "run", "--serve", catalog, "--"),
    }


def in_memory(rounds: int) -> list[Row]:
    top = scratch(memory=True)
    tree, catalog, asks = plant(top / "tree"), top / "set.cat", compiled("serve/asks.c")
    build(tree, catalog)
    cells = {
        (cell, name): (lambda c=cell, b=before: number([*b, asks, c, tree]))
        for cell in CELLS
        for name, before in kinds(catalog).items()
    }
    ns = interleave(cells, rounds, "serve")
    count = {
        (cell, name): instructions(lambda turns, c=cell: [asks, c, tree, turns], 200, 600, before=before)
        for cell in CELLS
        for name, before in kinds(catalog).items()
    }
    rows = []
    for cell, what in CELLS.items():
        against = f"plain {count[cell, 'plain']:.0f}, recorded {count[cell, 'recorded']:.0f}"
        rows.append(seen(f"{what}: plain", ns[cell, "plain"], "ns CPU"))
        rows.append(seen(f"{what}: recorded", ns[cell, "recorded"], "ns CPU"))
        if cell in ASKED:
            rows.append(seen(f"{what}: served", ns[cell, "served"], "ns CPU"))
        else:
            rows.append(
                seen(f"{what}: served adds", minus(ns[cell, "served"], ns[cell, "recorded"]), "ns CPU")
            )
        rows.append(seen(f"{what}: served", [count[cell, "served"]], "instructions", against=against))
    fd = count["fd", "served"] - count["fd", "recorded"]
    rows.append(at_most("call by descriptor outside: served adds", [fd], "instructions", 1))
    return rows


def on_the_testbed(rounds: int) -> list[Row]:
    top, asks = Path(tempfile.mkdtemp(dir=scratch())), compiled("serve/asks.c")
    path, catalog = top / "pfs", top / "set.cat"
    emulated.up(path, emulated.Shape(1, 2, 2))
    bed = f"{path}.testbed"
    try:
        emulated.ask(bed, "set model=off")
        tree = plant(path / "tree")
        _settle(tree)
        build(tree, catalog)

        def once(cell: str, before: tuple[object, ...]) -> float:
            """Nothing is cached, and only the program itself waits for the model."""
            emulated.ask(bed, "set model=on")
            emulated.ask(bed, "drop")
            return number([*before, asks, cell, tree, ONCE[cell]], {"CLOCK": "wall"})

        cells = {
            (cell, name): (lambda c=cell, b=before: once(c, b))
            for cell in ASKED
            for name, before in kinds(catalog).items()
            if name != "recorded"
        }
        ns = interleave(cells, rounds, "serve, testbed")
    finally:
        emulated.down(bed, purge=True)
    rows = []
    for cell in ASKED:
        what = f"{CELLS[cell]}, cold, on the testbed"
        rows.append(seen(f"{what}: plain", ns[cell, "plain"], "ns", emulated=True))
        rows.append(seen(f"{what}: served", ns[cell, "served"], "ns", emulated=True))
        gain = over(ns[cell, "plain"], ns[cell, "served"])
        if cell == "list":  # opening and closing it are the servers' all the same
            rows.append(seen(f"{what}: plain / served", gain, "×", emulated=True))
        else:
            rows.append(at_least(f"{what}: plain / served", gain, "×", 100, emulated=True))
    return rows


def _settle(tree: Path) -> None:
    """Folders that changed within a shared file system's tick are not served."""
    newest = max(os.lstat(folder).st_ctime for folder, *_ in os.walk(tree))
    while time.time() < newest + 2.5:
        time.sleep(0.1)


def rows(rounds: int) -> list[Row]:
    return [*in_memory(rounds), *on_the_testbed(rounds)]
