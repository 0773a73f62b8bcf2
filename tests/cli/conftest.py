# SPDX-License-Identifier: Apache-2.0
"""The penstock command, as a user types it."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Penstock = Callable[..., "subprocess.CompletedProcess[Any]"]


@pytest.fixture
def run_penstock(tmp_path: Path) -> Iterator[Penstock]:
    """Run `penstock WORDS` with a home, a state folder and a folder of boards of its own: what other tests' killed runs
    left on theirs is not brought into this history."""
    boards = Path("/dev/shm") / f"penstock-test-{os.getpid()}-{time.monotonic_ns()}"
    boards.mkdir(mode=0o700)

    def run(*words: str, text: bool = True, **env: str) -> "subprocess.CompletedProcess[Any]":
        base = {
            "HOME": str(tmp_path),
            "PATH": "/usr/bin:/bin",
            "PENSTOCK_STATE_DIR": str(tmp_path),
            "PENSTOCK_BOARD_DIR": str(boards),
            "PENSTOCK_RUN_DETECT": "none",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        command = [str(Path(sys.executable).parent / "penstock"), *words]
        return subprocess.run(
            command, capture_output=True, text=text, env=base | env, timeout=60, check=False
        )

    yield run
    shutil.rmtree(boards, ignore_errors=True)
