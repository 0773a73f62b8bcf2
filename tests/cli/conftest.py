# SPDX-License-Identifier: Apache-2.0
"""The penstock command, as a user types it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Penstock = Callable[..., "subprocess.CompletedProcess[Any]"]


@pytest.fixture
def run_penstock(tmp_path: Path) -> Penstock:
    """Run `penstock WORDS` with a home and a state folder of its own."""

    def run(*words: str, text: bool = True, **env: str) -> "subprocess.CompletedProcess[Any]":
        base = {
            "HOME": str(tmp_path),
            "PATH": "/usr/bin:/bin",
            "PENSTOCK_STATE_DIR": str(tmp_path),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        command = [str(Path(sys.executable).parent / "penstock"), *words]
        return subprocess.run(
            command, capture_output=True, text=text, env=base | env, timeout=60, check=False
        )

    return run
