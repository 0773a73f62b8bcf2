# SPDX-License-Identifier: Apache-2.0
"""A catalog that is asked: from penstock import Catalog; cat = Catalog.open("set.cat"); cat.stat(path).

Invariants:
1. What a catalog says is what it was told, not what is: `folder(path)` says when that was, `fresh` compares.
2. A path may be absolute below the root, or relative to it; outside is OutsideError.
3. Segments that are damaged are named in `damaged` and left out; what they held is then "not known" or older.
"""

import errno
import os
import stat as stat_
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from penstock import _native
from penstock.base.errors import PenstockError, UsageError, VersionError
from penstock.catalog import store
from penstock.catalog.identity import identity_of, same_tree
from penstock.targets.layouts import Layout

Entry = _native.Entry
"""An entry, with the names of os.stat_result: st_mode, st_size, st_mtime_ns, ..."""

COMPLETE, MOVED, UNREADABLE, LEFT_OUT, LISTED, OTHER_MOUNT = 1, 2, 4, 8, 16, 32
"""Flags of a folder."""
GONE, PLACE, DOUBT, CAPTURED, CHECKED, CHANGED_INSIDE = 1, 2, 64, 128, 256, 512
"""Flags of an entry."""
TARGET, LAYOUT, SUMS = 1, 2, 3
"""Parts of an entry."""
DAMAGE = (errno.EBADMSG, errno.EIO)
DAMAGED = "damaged in the catalog; penstock catalog check mends it"
_TRIES = 20
_RESIDENT_SHARE = 4


class OutsideError(UsageError, OSError):
    """A path that is not in the catalog's tree."""


def within(path: str | bytes | os.PathLike[str], root: bytes) -> bytes:
    """A path that leads into the tree through links, relative to the root; OutsideError: it leads elsewhere."""
    real = Path(os.fsdecode(root)).resolve()
    typed = os.fsdecode(path)
    if typed.startswith("/"):
        word = Path(os.path.normpath(typed))
        for there in (word.parent.resolve() / word.name, word.resolve()):
            if there.is_relative_to(real):
                rest = os.fsencode(there.relative_to(real))
                return b"" if rest == b"." else rest
    raise OutsideError(f"{typed}: outside of the catalog's tree, which is {os.fsdecode(root)}")


class Folder(NamedTuple):
    """What is known of a folder: whether every name in it is, since when, and whether it changed while it was read."""

    complete: bool
    moved: bool
    unreadable: bool
    left_out: bool
    learnt_ns: int
    expired: bool = False
    """Learnt longer ago than the catalog was opened with as `max_age_s`."""


class Row(NamedTuple):
    """A name in a folder."""

    name: str
    entry: Any
    folder: Folder | None


def is_expired(learnt_ns: int, max_age_s: float, now_ns: int) -> bool:
    """Is it longer ago than it may be?  `max_age_s` 0: any age will do."""
    return max_age_s > 0 and now_ns - learnt_ns > max_age_s * 1e9


def folder_of(flags: int, learnt_ns: int, max_age_s: float = 0.0) -> Folder:
    return Folder(
        bool(flags & COMPLETE),
        bool(flags & MOVED),
        bool(flags & UNREADABLE),
        bool(flags & LEFT_OUT),
        learnt_ns,
        is_expired(learnt_ns, max_age_s, time.time_ns()),
    )


def _memory_limits() -> Iterator[int]:
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            yield int(text)
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def resident_bytes() -> int:
    """How large a segment may be to be kept in memory once read: a share of what there is."""
    return min(_memory_limits(), default=0) // _RESIDENT_SHARE


