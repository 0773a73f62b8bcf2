# SPDX-License-Identifier: Apache-2.0
"""Running a scan: the kernel's threads, how many of them, progress, problems, and segments put aside on the way."""

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from penstock import _native
from penstock.base.errors import DeniedError, PenstockError
from penstock.catalog import store
from penstock.policy import scanning
from penstock.targets.mounts import mount_of

PERIOD_MS = 100
TICK_NS = {True: 20_000_000, False: 2_000_000_000}
"""How near to its learning a change may be without showing in the times: on local disks, elsewhere."""
LOCAL = frozenset("ext2 ext3 ext4 xfs btrfs tmpfs zfs f2fs overlay ramfs".split())  # noqa: SIM905
LAYOUTS = {
    "lustre": "lustre.lov",
    "fuse.penstock": "lustre.lov",
    "ceph": "ceph.file.layout",
    "fuse.ceph-fuse": "ceph.file.layout",
}
EXCLUDES = (b"/.lustre", b".snapshot", b".snapshots")
"""What is no data of the tree's; left out unless asked for."""
LISTING, STAT, LAYOUT, MOVED = 1, 2, 3, 4
_DOING = {LISTING: "listing", STAT: "reading attributes", LAYOUT: "reading the layout"}


class Problem(NamedTuple):
    """Something that could not be read."""

    path: bytes
    what: int
    errno: int

    def say(self) -> str:
        from penstock.base.text import visible

        return f"{visible(self.path) or '.'}: {_DOING[self.what]}: {os.strerror(self.errno)}"


class Limits(NamedTuple):
    """`threads` 0: as many as help."""

    threads: int = 0
    rate_per_s: float = 0.0
    checkpoint_s: float = 10.0
    seconds: float = float("inf")
    """Then it stops, and what is left is `pending`."""


@dataclass
class Outcome:
    """What a scan brought, in figures."""

    entries: int = 0
    folders: int = 0
    calls: int = 0
    seconds: float = 0.0
    problems: list[Problem] = field(default_factory=list)
    moved: list[bytes] = field(default_factory=list)
    pending: list[bytes] = field(default_factory=list)
    parts: list[store.Part] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        self.entries += other.entries
        self.folders += other.folders
        self.calls += other.calls
        self.problems += other.problems
        self.moved += other.moved
        self.parts += other.parts


class Progress(NamedTuple):
    entries: int
    folders: int
    pending: int
    seconds: float
    threads: int


Say = Callable[[Progress], None]


def quiet(progress: Progress) -> None:
    """No progress is shown."""


def is_local(root: bytes) -> bool:
    return mount_of(os.fsdecode(root)).type in LOCAL


def is_lazy(root: bytes, options: store.Options) -> bool:
    """May the client answer from what it knows?  On a local disk it knows all."""
    return options.lazy or is_local(root)


def _held_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, min(1024, soft // 4))


class Scan:
    """A scan of the tree below `root` into segments of the catalog in `folder`."""

    def __init__(self, root: bytes, folder: Path, options: store.Options, limits: Limits) -> None:
        self.limits = limits
        self.folder = folder
        cores, local = len(os.sched_getaffinity(0)), is_local(root)
        most = limits.threads or (2 * cores if local else 64)
        self.policy = scanning.Limits(most=most)
        begin = limits.threads or (cores if local else min(8, most))
        self.state = scanning.State(begin)
        own = folder.stat()
        layout = LAYOUTS.get(mount_of(os.fsdecode(root)).type) if options.layouts else None
        try:
            self.kernel = _native.scan_open(
                root, most, _held_max(), options.one_file_system, is_lazy(root, options), limits.rate_per_s,
                layout, list(options.excludes), own.st_dev, own.st_ino,
            )  # fmt: skip
        except PermissionError as error:
            raise DeniedError(
                f"{os.fsdecode(root)}: {error.strerror}; it takes the right to list the folder"
            ) from error
        except OSError as error:
            raise PenstockError(f"{os.fsdecode(root)}: {error.strerror}; name a folder") from error
        self.adaptive = not limits.threads
        if self.adaptive:
            _native.scan_threads(self.kernel, begin)
        self.outcome = Outcome()

    def push(self, paths: list[bytes]) -> None:
        for path in paths:
            _native.scan_push(self.kernel, path)

    def known(self, view: Any, tick_ns: int, full: bool) -> None:
        """Compare with what is known; all of its folders are looked at, or with `full` all of the tree."""
        _native.scan_known(self.kernel, view, tick_ns, full, not full)
        if full:
            self.push([b""])

    def _adapt(self, before: dict[str, int], now: dict[str, int], period_s: float) -> None:
        grew = {name: now[name] - before[name] for name in ("entries", "waited_ns", "calls")}
        seen = scanning.Observed(grew["entries"], period_s, grew["waited_ns"] / 1e9, grew["calls"])
        threads, self.state = scanning.decide(seen, self.policy, self.state)
        if threads != now["active"]:
            _native.scan_threads(self.kernel, threads)

    def _problems(self) -> None:
        for what, code, path in _native.scan_problems(self.kernel):
            if what == MOVED:
                self.outcome.moved.append(path)
            else:
                self.outcome.problems.append(Problem(path, what, code))

    def put(self) -> store.Part | None:
        """Writes what was read since the last time."""
        batches = _native.scan_take(self.kernel)
        self._problems()
        part = store.put(self.folder, batches)
        if not part.folders or (part.folders == 1 and part.first_ns == 0):
            (self.folder / part.name).unlink()  # nothing was read
            return None
        self.outcome.parts.append(part)
        return part

    def run(self, say: Say, put_aside: Callable[[store.Part], None] | None = None) -> Outcome:
        """Until all is read or the time is over.  A segment is written at the end, and where somebody puts them aside
        also on the way."""
        began = looked = aside = time.monotonic()
        before = _native.scan_stats(self.kernel)
        while not _native.scan_wait(self.kernel, PERIOD_MS):
            now_s, now = time.monotonic(), _native.scan_stats(self.kernel)
            if self.adaptive:
                self._adapt(before, now, now_s - looked)
            before, looked = now, now_s
            say(Progress(now["entries"], now["folders"], now["pending"], now_s - began, now["active"]))
            if now_s - began >= self.limits.seconds:
                self.outcome.pending = _native.scan_pending(self.kernel)
                break
            if put_aside and now_s - aside >= scanning.aside_after_s(self.limits.checkpoint_s, now_s - began):
                part = self.put()
                if part:
                    put_aside(part)
                aside = now_s
        part = self.put()
        if part and put_aside:
            put_aside(part)
        stats = _native.scan_stats(self.kernel)
        for name in ("entries", "folders", "calls"):
            setattr(self.outcome, name, stats[name])
        self.outcome.seconds = time.monotonic() - began
        return self.outcome
