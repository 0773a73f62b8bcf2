# SPDX-License-Identifier: Apache-2.0
"""What every table of figures is made with: scratch places, interleaved rounds, medians and spread, rows.

Invariants:
1. What is compared is measured in the same run, in turn, round by round; no row holds figures of two runs.
2. A figure is the median of its rounds, and stands with its spread (the middle half of the rounds).
3. Everything made here (folders, processes, mounts) is gone at the end, also after an error or SIGTERM.
4. Emulated and unmeasured are said in the row, not known by heart.
"""

import atexit
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

TOP = Path(__file__).resolve().parent.parent
FLOORS = TOP / "benchmarks" / "floors"
ROUNDS = 11

Samples = Sequence[float]
Words = Sequence[object]
K = TypeVar("K")


# Rows


@dataclass(frozen=True)
class Row:
    """One figure.  `holds` is None where there is no target, `target` says the bound in words."""

    what: str
    measured: float
    spread: float
    unit: str
    target: str = ""
    against: str = ""
    holds: bool | None = None
    emulated: bool = False
    note: str = ""


def spread(samples: Samples) -> float:
    """The width of the middle half of the samples."""
    if len(samples) < 2:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return high - low


def minus(a: Samples, b: Samples) -> list[float]:
    """What a has above b, round by round."""
    return [x - y for x, y in zip(a, b, strict=True)]


def over(a: Samples, b: Samples) -> list[float]:
    """a in multiples of b, round by round."""
    return [x / y if y else float("inf") for x, y in zip(a, b, strict=True)]


def seen(what: str, samples: Samples, unit: str, **words: object) -> Row:
    """A figure without a target."""
    return Row(what, statistics.median(samples), spread(samples), unit, **words)  # type: ignore[arg-type]


def at_most(what: str, samples: Samples, unit: str, bound: float, target: str = "", **words: object) -> Row:
    """A figure that must not be above `bound`; `target` says where the bound comes from."""
    middle = statistics.median(samples)
    text = f"≤ {short(bound)}" + (f" ({target})" if target else "")
    return Row(what, middle, spread(samples), unit, text, holds=middle <= bound, **words)  # type: ignore[arg-type]


def at_least(what: str, samples: Samples, unit: str, bound: float, target: str = "", **words: object) -> Row:
    """A figure that must not be below `bound`."""
    middle = statistics.median(samples)
    text = f"≥ {short(bound)}" + (f" ({target})" if target else "")
    return Row(what, middle, spread(samples), unit, text, holds=middle >= bound, **words)  # type: ignore[arg-type]


def short(value: float) -> str:
    """Four digits at the most, thousands grouped, never in powers of ten."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}" if abs(value) >= 0.001 or value == 0 else f"{value:.6f}"


# Rounds


def interleave(cells: Mapping[K, Callable[[], float]], rounds: int, name: str = "") -> dict[K, list[float]]:
    """One value of each cell a round, and all rounds; every second round in the opposite order."""
    got: dict[K, list[float]] = {key: [] for key in cells}
    began = time.monotonic()
    for turn in range(rounds):
        for key in list(cells) if turn % 2 == 0 else reversed(list(cells)):
            got[key].append(float(cells[key]()))
        done = turn + 1
        left = (time.monotonic() - began) / done * (rounds - done)
        print(f"{name}: round {done} of {rounds}, about {left:.0f} s left", file=sys.stderr, flush=True)
    return got


# Places, processes, mounts

_started: list[subprocess.Popen[bytes]] = []
_mounted: list[Path] = []
_folders: list[Path] = []


def scratch(memory: bool = False) -> Path:
    """A new folder, gone at the end; in memory if asked for, on a tmpfs of its own where we may mount."""
    plain = not memory or os.geteuid() == 0
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench.", dir=None if plain else "/dev/shm"))
    _folders.append(folder)
    if memory and plain:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1g,mode=700", "penstock-bench", str(folder)], check=True
        )
        _mounted.append(folder)
    return folder


def start(command: Words, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([str(word) for word in command], env=full(env))
    _started.append(process)
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def mount(command: Words, points: Sequence[Path]) -> subprocess.Popen[bytes]:
    """Start a file system's server and wait until all its mount points are there."""
    for point in points:
        point.mkdir(parents=True, exist_ok=True)
        _mounted.append(point)
    server = start([*command, *points])
    end = time.monotonic() + 10
    while not all(os.path.ismount(point) for point in points):
        if time.monotonic() > end or server.poll() is not None:
            raise SystemExit(f"bench: {command[0]} mounted nothing; start it by hand to see why")
        time.sleep(0.01)
    return server


@atexit.register
def clean() -> None:
    for process in _started:
        stop(process)
    for point in _mounted:
        if os.path.ismount(point):
            subprocess.run(["umount", "-l", str(point)], check=False)
    for folder in _folders:
        shutil.rmtree(folder, ignore_errors=True)


# Programs


def full(env: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if env is None else {**os.environ, **env}


def compiled(source: str, *flags: str, name: str = "") -> Path:
    """A program (or with -shared a library) of benchmarks/floors, built into a scratch folder."""
    path = FLOORS / source
    out = scratch() / (name or path.stem)
    before = [flag for flag in flags if not flag.startswith("-l")]
    after = [flag for flag in flags if flag.startswith("-l")]
    gcc = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-pthread", "-D_GNU_SOURCE", f"-I{FLOORS}"]
    subprocess.run([*gcc, *before, str(path), "-o", str(out), *after, "-lm"], check=True)
    return out


def output(command: Words, env: Mapping[str, str] | None = None, seconds: float = 300) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        check=False,
        capture_output=True,
        text=True,
        timeout=seconds,
        env=full(env),
    )
    if done.returncode:
        raise SystemExit(
            f"bench: {' '.join(map(str, command))}: status {done.returncode}: {done.stderr.strip()[-500:]}"
        )
    return done.stdout


def number(command: Words, env: Mapping[str, str] | None = None) -> float:
    """The last number that a program prints: a preloaded peer may print words after it."""
    for word in reversed(output(command, env).split()):
        if re.fullmatch(r"-?\d+(\.\d+)?", word):
            return float(word)
    raise SystemExit(f"bench: {' '.join(map(str, command))}: no number in its output")


def cpu_s_of(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds of a running process, all its threads, to the nanosecond."""
    tasks = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def instructions(
    command: Callable[[int], Words],
    few: int,
    many: int,
    env: Mapping[str, str] | None = None,
    before: Words = (),
) -> float:
    """User-side instructions of one more turn: those of `many` turns less those of `few`, by callgrind.

    `before` stands in front of valgrind, for what starts the program with a library preloaded.
    """
    return (_counted(command(many), env, before) - _counted(command(few), env, before)) / (many - few)


def _counted(command: Words, env: Mapping[str, str] | None, before: Words) -> int:
    out = scratch() / "callgrind"
    valgrind = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}"]
    output([*before, *valgrind, *command], env)
    found = re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.MULTILINE)
    if not found:
        raise SystemExit("bench: callgrind wrote no total; is valgrind installed?")
    return int(found.group(1))
