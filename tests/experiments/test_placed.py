# SPDX-License-Identifier: Apache-2.0
"""The shapes of the published figures on placement, on shortened runs: balance by layouts, rates against each other."""

from collections.abc import Callable
from typing import Any

import pytest

from experiments import placed

pytestmark = pytest.mark.root
Experiment = Callable[..., dict[str, Any]]


def test_ours_is_as_even_as_whole_stripes_can_be(experiment: Experiment) -> None:
    """The published algorithm, whose costs stand still while it plans, is not."""
    slacks = {"ior-16x4": 1.005, "hacc-8x8": 1.04, "ior-16x4x8+hacc-16x8": 1.05}  # HACC's are not of one size
    jobs = ", ".join(f'"{name}"' for name in slacks)
    cases = experiment("iez_balance", f"jobs=[{jobs}]", "bytes_a_stripe=131072")["cases"]
    for name, slack in slacks.items():
        case = cases[name]
        ours, iez = (case["methods"][m]["target_cost"] for m in ("ours", "iez"))
        assert ours <= slack * case["floor"], name
        assert iez >= 1.3 * ours, name
        assert case["methods"]["ours"]["server_cost"] <= 1.13, name


def test_even_files_are_written_faster_than_piled_up_ones(experiment: Experiment) -> None:
    found = experiment("iez_performance", "rounds=1", 'jobs=["ior-8x4"]')["cases"]["ior-8x4"]
    assert found["ours"]["cost"] < found["iez"]["cost"]
    assert found["ours"]["write"] > 1.15 * found["iez"]["write"]


def test_jobs_and_floors_are_what_they_say() -> None:
    job = placed.job_of("hacc-16x8", 1000)
    assert placed.job_of("ior-2x4x8", 1000).bytes == 32_000
    assert (job.processes, job.stripes, job.bytes, job.shared) == (16, 8, 8000, False)
    assert placed.floor(512, 15) == pytest.approx(1.0254, abs=1e-4)
    assert placed.cost([2.0, 1.0, 0.0]) == 2.0
