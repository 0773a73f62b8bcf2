# SPDX-License-Identifier: Apache-2.0
"""What an agent tells its controller of storage targets: read from time to time, in a thread of its own.

A file system that does not answer keeps its thread waiting and nobody else; what was told of it grows old.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from penstock.base.errors import PenstockError
from penstock.control import placing
from penstock.policy import guard
from penstock.policy.placing import central
from penstock.targets import driver as drivers
from penstock.targets import mounts, servers
from penstock.targets.mounts import Mount

log = logging.getLogger("penstock.agent")

FIRST_S = 1.0  # the second look: rates need two


class Looker:
    """One file system, looked at again and again."""

    def __init__(self, mount: Mount, rate_bytes_per_s: float) -> None:
        self.name = placing.identity(mount)
        self.driver = drivers.driver_for(mount.point)
        self.rate = rate_bytes_per_s
        self.before: placing.Reading | None = None
        self.servers: dict[str, servers.Texts] = {}

    def look(self) -> central.Figures:
        """Its targets now; rates from the second time on."""
        now_s = time.monotonic()
        reading = placing.read_now(self.driver, now_s)
        moved: dict[int, float] = {}
        if self.before is not None and now_s > self.before.at_s:
            over_s = now_s - self.before.at_s
            moved = {
                t: max(b - self.before.bytes[t], 0) / over_s
                for t, b in reading.bytes.items()
                if t in self.before.bytes
            }
        self.before = reading
        where = self.driver.servers()
        texts = {name: servers.read(proc) for name, proc in where.items()}
        seen = [servers.between(n, self.servers[n], t) for n, t in texts.items() if n in self.servers]
        self.servers = texts
        mds = tuple(guard.Busy(s.name, s.cpu, s.memory, 0.0) for s in seen if s.name.startswith("mds"))
        found = placing.targets_of(self.driver, placing.pools_of(self.driver), {}, self.rate)
        return central.Figures(now_s, tuple(found), moved, self.driver.sees_all(), mds)


def chosen(named: Sequence[str], types: Sequence[str]) -> list[Mount]:
    """The file systems that were named, and those of these types; each once, and only what has targets."""
    found = [*(mounts.mount_of(path) for path in named), *mounts.of_types(types)]
    return list({placing.identity(m): m for m in found if placing.may_have_targets(m)}.values())


def start(
    named: Sequence[str],
    types: Sequence[str],
    every_s: float,
    rate_bytes_per_s: float,
    tell: Callable[[str, central.Figures], None],
) -> None:
    """Look at each until the process ends; `tell` is called in these threads."""

    def keep_looking(mount: Mount) -> None:
        looker: Looker | None = None
        pause_s = FIRST_S
        while True:
            try:
                looker = looker or Looker(mount, rate_bytes_per_s)
                tell(looker.name, looker.look())
            except (PenstockError, OSError) as error:
                log.warning("the targets of %s cannot be read: %s", mount.point, error)
                looker = None
            time.sleep(min(pause_s, every_s))
            pause_s = min(every_s, central.STALE_S / 2)

    for mount in chosen(named, types):
        threading.Thread(target=keep_looking, args=(mount,), daemon=True, name="scout").start()
