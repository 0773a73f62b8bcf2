# SPDX-License-Identifier: Apache-2.0
"""Scanning a tree into a catalog, against the least scan (benchmarks/floors/scan), find and bfs.

The tree is warm, on a local disk; catalogs are written to memory, so that a disk's syncing is not measured as scanning.
The second part goes through a file system of which each metadata request takes 700 µs.
An update is of a tree of which 1 % of the names changed: in a few folders, and all over it.  (Contents: see capture.)
"""

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import frame
from benchmarks.frame import Row, at_least, at_most, compiled, interleave, over, scratch, seen
from penstock.catalog import archive
from penstock.catalog.build import build
from penstock.catalog.reader import Catalog
from penstock.catalog.scanning import Limits
from penstock.catalog.update import update
from penstock.testbed import emulated

TITLE = "scan: a tree of 200,000 files into a catalog"
FOLDERS, FILES = 2000, 100
SLOW_FOLDERS, SLOW_FILES = 200, 100
SERVICE_US = 700
FORMAT = "%p %s %m %U %G %n %i %T@ %C@\\n"


def wall_cpu(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of wall and of CPU, of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def program(*words: object) -> tuple[float, float]:
    """The same of a program."""
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def floor(scan: Path, tree: Path, threads: int) -> tuple[float, float]:
    _, wall, cpu = map(float, frame.output([scan, tree, threads]).split())
    return wall, cpu


def fresh(tree: Path, catalogs: Path, threads: int, to_archive: bool = False) -> None:
    file = catalogs / "set.cat"
    shutil.rmtree(file, ignore_errors=True)
    build(tree, file, limits=Limits(threads=threads))
    if to_archive:
        archive.write_parquet(Catalog.open(file), catalogs / "set.parquet")


def rows_of(
    name: str, cells: dict[str, Callable[[], tuple[float, float]]], rounds: int
) -> dict[str, list[float]]:
    """Wall and CPU of each cell, as `name wall` and `name cpu`."""
    got: dict[str, list[float]] = {}

    def once(key: str) -> float:
        wall, cpu = cells[key]()
        got.setdefault(f"{key} wall", []).append(wall)
        got.setdefault(f"{key} cpu", []).append(cpu)
        return wall

    interleave({key: lambda key=key: once(key) for key in cells}, rounds, name)  # type: ignore[misc]
    return got


def warm(rounds: int, tools: dict[str, Path], tree: Path, catalogs: Path) -> list[Row]:
    entries = build(tree, catalogs / "set.cat").outcome.entries
    cells: dict[str, Callable[[], tuple[float, float]]] = {
        "floor 1": lambda: floor(tools["scan"], tree, 1),
        "floor 2": lambda: floor(tools["scan"], tree, 2),
        "one": lambda: wall_cpu(lambda: fresh(tree, catalogs, 1)),
        "two": lambda: wall_cpu(lambda: fresh(tree, catalogs, 2)),
        "archive": lambda: wall_cpu(lambda: fresh(tree, catalogs, 2, True)),
        "find": lambda: program("find", tree, "-printf", FORMAT),
    }
    if shutil.which("bfs"):
        cells["bfs"] = lambda: program("bfs", tree, "-printf", FORMAT)
    got = rows_of("scan", cells, rounds)
    found = [
        seen("entries a second, floor, 2 threads", [entries / s for s in got["floor 2 wall"]], "/s"),
        seen(
            "entries a second, into the flat index, 2 threads", [entries / s for s in got["two wall"]], "/s"
        ),
        seen("CPU an entry, floor", [s / entries * 1e6 for s in got["floor 1 cpu"]], "µs"),
        at_most(
            "CPU an entry, 1 thread",
            over(got["one cpu"], got["floor 1 cpu"]),
            "×",
            1.3,
            "of the floor's",
            against="floor",
        ),
        at_most(
            "CPU an entry, 2 threads",
            over(got["two cpu"], got["floor 2 cpu"]),
            "×",
            1.3,
            "of the floor's",
            against="floor",
        ),
        at_most(
            "wall, 2 threads",
            over(got["two wall"], got["floor 2 wall"]),
            "×",
            1.3,
            "of the floor's",
            against="floor",
        ),
        at_least(
            "speed, 2 threads",
            over(got["find wall"], got["two wall"]),
            "×",
            1.7,
            "find's",
            against="find -printf",
        ),
        at_least(
            "speed, with the archive written",
            over(got["floor 2 wall"], got["archive wall"]),
            "×",
            0.5,
            "the floor's",
            against="floor",
        ),
    ]
    found.append(against_bfs(got))
    return found


def against_bfs(got: dict[str, list[float]]) -> Row:
    what, against = "speed, 2 threads, bfs", "bfs -printf"
    if "bfs wall" not in got:
        return Row(what, 0.0, 0.0, "×", "≥ 2 (bfs's)", against, note="not measured: bfs is not installed")
    return at_least(what, over(got["bfs wall"], got["two wall"]), "×", 2, "bfs's", against=against)


def slow(rounds: int, tools: dict[str, Path], catalogs: Path) -> list[Row]:
    """Through 700 µs a request."""
    store, point = scratch(), scratch() / "slow"
    frame.output([tools["mktree"], store, SLOW_FOLDERS, SLOW_FILES])
    frame.mount([tools["slowfs"], store, SERVICE_US, 96], [point])
    calls: list[float] = []

    def ours(threads: int) -> tuple[float, float]:
        shutil.rmtree(catalogs / "slow.cat", ignore_errors=True)
        time.sleep(1.1)  # what the kernel kept is forgotten
        outcome = build(point, catalogs / "slow.cat", limits=Limits(threads=threads)).outcome
        calls.append(outcome.calls / outcome.entries)
        return outcome.seconds, 0.0

    def theirs(threads: int) -> tuple[float, float]:
        time.sleep(1.1)
        return floor(tools["scan"], point, threads)

    new = [store / path.relative_to(point) for path in spread_names(point)]

    def partly() -> tuple[float, float]:
        ours(16)
        change(new, True)
        time.sleep(1.1)
        outcome = update(catalogs / "slow.cat", Limits(threads=16), tick_ns=0)
        change(new, False)
        return outcome.seconds, 0.0

    cells: dict[str, Callable[[], tuple[float, float]]] = {"update": partly}
    for threads in (16, 64):
        cells[f"floor {threads}"] = lambda threads=threads: theirs(threads)  # type: ignore[misc]
        cells[f"ours {threads}"] = lambda threads=threads: ours(threads)  # type: ignore[misc]
    got = rows_of("scan through 700 µs", cells, rounds)
    found = []
    for n in (16, 64):
        ratios = over(got[f"floor {n} wall"], got[f"ours {n} wall"])
        what = f"speed through {SERVICE_US} µs a request, {n} at once"
        found.append(at_least(what, ratios, "×", 0.8, "the floor's", against="floor", emulated=True))
    faster = over(got["ours 16 wall"], got["update wall"])
    what = f"update through {SERVICE_US} µs a request, 1 % new names in all folders"
    found.append(at_least(what, faster, "×", 10, "as fast as the build", emulated=True))
    found.append(
        at_most(
            "calls an entry, 100 files a folder",
            calls,
            "",
            1.05,
            note="stat, open, list; closing is not counted",
        )
    )
    return found


def layouts(catalogs: Path) -> list[Row]:
    """Calls with a layout for each file: on a testbed, since only there are layouts."""
    if emulated.missing():
        return []
    path = scratch() / "pfs"
    emulated.up(path, emulated.Shape(1, 2, 2), settings={"model": "off"})
    try:
        for i in range(10):
            (path / f"d{i}").mkdir()
            for k in range(300):
                (path / f"d{i}" / f"f{k}").touch()
        outcome = build(path, catalogs / "layouts.cat").outcome
    finally:
        emulated.down(f"{path}.testbed")
    return [
        at_most("calls an entry with layouts", [outcome.calls / outcome.entries], "", 2.05, emulated=True)
    ]


def change(paths: list[Path], there: bool) -> None:
    for path in paths:
        path.touch() if there else path.unlink()


def spread_names(top: Path) -> list[Path]:
    """New names, one for each hundred files, a like number in each folder."""
    folders = sorted(top.glob("set_*/shard*"))
    files = len(folders) * FILES
    return [folders[i % len(folders)] / f"new{i}" for i in range(files // 100)]


def updates(rounds: int, tree: Path, catalogs: Path) -> list[Row]:
    """1 % of the names changed: made new and taken away again, in turn."""
    file, folders = catalogs / "set.cat", sorted(tree.glob("set_*/shard*"))
    spread = spread_names(tree)
    some = folders[:: max(1, len(folders) // 20)]
    few = [some[i % len(some)] / f"new{i}" for i in range(len(spread))]

    def measure(paths: list[Path]) -> float:
        shutil.rmtree(file, ignore_errors=True)
        full = wall_cpu(lambda: build(tree, file, limits=Limits(threads=2)))[0]
        change(paths, True)
        partly = wall_cpu(lambda: update(file, Limits(threads=2), tick_ns=0))[0]
        change(paths, False)
        return full / partly

    os.sync()
    got = interleave({"few": lambda: measure(few), "spread": lambda: measure(spread)}, rounds, "scan: update")
    return [
        at_least("update, 1 % new names in a few folders", got["few"], "×", 10, "as fast as the build"),
        seen(
            "update, 1 % new names in all folders, each listed again",
            got["spread"],
            "×",
            against="the build",
            note="a warm local disk: listing is most of a build there",
        ),
    ]


def rows(rounds: int) -> list[Row]:
    tools = {name: compiled(f"scan/{name}.c") for name in ("scan", "mktree")}
    if shutil.which("pkg-config") and Path("/dev/fuse").exists():
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True
        ).stdout.split()
        tools["slowfs"] = compiled("scan/slowfs.c", *flags)
    tree, catalogs = scratch() / "tree", scratch(memory=True)
    frame.output([tools["mktree"], tree, FOLDERS, FILES])
    found = warm(rounds, tools, tree, catalogs) + updates(rounds, tree, catalogs)
    if "slowfs" in tools:
        found += slow(min(rounds, 5), tools, catalogs)
    return found + layouts(catalogs)
