# SPDX-License-Identifier: Apache-2.0
"""What `penstock run --serve` answers from: made when a run starts, of a catalog and one look at each folder.

The image and the segment are sealed memory, which penstock-run holds open while the program runs.  native/board/serve.h
is the format, native/stages/serve.c reads it.

Invariants:
1. A folder gets a row only if it is on the root's file system, its times, inode and mode are those of the catalog, it
   changed longer before it was learnt than a clock's tick, and no list of rights hangs on it.
2. A catalog that is damaged, foreign, lazy, newer or in doubt serves nothing.
"""

import errno
import fcntl
import os
import re
import secrets
import stat
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from penstock import _native
from penstock.base.errors import PenstockError
from penstock.catalog import marks
from penstock.catalog.build import each_folder
from penstock.catalog.reader import COMPLETE, LEFT_OUT, MOVED, OTHER_MOUNT, UNREADABLE, Catalog, unusable
from penstock.catalog.scanning import LAYOUTS, TICK_NS, is_local

SECTION, VERSION, MAGIC = 3, 2, 0x3156525345534350
ROOT_MAX = 240
THREADS = 16
SAMPLES = 32
LISTINGS = 8
ABOVE_MAX = 12
ALIASES = 4
DIRECTORY = stat.S_IFDIR >> 12
_SECTION = struct.Struct("<IIIIQQQQQ240s240s240s240s240s")
_IMAGE = struct.Struct("<QIIQQQIIIIQQIIQ32sQ36I")
_ROW = struct.Struct("<QQQQqqqqIIIIIIIIII")
_NAMES, _NAMED = 1, 2
_LISTS, _ABOVE, _LISTINGS, _SUMS = 1, 2, 4, 8
_SUMMING = ("ceph", "fuse.ceph-fuse")  # a folder's size is that of all below it
_ACL = "system.posix_acl_access"
_NS = 1_000_000_000
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class Serving(NamedTuple):
    """The section of a plan, and how much it covers."""

    section: bytes
    folders: int
    fresh: int

    def part(self) -> tuple[int, int, bytes]:
        return SECTION, VERSION, self.section


class Known(NamedTuple):
    """A folder as the catalog knows it."""

    path: bytes
    entry: Any
    flags: int
    learnt_ns: int


def aliases(mounts: Iterable[bytes], root: bytes, device: int) -> list[bytes]:
    """Where else the tree, or a part of it, can be seen: by lines of mountinfo, whose later ones cover earlier ones."""
    found: list[tuple[bytes, bytes]] = []  # which folder of the file system, and where it is mounted
    for line in mounts:
        _, _, number, folder, point, *_ = line.split()
        major, _, minor = number.partition(b":")
        if os.makedev(int(major), int(minor)) == device:
            found.append((_unescaped(folder), _unescaped(point)))
    ours = max((it for it in found if _below(root, it[1])), key=lambda it: len(it[1]), default=None)
    if not ours:
        return []
    tree = _joined(ours[0], root[len(ours[1].rstrip(b"/")) :])
    others = [it for it in found if it[1] != ours[1]]
    whole = {
        _joined(point, tree[len(folder.rstrip(b"/")) :]) for folder, point in others if _below(tree, folder)
    }
    parts = {point for folder, point in others if _below(folder, tree) and folder != tree}
    return sorted(it for it in whole | parts if not _below(it, root))


