# SPDX-License-Identifier: Apache-2.0
"""Importing Darshan's logs: speed with the index, and whether published tables come out.

Logs are made by tools/darshan_logs.py through Darshan's own library: a 1:10 set of two months of a large machine for
the tables, and 2,000 logs of eight records each for the speed.  Speed is logs over CPU seconds of all processes, the
index among them, less what the import of a single log costs (starting Python and loading Darshan's package).
"""

import json
import os
import resource
import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks.frame import TOP, Row, at_least, at_most, interleave, scratch, seen
from penstock.runs import stats

sys.path.insert(0, str(TOP))
from tools import darshan_logs

TITLE = "darshan: importing logs"
SCALE = 10
LOGS, RECORDS = 2_000, 8
ROUNDS = 5


def made(folder: Path, logs: int, records: int) -> Path:
    writer = darshan_logs.Writer()
    folder.mkdir()
    for i in range(logs):
        files = tuple(
            darshan_logs.File(f"/scratch/r{i}/out.{r}", r, 64 << 20, targets=(r,)) for r in range(records)
        )
        log = darshan_logs.Log(i + 1, f"/opt/app{i % 50}", records, files)
        writer.write(folder / f"{i}.darshan", log)
    return folder


def imported(logs: Path, jobs: int = 1) -> tuple[float, dict[str, object], Path]:
    """CPU seconds, what the command said, and its state folder."""
    state = scratch(memory=True)
    env = {**os.environ, "PENSTOCK_STATE_DIR": str(state)}
    command = [
        Path(sys.executable).parent / "penstock",
        "runs",
        "import",
        "darshan",
        str(logs),
        "--json",
        "-j",
        str(jobs),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"bench: darshan: {done.stderr.strip()}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, json.loads(done.stdout), state


def memory_mib(records: int) -> float:
    """Of a reader that has read one log of very many records."""
    logs = made(scratch() / "wide", 1, records)
    code = (
        "import sys, resource; from pathlib import Path; from penstock.runs import darshan_import as d;"
        "got = d.convert([Path(sys.argv[1])], frozenset()); assert len(got.frames) == 1;"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(logs / "0.darshan")], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def tables() -> tuple[bool, int, float]:
    """Do both tables of the published study come out, of how many logs, in how many CPU seconds?"""
    folder = scratch() / "set"
    writer, number = darshan_logs.Writer(), 0
    for number, log in enumerate(darshan_logs.of_marginals(SCALE)):
        below = folder / str(number // 10_000)
        if number % 10_000 == 0:
            below.mkdir(parents=True)
        writer.write(below / f"{log.job}.darshan", log)
    cpu_s, said, state = imported(folder, 2)
    found = stats.stats(stats.walk(state / "history"))
    wanted = list(darshan_logs.marginals(SCALE))
    by_count = Counter(stats.class_of(count) for count, _ in wanted)
    by_size = Counter(size << 20 for _, size in wanted)
    same = found.by_targets == dict(by_count) and found.by_size == dict(by_size)
    return same and said["imported"] == len(wanted) == number + 1, number + 1, cpu_s


def rows(rounds: int) -> list[Row]:
    top = scratch()
    logs, single = made(top / "logs", LOGS, RECORDS), made(top / "one", 1, RECORDS)
    got = interleave(
        {"logs": lambda: imported(logs)[0], "one": lambda: imported(single)[0]},
        min(rounds, ROUNDS),
        "darshan",
    )
    speed = [(LOGS - 1) / max(a - b, 1e-9) for a, b in zip(got["logs"], got["one"], strict=True)]
    exact, number, cpu_s = tables()
    return [
        at_least(f"logs of {RECORDS} records, with the index", speed, "logs/s of a core", 2_000),
        seen("starting, for one log", got["one"], "s CPU"),
        at_least(f"both published tables exact on a 1:{SCALE} set ({number:,} logs)", [float(exact)], "", 1),
        seen(f"importing the 1:{SCALE} set", [cpu_s], "s CPU"),
        at_most("memory for a log of 4,099 records", [memory_mib(4099)], "MiB", 200),
    ]