class Catalog:
    """A state of a catalog; it stays as it was opened, whatever writers do."""

    def __init__(
        self, folder: Path, manifest: store.Manifest, segments: list[Any], damaged: tuple[str, ...]
    ) -> None:
        self.path = folder
        self.manifest = manifest
        self.damaged = damaged
        self.segments = segments
        self.max_age_s = 0.0
        self.root = os.fsdecode(manifest.root)
        self.view = _native.View(tuple(segments), manifest.root, within)
        self.stat = self.lstat = self.view.stat
        """stat(path): its Entry; FileNotFoundError: it is not there; OSError ENODATA: it is not known."""

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        check: bool = False,
        resident: int | None = None,
        max_age_s: float = 0.0,
    ) -> "Catalog":
        """Opens a catalog.  `check`: refuse it if another file system is mounted where its tree was.
        `max_age_s`: folders that were learnt longer ago are `expired` and not `fresh`; 0: any age will do."""
        folder = Path(path)
        room = resident_bytes() if resident is None else resident
        for _ in range(_TRIES):
            held = store.read(folder)
            if held.manifest is None or not (held.manifest.parts or held.manifest.building):
                raise PenstockError(_nothing(folder, held))
            try:
                found = cls(folder, held.manifest, *_segments(folder, held, held.manifest.parts, room))
            except FileNotFoundError:
                continue  # merged meanwhile: the manifest is another now
            if not held.manifest.parts:
                raise PenstockError(
                    f"{folder}: its build was not finished; run penstock catalog build again to go on"
                )
            found.max_age_s = max_age_s
            if check:
                found.check_identity()
            return found
        raise PenstockError(f"{folder}: segments that its manifest names are missing; build it anew")

    def check_identity(self) -> None:
        """Is it the tree that this was made of?"""
        try:
            now = identity_of(self.manifest.root)
        except OSError as error:
            raise PenstockError(
                f"{self.root}: {error.strerror}; the tree of {self.path} is not there"
            ) from error
        if not same_tree(self.manifest.identity, now):
            raise PenstockError(
                f"{self.path}: was made of another file system at {self.root} "
                f"({self.manifest.identity.type} from {self.manifest.identity.source}); build a catalog of this one"
            )

    @property
    def entries(self) -> int:
        """How many there are; an upper bound while there are several segments."""
        return sum(part.entries for part in self.manifest.parts)

    def damaged_blocks(self) -> list[str]:
        """Segments that can be opened and of which single blocks are damaged: all of them is read for that."""
        opened = [part.name for part in self.manifest.parts if part.name not in self.damaged]
        pairs = zip(opened, self.segments, strict=True)
        return [name for name, segment in pairs if _native.segment_verify(segment)]

    def exists(self, path: str | bytes | os.PathLike[str]) -> bool:
        try:
            self.stat(path)
        except FileNotFoundError:
            return False
        return True

    def folder(self, path: str | bytes | os.PathLike[str] = "") -> Folder:
        """How well a folder is known.  NotADirectoryError, FileNotFoundError."""
        self._folder_entry(path)
        return self.known(path)

    def known(self, path: str | bytes | os.PathLike[str] = "") -> Folder:
        """How well a folder is known; of one that is not there, nothing is."""
        flags, learnt_ns = self.view.folder(path)
        return folder_of(flags, learnt_ns, self.max_age_s)

    def expired_folders(self) -> int:
        """How many folders were learnt longer ago than `max_age_s`; quick where nothing is as old as that."""
        now_ns, count = time.time_ns(), 0
        if not any(is_expired(part.first_ns, self.max_age_s, now_ns) for part in self.manifest.parts):
            return 0

        def take(which: int, row: Any, target: Any, path: bytes, depth: int) -> bool:
            nonlocal count
            count += is_expired(row[3], self.max_age_s, now_ns)
            return True

        self._each_folder("", take)
        return count

    def unlisted_folders(self, path: str | bytes | os.PathLike[str] = "") -> int:
        """Of how many folders there and below may names be missing here, but for those that were to be left out?  Quick
        where all was built, nothing was unreadable and no helper got lost."""
        count, held = 0, self.manifest
        if held.built_ns and not held.problems and not held.doubts:
            return 0

        def take(which: int, row: Any, target: Any, path: bytes, depth: int) -> bool:
            nonlocal count
            count += not row[2] & (COMPLETE | LISTED | LEFT_OUT | OTHER_MOUNT)
            return True

        self._each_folder(path, take)
        return count

    def _each_folder(self, path: str | bytes | os.PathLike[str], take: Any) -> None:
        from penstock.catalog.find import ALL_DEPTHS, Kind, Test

        folders = Test(Kind.TYPE, low=1 << (stat_.S_IFDIR >> 12))
        tests = [folders, Test(Kind.CALL), Test(Kind.AND, 0, 1)]
        self.view.find(path, b"", 0, ALL_DEPTHS, tests, 1, take)

    def scandir(self, path: str | bytes | os.PathLike[str] = "") -> list[Row]:
        """The names of a folder, in order, with what is known of each.  NotADirectoryError, FileNotFoundError."""
        self._folder_entry(path)
        try:
            names = self.view.list(path)
        except OSError as error:
            if error.errno in DAMAGE:
                raise OSError(error.errno, DAMAGED, os.fspath(path) or self.root) from error
            raise
        return [
            Row(
                os.fsdecode(name),
                entry,
                folder_of(flags, learnt, self.max_age_s) if stat_.S_ISDIR(entry.st_mode) else None,
            )
            for name, entry, flags, learnt in names
        ]

    def _folder_entry(self, path: str | bytes | os.PathLike[str]) -> Any:
        entry = self.stat(path)
        if not stat_.S_ISDIR(entry.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(path))
        return entry

    def listdir(self, path: str | bytes | os.PathLike[str] = "") -> list[str]:
        """The names of a folder, in order."""
        return [row.name for row in self.scandir(path)]

    def walk(
        self, path: str | bytes | os.PathLike[str] = "", onerror: Callable[[OSError], object] | None = None
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """As os.walk, top down, names in order.  A folder that is damaged in the catalog goes to `onerror`, then the
        walk goes on; without it, the error is raised."""
        todo = [os.fsdecode(path)]
        while todo:
            here = todo.pop()
            try:
                rows = self.scandir(here)
            except OSError as error:
                if onerror is None:
                    raise
                onerror(error)
                continue
            folders = [row.name for row in rows if row.folder]
            yield here, folders, [row.name for row in rows if not row.folder]
            todo += [f"{here.rstrip('/')}/{name}" if here else name for name in reversed(folders)]

    def readlink(self, path: str | bytes | os.PathLike[str]) -> str:
        target = self.view.part(path, TARGET)
        if target is None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fspath(path))
        return os.fsdecode(target)

    def layout_bytes(self, path: str | bytes | os.PathLike[str]) -> bytes | None:
        """The layout as the file system gave it; None: it is not known, or there is none."""
        found: bytes | None = self.view.part(path, LAYOUT)
        return found

    def layout(self, path: str | bytes | os.PathLike[str]) -> Layout | None:
        """Which bytes lie where; None: not known, or there is no layout."""
        blob = self.layout_bytes(path)
        return None if blob is None else decode_layout(self.manifest.identity.type, blob)

    def sums(self, path: str | bytes | os.PathLike[str]) -> "Any | None":
        """The checksums (catalog.sums.Sums); None: there are none."""
        from penstock.catalog import sums

        blob = self.view.part(path, SUMS)
        return None if blob is None else sums.decode(blob)

    def fresh(self, path: str | bytes | os.PathLike[str] = "") -> bool:
        """Was the folder learnt no longer than `max_age_s` ago, and are its times still those of the catalog?"""
        entry = self.stat(path)
        if self.folder(path).expired:
            return False
        try:
            now = os.lstat(Path(self.root) / os.fsdecode(path))
        except OSError:
            return False
        return (entry.st_mtime_ns, entry.st_ctime_ns, entry.st_ino) == (
            now.st_mtime_ns,
            now.st_ctime_ns,
            now.st_ino,
        )


