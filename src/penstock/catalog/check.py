# SPDX-License-Identifier: Apache-2.0
"""Is a catalog still true?  Folders are drawn, listed and compared, name by name; what is not true is written anew.

Layouts are compared with their objects' ids.  With checksums, files are read and compared with those that are kept:
bytes that changed though size and times did not are found by nothing else.

Invariants: a folder is written anew as a whole, or not at all; what could not be read keeps what is known of it.
"""

import errno
import os
import random
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from os.path import samestat
from pathlib import Path
from typing import Any, NamedTuple

from penstock import _native
from penstock.catalog import store, sums
from penstock.catalog.build import each_folder
from penstock.catalog.reader import (
    CHANGED_INSIDE,
    CHECKED,
    COMPLETE,
    DOUBT,
    LAYOUT,
    LEFT_OUT,
    LISTED,
    MOVED,
    SUMS,
    TARGET,
    UNREADABLE,
    Catalog,
)
from penstock.catalog.scanning import LAYOUTS, Limits, Scan, quiet

THREADS = 16
GONE, ANOTHER = "is gone", "is another file now"
_FIELDS = {
    "st_mode": "mode",
    "st_size": "size",
    "st_uid": "owner",
    "st_gid": "group",
    "st_nlink": "links",
    "st_mtime_ns": "mtime",
    "st_ctime_ns": "ctime",
}


class Difference(NamedTuple):
    path: bytes
    what: str


@dataclass
class Found:
    folders: int = 0
    entries: int = 0
    """Names that are there or were."""
    files_read: int = 0
    mended: bool = False
    differences: list[Difference] = field(default_factory=list)
    damaged: list[tuple[bytes, int]] = field(default_factory=list)

    @property
    def differing(self) -> int:
        """Of how many entries something differs."""
        return len({it.path for it in self.differences})


@dataclass
class Seen:
    """A folder as it is now."""

    path: bytes
    rows: list[tuple[bytes, tuple[int, ...], bytes | None, bytes | None, bytes | None]] = field(
        default_factory=list
    )
    new_folders: list[bytes] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    files_read: int = 0
    learnt_ns: int = 0
    left_out: bool = False
    """There are names that the catalog is not to have."""
    gone: int = 0
    """So many names of the catalog are not there any more."""
    lost: bool = False
    damaged: int = 0
    """errno: the catalog's own bytes of this folder cannot be read."""


def compared(entry: Any, now: Any) -> list[str]:
    """What differs, in words.  Times of last reading and the sizes of folders are nobody's business."""
    if entry.st_ino != now.st_ino or stat.S_IFMT(entry.st_mode) != stat.S_IFMT(now.st_mode):
        return [ANOTHER]
    if 0 not in (entry.generation, now.generation) and entry.generation != now.generation:
        return [ANOTHER]  # its inode was used again
    skip = {"st_size", "st_nlink"} if stat.S_ISDIR(now.st_mode) else set()
    return [
        f"{word} differs"
        for name, word in _FIELDS.items()
        if name not in skip and getattr(entry, name) != getattr(now, name)
    ]


def without_gone_below(differences: list[Difference]) -> list[Difference]:
    """Without what is only gone because its folder is, and each only once."""
    other = {it.path for it in differences if it.what == ANOTHER}
    no_more = other | {it.path for it in differences if it.what == GONE}

    def is_told(it: Difference) -> bool:
        if it.what != GONE:
            return False
        above = {it.path[:at] for at, byte in enumerate(it.path) if byte == ord("/")} | (
            {b""} if it.path else set()
        )
        return it.path in other or not above.isdisjoint(no_more)

    return list(dict.fromkeys(it for it in differences if not is_told(it)))


def _type(it: "os.DirEntry[bytes]") -> int:
    """The type that a listing tells, without asking: 0 where it does not."""
    try:
        return (
            stat.S_IFLNK
            if it.is_symlink()
            else stat.S_IFDIR
            if it.is_dir(follow_symlinks=False)
            else stat.S_IFREG
            if it.is_file(follow_symlinks=False)
            else 0
        )
    except OSError:
        return 0


