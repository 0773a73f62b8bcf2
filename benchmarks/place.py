# SPDX-License-Identifier: Apache-2.0
"""Where files go, decided: balance, makespans and herds on the placement model, and what planning costs.

Nothing here touches a file system: loads are counted and times are the model's (policy/placing/simulate.py).
Planning is CPU time of this process; the rest is the same with the same seed.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.frame import TOP, Row, at_least, at_most, interleave, seen
from penstock.policy.placing import finish
from penstock.policy.placing.contract import AllocationSettings, Requests, Target
from penstock.policy.placing.simulate import GB, PUBLISHED, Job, System, What, burst, play

TITLE = "place: balance, makespans and cost of plans (model)"
DRAWS = 40
BURSTS = 10
MODEL = "model"
FILES = Job(64, 64 * GB, 8)
SIZES = {
    "1,000 files x 256 targets": (1_000, 256),
    "10,000 x 1,024": (10_000, 1_024),
    "100,000 x 2,000": (100_000, 2_000),
}
BOUNDS_MS = {"1,000 files x 256 targets": 20.0, "10,000 x 1,024": 200.0, "100,000 x 2,000": 2500.0}


def one(samples: Sequence[float]) -> list[float]:
    """A mean as the one sample: what the targets are stated for."""
    return [float(np.mean(samples))]


def balance() -> list[Row]:
    worst, widened = 0.0, 0.0
    servers: list[float] = []
    for job in PUBLISHED.values():
        (score,) = play(What(System(size_bytes=100 * GB), (job,), draws=1), "finish")
        worst = max(worst, score.ostcost / score.floor)
        if job.files >= 16:
            (wide,) = play(What(System(size_bytes=100 * GB), (job,), draws=1, widen=3), "finish")
            widened = max(widened, wide.ostcost)
            servers.append(score.server)
    both = What(
        System(size_bytes=100 * GB), (Job(16, 7.7 * GB, 8), Job(16, 32 * GB, 4)), draws=1, together=True
    )
    (together,) = play(both, "finish")
    (after,) = play(replace(both, together=False), "finish")
    rivals = {
        name: [s.ostcost for s in play(What(System(), (FILES,), DRAWS), name)]
        for name in ("stock", "stock at once")
    }
    literal = [s.ostcost for s in play(What(System(size_bytes=100 * GB), (FILES,), 1), "iez")]
    return [
        at_most(
            "OSTCost, eight published cases, over the floor of whole stripes",
            [worst],
            "times",
            1.005,
            note=MODEL,
        ),
        at_most("OSTCost, counts left to us, 16 and more files", [widened], "", 1.02, note=MODEL),
        at_most("OSTCost, two jobs together, planned as one", [together.ostcost], "", 1.01, note=MODEL),
        seen("OSTCost, the same one after the other, by promises", [after.ostcost], "", note=MODEL),
        at_most("most loaded server over the mean, 16 and more files", [max(servers)], "", 1.02, note=MODEL),
        seen(
            "OSTCost of stock round robin, 64 files of 8 stripes, one after another",
            one(rivals["stock"]),
            "",
            note=MODEL,
        ),
        seen("OSTCost of stock, all at once", one(rivals["stock at once"]), "", note=MODEL),
        seen("OSTCost of iez as printed", literal, "", note=MODEL),
    ]


def makespans() -> list[Row]:
    mixed, even = Job(64, 64 * GB, 8, mixed=True), FILES
    empty, busy = System(), System(used=(0.05, 0.4), busy=4)
    found = []
    for what, system, job, bound in (
        ("mixed sizes", empty, mixed, 1.01),
        ("4 of 15 targets half busy", busy, even, 1.08),
        ("both", busy, mixed, 1.08),
    ):
        ours = [s.makespan for s in play(What(system, (job,), DRAWS), "finish")]
        theirs = [s.makespan for s in play(What(system, (job,), DRAWS), "stock")]
        renewed = [s.makespan for s in play(What(system, (job,), DRAWS), "iez-renewed")]
        saved = 1 - float(np.mean(ours)) / float(np.mean(theirs))
        worst = max(a / b for a, b in zip(ours, theirs, strict=True))
        found += [
            at_most(f"makespan over ideal, {what}", one(ours), "times", bound, note=MODEL),
            at_least(f"below stock, {what}", [100 * saved], "%", 25, note=MODEL),
            at_most(f"worst draw against stock, {what}", [worst], "times", 1.0, note=MODEL),
            seen(f"makespan of iez with renewed costs, {what}", one(renewed), "times", note=MODEL),
        ]
    for error, bound in ((0.1, 1.03), (0.5, 1.15)):
        wrong = [s.makespan for s in play(What(empty, (mixed,), DRAWS, error=error), "finish")]
        found.append(at_most(f"makespan, sizes wrong by {error:.0%}", one(wrong), "times", bound, note=MODEL))
    return found


def herds() -> list[Row]:
    blind = burst("stock at once", False, BURSTS)
    return [
        at_most(
            "100 jobs at once on old figures, with the ledger",
            one(burst("finish", True, BURSTS)),
            "times",
            1.5,
            note=MODEL,
        ),
        at_most(
            "the same without any coordination",
            one(burst("two-choices", False, BURSTS)),
            "times",
            1.8,
            note=MODEL,
        ),
        seen(
            "the same, the best of all without a ledger",
            one(burst("finish", False, BURSTS)),
            "times",
            note=MODEL,
        ),
        seen("the same, stock", one(blind), "times", note=MODEL),
    ]


def question(files: int, targets: int) -> tuple[Requests, list[Target]]:
    draw = np.random.default_rng(1)
    requests = Requests(draw.lognormal(0, 1, files) * GB, draw.choice([1, 2, 4, 8], files).astype(np.int64))
    base = draw.uniform(0, 0.3, targets) * requests.bytes.sum() / targets
    return requests, [
        Target(i, f"oss{i // 8}", 1e15, 1e15, promised_bytes=float(base[i])) for i in range(targets)
    ]


def planning_ms(requests: Requests, targets: Sequence[Target]) -> float:
    began = time.process_time_ns()
    finish.allocate(requests, targets, AllocationSettings())
    return (time.process_time_ns() - began) / 1e6


def memory_mib() -> float:
    """Of a process of its own that plans the largest."""
    code = (
        "import resource, benchmarks.place as p; p.planning_ms(*p.question(100_000, 2_000));"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=TOP)
    return float(done.stdout)


def costs(rounds: int) -> list[Row]:
    questions = {name: question(*size) for name, size in SIZES.items()}
    got = interleave({name: (lambda q=q: planning_ms(*q)) for name, q in questions.items()}, rounds, "place")
    rows = [at_most(f"planning, {name}", got[name], "ms CPU", BOUNDS_MS[name]) for name in SIZES]
    return [*rows, at_most("memory for the largest", [memory_mib()], "MiB", 150)]


def rows(rounds: int) -> list[Row]:
    return [*balance(), *makespans(), *herds(), *costs(rounds)]
