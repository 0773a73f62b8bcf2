# SPDX-License-Identifier: Apache-2.0
"""Checksums of files, of the whole and of each object, kept in a catalog.

In an entry's part: the kind (1 XXH3-128, 2 BLAKE3), 3 bytes 0, 16 bytes of the whole file, then for each object its
target (u32) and number (u32) and 16 bytes.  XXH3-128 finds damage; BLAKE3 (its first 16 bytes) also forgers.

Invariant: a checksum is kept only if size and times of the file were the same before and after it was read.
"""

import os
import stat
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from penstock import _native
from penstock.base.errors import PenstockError
from penstock.catalog import store
from penstock.catalog.reader import LAYOUT, SUMS, Catalog, segments_of
from penstock.catalog.scanning import Progress, Say
from penstock.targets.layouts import Layout, pieces

KINDS = {"xxh3": 1, "blake3": 2}
DIGEST_BYTES = 16
READ_BYTES = 4 << 20
OBJECTS_MAX = 2000
ROUND_S = 30.0
TRIES = 5
_OBJECT = struct.Struct("<II16s")
_HEAD = struct.Struct("<B3x16s")


class Object(NamedTuple):
    target: int
    number: int
    digest: bytes


class Sums(NamedTuple):
    kind: str
    whole: bytes
    objects: tuple[Object, ...] = ()


def encode(sums: Sums) -> bytes:
    return _HEAD.pack(KINDS[sums.kind], sums.whole) + b"".join(_OBJECT.pack(*it) for it in sums.objects)


def decode(blob: bytes) -> Sums | None:
    """None: of a kind that is not known here."""
    kinds = {number: name for name, number in KINDS.items()}
    if len(blob) < _HEAD.size or blob[0] not in kinds or (len(blob) - _HEAD.size) % _OBJECT.size:
        return None
    number, whole = _HEAD.unpack_from(blob)
    return Sums(kinds[number], whole, tuple(Object(*it) for it in _OBJECT.iter_unpack(blob[_HEAD.size :])))


def hasher(kind: str) -> Callable[[], Any]:
    try:
        if kind == "xxh3":
            import xxhash

            return xxhash.xxh3_128
        import blake3

        made: Callable[[], Any] = blake3.blake3
        return made
    except ImportError as error:
        name = "xxhash" if kind == "xxh3" else "blake3"
        raise PenstockError(f"{name} is not installed; pip install 'penstock[catalog]'") from error


def of_file(fd: int, size: int, layout: Layout | None, kind: str) -> Sums:
    """Reads a file once."""
    make = hasher(kind)
    whole, objects = make(), dict[tuple[int, int], Any]()
    parts = pieces(layout, size) if layout and len(layout.targets) > 1 else ()
    steps: list[tuple[int, int, Any]] = [
        (p.start_bytes, p.size_bytes, (p.target, p.object)) for p in parts if p.target is not None
    ]
    if len({key for *_, key in steps}) > OBJECTS_MAX:
        steps = []
    whole_at = 0
    for start, length, key in steps or [(0, size, None)]:
        at, end = start, start + length
        while at < end:
            data = os.pread(fd, min(READ_BYTES, end - at), at)
            if not data:
                break
            if at != whole_at:
                raise PenstockError("a layout with gaps")
            whole.update(data)
            if key is not None:
                objects.setdefault(key, make()).update(data)
            at += len(data)
            whole_at = at
    digests = tuple(Object(key[0], key[1], it.digest()[:DIGEST_BYTES]) for key, it in sorted(objects.items()))
    return Sums(kind, whole.digest()[:DIGEST_BYTES], digests)


def _facts(st: os.stat_result) -> tuple[int, int, int, int]:
    return st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns


