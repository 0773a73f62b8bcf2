# SPDX-License-Identifier: Apache-2.0
"""The shape of the simulated runs at scale, on fewer draws."""

import json
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]


def test_the_shape_and_the_label(tmp_path: Path) -> None:
    words = ["--set", "draws=8", "--set", "nodes=[1, 4, 16, 64]", "-o", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "experiments.dca_scale", *words],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "dca-scale.png").stat().st_size > 20_000
    assert "Simulated" in (tmp_path / "dca-scale.svg").read_text()
    found = json.loads((tmp_path / "numbers.json").read_text())
    assert found["simulated"] is True
    for setup, by_policy in found["over_tapp"].items():
        assert by_policy["tapp"] == [1.0] * 4
        gain = [ours / rule for ours, rule in zip(by_policy["gauss"], by_policy["tapp"], strict=True)]
        assert min(gain) > 0.85, setup
        if setup.startswith("collective"):  # few writers: more targets than writers gain, as published
            assert sum(gain) / len(gain) > 1.2, setup
            assert sum(by_policy["gauss"]) > sum(by_policy["dca"]), setup
    for setup, by_policy in found["over_default"].items():
        assert by_policy["gauss"][-1] > by_policy["gauss"][0], (
            setup
        )  # one target is not enough for many nodes
