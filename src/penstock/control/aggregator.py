# SPDX-License-Identifier: Apache-2.0
"""A controller that speaks for its agents to another one: the same loop, with an upstream.

Upwards it is one agent whose rows are sums over its own agents, one a (job, limit).  What it is granted for a pair it
splits among its nodes by what they ask for.  Limits of each node are decided here.

Invariants:
1. It never grants for longer than it has a grant itself: when the upstream is lost, leases below end, and the limits'
   `on_lost` holds there.
2. Policy and releases are the upstream's; it keeps no other.
3. What is granted for a job is that job's: a number that another has now says nothing.
"""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.control import tls, wire
from penstock.control.fleet import Fleet
from penstock.control.tools import job_message
from penstock.control.uplink import Uplink
from penstock.policy.rules import Job

if TYPE_CHECKING:
    from penstock.control.controller import Controller

log = logging.getLogger("penstock.controller")


class Upstream:
    """An aggregator's side that looks up."""

    def __init__(self, controller: "Controller", address: tuple[str, int], node: str, token: str) -> None:
        self.controller = controller
        certificates = tls.Certificates(controller.config.files, server=False)
        self.uplink = Uplink(address, certificates, node, self.hear, token, aggregator=True)
        self.epoch = 0
        self.told: tuple[Any, ...] = ()
        self.keys: list[tuple[str, Job]] = []  # name of the limit, job: in the order of the rows
        self.rates = np.zeros(0)
        self.until_s = 0.0

    def hear(self, said: Any) -> None:
        what = said.WhichOneof("what")
        if what == "policy":
            self.controller.hold_foreign(said.policy.text, said.policy.number)
            self.told = ()
        elif what == "release":
            self.controller.released(said.release.all, set(said.release.jobs))
        elif what == "welcome":
            self.told = ()
        elif (
            what == "grants"
            and said.grants.epoch == self.epoch
            and len(said.grants.rate) == 8 * len(self.keys)
        ):
            rates = np.frombuffer(said.grants.rate)
            if not (np.isfinite(rates).all() and (rates >= 0).all() and 0 < said.grants.lease_s <= 3600):
                raise wire.WireError("the upstream granted what is no rate")
            self.rates = rates
            self.until_s = time.monotonic() + said.grants.lease_s

    def lease_s(self) -> float:
        """How long our own grant still holds."""
        return self.until_s - time.monotonic()

    def report(self, fleet: Fleet) -> None:
        """What our agents ask for in sum, upwards."""
        if not self.uplink.connected:
            return
        pairs, columns = fleet.above()
        if (fleet.number, fleet.named, pairs) != self.told:
            self._tell(fleet, pairs)
        said = wire.Report(
            epoch=self.epoch,
            asked=columns[0].astype("<f8").tobytes(),
            waiting=columns[1].astype("<f8").tobytes(),
            waited_s=columns[2].astype("<f8").tobytes(),
            latency_s=fleet.latency_s(),
        )
        self.uplink.send(wire.FromAgent(report=said))

    def _tell(self, fleet: Fleet, pairs: list[tuple[int, int]]) -> None:
        known = fleet.known()
        jobs = list(dict.fromkeys(job for _, job in pairs))
        index = {job: i for i, job in enumerate(jobs)}
        self.epoch += 1
        said = wire.Rows(
            epoch=self.epoch,
            policy=fleet.number,
            jobs=[job_message(known[job]) for job in jobs],
            job=np.array([index[job] for _, job in pairs], dtype="<u4").tobytes(),
            limit=np.array([limit for limit, _ in pairs], dtype="<u4").tobytes(),
        )
        if self.uplink.send(wire.FromAgent(rows=said)):
            before = dict(zip(self.keys, self.rates.tolist(), strict=True))
            self.keys = [fleet.key_of(pair) for pair in pairs]
            self.rates = np.array([before.get(key, 0.0) for key in self.keys])
            self.told = (fleet.number, fleet.named, pairs)

    def totals(self, fleet: Fleet) -> dict[tuple[int, int], float]:
        """What each (limit, job), by their numbers now, has in all that is here."""
        found = zip(fleet.pairs_of(self.keys), self.rates.tolist(), strict=True)
        return {pair: rate for pair, rate in found if pair is not None}

    async def keep(self, stop: asyncio.Event) -> None:
        await self.uplink.keep(stop)
