# SPDX-License-Identifier: Apache-2.0
"""What limits cost, and how exactly they hold.

Floor (one word, one compare-and-swap) and the stage `limit` in turn, in one run.  Cost is CPU time, the low decile of
short batches.  Rates are counted from one second after the start.  The row of open and close is a real program on a
tmpfs under `penstock run`, with a limit that it never reaches against the same without one.
"""

import statistics
import sys
from pathlib import Path

from benchmarks.frame import (
    TOP,
    Row,
    at_least,
    at_most,
    compiled,
    interleave,
    minus,
    number,
    output,
    over,
    scratch,
    seen,
)

TITLE = "limit: what a rate costs, and how it holds"
RATES = (100, 1_000, 10_000, 100_000)
CALLERS = {"1 thread": (1, 1), "4 threads": (4, 1), "4 processes": (1, 4)}
SECONDS = 2
PENSTOCK = Path(sys.executable).with_name("penstock")


def programs() -> dict[str, Path]:
    """Floor and stage; the numbers of operations come from calls.def."""
    made = scratch()
    enum = output([sys.executable, TOP / "tools" / "calls.py", "enum", TOP / "native" / "calls.def"])
    (made / "calls_enum.h").write_text(enum)
    flags = (f"-I{made}", f"-I{TOP / 'native'}", "-D_GNU_SOURCE", "-pthread")
    board = [str(TOP / "native" / "board" / name) for name in ("buckets.c", "tickets.c")]
    return {
        "floor": compiled("limit/ticket.c", *flags, name="ticket"),
        "penstock": compiled("limit/stage.c", *flags, *board, name="stage"),
    }


def costs(made: dict[str, Path], rounds: int) -> list[Row]:
    ns = interleave(
        {(n, k): (lambda p=p, n=n: number([p, "cost", n])) for n in (1, 4) for k, p in made.items()},
        rounds,
        "limit",
    )
    rows = []
    for n in (1, 4):
        what = f"call that is not held back, {n} thread{'s' * (n > 1)}"
        floor = ns[n, "floor"]
        rows.append(seen(f"{what}: floor", floor, "ns CPU"))
        rows.append(seen(f"{what}: penstock", ns[n, "penstock"], "ns CPU"))
        rows.append(at_most(f"{what}: penstock", over(ns[n, "penstock"], floor), "× floor", 1.5))
    return rows


def opens(rounds: int) -> list[Row]:
    place = scratch(memory=True)
    calls = compiled("limit/opens.c")
    kinds = {
        "plain": [calls, place],
        "recorded": [PENSTOCK, "run", "--", calls, place],
        "recorded and limited": [PENSTOCK, "run", "--limit", "metadata=90M/s", "--", calls, place],
    }
    ns = interleave({k: (lambda w=w: number(w)) for k, w in kinds.items()}, rounds, "limit")
    rows = [seen(f"open and close on tmpfs: {k}", v, "ns CPU") for k, v in ns.items()]
    added = minus(ns["recorded and limited"], ns["recorded"])
    share = [100 * x for x in over(added, ns["recorded"])]
    return [*rows, at_most("open and close on tmpfs: added by the limit", share, "% of the time", 5)]


def rates(made: dict[str, Path]) -> list[Row]:
    rows = []
    for rate in RATES:
        for name, (threads, processes) in CALLERS.items():
            words = [made["penstock"], "rate", rate, SECONDS, threads, processes]
            achieved, cores, *excess = map(float, output(words).split())
            what = f"{rate:,}/s, {name}"
            rows.append(at_least(f"{what}: achieved", [100 * achieved], "% of the rate", 98))
            bound = rate * 0.1 + threads * processes
            rows.append(
                at_most(
                    f"{what}: most above the rate in any 1 s", [excess[2]], "calls", bound, "burst + callers"
                )
            )
            if name == "1 thread" and rate <= 1000:
                least = float(output([made["floor"], "rate", rate, SECONDS, 1, 1]).split()[1])
                rows.append(seen(f"{what}: CPU: floor", [100 * least], "% of a core"))
                rows.append(
                    at_most(f"{what}: CPU", [100 * cores], "% of a core", {100: 0.3, 1000: 2.5}[rate])
                )
    print("limit: rates held", file=sys.stderr, flush=True)
    return rows


def raises(made: dict[str, Path], rounds: int) -> list[Row]:
    got: dict[str, list[list[float]]] = {k: [] for k in made}
    for _ in range(max(1, rounds // 4)):
        for kind, program in made.items():
            got[kind].append([float(x) for x in output([program, "raise"]).split()])
    median = {k: [row[0] for row in v] for k, v in got.items()}
    last = {k: [row[1] for row in v] for k, v in got.items()}
    floor = statistics.median(median["floor"])
    return [
        seen("raised rate to the first waiter: floor", median["floor"], "µs, median"),
        at_most(
            "raised rate to the first waiter: penstock",
            median["penstock"],
            "µs, median",
            2 * floor,
            "2 × floor",
        ),
        at_most("raised rate to the first waiter: penstock", last["penstock"], "µs, 99th percentile", 5000),
    ]


def survivals() -> list[Row]:
    """Forks and kills of real programs that are held back, with the agent that `penstock run` is."""
    program = compiled("limit/survive.c")
    got = {
        deed: number([PENSTOCK, "run", "--limit", f"metadata={rate}/s", "--", program, deed, 1000])
        for deed, rate in (("forks", 2000), ("kills", 10))
    }
    return [
        at_most("fork while four threads are held back, 1,000 times", [got["forks"]], "hangs", 0),
        at_most("next call after 1,000 waiters at 10/s were killed", [got["kills"]], "s", 1),
    ]


def rows(rounds: int) -> list[Row]:
    made = programs()
    return [*costs(made, rounds), *opens(rounds), *rates(made), *raises(made, rounds), *survivals()]
