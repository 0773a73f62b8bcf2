# SPDX-License-Identifier: Apache-2.0
"""Every fuzzer of this folder ran for its minute and nothing broke."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import fuzz


@pytest.mark.fuzz
@pytest.mark.parametrize("name", fuzz.names())
def test_fuzzer_finds_nothing(name: str, fuzzed: Callable[[str], dict[str, Any]]) -> None:
    row = fuzzed(name)
    assert row["status"] == 0, row["log"]
    assert row["runs"] > 0
    assert row["coverage"] > 0


@pytest.mark.fuzz
def test_fuzzer_finds_a_read_past_the_end(fuzzed: Callable[[str], dict[str, Any]]) -> None:
    fuzzed("layout")  # the build is done
    name = "one_byte_too_far"
    process = fuzz.start(fuzz.built() / f"fuzz_{name}", name, ["-runs=1000000", "-seed=1"])
    row = fuzz.result(name, process.wait(timeout=120))
    assert row["status"] != 0
    assert "heap-buffer-overflow" in str(row["log"])
