# SPDX-License-Identifier: Apache-2.0
"""The shapes of DCA-IO's figures on the emulated file system, on shortened runs."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from experiments import writers

Experiment = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("kind", ["shared", "vpic", "gcrm", "vorpal"])
@pytest.mark.parametrize("processes", [1, 3, 8])
@pytest.mark.parametrize("size", [65536, 1_000_003, 4 << 20])
def test_writers_of_a_shared_file_cover_it_once(kind: str, processes: int, size: int) -> None:
    pieces = sorted(p for rank in range(processes) for p in writers.requests(kind, rank, processes, size))
    at = 0
    for offset, length in pieces:
        assert offset == at and 0 < length <= writers.BLOCK
        at += length
    assert at == processes * size


def test_a_random_writer_writes_what_a_sequential_one_does() -> None:
    own, mixed = (writers.requests(kind, 2, 4, 3_000_000) for kind in ("own", "random"))
    assert own != mixed and Counter(own) == Counter(mixed)


@pytest.mark.root
def test_stripes_gain_and_common_targets_lose(experiment: Experiment) -> None:
    found = experiment("dca_overlap", "rounds=1", "processes=[1, 8]", "stripes=[1, 4]")
    for kind in ("own", "shared"):
        assert found["stripes"][kind]["1"]["4"] > 2 * found["stripes"][kind]["1"]["1"], kind
    assert found["stripes"]["shared"]["8"]["4"] > 2 * found["stripes"]["shared"]["8"]["1"]
    # Many with a file each use all targets anyway.
    assert found["stripes"]["own"]["8"]["4"] < 1.4 * found["stripes"]["own"]["8"]["1"]
    # The published finding: two on the same targets get less than half each.
    assert found["overlap"]["2"] < 0.6 * found["overlap"]["0"]
    assert found["overlap"]["1"] < 0.75 * found["overlap"]["0"]


@pytest.mark.root
def test_a_recurring_kernel_finds_more_targets(experiment: Experiment) -> None:
    """One process alone uses one target by default, and by the rule; experience shows that four are better."""
    words = ('kernels=["sequential"]', "processes=[1]", "runs={default=2, tapp=3, gauss=8}")
    found = experiment("dca_single", *words)["kernels"]["sequential"]["1"]["over_default"]
    assert found["default"] == pytest.approx(1, abs=0.3)
    assert found["tapp"] < 1.5
    assert found["gauss"] > 1.6


@pytest.mark.root
def test_free_targets_are_found_beside_another_writer(experiment: Experiment) -> None:
    """Two stripes on targets that nobody writes to: twice what one target alone gives, and no less than by luck."""
    words = ('kernels=["vpic"]', "beside=[2]", "rounds=2")
    found = experiment("dca_together", *words)["kernels"]["vpic"]["2"]
    assert found["placed"] > 1.4 * found["default"]
    assert found["placed"] > 0.9 * found["striped"]
