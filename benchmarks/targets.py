# SPDX-License-Identifier: Apache-2.0
"""What it costs to know targets: reading a layout from Python, and watching 1,024 targets each second.

The file has four stripes and lies on a testbed whose model is off; a layout is read by the driver and, in turn, its
bare attribute is read, so that the difference is the decoding.  The watched tree has the files that a server with
1,024 OSTs shows; CPU time is the process's, system and user.
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
from penstock.targets.mounts import TESTBED_TYPE, Mount
from penstock.targets.observe import Observer
from penstock.testbed import emulated

TITLE = "targets: reading layouts, watching targets"
BATCHES, BATCH = 200, 20
TARGETS = 1024
STATS = """\
snapshot_time             1795041946.844225075 secs.nsecs
start_time                1795041045.048792783 secs.nsecs
elapsed_time              901.213487147 secs.nsecs
read_bytes                9117 samples [bytes] 4096 4194304 33554432000 140737488355328000
write_bytes               8233 samples [bytes] 4096 4194304 33554432000 140737488355328000
read                      9117 samples [usecs] 3 7012 2104412 5000123456
write                     8233 samples [usecs] 30 30691 3069112 94193748112
setattr                   12 samples [usecs] 3 70 210 5000
punch                     9 samples [usecs] 3 70 210 5000
sync                      18 samples [usecs] 3 70 210 5000
destroy                   44 samples [usecs] 3 70 210 5000
create                    4 samples [usecs] 3 70 210 5000
statfs                    900 samples [usecs] 3 70 2100 5000
"""


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


def tree(top: Path, clock: Callable[[], float]) -> Lustre:
    """The statistics of a server with many OSTs, and its MDS's opinion of them."""
    root = top / "state" / "sys" / "fs" / "lustre"
    states = []
    for number in range(TARGETS):
        name = f"bench-OST{number:04x}"
        values = {"kbytestotal": 10485760, "kbytesavail": 9000000 + number, "degraded": 0, "no_create": 0}
        files = {f"obdfilter/{name}/{key}": f"{value}\n" for key, value in {**values, "readonly": 0}.items()}
        files[f"obdfilter/{name}/stats"] = STATS
        files[f"osp/{name}-osc-MDT0000/active"] = "1\n"
        files[f"osp/{name}-osc-MDT0000/prealloc_status"] = "0\n"
        files[f"osc/{name}-osc-ffff8800/ost_conn_uuid"] = f"10.0.0.{number % 64}@tcp\n"
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        states.append(f"{number}: {name}_UUID ACTIVE\n")
    (root / "lov/bench-clilov-ffff8800").mkdir(parents=True)
    (root / "lov/bench-clilov-ffff8800/target_obd").write_text("".join(states))
    return Lustre(Mount(1, str(top), TESTBED_TYPE, str(top), "0:1", ()), clock)


def observing() -> Callable[[], float]:
    """Per cent of a core when every target is looked at once a second."""
    clock = [0.0]
    observer = Observer(tree(scratch(memory=True), lambda: clock[0]))

    def measure() -> float:
        began = time.process_time_ns()
        for _ in range(10):
            clock[0] += 1
            observer.collect(clock[0])
        spent_ns = time.process_time_ns() - began
        assert not observer.trouble
        assert len(observer.view(clock[0])) == TARGETS
        return spent_ns / 10 / 1e9 * 100

    return measure


def rows(rounds: int) -> list[Row]:
    cells: dict[str, Callable[[], float]] = {"observe": observing()}
    why = emulated.missing()
    bed = scratch() / "pfs"
    try:
        if not why:
            emulated.up(bed, emulated.Shape(1, 2, 2), settings={"model": "off"})
            path = str(bed / "striped")
            driver_for(bed).create(path, wish(targets=(0, 1, 2, 3)))
            cells |= layout_cells(path, driver_for(path).layout(path).blob)
        got = interleave(cells, rounds, "targets")
    finally:
        if not why:
            emulated.down(f"{bed}.testbed", purge=True)
    found = [at_most(f"watching {TARGETS:,} targets each second", got["observe"], "% of a core", 1)]
    if why:
        return [*found, Row("reading a layout", 0, 0, "µs", note=f"not measured: {why}")]
    above = minus(got["layout"], got["attribute"])
    return [
        *found,
        seen("getxattr from Python, 4 stripes", got["attribute"], "µs", emulated=True),
        at_most("reading and decoding a layout, above getxattr", above, "µs", 5, emulated=True),
        seen("decoding the bytes alone", got["decode"], "µs"),
    ]
