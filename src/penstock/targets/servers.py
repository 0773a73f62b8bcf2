# SPDX-License-Identifier: Apache-2.0
"""How busy servers are: their processors, memory and pressure, from /proc.

Runs on an OSS or MDS (`penstock targets --server`), or beside a testbed, whose emulated servers each have a
/proc of their own.  What it finds is what policy/guard.py decides by.

Invariants: the functions that compute take texts; only `read` and `watch` touch files and clocks.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.base.errors import PenstockError
from penstock.policy import guard

_PRESSURES = ("cpu", "io", "memory")


class Texts(NamedTuple):
    """What was read at one time."""

    at_s: float
    stat: str
    meminfo: str
    pressure: dict[str, str]


class Server(NamedTuple):
    """Shares are between 0 and 1; of pressure, the share of the last 10 s in which something waited (None:
    the kernel does not say)."""

    name: str
    at_s: float
    cpu: float
    memory: float
    cpu_pressure: float | None
    io_pressure: float | None
    memory_pressure: float | None


def _ticks(stat: str) -> tuple[int, int]:
    """(busy, all) of all processors together, since boot.  Waiting for I/O is not busy."""
    line = next((line for line in stat.splitlines() if line.startswith("cpu ")), "")
    fields = [int(word) for word in line.split()[1:9]]
    if len(fields) < 4:
        raise PenstockError("/proc/stat has no line of all processors")
    idle = fields[3] + (fields[4] if len(fields) > 4 else 0)
    return sum(fields) - idle, sum(fields)


def cpu_share(before: str, after: str) -> float:
    """The busy share of the time between two /proc/stat."""
    busy0, all0 = _ticks(before)
    busy1, all1 = _ticks(after)
    return min(max((busy1 - busy0) / (all1 - all0), 0.0), 1.0) if all1 > all0 else 0.0


def memory_share(meminfo: str) -> float:
    """What is used of memory; what the kernel could give back at once counts as free."""
    field = {
        line.partition(":")[0]: line.split()[1] for line in meminfo.splitlines() if len(line.split()) > 1
    }
    total = int(field.get("MemTotal", 0))
    free = int(field.get("MemAvailable", field.get("MemFree", 0)))
    return min(max(1 - free / total, 0.0), 1.0) if total else 0.0


def pressure_share(text: str) -> float | None:
    """`some avg10=1.53 avg60=...` as 0.0153."""
    for line in text.splitlines():
        if line.startswith("some "):
            for word in line.split():
                key, _, value = word.partition("=")
                if key == "avg10":
                    return float(value) / 100
    return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def read(proc: str = "/proc") -> Texts:
    """A server's texts now."""
    pressure = {name: _text(f"{proc}/pressure/{name}") for name in _PRESSURES}
    return Texts(time.time(), _text(f"{proc}/stat"), _text(f"{proc}/meminfo"), pressure)


def between(name: str, before: Texts, after: Texts) -> Server:
    """What two readings say of the time between them."""
    cpu, io, memory = (pressure_share(after.pressure[key]) for key in _PRESSURES)
    share = cpu_share(before.stat, after.stat)
    return Server(name, after.at_s, share, memory_share(after.meminfo), cpu, io, memory)


def here() -> dict[str, str]:
    """This machine alone."""
    return {os.uname().nodename: "/proc"}


def of_testbed(state: Path) -> dict[str, str]:
    """The /proc of each emulated server, by its name."""
    return {path.parent.name: str(path) for path in sorted(state.glob("servers/*/proc"))}


def watch(places: Mapping[str, str], every_s: float) -> Iterator[list[Server]]:
    """All servers each `every_s`; the first time after a second, so that there is something soon."""
    before = {name: read(proc) for name, proc in places.items()}
    due_s = time.monotonic() + min(every_s, 1.0)
    while True:
        time.sleep(max(due_s - time.monotonic(), 0))
        after = {name: read(proc) for name, proc in places.items()}
        yield [between(name, before[name], after[name]) for name in places]
        before = after
        due_s = max(due_s + every_s, time.monotonic())


def may_place(
    servers: Sequence[Server],
    now_s: float,
    state: guard.State,
    settings: guard.GuardSettings = guard.DEFAULTS,
) -> tuple[guard.Decision, guard.State]:
    """What the guard says of those among the servers that hold metadata."""
    busy = tuple(
        guard.Busy(s.name, s.cpu, s.memory, max(now_s - s.at_s, 0))
        for s in servers
        if s.name.startswith("mds")
    )
    return guard.decide(guard.Observation(busy), settings, state)