class _Checker:
    def __init__(self, catalog: Catalog, checksums: bool) -> None:
        self.catalog = catalog
        self.checksums = checksums
        self.own, self.excludes = catalog.path.stat(), list(catalog.manifest.options.excludes)
        self.attribute = (
            LAYOUTS.get(catalog.manifest.identity.type) if catalog.manifest.options.layouts else None
        )

    def folder(self, path: bytes) -> Seen:
        """Lists a folder and compares each name; errors that come through are the catalog's own."""
        try:
            return self._folder(path)
        except OSError as error:
            return Seen(path, damaged=error.errno or errno.EIO)

    def _folder(self, path: bytes) -> Seen:
        seen = Seen(path, learnt_ns=time.time_ns())
        known = {name: entry for name, entry, *_ in self.catalog.view.list(path)}
        here = self.catalog.manifest.root + (b"/" + path if path else b"")
        try:
            with os.scandir(here) as listing:
                names = sorted((it.name, it.inode(), _type(it)) for it in listing)
        except OSError as error:
            seen.lost = True
            absent = error.errno in (errno.ENOENT, errno.ENOTDIR)
            seen.differences.append(
                Difference(path, GONE if absent else f"cannot be listed: {error.strerror}")
            )
            return seen
        for name, inode, kind in names:
            rel = path + b"/" + name if path else name
            self._name(seen, here + b"/" + name, rel, (name, inode, kind), known.pop(name, None))
        seen.differences += [Difference(path + b"/" + name if path else name, GONE) for name in known]
        seen.gone = len(known)
        if seen.left_out and self.catalog.known(path).complete:
            seen.differences.append(Difference(path, "has names that are left out"))
        return seen

    def _unread(self, seen: Seen, path: bytes, listed: tuple[bytes, int, int], entry: Any, code: int) -> None:
        """A name of which the file system tells nothing more: what is known of it stays."""
        name, inode, kind = listed
        if code in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
            return  # it went while we looked
        if entry is not None and entry.st_ino == inode:
            part = self.catalog.view.part
            learnt = entry.learnt_ns or self.catalog.view.folder(path.rpartition(b"/")[0])[1]
            kept = (*entry.fields[:12], learnt, *entry.fields[13:])
            seen.rows.append((name, kept, part(path, TARGET), part(path, LAYOUT), part(path, SUMS)))
            return
        bare = (kind, inode, *(0,) * 11, CHECKED | DOUBT, code)
        seen.rows.append((name, bare, None, None, None))
        seen.differences.append(Difference(path, f"is new and cannot be read: {os.strerror(code)}"))

    def _name(
        self, seen: Seen, whole: bytes, path: bytes, listed: tuple[bytes, int, int], entry: Any
    ) -> None:
        if self.excludes and _native.excluded(self.excludes, path):
            seen.left_out = True
            return
        try:
            now = _native.entry_at(whole)
            if now.st_ino == self.own.st_ino and samestat(os.lstat(whole), self.own):
                seen.left_out = True
                return
            target = os.fsencode(Path(os.fsdecode(whole)).readlink()) if stat.S_ISLNK(now.st_mode) else None
            layout = self._layout(whole, now)
        except OSError as error:
            self._unread(seen, path, listed, entry, error.errno or errno.EIO)
            return
        if entry is not None and entry.flags & DOUBT:
            entry = None  # nothing but its name was known
        what = ["is new"] if entry is None else compared(entry, now)
        kept, flags = None, CHECKED
        if entry is None or ANOTHER in what:
            if stat.S_ISDIR(now.st_mode):
                seen.new_folders.append(path)
        else:
            if target != self.catalog.view.part(path, TARGET):
                what.append("target differs")
            if stat.S_ISREG(now.st_mode) and layout != self.catalog.view.part(path, LAYOUT):
                what.append("layout differs")
            kept = self.catalog.view.part(path, SUMS)
            if kept and self.checksums and not what:
                bad, found = self._sum(seen, whole, path, kept)
                if bad:
                    what.append(bad)
                    flags |= CHANGED_INSIDE
                kept = found
            elif what:
                kept = None
        seen.rows.append((listed[0], (*now.fields[:12], 0, flags, 0), target, layout, kept))
        seen.differences += [Difference(path, word) for word in what]

    def _layout(self, path: bytes, now: Any) -> bytes | None:
        if self.attribute is None or not stat.S_ISREG(now.st_mode):
            return None
        try:
            return os.getxattr(path, self.attribute, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
                return None
            raise

    def _sum(self, seen: Seen, whole: bytes, path: bytes, blob: bytes) -> tuple[str, bytes | None]:
        """What is wrong with the bytes, and the checksums they have now."""
        held = sums.decode(blob)
        if held is None:
            return "", blob
        seen.files_read += 1
        try:
            found = sums.read(whole, self.catalog.layout(path), held.kind)
        except OSError as error:
            return f"cannot be read: {error.strerror}", blob
        if found is None:
            return "changed while it was read", None
        if found[0].whole == held.whole:
            return "", blob
        bad = sorted(
            {it.target for it, old in zip(found[0].objects, held.objects, strict=False) if it != old}
        )
        where = f" on target {bad[0]}" if len(bad) == 1 else ""
        return f"bytes differ{where}, though size and times do not", sums.encode(found[0])


def check(
    file: str | Path, share: float = 1.0, checksums: bool = False, mend: bool = True, seed: int | None = None
) -> Found:
    """Compares a share of the folders with the file system; mends what is not true."""
    catalog = Catalog.open(file, check=True)
    draw, folders = random.Random(seed), list[bytes]()

    def take(path: bytes, entry: Any, flags: int) -> None:
        if not flags & (UNREADABLE | LEFT_OUT) and (share >= 1 or draw.random() < share or not path):
            folders.append(path)

    found = Found(damaged=each_folder(catalog.view, take))
    checker = _Checker(catalog, checksums)
    bad: list[Seen] = []
    with ThreadPoolExecutor(THREADS) as pool:
        for seen in pool.map(checker.folder, folders):
            found.folders += 1
            found.entries += len(seen.rows) + seen.gone
            found.files_read += seen.files_read
            found.differences += seen.differences
            if seen.damaged:
                found.damaged.append((seen.path, seen.damaged))
            elif seen.differences and not seen.lost:
                bad.append(seen)
    found.differences = without_gone_below(found.differences)
    if mend and (bad or found.damaged or catalog.damaged):
        _mend(catalog, bad, bool(found.damaged or catalog.damaged))
        found.mended = True
    return found


def _mend(catalog: Catalog, bad: list[Seen], damaged: bool) -> None:
    from penstock.catalog.update import add, update

    if damaged:
        update(catalog.path, full=True)
        return
    batch = _native.batch_new()
    for seen in bad:
        for row in seen.rows:
            _native.batch_add(batch, *row)
        was = catalog.view.folder(seen.path)[0] & ~(MOVED | COMPLETE | LISTED)
        flags = was | (LISTED if seen.left_out else COMPLETE)
        _native.batch_close(batch, seen.path, flags, seen.learnt_ns)
    parts = [store.put(catalog.path, [batch])]
    new = [path for seen in bad for path in seen.new_folders]
    if new:
        scan = Scan(catalog.manifest.root, catalog.path, catalog.manifest.options, Limits())
        scan.push(new)
        parts += scan.run(quiet).parts
    add(catalog.path, catalog.manifest.parts, tuple(reversed(parts)))
