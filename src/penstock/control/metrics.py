# SPDX-License-Identifier: Apache-2.0
"""What Prometheus is told, on loopback.  Labels are limits' names alone: no user, path, process or job."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from penstock.base.errors import PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.control.agent import Agent

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class _Collector:
    def __init__(self, gather: Callable[[], list[Any]]) -> None:
        self.gather = gather

    def collect(self) -> Iterator[Any]:
        yield from self.gather()


def serve(address: tuple[str, int], gather: Callable[[], list[Any]]) -> None:
    """Answer scrapes from a thread of its own."""
    host, port = address
    if host not in LOOPBACK:
        raise UsageError(
            f"numbers are told on loopback alone, not at {host}; set agent.metrics to 127.0.0.1:{port}"
        )
    registry = CollectorRegistry()
    registry.register(_Collector(gather))
    try:
        start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise PenstockError(f"{host}:{port} cannot be listened at ({error.strerror})") from error


def of_agent(agent: "Agent") -> list[Any]:
    """The agent's numbers; made from copies, since a scrape comes at any time."""
    sums: dict[str, list[float]] = {}
    for here in list(agent.jobs.values()):
        for row in list(here.rows):
            if row.number >= 0:
                cell = sums.setdefault(row.limit.name, [0.0] * 4)
                values = (row.asked, row.rate, row.waiting, row.waited_s)
                sums[row.limit.name] = [a + b for a, b in zip(cell, values, strict=True)]
    connected = agent.uplink is not None and agent.uplink.connected
    found: list[Any] = [
        GaugeMetricFamily("penstock_agent_jobs", "Jobs with a board on this node.", value=len(agent.jobs)),
        GaugeMetricFamily(
            "penstock_agent_connected", "1 while the controller is reached.", value=1.0 if connected else 0.0
        ),
        GaugeMetricFamily(
            "penstock_agent_released",
            "1 while every limit on this node is off.",
            value=float(agent.released_here),
        ),
        CounterMetricFamily(
            "penstock_agent_cycles", "Times that all boards were looked at.", value=agent.cycles
        ),
    ]
    names = (
        (GaugeMetricFamily, "penstock_limit_asked_per_second", "Units (calls or bytes) a second asked for."),
        (GaugeMetricFamily, "penstock_limit_granted_per_second", "Units a second granted."),
        (GaugeMetricFamily, "penstock_limit_waiting_callers", "Callers that wait."),
        (
            GaugeMetricFamily,
            "penstock_limit_waited_seconds",
            "Time waited by the calls of jobs that are here.",
        ),
    )
    for column, (kind, name, doc) in enumerate(names):
        family = kind(name, doc, labels=["limit"])
        for limit, cells in sums.items():
            family.add_metric([limit], cells[column])
        found.append(family)
    return found
