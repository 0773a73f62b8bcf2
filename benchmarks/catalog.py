# SPDX-License-Identifier: Apache-2.0
"""Asking a catalog: look-ups against the least index in memory (benchmarks/floors/catalog), find and du against the
programs, on a warm local disk and on a testbed whose metadata servers take their time; how small and how quick it is.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import frame
from benchmarks.frame import Row, at_least, at_most, compiled, interleave, number, over, scratch, seen
from penstock import _native
from penstock.catalog import archive, find
from penstock.catalog.build import build
from penstock.catalog.reader import Catalog, resident_bytes
from penstock.testbed import emulated

TITLE = "catalog: look-ups, find, du, sizes"
FOLDERS, FILES = 2000, 100
FEW_FOLDERS, FEW_FILES = 200, 100
MILLION = 1_000_000
PICK = 20_000
NATIVE = frame.TOP / "native"


def nothing(*_: object) -> int:
    return 0


WORLD = find.Outside(0, nothing, nothing, nothing, nothing, 0, nothing)
"""Expressions that ask for no user, group, date or file."""


def files_of(catalog: Catalog, name: str) -> Path:
    return catalog.path / catalog.manifest.parts[0].name if name == "segment" else catalog.path


def paths_of(catalog: Catalog) -> list[str]:
    out = scratch() / "paths"
    with out.open("wb") as held:
        tests = find.parse(["-mindepth", "1"], WORLD).tests
        catalog.view.find("", b"", 1, find.ALL_DEPTHS, tests, held.fileno(), None)
    return out.read_text().splitlines()


def python_us(catalog: Catalog, paths: list[str]) -> float:
    """CPU of a look-up from Python, in the median of short passes."""
    pick = random.Random(1).sample(paths, min(PICK, len(paths)))
    for path in pick:
        catalog.stat(path)
    best = []
    for _ in range(9):
        began = time.process_time_ns()
        for path in pick:
            catalog.stat(path)
        best.append((time.process_time_ns() - began) / len(pick) / 1000)
    return min(best)


def look_ups(rounds: int, catalog: Catalog, listing: Path) -> list[Row]:
    try:
        floor = compiled("catalog/catalog.c")
    except subprocess.CalledProcessError:
        raise SystemExit("bench: catalog: xxhash.h is missing; install libxxhash-dev") from None
    ours = compiled("catalog/lookup.c", f"-I{NATIVE}", str(NATIVE / "kernels/index.c"))
    paths = paths_of(catalog)
    names = scratch() / "names"
    names.write_text("".join(f"{path}\n" for path in paths))
    cells = {
        "floor": lambda: number([floor, listing]),
        "ours": lambda: number([ours, files_of(catalog, "segment"), names]),
        "python": lambda: python_us(catalog, paths),
    }
    got = interleave(cells, rounds, "catalog: look-ups")
    return [
        seen("look-up by path in memory, floor", got["floor"], "ns"),
        seen("look-up by path in C, decoded", got["ours"], "ns"),
        at_most("look-up in C", over(got["ours"], got["floor"]), "×", 1.5, "of the floor's", against="floor"),
        at_most("look-up from Python, a whole entry", got["python"], "µs", 1.0),
    ]


def seconds(work: object) -> float:
    began = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - began


def program(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


def questions(catalog: Catalog, tree: Path) -> dict[str, object]:
    """find and du, of the catalog and by the programs."""
    sink = os.open(os.devnull, os.O_WRONLY)
    outside = WORLD._replace(now_ns=time.time_ns())
    query = find.parse(["-type", "f", "-size", "+1M"], outside)
    root = os.fsencode(tree)
    return {
        "find": lambda: program("find", tree, "-type", "f", "-size", "+1M"),
        "du": lambda: program("du", "-s", tree),
        "catalog find": lambda: catalog.view.find("", root, 0, find.ALL_DEPTHS, query.tests, sink, None),
        "catalog du": lambda: catalog.view.du("", 0, False, False),
    }


def warm_disk(rounds: int, catalog: Catalog, tree: Path) -> list[Row]:
    cells = {name: lambda work=work: seconds(work) for name, work in questions(catalog, tree).items()}
    got = interleave(cells, rounds, "catalog: find and du")
    return [
        seen(
            "find -type f -size +1M of the catalog, after start",
            [s * 1000 for s in got["catalog find"]],
            "ms",
        ),
        seen("du -s of the catalog, after start", [s * 1000 for s in got["catalog du"]], "ms"),
        at_least(
            "find, against a warm local disk", over(got["find"], got["catalog find"]), "×", 5, against="find"
        ),
        at_least(
            "du -s, against a warm local disk", over(got["du"], got["catalog du"]), "×", 5, against="du"
        ),
    ]


def on_testbed(rounds: int) -> list[Row]:
    """A smaller tree; the commands as typed, each time with the clients' caches dropped."""
    if emulated.missing():
        return []
    path = scratch() / "pfs"
    emulated.up(path, emulated.Shape(1, 2, 2), settings={"model": "off"})
    try:
        frame.output([compiled("scan/mktree.c"), path, FEW_FOLDERS, FEW_FILES])
        file = scratch() / "set.cat"
        build(path, file)
        emulated.ask(f"{path}.testbed", "set model=on")
        penstock = Path(sys.executable).with_name("penstock")

        def cold(*words: object) -> float:
            emulated.ask(f"{path}.testbed", "drop")
            return seconds(lambda: program(*words))

        cells = {
            "find": lambda: cold("find", path, "-type", "f", "-size", "+1M"),
            "du": lambda: cold("du", "-s", path),
            "catalog find": lambda: cold(penstock, "catalog", "find", file, "-type", "f", "-size", "+1M"),
            "catalog du": lambda: cold(penstock, "catalog", "du", file, "-s"),
            "find in process": lambda: seconds(questions(Catalog.open(file), path)["catalog find"]),
            "du in process": lambda: seconds(questions(Catalog.open(file), path)["catalog du"]),
        }
        got = interleave(cells, rounds, "catalog: on a testbed")
    finally:
        emulated.down(f"{path}.testbed")
    share = f"{FEW_FOLDERS * FEW_FILES:,} files"
    return [
        at_least(
            f"find, {share} on a testbed, after start",
            over(got["find"], got["find in process"]),
            "×",
            100,
            emulated=True,
            against="find",
        ),
        at_least(
            f"du -s, {share} on a testbed, after start",
            over(got["du"], got["du in process"]),
            "×",
            100,
            emulated=True,
            against="du",
        ),
        seen(
            "the same find as a command, with Python's start",
            over(got["find"], got["catalog find"]),
            "×",
            emulated=True,
            against="find",
        ),
        seen(
            "the same du as a command, with Python's start",
            over(got["du"], got["catalog du"]),
            "×",
            emulated=True,
            against="du",
        ),
    ]


