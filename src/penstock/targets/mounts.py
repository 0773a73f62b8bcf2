# SPDX-License-Identifier: Apache-2.0
"""Which mount a file lies on: the kernel's own answer, not a comparison of paths.

Invariant: the mount is found by its id (fdinfo), so bind mounts, mounts over mounts and symlinks are right.
"""

import errno
import fcntl
import os
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from penstock.base.errors import DeniedError, PenstockError

TESTBED_TYPE = "fuse.penstock"
"""The type of a testbed's mount; its source is the testbed's folder."""
_MOUNTINFO = "/proc/self/mountinfo"


class Mount(NamedTuple):
    """One line of mountinfo."""

    id: int
    point: str
    type: str
    source: str
    device: str
    options: tuple[str, ...]

    @property
    def user(self) -> int:
        """Who mounted it: of a FUSE file system the user who serves it, by whatever name; else root."""
        return next((int(word[8:]) for word in self.options if word.startswith("user_id=")), 0)


def _unescape(field: str) -> str:
    r"""mountinfo writes space, tab, newline and backslash as \040 and so on."""
    if "\\" not in field:
        return field
    head, *rest = field.split("\\")
    return head + "".join(chr(int(part[:3], 8)) + part[3:] for part in rest)


def parse(text: str) -> list[Mount]:
    """The mounts in a mountinfo's text; lines that are none are left out."""
    found = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if dash and len(left) >= 6 and len(right) >= 2:
            options = (*left[5].split(","), *(right[2].split(",") if len(right) > 2 else ()))
            point, source = _unescape(left[4]), _unescape(right[1])
            found.append(Mount(int(left[0]), point, right[0], source, left[2], options))
    return found


def mounts() -> list[Mount]:
    return parse(Path(_MOUNTINFO).read_text(errors="surrogateescape"))


def of_types(types: Collection[str]) -> list[Mount]:
    """The mounts of these types of file systems (setting run.detect)."""
    return [mount for mount in mounts() if mount.type in types]


def _mount_id(fd: int) -> int:
    lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("mnt_id:"))


def _open_nearest(path: str) -> int:
    """A descriptor of the path or, if it does not exist, of the folder that would hold it."""
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(Path(path).parent, os.O_PATH | os.O_CLOEXEC)


def testbed_runs(folder: str) -> bool:
    """Does a server hold this testbed's store?  Its lock says so, and goes with it however it ends; where we may not
    look at the lock, it counts as held."""
    try:
        fd = os.open(f"{folder}/run/lock", os.O_RDWR | os.O_CLOEXEC)
    except PermissionError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def mount_of(where: str | os.PathLike[str] | int) -> Mount:
    """The mount of a path (it or its folder must exist) or of a descriptor."""
    try:
        fd = where if isinstance(where, int) else _open_nearest(os.fspath(where))
    except OSError as error:
        if error.errno == errno.ENOTCONN:
            raise PenstockError(f"{where}: the mount is dead; take it away with fusermount3 -uz") from error
        kind = DeniedError if error.errno in (errno.EACCES, errno.EPERM) else PenstockError
        raise kind(f"{where}: {error.strerror}; name a file or a mount point") from error
    try:
        number = _mount_id(fd)
    finally:
        if not isinstance(where, int):
            os.close(fd)
    found = next((mount for mount in mounts() if mount.id == number), None)
    if found is None:
        raise PenstockError(f"{where}: its mount is not in {_MOUNTINFO}; is it in another mount namespace?")
    return found