def read(path: bytes, layout: Layout | None, kind: str) -> tuple[Sums, tuple[int, int, int, int]] | None:
    """The checksums, and the inode, size and times they belong to; None: it changed while it was read."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        before = _facts(os.fstat(fd))
        try:
            sums = of_file(fd, before[1], layout, kind)
        except PenstockError:
            sums = of_file(fd, before[1], None, kind)
        return (sums, before) if _facts(os.fstat(fd)) == before else None
    finally:
        os.close(fd)


def round_s(looking_s: float) -> float:
    """So long files are read before their checksums are written: killed, no more than that is lost.  Looking for files
    that have none takes a tenth of the time at most."""
    return max(ROUND_S, 10 * looking_s)


@dataclass
class _Work:
    """What came of it so far."""

    kind: str
    began: float = field(default_factory=time.monotonic)
    count: int = 0
    folders: int = 0
    unread: set[bytes] = field(default_factory=set)
    """Files that cannot be had: they are not tried again."""


def add(folder: Path, kind: str, say: Say) -> int:
    """Reads all files that have no checksum of this kind, and keeps theirs, now and then and at the end; how many."""
    hasher(kind)
    work = _Work(kind)
    while _round(folder, work, say):
        pass
    return work.count


def _wanted(catalog: Catalog, work: _Work) -> dict[bytes, list[tuple[bytes, Any]]]:
    """Files that have no checksum of this kind, by folder, as (name, entry)."""
    wanted = dict[bytes, list[tuple[bytes, Any]]]()

    def want(which: int, row: Any, target: Any, path: bytes, depth: int) -> bool:
        blob = catalog.view.part(path, SUMS)
        held = decode(blob) if blob else None
        if (held is None or held.kind != work.kind) and path not in work.unread:
            head, _, name = path.rpartition(b"/")
            wanted.setdefault(head, []).append((name, row[1]))
        return True

    tests = [(8, 0, 0, 1 << (stat.S_IFREG >> 12), 0, None), (27, 0, 0, 0, 0, None), (1, 0, 1, 0, 0, None)]
    catalog.view.find("", b"", 0, 2**32 - 1, tests, 1, want)
    return wanted


def _known(entry: Any) -> tuple[int, int, int, int]:
    return entry.st_ino, entry.st_size, entry.st_mtime_ns, entry.st_ctime_ns


def _read_as(catalog: Catalog, path: bytes, entry: Any, kind: str) -> Sums | None:
    """The checksums of a file that is as the catalog has it."""
    try:
        found = read(catalog.manifest.root + b"/" + path, catalog.layout(path), kind)
    except OSError:
        return None
    return found[0] if found is not None and found[1] == _known(entry) else None


def _round(folder: Path, work: _Work, say: Say) -> bool:
    """Some of them, into a segment; are there more?"""
    began, before = time.monotonic(), work.count
    catalog = Catalog.open(folder, check=True)
    wanted, added = _wanted(catalog, work), dict[bytes, list[bytes]]()
    batch, more, left = _native.batch_new(), False, len(wanted)
    end = time.monotonic() + round_s(time.monotonic() - began)
    for head, names in wanted.items():
        for name, entry in names:
            more = work.count > before and time.monotonic() > end
            if more:
                break
            path = head + b"/" + name if head else name
            found = _read_as(catalog, path, entry, work.kind)
            if found is None:
                work.unread.add(path)
                continue
            learnt = entry.learnt_ns or catalog.view.folder(head)[1]
            kept = (*entry.fields[:12], learnt, *entry.fields[13:])
            _native.batch_add(batch, name, kept, None, catalog.layout_bytes(path), encode(found))
            added.setdefault(head, []).append(path)
            work.count += 1
        _native.batch_close(batch, head, 0, time.time_ns())
        if more:
            break
        work.folders += 1
        left -= 1
        say(Progress(work.count, work.folders, left, time.monotonic() - work.began, 1))
    if work.count > before:
        _add_true(folder, catalog.manifest.parts, store.put(folder, [batch]), added)
    return more


def _add_true(
    folder: Path, begin: tuple[store.Part, ...], part: store.Part, paths: dict[bytes, list[bytes]]
) -> None:
    """Adds the segment, without the files that are not what they were any more by what others learnt meanwhile."""
    from penstock.catalog import update

    for left in reversed(range(TRIES)):
        if update.add(folder, begin, (part,), alone=left > 0):
            return
        now, ours, batch = Catalog.open(folder), segments_of(folder, (part,)), _native.batch_new()
        (folder / part.name).unlink()
        for head, below in paths.items():
            for path in below:
                with suppress(OSError):
                    entry = ours.stat(path)
                    if _known(now.stat(path)) == _known(entry):
                        name, layout = path.rpartition(b"/")[2], ours.part(path, LAYOUT)
                        _native.batch_add(batch, name, entry, None, layout, ours.part(path, SUMS))
            _native.batch_close(batch, head, 0, time.time_ns())
        begin, part = now.manifest.parts, store.put(folder, [batch])
