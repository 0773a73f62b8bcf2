# SPDX-License-Identifier: Apache-2.0
"""What clients see of the service model, through mounts: rates with queueing, slowdown, one writer over stripes.

Modelled times are stretched, so that what this machine needs itself for a call does not show; figures are given in
modelled time.  All calls are real: floors/fuse/clients.c.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks._queues import closed_rate, slowdown
from benchmarks.frame import Row, at_least, at_most, compiled, interleave, number, over, scratch, seen
from penstock.targets.driver import driver_for
from penstock.targets.layouts import wish
from penstock.testbed import emulated

MIB = 1 << 20
# Queues at a metadata server.
SCALE, THREADS, THINK_US = 8, 4, 1000
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
CALLS_AIM, LEAST_S = 700, 1.5
KINDS_US = {
    "getattr": ("n" * 8, 300),
    "setattr": ("m" * 5, 600),
    "flock": ("l" * 4, 150),
    "sync": ("s" * 3, 1000),
}
"""Their cards in the deck that clients.c draws calls from, and the modelled cost of one."""
DECK = "".join(cards for cards, _ in KINDS_US.values())
# Reads at one OST.
READ_SCALE, MOUNTS = 3, 16
READERS = (1, 2, 4, 8, 16, 32, 64, 96, 128)
SLOWDOWN = ((1, 1), (64, 32), (128, 128))
# One writer.
WRITE_MIB = 192


class Beds:
    """Testbeds in memory, gone at the end."""

    def __init__(self) -> None:
        self.top = scratch(memory=True)
        self.folders: list[str] = []

    def up(self, name: str, shape: emulated.Shape, settings: dict[str, str], mounts: int = 1) -> list[Path]:
        """Its mounts."""
        first = self.top / name
        emulated.up(first, shape, settings=settings)
        self.folders.append(f"{first}.testbed")
        more = [self.top / f"{name}.{i}" for i in range(1, mounts)]
        for path in more:
            emulated.mount_more(self.folders[-1], path)
        return [first, *more]

    def down(self) -> None:
        for folder in self.folders:
            if emulated.is_running(folder):
                emulated.down(folder, purge=True)


def theory(clients: int) -> float:
    """Modelled calls a second."""
    kinds = {name: (len(cards) / len(DECK), cost_us / 1e6) for name, (cards, cost_us) in KINDS_US.items()}
    return closed_rate(clients, THREADS, THINK_US / 1e6, kinds)


def queue_cells(beds: Beds, program: Path) -> dict[int, Callable[[], float]]:
    """Modelled calls a second of so many clients, each on a mount of its own."""
    settings = {
        "mds.threads": str(THREADS),
        "mds.service": "exponential",
        "mds.queue.knee": "1000",
        "net.latency": "0s",
        "time.scale": str(SCALE),
    }
    settings |= {f"mds.cost.{name}": f"{cost_us}us" for name, (_, cost_us) in KINDS_US.items()}
    mounts = beds.up("queues", emulated.Shape(1, 2, 2), settings, max(CLIENTS))
    turn = [0]

    def rate(clients: int) -> float:
        turn[0] += 1
        seconds = max(CALLS_AIM / theory(clients) * SCALE, LEAST_S)
        words = [program, "mix", seconds, THINK_US * SCALE, turn[0], DECK, *mounts[:clients]]
        return number(words) * SCALE

    return {clients: (lambda n=clients: rate(n)) for clients in CLIENTS}


def read_cells(beds: Beds, program: Path) -> dict[int, Callable[[], float]]:
    """Modelled microseconds of a read of 1 MiB when so many processes read from one OST."""
    settings = {
        "oss.bandwidth": "1000GB/s",
        "oss.cost": "0s",
        "net.latency": "0s",
        "client.cache": "0",
        "time.scale": str(READ_SCALE),
    }
    mounts = beds.up("reads", emulated.Shape(1, 1, 1), settings | {"model": "count"}, MOUNTS)
    files = [mounts[i % MOUNTS] / f"file.{i}" for i in range(max(READERS))]
    for i in range(max(READERS)):
        (mounts[0] / f"file.{i}").write_bytes(b"r" * MIB)
    emulated.ask(beds.folders[-1], "flush")
    emulated.ask(beds.folders[-1], "set model=on")

    def mean_us(readers: int) -> float:
        turns = max(24 // readers, 1)
        return number([program, "read", 1, turns, MIB, *files[:readers]]) / READ_SCALE

    return {readers: (lambda n=readers: mean_us(n)) for readers in READERS}


def in_flight(folder: str) -> int:
    """The most reads that were at an OST at the same time, as its brw_stats say: the last row that is used."""
    text = emulated.ask(folder, "param osd-ldiskfs.*.brw_stats")
    table = text.partition("disk I/Os in flight")[2].partition("\n\n")[0]
    used = [int(row[1]) for row in re.finditer(r"^(\d+):\s+(\d+)", table, re.MULTILINE) if int(row[2])]
    return max(used, default=0)


def write_cells(beds: Beds, program: Path) -> dict[str, Callable[[], float]]:
    """Bytes a second of one writer of 1 MiB requests, fsync at the end included; OSTs of 100 MB/s."""
    (mount,) = beds.up("writer", emulated.Shape(1, 2, 4), {"ost.bandwidth": "100MB/s"})
    turn = [0]

    def rate(stripes: int) -> float:
        turn[0] += 1
        path = mount / f"big.{turn[0]}"
        driver_for(mount).create(str(path), wish(targets=tuple(range(stripes)), stripe_size_bytes=MIB))
        try:
            return number([program, "write", path, WRITE_MIB, MIB])
        finally:
            path.unlink()

    return {"1 stripe": lambda: rate(1), "4 stripes": lambda: rate(4)}


def rows(rounds: int, floor_rate: Callable[[Path], float]) -> list[Row]:
    """`floor_rate` is how many names a second the least file system looks up, asked by that program."""
    beds, program = Beds(), compiled("fuse/clients.c")
    try:
        queues = queue_cells(beds, program)
        reads = read_cells(beds, program)
        read_folder = beds.folders[-1]
        writes = write_cells(beds, program)
        rates = interleave({**queues, "floor": lambda: floor_rate(program)}, rounds, "testbed, queues")
        waits = interleave(reads, rounds, "testbed, slowdown")
        flight = in_flight(read_folder)
        bytes_per_s = interleave(writes, rounds, "testbed, writer")
    finally:
        beds.down()
    table = [
        within(f"rate of {n} clients, from queueing theory", rates[n], theory(n), "calls/s") for n in CLIENTS
    ]
    busiest = [rate / SCALE for rate in rates[max(CLIENTS)]]
    share = over(busiest, rates["floor"])
    table.append(at_most("the busiest of these, of the floor's rate", share, "", 1 / 3, "a third"))
    for n in READERS[1:]:
        table.append(
            within(
                f"slowdown of {n} readers, from g({n})", over(waits[n], waits[1]), slowdown(SLOWDOWN, n), "×"
            )
        )
    table.append(at_least("reads at the OST at once", [flight], "", max(READERS)))
    gain = over(bytes_per_s["4 stripes"], bytes_per_s["1 stripe"])
    against = f"1 stripe {sorted(bytes_per_s['1 stripe'])[rounds // 2] / 1e6:.0f} MB/s"
    table.append(at_least("one writer, 4 stripes / 1", gain, "×", 3.5, against=against, emulated=True))
    return table


def within(what: str, samples: list[float], wanted: float, unit: str) -> Row:
    """Per cent off, either way."""
    row = seen(what, [(value / wanted - 1) * 100 for value in samples], "%", target="± 5", emulated=True)
    against = f"theory {wanted:.4g}, seen {wanted * (1 + row.measured / 100):.4g} {unit}"
    return replace(row, holds=abs(row.measured) <= 5, against=against)
