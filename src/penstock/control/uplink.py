# SPDX-License-Identifier: Apache-2.0
"""An agent's connection to its controller: kept, and made again when it is lost.

Invariants:
1. After a loss everybody waits a random time, and longer after each failure, up to MOST_S: a restarted controller is
   found within two seconds and not by all in one moment (C08).
2. Nothing here waits for the controller: what cannot be sent is dropped, the next report holds it all.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable
from typing import Any

from penstock import __version__
from penstock.control import tls, wire

log = logging.getLogger("penstock.agent")

FIRST_S = 0.05
MOST_S = 1.4
REFUSED_S = 10.0  # who was refused asks less often
DEADLINE_S = 3.0
UNSENT_BYTES = 1 << 20


def pause_s(failures: int, chance: float) -> float:
    """How long to wait before trying again; `chance` in [0, 1)."""
    most: float = min(MOST_S, FIRST_S * 2 ** min(failures, 20))
    return most * (0.3 + 0.7 * chance)


class Uplink(asyncio.Protocol):
    """One agent's, or an aggregator's.  `hear` gets each ToAgent; `lost` is called when the connection went."""

    def __init__(
        self,
        address: tuple[str, int],
        certificates: tls.Certificates,
        node: str,
        hear: Callable[[Any], None],
        token: str = "",
        aggregator: bool = False,
    ) -> None:
        self.address = address
        self.certificates = certificates
        self.node = node
        self.hear = hear
        self.token = token
        self.aggregator = aggregator
        self.transport: Any = None
        self.connected = False  # and welcome
        self.trouble = ""
        self.refused = False
        self.frames = wire.Frames(wire.ToAgent)
        self.gone = asyncio.Event()

    def send(self, value: Any) -> bool:
        """Whether it went out (into the kernel's hands)."""
        if self.transport is None or self.transport.is_closing():
            return False
        if self.transport.get_write_buffer_size() > UNSENT_BYTES:
            return False
        self.transport.write(wire.frame(value))
        return True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        tls.watch(transport)
        self.frames = wire.Frames(wire.ToAgent)
        hello = wire.Hello(
            version=wire.VERSION,
            node=self.node,
            token=self.token,
            software=__version__,
            aggregator=self.aggregator,
        )
        self.send(wire.FromAgent(hello=hello))

    def data_received(self, data: bytes) -> None:
        try:
            for said in self.frames.feed(data):
                what = said.WhichOneof("what")
                if what == "refusal":
                    self.refused = True
                    self._note(f"the controller refuses this node: {said.refusal.why}")
                elif what == "welcome":
                    self.connected, self.refused = True, False
                    self._note("")
                    log.info("connected to the controller at %s:%d", *self.address)
                if what is not None:
                    self.hear(said)
        except wire.WireError as error:
            self._note(str(error))
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and not self.refused:
            self._note(tls.sentence(exc, self.node))
        self.connected = False
        self.transport = None
        self.gone.set()

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            log.warning("%s", trouble)
        self.trouble = trouble

    async def keep(self, stop: asyncio.Event) -> None:
        """Connect, and again whenever it is lost, until told to stop."""
        loop = asyncio.get_running_loop()
        failures = 0
        while not stop.is_set():
            self.gone.clear()
            self._note_refresh()
            try:
                await asyncio.wait_for(
                    loop.create_connection(
                        lambda: self,
                        *self.address,
                        ssl=self.certificates.context,
                        server_hostname=self.address[0],
                    ),
                    DEADLINE_S,
                )
                await _first(self.gone.wait(), stop.wait())
                failures = 0 if self.trouble == "" else failures + 1
            except (OSError, ssl.SSLError, TimeoutError) as error:
                self._note(tls.sentence(error, self.node))
                failures += 1
            if stop.is_set():
                break
            pause = REFUSED_S if self.refused and failures > 3 else pause_s(failures, random.random())
            try:
                await asyncio.wait_for(stop.wait(), pause)
            except TimeoutError:
                continue
        if self.transport is not None:
            self.transport.close()

    def _note_refresh(self) -> None:
        why = self.certificates.refresh()
        if why:
            self._note(why)


async def _first(*waits: Any) -> None:
    """Until the first of them is done."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