def sizes() -> list[Row]:
    """Of /usr, which is what people have."""
    file, out = scratch() / "usr.cat", scratch() / "usr.parquet"
    build("/usr", file)
    catalog = Catalog.open(file)
    archive.write_parquet(catalog, out)
    note = f"{catalog.entries} entries of /usr"
    return [
        at_most(
            "flat index, bytes an entry",
            [files_of(catalog, "segment").stat().st_size / catalog.entries],
            "B",
            90,
            note=note,
        ),
        at_most("archive, bytes an entry", [out.stat().st_size / catalog.entries], "B", 10, note=note),
    ]


def synthetic(count: int) -> Catalog:
    """A catalog of so many files that nobody has."""
    from penstock.catalog import store

    batch, draw = _native.batch_new(), random.Random(1)
    learnt = time.time_ns()
    folders = count // 1000
    for f in range(folders):
        when = learnt - draw.randrange(10**16)
        for i in range(1000):
            size = draw.randrange(1 << 24)
            when += draw.randrange(10**9)
            entry = (
                0o100644,
                f * 1000 + i + 100,
                1,
                1000 + f % 7,
                1000,
                size,
                (size + 4095) // 4096 * 8,
                0,
                when,
                when,
                when + 1000,
                0,
                0,
                0,
                0,
            )
            _native.batch_add(batch, b"sample-%06d.npy" % i, entry, None, None, None)
        _native.batch_close(batch, b"shard%05d" % f, 1, learnt)
    root = (0o40755, 2, 2, 0, 0, 4096, 8, 0, learnt, learnt, learnt, 0, 0, 0, 0)
    _native.batch_root(batch, b"", root, None, None, None)
    for f in range(folders):
        _native.batch_add(batch, b"shard%05d" % f, (root[0], f + 3, *root[2:]), None, None, None)
    _native.batch_close(batch, b"", 1, learnt)
    file = scratch() / "million.cat"
    store.prepare(file)
    part = store.put(file, [batch])
    from penstock.catalog.identity import Identity

    store.commit(file, lambda held: store.Manifest(b"/nobody", Identity(), parts=(part,)))
    return Catalog.open(file)


def million(rounds: int) -> list[Row]:
    catalog = synthetic(MILLION)
    out = scratch() / "million.parquet"
    archive.write_parquet(catalog, out)
    cells = {
        "open": lambda: seconds(lambda: Catalog.open(catalog.path, resident=resident_bytes())) * 1000,
        "read": lambda: seconds(lambda: archive.read_parquet(out)) * 1000,
    }
    for cell in cells.values():
        cell()  # what is imported first is not measured
    got = interleave(cells, rounds, "catalog: a million")
    return [
        at_most("opening a catalog of 1,000,000 files", got["open"], "ms", 1.0),
        at_most("archive of 1,000,000 files read whole", got["read"], "ms", 200),
    ]


def rows(rounds: int) -> list[Row]:
    tree, listing, file = scratch() / "tree", scratch() / "list", scratch() / "set.cat"
    frame.output([compiled("scan/mktree.c"), tree, FOLDERS, FILES])
    done = subprocess.run(
        [compiled("scan/scan.c"), "tree", "1", "list", listing],
        cwd=tree.parent,
        check=True,
        capture_output=True,
    )
    assert done.returncode == 0
    build(tree, file)
    catalog = Catalog.open(file)
    return [
        *look_ups(rounds, catalog, listing),
        *warm_disk(rounds, catalog, tree),
        *on_testbed(min(rounds, 3)),
        *sizes(),
        *million(rounds),
    ]
