# SPDX-License-Identifier: Apache-2.0
"""The fuzzers run for a minute beside the other tests, at low priority; their own tests come last."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[2]
SECONDS = 60
_running: dict[str, Any] = {}


def is_ours(item: pytest.Item) -> bool:
    return item.get_closest_marker("fuzz") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=is_ours)


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly or not any(map(is_ours, session.items)):
        return
    out = TOP / "build" / "fuzz.json"
    out.parent.mkdir(exist_ok=True)
    out.unlink(missing_ok=True)
    words = [sys.executable, TOP / "tools" / "fuzz.py", "--seconds", str(SECONDS), "--json", out]
    _running["process"] = subprocess.Popen(
        list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    _running["out"] = out


def pytest_sessionfinish() -> None:
    process = _running.get("process")
    if process and process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.communicate()


@pytest.fixture(scope="session")
def fuzzed() -> Callable[[str], dict[str, Any]]:
    """What came of a fuzzer; waits for all of them."""
    said, _ = _running["process"].communicate()
    assert _running["out"].exists(), said
    rows = {row["name"]: row for row in json.loads(_running["out"].read_text())}
    return lambda name: rows[name]
