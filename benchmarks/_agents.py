# SPDX-License-Identifier: Apache-2.0
"""Emulated agents, many in one process: each a TLS connection that says who it is, then reports at the pace it is told.

python -m benchmarks._agents HOST PORT FOLDER FIRST COUNT JOBS ROWS EVERY_S TOKEN
For each line on standard input it prints how many grants the first of them has had.
"""

import asyncio
import random
import ssl
import sys
from typing import Any

import numpy as np

from penstock.control import wire


class Agent(asyncio.Protocol):
    """One node with so many rows, of jobs drawn from so many; some ask for much, and wait."""

    def __init__(self, number: int, jobs: int, rows: int, token: str) -> None:
        chance = np.random.default_rng(number)
        self.number, self.token, self.grants = number, token, 0
        self.ids = chance.choice(jobs, rows, replace=False)
        asked, waiting = chance.exponential(50, rows), (chance.random(rows) < 0.3) * 3.0
        columns = {"asked": asked, "waiting": waiting, "waited_s": asked}
        packed = {key: column.astype("<f8").tobytes() for key, column in columns.items()}
        self.report = wire.frame(wire.FromAgent(report=wire.Report(epoch=1, **packed)))
        self.frames = wire.Frames(wire.ToAgent)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        name = f"n{self.number}.fleet"
        hello = wire.Hello(version=wire.VERSION, node=name, token=self.token, software="emulated")
        transport.write(wire.frame(wire.FromAgent(hello=hello)))

    def data_received(self, data: bytes) -> None:
        for said in self.frames.feed(data):
            what = said.WhichOneof("what")
            if what == "policy":
                self.tell_rows(said.policy.number)
            self.grants += what == "grants"

    def tell_rows(self, policy: int) -> None:
        rows = len(self.ids)
        said = wire.Rows(
            epoch=1,
            policy=policy,
            jobs=[wire.Job(id=str(i), user=f"u{i % 50}") for i in self.ids],
            job=np.arange(rows, dtype="<u4").tobytes(),
            limit=np.zeros(rows, dtype="<u4").tobytes(),
        )
        self.transport.write(wire.frame(wire.FromAgent(rows=said)))

    async def go_on(self, every_s: float) -> None:
        await asyncio.sleep(random.random() * every_s)
        while not self.transport.is_closing():
            self.transport.write(self.report)
            await asyncio.sleep(every_s)


async def main(words: list[str]) -> None:
    host, port, folder, first, count, jobs, rows, every_s, token = words
    context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
    context.load_cert_chain(f"{folder}/fleet.pem", f"{folder}/fleet.key")
    loop = asyncio.get_running_loop()
    agents = [Agent(int(first) + i, int(jobs), int(rows), token) for i in range(int(count))]
    for made in agents:
        await loop.create_connection(
            lambda made=made: made, host, int(port), ssl=context, server_hostname=host
        )
    print("ready", flush=True)
    tasks = [asyncio.ensure_future(made.go_on(float(every_s))) for made in agents]
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(agents[0].grants, flush=True)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
