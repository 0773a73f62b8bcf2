# SPDX-License-Identifier: Apache-2.0
"""The cost of building a catalog at run time, on few files: measured in turn, drawn and labelled."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testbed import emulated

TOP = Path(__file__).parents[2]


def test_the_shape_and_the_label(tmp_path: Path) -> None:
    if why := emulated.missing():
        pytest.skip(f"no testbed: {why}")
    words = [
        "--set",
        "sizes_kib=[32, 1024]",
        "--set",
        "files=[60, 10]",
        "--set",
        "rounds=3",
        "-o",
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "experiments.swiftload_fig11", *words],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "swiftload-fig11.png").stat().st_size > 20_000
    assert "Emulated" in (tmp_path / "swiftload-fig11.svg").read_text()
    found = json.loads((tmp_path / "numbers.json").read_text())
    assert found["emulated"] is True
    assert [(row["kib"], row["files"], len(row["ratios"])) for row in found["sizes"]] == [
        (32, 60, 3),
        (1024, 10, 3),
    ]
    for row in found["sizes"]:  # how large they are a loaded machine decides
        assert min(row["without_s"], row["with_s"]) > 0
        assert min(row["ratios"]) <= row["ratio"] <= max(row["ratios"])
