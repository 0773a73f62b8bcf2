# SPDX-License-Identifier: Apache-2.0
"""The shape of the simulated runs at scale, on fewer draws."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_the_shape_and_the_label(experiment: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    found = experiment("dca_scale", "draws=8", "nodes=[1, 4, 16, 64]", label="Simulated")
    assert (tmp_path / "dca-scale.png").stat().st_size > 20_000
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
