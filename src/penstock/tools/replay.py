# SPDX-License-Identifier: Apache-2.0
"""Replay a trace: start penstock-replay on a schedule, and pass on what it tells.

Invariants:
1. The program is stopped, and its folder removed, whatever ends this one; only if both are killed a folder stays.
2. The program counts; here nothing is timed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.base.errors import PenstockError, UsageError


@dataclass(frozen=True)
class How:
    """How it is to be done."""

    folder: Path
    threads: tuple[str, ...] = ()  # "getattr=2"
    files: int = 256
    io_bytes: int = 65536
    file_bytes: int = 16 << 20
    interval_s: float = 1.0


@dataclass
class Outcome:
    """What was demanded and served."""

    begin: dict[str, Any] = field(default_factory=dict)
    intervals: list[dict[str, Any]] = field(default_factory=list)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    elapsed_s: float = 0.0
    signal: int = 0

    def total(self, what: str) -> int:
        return sum(operation[what] for operation in self.operations.values())

    @property
    def behind(self) -> int:
        """What has been demanded up to the last interval and not yet served."""
        return sum(d - s for row in self.intervals for d, s in row["operations"].values())


def program() -> Path:
    return Path(sys.prefix) / "bin" / "penstock-replay"


def command(how: How) -> list[str]:
    words = [str(program()), f"--files={how.files}", f"--io-bytes={how.io_bytes}"]
    words += [f"--file-bytes={how.file_bytes}", f"--interval-ns={round(how.interval_s * 1e9)}"]
    return [*words, *(f"--threads={word}" for word in how.threads), str(how.folder)]


def run(lines: Iterable[str], how: How, tell: Callable[[Outcome], None]) -> Outcome:
    """Do it all; `tell` is called after each interval."""
    if not how.folder.is_dir():
        raise UsageError(f"{how.folder} is no folder; name one on the file system to load, with --on")
    found = Outcome()
    with tempfile.TemporaryFile("w+") as schedule:
        schedule.writelines(lines)
        schedule.flush()
        schedule.seek(0)
        with _Interrupts() as interrupts:
            # In a process group of its own: an interrupt from the keyboard comes once, by us.
            with subprocess.Popen(
                command(how),
                stdin=schedule,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                process_group=0,
            ) as process:
                interrupts.go_to(process)
                _listen(process, found, tell)
                said = process.stderr.read() if process.stderr else ""
    if process.returncode < 0:
        left = how.folder / f"penstock-replay.{os.uname().nodename}.{process.pid}"
        shutil.rmtree(left, ignore_errors=True)
    if -process.returncode in _Interrupts.NUMBERS:  # before it could begin
        found.signal = -process.returncode
    elif not found.operations:
        raise PenstockError(
            said.strip().partition(": ")[2] or f"{program()} ended with status {process.returncode}"
        )
    return found


class _Interrupts:
    """Hands interrupts on to the program, each once; those that come before it is there, too."""

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._early: list[int] = []

    def _forward(self, number: int, _: object) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)

    def go_to(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        for number in self._early[:1]:
            process.send_signal(number)

    def __enter__(self) -> "_Interrupts":
        self._before = {number: signal.signal(number, self._forward) for number in self.NUMBERS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _listen(process: "subprocess.Popen[str]", found: Outcome, tell: Callable[[Outcome], None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        row = json.loads(line)
        if "begin_monotonic_ns" in row:
            found.begin = row
        elif "interval" in row:
            found.intervals.append(row)
            tell(found)
        else:
            found.operations, found.elapsed_s = row["operations"], row["elapsed_s"]
            found.signal = row["signal"]


def failures(found: Outcome) -> str:
    """A sentence if operations failed."""
    count = found.total("failed")
    name = next((name for name, operation in found.operations.items() if operation["failed"]), "")
    return f"{count:,} operations failed, first {name}: {found.operations[name]['error']}" if count else ""
