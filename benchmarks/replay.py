# SPDX-License-Identifier: Apache-2.0
"""How fast the replayer is, and what being recorded costs it.

The operations have the shares of the synthetic trace.  Paced: 20,000 operations a second are demanded; closed loop:
all are due at once, and come as fast as they go.  Plain and under Penstock (everything counted, nothing limited)
in turn, on a tmpfs, where a call costs least and what is added shows most.
"""

import json
import os
import subprocess
from pathlib import Path

from benchmarks.frame import Row, at_least, at_most, interleave, over, scratch, seen
from penstock.tools import replay, trace_make

TITLE = "replay: rate of the replayer, and what counting adds to it"
PACED, FAST = 20_000, 100_000  # operations a second
SECONDS = 3
CLOSED = 300_000  # operations


def schedule(total: int, seconds: float) -> str:
    """So many operations in so long, by the published shares."""
    whole = sum(trace_make.RATES.values())
    return "".join(
        f"{name} 0 {round(seconds * 1e9)} {round(total * rate / whole)}\n"
        for name, rate in trace_make.RATES.items()
    )


def measure(place: Path, lines: str, before: list[object]) -> dict[str, float]:
    """Elapsed and CPU seconds of one replay, and the longest that one in a hundred waited."""
    words = [*map(str, before), *replay.command(replay.How(place))]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(place)
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(lines)
    process.stdin.close()
    rows = [json.loads(line) for line in process.stdout if line.startswith("{")]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    if status:
        raise SystemExit(f"bench: replay ended with status {status}")
    last = rows[-1]
    return {
        "elapsed": last["elapsed_s"],
        "cpu": usage.ru_utime + usage.ru_stime,
        "waited": max(row["waited_ns"]["p99"] for row in last["operations"].values()),
        "served": sum(row["served"] for row in last["operations"].values()),
    }


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "PENSTOCK_STATE_DIR": str(place / "state")}


def rows(rounds: int) -> list[Row]:
    place = scratch(memory=True)
    run = [replay.program().with_name("penstock-run")]
    kept: dict[tuple[str, str], list[dict[str, float]]] = {}
    loads = {
        "fast": schedule(FAST * SECONDS, SECONDS),
        "paced": schedule(PACED * SECONDS, SECONDS),
        "closed": schedule(CLOSED, 0),
    }

    def cell(load: str, kind: str) -> float:
        found = measure(place, loads[load], run if kind == "penstock" else [])
        kept.setdefault((load, kind), []).append(found)
        return found["elapsed"]

    cells = {
        (load, kind): (lambda load=load, kind=kind: cell(load, kind))
        for load in loads
        for kind in ("plain", "penstock")
        if (load, kind) != ("fast", "penstock")
    }
    interleave(cells, rounds, "replay")

    def values(load: str, kind: str, what: str) -> list[float]:
        return [found[what] for found in kept[load, kind]]

    def added(load: str, what: str) -> list[float]:
        return [100 * (x - 1) for x in over(values(load, "penstock", what), values(load, "plain", what))]

    fast = [found["served"] / found["elapsed"] for found in kept["fast", "plain"]]
    most = [found["served"] / found["elapsed"] for found in kept["closed", "plain"]]
    return [
        at_least("rate reached, 100,000/s demanded", fast, "op/s", 0.98 * FAST, "98 % of what is demanded"),
        seen("CPU for that", [c / SECONDS for c in values("fast", "plain", "cpu")], "cores"),
        seen(
            "wait, 99 %, of the operation that waits longest",
            [w / 1e6 for w in values("fast", "plain", "waited")],
            "ms",
        ),
        at_least("rate, closed loop", most, "op/s", FAST),
        at_most(f"paced replay, {PACED:,}/s: counting adds", added("paced", "elapsed"), "% of the time", 0.9),
        seen(
            f"paced replay, {PACED:,}/s: counting adds",
            added("paced", "cpu"),
            "% of the CPU, with start and record",
        ),
        at_most("closed loop: counting adds", added("closed", "elapsed"), "% of the time", 5),
    ]
