# SPDX-License-Identifier: Apache-2.0
"""What a driver is: all that is known of one kind of file system, behind one small contract.

A new file system is one file in this folder.  It has a function `detect(mount) -> Driver | None`; nothing
else has to be told of it.  posix.py is asked last and takes every mount.

Invariants:
1. A driver keeps nothing of a file; it may keep what it found out about the mount.
2. Whether a mount is its own is told by the mount's type, never by trying calls on it.
3. "No layout", "cannot have one", "the call is unknown here" and "you may not" are four different answers
   (NoLayoutError, UnsupportedError, NotThereError, DeniedError); a layout of unknown kind is a Layout of
   kind "unknown".
4. Figures of load are sums since some start; whoever reads them twice takes differences (observe.py does).
"""

import errno
import importlib
import os
import pkgutil
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from penstock.base.errors import DeniedError, PenstockError
from penstock.targets.layouts import Layout
from penstock.targets.mounts import Mount, mount_of

Where = str | os.PathLike[str] | int
"""A path or a descriptor."""


class NoLayoutError(PenstockError):
    """ENODATA: the file has no layout."""

    status = 4


class UnsupportedError(PenstockError):
    """EOPNOTSUPP: the file system has layouts, but not on this or not like this."""


class NotThereError(PenstockError):
    """ENOTTY: nothing there knows the call at all."""


class Target(NamedTuple):
    """One storage target and its room.  `id` is the file system's own index."""

    id: int
    name: str
    server: str
    size_bytes: int
    free_bytes: int


class Load(NamedTuple):
    """Sums since some start.  -1: not known here."""

    reads: int = -1
    writes: int = -1
    read_bytes: int = -1
    written_bytes: int = -1
    busy_ns: int = -1
    """Time that requests took, all added up: over their number it is the latency."""
    waiting: int = -1
    """Requests in the target now."""


UP, DEGRADED, FULL, NO_CREATE, INACTIVE, READ_ONLY, DOWN, UNKNOWN = (
    "up",
    "degraded",
    "full",
    "no-create",
    "inactive",
    "read-only",
    "down",
    "unknown",
)


class Driver(Protocol):
    """The contract."""

    kind: str
    mount: Mount

    def targets(self) -> tuple[Target, ...]:
        """All targets and their room."""

    def load(self) -> Mapping[int, Load]:
        """By the target's id."""

    def sees_all(self) -> bool:
        """Does `load` count everybody's traffic, or this node's alone?"""

    def health(self) -> Mapping[int, str]:
        """By the target's id: one of the words above."""

    def servers(self) -> Mapping[str, str]:
        """By a server's name: where its /proc can be read from here.  Empty: nowhere."""

    def layout(self, where: Where) -> Layout:
        """The layout of a file, or the default of a folder."""

    def create(self, path: str, layout: Layout) -> None:
        """A new file with this layout; or gives it to a file that has neither layout nor data yet."""

    def set_default(self, path: str, layout: Layout) -> None:
        """The layout that new files in this folder get."""

    def job_counts(self) -> Mapping[str, Mapping[str, int]]:
        """By job: how often the servers did which operation for it.  Empty: nobody counts here."""


def driver_names() -> list[str]:
    """The modules with drivers, posix last."""
    import penstock.targets

    found = []
    for module in pkgutil.iter_modules(penstock.targets.__path__):
        if hasattr(importlib.import_module(f"penstock.targets.{module.name}"), "detect"):
            found.append(module.name)
    return sorted(found, key=lambda name: (name == "posix", name))


def driver_of(mount: Mount) -> Driver | None:
    """The driver of a mount, which is not looked at."""
    for name in driver_names():
        found: Driver | None = importlib.import_module(f"penstock.targets.{name}").detect(mount)
        if found is not None:
            return found
    return None


def driver_for(where: Where) -> Driver:
    """The driver of the mount that a path or descriptor lies on."""
    mount = mount_of(where)
    found = driver_of(mount)
    if found is None:
        raise PenstockError(f"{where}: no driver for a file system of type {mount.type}")
    return found


_SETTING = {
    errno.EEXIST: "has a layout and keeps it; copy the file to a new one with the wished layout",
    errno.ENOTEMPTY: "holds data and keeps its layout; copy the file to a new one with the wished layout",
    errno.EINVAL: "the file system refuses the layout: an unknown target or pool, or a size it does not take",
    errno.EREMOTEIO: "a target of the list is inactive; choose others (penstock targets shows them)",
    errno.ENOBUFS: "a target of the list takes no new files; choose others (penstock targets shows them)",
    errno.ENOSPC: "a target of the list is full; choose others (penstock targets shows them)",
    errno.EROFS: "a target of the list, or the mount, is read-only",
    errno.ERANGE: "the layout has too many targets or is malformed",
    errno.EFBIG: "there are not enough usable targets for so many stripes",
    errno.E2BIG: "the name of the pool is too long",
}


def answer(error: OSError, where: Where, doing: str = "reading the layout") -> PenstockError:
    """The error of a layout call as a sentence, its kind kept apart."""
    code = error.errno or 0
    if code == errno.ENODATA:
        return NoLayoutError(f"{where}: no layout yet; it gets one when it is first opened for writing")
    if code == errno.ENOTTY:
        return NotThereError(f"{where}: {doing}: this file system does not know the call")
    if code == errno.EOPNOTSUPP:
        return UnsupportedError(f"{where}: {doing}: not supported on this file or in this form")
    if code in (errno.EACCES, errno.EPERM):
        return DeniedError(f"{where}: {doing}: {error.strerror}; it takes the rights of the file's owner")
    said = _SETTING.get(code) if doing.startswith("setting") else None
    return PenstockError(f"{where}: {said or f'{doing}: {error.strerror}'}")