def unusable(file: str | os.PathLike[str], error: OSError) -> PenstockError:
    """What is said where the bytes of a catalog, or what it needs, cannot be had."""
    if error.errno == errno.EBADMSG:
        return PenstockError(f"{os.fspath(file)}: is damaged; penstock catalog update --full makes it anew")
    return PenstockError(
        f"{os.fspath(file)}: cannot be used: {error.strerror}; penstock catalog update --full looks at everything"
    )


def decode_layout(kind: str, blob: bytes) -> Layout:
    """A layout attribute of a file system of this type."""
    if kind in ("lustre", "fuse.penstock"):
        from penstock.targets.lustre import layout_of

        return layout_of(blob)
    if "ceph" in kind:
        from penstock.targets.cephfs import layout_of as ceph_layout_of

        return ceph_layout_of(blob)
    return Layout("unknown", (), blob)


def _nothing(folder: Path, held: store.Held) -> str:
    if held.damaged:
        return f"{folder}: {', '.join(held.damaged)} is damaged and there is no other; build it anew"
    if not folder.exists():
        return f"{folder}: no such catalog; make it with penstock catalog build"
    if held.manifest is None:
        return f"{folder}: no catalog; a catalog is a folder made by penstock catalog build"
    return f"{folder}: its build was not finished; run penstock catalog build again to go on"


def _segments(
    folder: Path, held: store.Held, parts: tuple[store.Part, ...], resident: int
) -> tuple[list[Any], tuple[str, ...]]:
    """The segments that are whole, and the names of what is damaged."""
    found, damaged = [], list(held.damaged)
    for part in parts:
        try:
            fd = os.open(folder / part.name, os.O_RDONLY | os.O_CLOEXEC)
        except PermissionError as error:
            raise PenstockError(f"{folder / part.name}: {error.strerror}; ask its owner") from error
        try:
            found.append(_native.segment_open(fd, resident))
        except OSError as error:
            if error.errno == errno.EPROTO:
                raise VersionError(
                    f"{folder / part.name}: written by another version of Penstock; update this one, or build it anew"
                ) from error
            if error.errno not in (errno.EBADMSG, errno.EINVAL, errno.EIO):
                raise
            damaged.append(part.name)
        finally:
            os.close(fd)
    return found, tuple(damaged)


def segments_of(folder: Path, parts: tuple[store.Part, ...]) -> Any:
    """A view of segments that no manifest needs to name, newest first."""
    found, damaged = _segments(folder, store.Held(0, None), parts, resident_bytes())
    if damaged:
        raise PenstockError(f"{folder}: {', '.join(damaged)} is damaged; build the catalog anew with --fresh")
    return _native.View(tuple(found), b"/", within)
