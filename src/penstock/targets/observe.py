# SPDX-License-Identifier: Apache-2.0
"""Watching targets: capacity, load, latency and health of each, every second, and what of it is old.

Invariants:
1. Rates are differences of two readings; a counter that went back (a server started anew) gives none.
2. What could not be read stays as it was last seen, with its age; it is called stale after `stale_after_s`.
   A target that is gone stays too, stale.
3. A window of readings is remembered, no more.
4. Only `collect` asks the driver; `view` never waits, whatever hangs.  They may be called from two threads.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.base.errors import PenstockError
from penstock.targets.driver import UNKNOWN, Driver, Load, Target

WINDOW_S = 60.0
STALE_AFTER_S = 5.0


class View(NamedTuple):
    """One target as it is known now.  None: not known."""

    target: Target
    state: str
    read_bytes_per_s: float | None
    written_bytes_per_s: float | None
    ops_per_s: float | None
    latency_ns: float | None
    waiting: int | None
    age_s: float
    stale: bool


class Reading(NamedTuple):
    at_s: float
    load: Mapping[int, Load]


class Known(NamedTuple):
    """The last reading of what does not need two; `gone_s` is when a target that is gone was last there."""

    at_s: float
    targets: Mapping[int, Target]
    states: Mapping[int, str]
    gone_s: Mapping[int, float]


_NOTHING = Known(0.0, {}, {}, {})


def _with_gone(before: Known, now: Known) -> Known:
    """The new reading with the targets that it lacks."""
    gone = before.targets.keys() - now.targets.keys()
    if not gone:
        return now
    gone_s = {number: before.gone_s.get(number, before.at_s) for number in gone}
    targets = {**before.targets, **now.targets}
    return Known(now.at_s, targets, now.states, gone_s)


@dataclass
class Observer:
    """What is known of one file system's targets."""

    driver: Driver
    window_s: float = WINDOW_S
    stale_after_s: float = STALE_AFTER_S
    trouble: str = ""
    """Why the last reading failed, or nothing."""
    _known: Known = _NOTHING
    _readings: deque[Reading] = field(default_factory=deque)

    def collect(self, now_s: float) -> None:
        """One reading of everything.  A file system that does not answer is noted, not raised."""
        try:
            targets = self.driver.targets()
            states = self.driver.health()
            load = self.driver.load()
        except (PenstockError, OSError) as error:
            self.trouble = str(error)
            return
        self.trouble = ""
        self._known = _with_gone(
            self._known, Known(now_s, {target.id: target for target in targets}, states, {})
        )
        self._readings.append(Reading(now_s, load))
        while self._readings[0].at_s < now_s - self.window_s:
            self._readings.popleft()

    def view(self, now_s: float, over_s: float = 0.0) -> list[View]:
        """Every target; rates over the last `over_s`, at least over the last two readings."""
        readings, known = list(self._readings), self._known
        new = readings[-1] if readings else None
        old = _reading_before(readings, over_s)
        return [self._view(target, known, old, new, now_s) for target in known.targets.values()]

    def _view(
        self, target: Target, known: Known, old: Reading | None, new: Reading | None, now_s: float
    ) -> View:
        age_s = max(now_s - known.gone_s.get(target.id, known.at_s), 0.0)
        stale = age_s > self.stale_after_s
        state = UNKNOWN if stale else known.states.get(target.id, UNKNOWN)
        if stale or new is None:
            return View(target, state, None, None, None, None, None, age_s, stale)
        last = new.load.get(target.id, Load())
        waiting = last.waiting if last.waiting >= 0 else None
        if old is None or target.id not in old.load or last.reads < 0:
            return View(target, state, None, None, None, None, waiting, age_s, stale)
        read, written, ops, latency_ns = rates(old.load[target.id], last, new.at_s - old.at_s)
        return View(target, state, read, written, ops, latency_ns, waiting, age_s, stale)

    def history(self, target: int) -> list[tuple[float, Load]]:
        """The readings of a target that are remembered, oldest first."""
        return [(r.at_s, r.load[target]) for r in list(self._readings) if target in r.load]


def _reading_before(readings: list[Reading], over_s: float) -> Reading | None:
    """The reading to take differences from."""
    if len(readings) < 2:
        return None
    limit = readings[-1].at_s - over_s
    return next((r for r in reversed(readings[:-1]) if r.at_s <= limit), readings[0])


def rates(
    old: Load, new: Load, over_s: float
) -> tuple[float | None, float | None, float | None, float | None]:
    """Bytes read and written and operations a second, and the mean latency in ns."""
    counts = [b - a for a, b in zip(old[:5], new[:5], strict=True)]
    if over_s <= 0 or min(*old[:4], *counts) < 0:
        return None, None, None, None
    reads, writes, read_bytes, written_bytes, busy_ns = counts
    ops = reads + writes
    latency_ns = busy_ns / ops if ops and old.busy_ns >= 0 else None
    return read_bytes / over_s, written_bytes / over_s, ops / over_s, latency_ns


class Watch:
    """Collects in a thread of its own until stopped, at absolute times."""

    def __init__(self, observer: Observer, every_s: float = 1.0) -> None:
        self.observer = observer
        self.every_s = every_s
        self._stop = threading.Event()
        self.first = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observe", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.wait(max(due_s - time.monotonic(), 0)):
            self.observer.collect(time.monotonic())
            self.first.set()
            due_s = max(due_s + self.every_s, time.monotonic())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=self.every_s)
