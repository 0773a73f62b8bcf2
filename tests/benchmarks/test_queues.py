# SPDX-License-Identifier: Apache-2.0
"""The theory that modelled rates are held against: where books have a formula it gives the same."""

import pytest

from benchmarks._queues import closed_rate, slowdown


def machine_repair(clients: int, servers: int, service_s: float, think_s: float) -> float:
    """The formula for one kind of call."""
    weight = total = 1.0
    busy = 0.0
    for n in range(1, clients + 1):
        weight *= (clients - n + 1) * (service_s / think_s) / min(n, servers)
        total += weight
        busy += weight * min(n, servers)
    return busy / total / service_s


@pytest.mark.parametrize("clients", [1, 2, 5, 16, 64])
@pytest.mark.parametrize("servers", [1, 4])
def test_kinds_that_cost_the_same_are_one_kind(clients: int, servers: int) -> None:
    kinds = {"a": (0.5, 1e-3), "b": (0.3, 1e-3), "c": (0.2, 1e-3)}
    assert closed_rate(clients, servers, 2e-3, kinds) == pytest.approx(
        machine_repair(clients, servers, 1e-3, 2e-3)
    )


def test_limits() -> None:
    kinds = {"short": (0.5, 1e-3), "long": (0.5, 9e-3)}
    assert closed_rate(1, 4, 5e-3, kinds) == pytest.approx(1 / (5e-3 + 5e-3))
    assert closed_rate(200, 4, 5e-3, kinds) == pytest.approx(4 / 5e-3)
    same = closed_rate(4, 1, 5e-3, {"all": (1.0, 5e-3)})
    assert closed_rate(4, 1, 5e-3, kinds) < same  # what varies more waits longer


def test_no_queue_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="closed queue"):
        closed_rate(0, 1, 1.0, {"a": (1.0, 1.0)})


def test_slowdown_between_and_past_points() -> None:
    points = ((1, 1), (64, 32), (128, 128))
    assert [slowdown(points, n) for n in (1, 64, 96, 128, 192)] == [1, 32, 80, 128, 224]
