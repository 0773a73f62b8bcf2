# SPDX-License-Identifier: Apache-2.0
"""What it costs to know targets: reading a layout from Python, and watching 1,024 targets each second.

Both on testbeds.  The file has four stripes; its layout is read by the driver and, in turn, its bare
attribute, so that the difference is the decoding.  The watched testbed has 32 OSS with 32 OSTs each, and its
statistics lie in memory, as a kernel's do; it writes them once, so that all the CPU time counted, user and
system, is the watcher's.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.frame import Row, at_most, interleave, minus, scratch, seen
from penstock.targets import lov
from penstock.targets.driver import driver_for
from penstock.targets.layouts import wish
from penstock.targets.lustre import Lustre
from penstock.targets.mounts import mount_of
from penstock.targets.observe import Observer
from penstock.testbed import emulated

TITLE = "targets: reading layouts, watching targets"
BATCHES, BATCH = 200, 20
OSS, OSTS = 32, 32
TARGETS = OSS * OSTS
COLLECTS = 10


def per_call_us(call: Callable[[], object]) -> float:
    """CPU time of one call in this thread: the low decile of short batches, since the machine has other work."""
    times = []
    for _ in range(BATCHES):
        began = time.thread_time_ns()
        for _ in range(BATCH):
            call()
        times.append((time.thread_time_ns() - began) / BATCH / 1000)
    return sorted(times)[BATCHES // 10]


def layout_cells(path: str, blob: bytes) -> dict[str, Callable[[], float]]:
    driver = driver_for(path)
    return {
        "attribute": lambda: per_call_us(lambda: os.getxattr(path, lov.XATTR)),
        "layout": lambda: per_call_us(lambda: driver.layout(path)),
        "decode": lambda: per_call_us(lambda: lov.decode(blob)),
    }


def watching(bed: Path) -> Callable[[], float]:
    """Per cent of a core when every target is looked at once a second."""
    clock = [0.0]
    observer = Observer(Lustre(mount_of(bed), lambda: clock[0]))

    def measure() -> float:
        began = time.process_time_ns()
        for _ in range(COLLECTS):
            clock[0] += 1
            observer.collect(clock[0])
        spent_ns = time.process_time_ns() - began
        assert not observer.trouble
        assert [view.state for view in observer.view(clock[0])] == ["up"] * TARGETS
        return spent_ns / COLLECTS / 1e9 * 100

    return measure


def measured(rounds: int, few: Path, many: Path) -> dict[str, list[float]]:
    emulated.up(few, emulated.Shape(1, 2, 2), settings={"model": "off"})
    emulated.up(many, emulated.Shape(1, OSS, OSTS), settings={"model": "count", "stats.period": "0s"})
    path = str(few / "striped")
    driver_for(few).create(path, wish(targets=(0, 1, 2, 3)))
    cells = layout_cells(path, driver_for(path).layout(path).blob)
    return interleave({**cells, "watch": watching(many)}, rounds, "targets")


def rows(rounds: int) -> list[Row]:
    if why := emulated.missing():
        raise SystemExit(f"bench: targets: no testbed here: {why}")
    top = scratch(memory=True)
    few, many = top / "few", top / "many"
    try:
        got = measured(rounds, few, many)
    finally:
        for bed in (few, many):
            if emulated.is_running(f"{bed}.testbed"):
                emulated.down(f"{bed}.testbed", purge=True)
    above = minus(got["layout"], got["attribute"])
    return [
        at_most(f"watching {TARGETS:,} targets each second", got["watch"], "% of a core", 1, emulated=True),
        seen("getxattr from Python, 4 stripes", got["attribute"], "µs CPU", emulated=True),
        at_most("reading and decoding a layout, above getxattr", above, "µs CPU", 5, emulated=True),
        seen("decoding the bytes alone", got["decode"], "µs CPU"),
    ]
