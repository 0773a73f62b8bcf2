# SPDX-License-Identifier: Apache-2.0
"""The cost of building a catalog at run time, on few files: measured in turn, drawn and labelled."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.testbed import emulated


def test_the_shape_and_the_label(experiment: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    if why := emulated.missing():
        pytest.skip(f"no testbed: {why}")
    sizes = ("sizes_kib=[32, 1024]", "files=[60, 10]", "rounds=3")
    found = experiment("swiftload_fig11", *sizes, label="Emulated")
    assert (tmp_path / "swiftload-fig11.png").stat().st_size > 20_000
    assert found["emulated"] is True
    assert [(row["kib"], row["files"], len(row["ratios"])) for row in found["sizes"]] == [
        (32, 60, 3),
        (1024, 10, 3),
    ]
    for row in found["sizes"]:  # how large they are a loaded machine decides
        assert min(row["without_s"], row["with_s"]) > 0
        assert min(row["ratios"]) <= row["ratio"] <= max(row["ratios"])
