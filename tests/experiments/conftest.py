# SPDX-License-Identifier: Apache-2.0
"""Runs an experiment on the emulated file system as its command does."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parents[2]


@pytest.fixture
def experiment(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """experiment("iez_balance", "rounds=1", ...) gives its numbers, once its figure is drawn and says what it is of."""

    def run(name: str, *words: str, label: str = "Emulated file system") -> dict[str, Any]:
        options = [option for word in words for option in ("--set", word)]
        command = [sys.executable, "-m", f"experiments.{name}", "-o", str(tmp_path), *options]
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
        drawn = name.replace("_", "-")
        assert (tmp_path / f"{drawn}.png").stat().st_size > 10_000
        assert label in (tmp_path / f"{drawn}.svg").read_text()
        found: dict[str, Any] = json.loads((tmp_path / "numbers.json").read_text())
        return found

    return run
