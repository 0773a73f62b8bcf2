# SPDX-License-Identifier: Apache-2.0
"""What tests of launching share: the programs, places of their own, and the history as it is read back."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.runs import merge, record, segments

BIN = Path(sys.executable).parent
PENSTOCK, PENSTOCK_RUN = BIN / "penstock", BIN / "penstock-run"
LIBRARY = Path(sys.prefix) / "lib" / "penstock" / "libpenstock.so"
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@contextmanager
def places(folder: Path) -> Iterator[dict[str, str]]:
    """An environment in which history and boards lie in folders of this test alone."""
    boards = Path("/dev/shm") / f"penstock-test-{os.getpid()}-{time.monotonic_ns()}"
    boards.mkdir(mode=0o700)
    try:
        yield {
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "HOME": str(folder),
            "PENSTOCK_STATE_DIR": str(folder / "state"),
            "PENSTOCK_BOARD_DIR": str(boards),
            "PENSTOCK_RUN_DETECT": "none",  # other tests' mounts are none of ours
            "PENSTOCK_PLACE_WAIT": "60s",  # a plan that comes later is a test of its own
        }
    finally:
        shutil.rmtree(boards, ignore_errors=True)


def boards(env: dict[str, str]) -> list[Path]:
    return sorted(p for p in Path(env["PENSTOCK_BOARD_DIR"]).iterdir() if p.is_dir())


def log(env: dict[str, str]) -> list[str]:
    path = Path(env["PENSTOCK_STATE_DIR"]) / "penstock.log"
    return path.read_text().splitlines() if path.exists() else []


def runs(env: dict[str, str]) -> list[merge.Run]:
    """All runs of the history, the earliest first; nothing in it may be damaged."""
    payloads: dict[bytes, list[record.Payload]] = {}
    for path in segments.segments(Path(env["PENSTOCK_STATE_DIR"]) / "history"):
        scan = segments.read(path)
        assert (scan.damages, scan.torn_tail_bytes) == ([], 0)
        for frame in scan.frames:
            payloads.setdefault(frame.run, []).append(frame.decode())
    found = [merge.merge(run, frames) for run, frames in payloads.items()]
    return sorted(found, key=lambda run: run.start_ns)


def rows(run: merge.Run) -> list[record.File]:
    return [row for node in run.nodes for row in node.files]


def row(run: merge.Run, path: Path) -> record.File:
    """The one row of a file that one process used."""
    [found] = [f for f in rows(run) if f.path == os.fsencode(path)]
    return found


def written(run: merge.Run, path: Path) -> int:
    return sum(f.bytes_written for f in rows(run) if f.path == os.fsencode(path))


def processes(run: merge.Run) -> list[record.Process]:
    return [process for node in run.nodes for process in node.processes]


def call(
    *words: object, env: dict[str, str], seconds: float = 60, **options: Any
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(w) for w in words], env=env, capture_output=True, timeout=seconds, check=False, **options
    )


def until(claim: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    """Poll for a thing to come true; gives it."""
    deadline = time.monotonic() + seconds
    while not (found := claim()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return found


def compile_c(folder: Path, name: str, source: str, *flags: str, compiler: str = "gcc") -> Path:
    program, text = folder / name, folder / f"{name}.c"
    text.write_text(source)
    subprocess.run([compiler, "-O1", str(text), "-o", str(program), *flags], check=True)
    return program