def _below(path: bytes, folder: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def _joined(folder: bytes, rest: bytes) -> bytes:
    return b"/" + b"/".join(it for it in (folder.strip(b"/"), rest.strip(b"/")) if it)


def _unescaped(text: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda it: bytes([int(it[1], 8)]), text)


def is_fresh(known: Known, now: os.stat_result, device: int, tick_ns: int) -> bool:
    """Is the folder the one that the catalog knows, unchanged since?"""
    entry = known.entry
    same = (entry.st_ino, entry.st_mode, entry.st_mtime_ns, entry.st_ctime_ns) == (
        now.st_ino,
        now.st_mode,
        now.st_mtime_ns,
        now.st_ctime_ns,
    )
    settled = max(now.st_mtime_ns, now.st_ctime_ns) + tick_ns < known.learnt_ns
    return same and settled and now.st_dev == device and stat.S_ISDIR(now.st_mode)


def flags_of(known: Known, written: frozenset[bytes], above_mounts: frozenset[bytes]) -> int:
    """May names in it be answered, and listed?  A listing says of what is below a mount, not of what is mounted."""
    doubtful = known.flags & (MOVED | UNREADABLE | LEFT_OUT | OTHER_MOUNT)
    if not known.flags & COMPLETE or doubtful or known.path in written:
        return 0
    return _NAMES if known.path in above_mounts else _NAMES | _NAMED


def is_listed(names: Iterable[tuple[bytes, int, int]], expected: dict[bytes, tuple[int, int]]) -> bool:
    """Does the file system list these names with these inodes, and types where it says any?"""
    seen = {name: (inode, kind) for name, inode, kind in names}
    return seen.keys() == expected.keys() and all(
        seen[name][0] == inode and seen[name][1] in (0, kind) for name, (inode, kind) in expected.items()
    )


def row_of(path: bytes, now: os.stat_result, flags: int, learnt_ns: int) -> bytes:
    times = (now.st_atime_ns, now.st_mtime_ns, now.st_ctime_ns)
    return _ROW.pack(
        _native.place_key(-1, (path,)),
        now.st_ino,
        now.st_size,
        now.st_blocks,
        *(it // _NS for it in times),
        learnt_ns // _NS,
        *(it % _NS for it in times),
        now.st_mode,
        now.st_uid,
        now.st_gid,
        now.st_nlink,
        now.st_blksize,
        flags,
        0,
    )


def table_of(rows: list[bytes]) -> list[int]:
    """Places by hash, 1 + the number of a row; a power of two, at most half full."""
    size = 1 << max(1, (2 * len(rows)).bit_length())
    slots = [0] * size
    for number, row in enumerate(rows, 1):
        at = int.from_bytes(row[:8], "little") & (size - 1)
        while slots[at]:
            at = (at + 1) & (size - 1)
        slots[at] = number
    return slots


def one_size(sizes: Iterable[int]) -> int:
    """What all have; 0: they differ, or there are none."""
    found = set(sizes)
    return found.pop() if len(found) == 1 else 0


def _has_list(path: bytes) -> bool | None:
    """Do more rights hang on a file than its mode says?  None: this file system has no such lists."""
    try:
        os.getxattr(path, _ACL, follow_symlinks=False)
    except OSError as error:
        return None if error.errno in (errno.ENOTSUP, errno.EOPNOTSUPP) else error.errno != errno.ENODATA
    return True


def above_of(folders: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]] | None:
    """Mode, owner and group of those that do not let everybody pass, in the image's form; None: there are too many."""
    closed = [it for it in folders if it[0] & 0o111 != 0o111]
    return None if len(closed) > ABOVE_MAX else closed + [(0o777, 0, 0)] * (ABOVE_MAX - len(closed))


def _above(root: bytes) -> list[tuple[int, int, int]] | None:
    """Of all folders above the root; None: a list of rights hangs on one."""
    paths = [os.fsencode(it) for it in Path(os.fsdecode(root)).parents]
    if any(_has_list(it) for it in paths):
        return None
    return above_of((st.st_mode, st.st_uid, st.st_gid) for st in map(os.lstat, paths))


def _sealed(name: str, data: Iterable[bytes]) -> int:
    fd = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    with os.fdopen(fd, "wb", closefd=False) as out:
        for piece in data:
            out.write(piece)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def _segment(catalog: Catalog) -> int:
    """All that the catalog holds as one segment, each block checked."""
    fd = os.memfd_create("penstock-served", os.MFD_ALLOW_SEALING)
    parts = catalog.manifest.parts
    if len(parts) == 1:
        with (catalog.path / parts[0].name).open("rb") as file:
            while piece := file.read(1 << 20):
                os.write(fd, piece)
    else:
        batch = _native.batch_new()
        _native.batch_merge(batch, catalog.view)
        _native.segment_write(fd, [batch], secrets.randbits(63), secrets.randbits(63))
    bad = _native.segment_verify(_native.segment_open(fd, 0))
    if bad:
        raise PenstockError(
            f"{catalog.path}: {len(bad)} of its blocks are damaged; penstock catalog update --full mends it"
        )
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def _samples(catalog: Catalog, folders: list[bytes]) -> Iterator[os.stat_result]:
    """A file and a link of some folders, as they are."""
    for path in folders[:: max(1, len(folders) // SAMPLES)]:
        wanted = {stat.S_IFREG, stat.S_IFLNK}
        for name, entry, *_ in catalog.view.list(path):
            kind = stat.S_IFMT(entry.st_mode)
            if kind in wanted:
                wanted.discard(kind)
                with suppress(OSError):
                    yield os.lstat(b"/".join(it for it in (catalog.manifest.root, path, name) if it))
            if not wanted:
                break


def _names(folder: bytes) -> list[tuple[bytes, int, int]]:
    """As the file system lists them; none where it does not."""
    with suppress(OSError):
        names: list[tuple[bytes, int, int]] = _native.names_at(folder)
        return names
    return []


def _listings(catalog: Catalog, root: bytes, inodes: dict[bytes, int], listed: list[bytes]) -> int | None:
    """Are some folders listed as the catalog has them?  Then what the root's says of `..`, else None."""
    above = next((inode for name, inode, _ in _names(root) if name == b".."), 0)
    for path in {b"", *listed[:: -(-len(listed) // LISTINGS) or 1]} & {*listed}:
        parent = inodes[path.rpartition(b"/")[0]] if path else above
        expected = {b".": (inodes[path], DIRECTORY), b"..": (parent, DIRECTORY)}
        for name, entry, *_ in catalog.view.list(path):
            expected[name] = (entry.st_ino, stat.S_IFMT(entry.st_mode) >> 12)
        if not is_listed(_names(root + b"/" + path), expected):
            return None
    return above


def _written(root: bytes) -> frozenset[bytes]:
    """Folders below the root in which a file is open for writing here: the program inherits that."""
    found = set()
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers
        with suppress(OSError, ValueError):
            path = os.fsencode(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115 - bytes
            flags = fcntl.fcntl(int(number), fcntl.F_GETFL)
            if flags & os.O_ACCMODE != os.O_RDONLY and path.startswith(root + b"/"):
                found.add(path[len(root) + 1 :].rpartition(b"/")[0])
    return frozenset(found)


def prepare(file: str | os.PathLike[str], max_age_s: int = 0) -> Serving:
    """Looks at each folder, and puts what may be answered into memory that the process to come holds.  Whatever cannot
    be had, of the catalog or of the tree, is a PenstockError: the program is to run as ever."""
    try:
        return _prepared(file, max_age_s)
    except OSError as error:
        raise unusable(file, error) from error


def _prepared(file: str | os.PathLike[str], max_age_s: int) -> Serving:
    catalog = Catalog.open(file, check=True)
    root = os.path.realpath(catalog.manifest.root)
    if catalog.damaged:
        raise PenstockError(
            f"{file}: {', '.join(catalog.damaged)} is damaged; penstock catalog update --full mends it"
        )
    if marks.lost(catalog.manifest.doubts):
        raise PenstockError(
            f"{file}: a run's helper has not had its last word here, or runs and updates met; "
            "penstock catalog update mends it"
        )
    if catalog.manifest.options.lazy:
        raise PenstockError(f"{file}: was built with --lazy, so sizes are not certain; build it without")
    if len(root) > ROOT_MAX or len(root) < 2:
        raise PenstockError(f"{catalog.root}: its path is too long, or /; serve a catalog of another folder")
    top, written = os.lstat(root), _written(root)
    also = aliases(Path("/proc/self/mountinfo").read_bytes().splitlines(), root, top.st_dev)
    if len(also) > ALIASES or any(len(it) > ROOT_MAX for it in also):
        raise PenstockError(
            f"{catalog.root}: can also be seen at {len(also)} other places, too many to watch"
        )
    tick_ns = TICK_NS[is_local(root)]
    lists = _has_list(root) is not None
    folders: list[Known] = []
    damaged = each_folder(
        catalog.view,
        lambda path, entry, flags: folders.append(Known(path, entry, flags, catalog.view.folder(path)[1])),
    )
    if damaged:
        raise PenstockError(f"{file}: is damaged; penstock catalog update --full mends it")

    mounts = (it.path for it in folders if it.flags & (LEFT_OUT | OTHER_MOUNT))
    above_mounts = frozenset(path.rpartition(b"/")[0] for path in mounts if path)

    def look(known: Known) -> bytes | None:
        whole = root + b"/" + known.path if known.path else root
        try:
            now = os.lstat(whole)
        except OSError:
            return None
        if not is_fresh(known, now, top.st_dev, tick_ns) or (lists and _has_list(whole)):
            return None
        return row_of(whole, now, flags_of(known, written, above_mounts), known.learnt_ns)

    with ThreadPoolExecutor(THREADS) as pool:
        seen = list(pool.map(look, folders))
    rows = [row for row in seen if row is not None]
    samples = list(_samples(catalog, [it.path for it, row in zip(folders, seen, strict=True) if row]))
    inodes = {it.path: it.entry.st_ino for it, row in zip(folders, seen, strict=True) if row}
    above = _listings(
        catalog,
        root,
        inodes,
        [it.path for it in folders if it.path in inodes and flags_of(it, written, above_mounts) & _NAMED
         and (not it.path or it.path.rpartition(b"/")[0] in inodes)],
    )  # fmt: skip
    slots, rights = table_of(rows), _above(root)
    rows_at = _IMAGE.size
    slots_at = (rows_at + len(rows) * _ROW.size + 7) // 8 * 8
    blksizes = [
        one_size(it.st_blksize for it in samples if stat.S_IFMT(it.st_mode) == form)
        for form in (stat.S_IFREG, stat.S_IFLNK)
    ]
    kind = catalog.manifest.identity.type
    flags = _LISTS * lists | _ABOVE * (rights is not None) | _LISTINGS * (above is not None)
    head = _IMAGE.pack(
        MAGIC, VERSION, flags | _SUMS * (kind in _SUMMING),
        slots_at + 4 * len(slots), top.st_dev, top.st_ino, top.st_uid, top.st_gid,
        len(rows), len(slots), rows_at, slots_at, *blksizes, max_age_s,
        LAYOUTS.get(kind, "").encode(), above or 0,
        *(word for one in rights or above_of(()) or () for word in one),
    )  # fmt: skip
    gap = b"\0" * (slots_at - rows_at - len(rows) * _ROW.size)
    image = _sealed("penstock-serve", (head, *rows, gap, struct.pack(f"<{len(slots)}I", *slots)))
    segment = _segment(catalog)
    section = _SECTION.pack(
        os.getpid(), image, segment, len(root), os.fstat(image).st_ino, os.fstat(segment).st_ino, top.st_dev,
        *(os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("mnt", "user")), root,  # noqa: PTH116
        *[*also, *[b""] * ALIASES][:ALIASES],
    )  # fmt: skip
    return Serving(section, len(folders), len(rows))


def say_in_log(log: Path, text: str) -> None:
    """One line where the run's other lines go."""
    with suppress(OSError), log.open("a") as out:
        out.write(f"penstock run: {text}\n")
