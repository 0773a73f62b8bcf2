# SPDX-License-Identifier: Apache-2.0
"""The catalog's helper: while a run goes on, keeps a catalog of what it writes.

penstock-run starts it beside the program.  It reads the events of the board's ring, asks the file system about the
names in them, off the program's path, and writes segments now and then and at the end.

Invariants:
1. Only names that the run touched are asked about, and their folders; whole folders are read where events were lost,
   and where a folder came from outside of what is known.
2. What the file system says holds, never what an event said; asking twice gives the same.
3. A folder is called complete if it was before, or if it was made, or brought, before our eyes.
4. Killed, it leaves the catalog as it was written last; `penstock catalog update` finds the rest.
5. Errors of single names are nothing: files come and go.
"""

import errno
import os
import select
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from penstock import _native
from penstock.base.errors import PenstockError
from penstock.catalog import store, sums
from penstock.catalog.events import Event, Move, Watch
from penstock.catalog.identity import identity_of
from penstock.catalog.reader import CAPTURED, COMPLETE, GONE, Catalog
from penstock.catalog.scanning import EXCLUDES, LAYOUTS, Limits, Scan, quiet
from penstock.catalog.update import update
from penstock.targets.mounts import mount_of

FLUSH_ENTRIES = 50_000
FLUSH_S = 5.0
EVENTS_AT_ONCE = 2_000
STALLED_S = 2.0
"""So long a slot of the ring may be in the making, while its writer may be waiting for a processor."""
WAIT_S = (0.002, 0.1)
_TOMBSTONE = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, GONE, 0)
_IS_GONE = (errno.ENOENT, errno.ENOTDIR)
_FLAGS_AT, _LEARNT_AT = 13, 12


class Found(NamedTuple):
    """A name as the file system has it."""

    entry: Any
    target: bytes | None
    layout: bytes | None


def parents(path: bytes) -> Iterator[bytes]:
    """The path itself, its folder, and so on up to the root, which is empty."""
    while path:
        yield path
        path = path.rpartition(b"/")[0]
    yield b""


@dataclass
class Overlay:
    """What was found since the last segment was written; paths are below the root."""

    found: dict[bytes, Found | None] = field(default_factory=dict)  # None: gone, and all below it
    complete: set[bytes] = field(default_factory=set)  # folders of which every name is here
    hidden: set[bytes] = field(default_factory=set)  # folders below which older segments say nothing true

    def below(self, path: bytes) -> list[bytes]:
        return [p for p in self.found if p.startswith(path + b"/")]

    def forget_below(self, path: bytes) -> None:
        """Nothing that was known below the path holds any more."""
        for p in self.below(path):
            del self.found[p]
        self.complete = {p for p in self.complete if p != path and not p.startswith(path + b"/")}
        self.hidden.add(path)

    def is_hidden(self, path: bytes) -> bool:
        """Does what older segments say of the path not hold?  Of a hidden folder itself they are not asked either."""
        return any(p in self.hidden for p in parents(path))


class Follower:
    """One helper at work on one catalog."""

    def __init__(self, folder: Path, root: bytes) -> None:
        self.folder, self.root = folder, root
        self.watch = Watch()
        self.overlay = Overlay()
        self.looked = 0
        self.astray = False
        self.base = _opened(folder, root)
        kind = mount_of(os.fsdecode(root)).type
        self.layout = LAYOUTS.get(kind)
        self.own = os.path.relpath(os.fsencode(folder), root)

    # ---- names ----

    def below_root(self, path: bytes) -> bytes | None:
        """The path below the root; None: it is outside, or of the catalog itself."""
        top = self.root.rstrip(b"/")
        if path != self.root and not path.startswith(top + b"/"):
            return None
        rel = path[len(top) + 1 :]
        return None if rel == self.own or rel.startswith(self.own + b"/") else rel

    def _below_root(self, paths: set[bytes]) -> list[bytes]:
        return sorted(rel for path in paths if (rel := self.below_root(path)) is not None)

    def whole(self, rel: bytes) -> bytes:
        return self.root.rstrip(b"/") + b"/" + rel if rel else self.root

    def known(self, rel: bytes) -> Found | None:
        """What the catalog will say of the path as it stands; None: not there, or not known."""
        if rel in self.overlay.found:
            return self.overlay.found[rel]
        if self.base is None or self.overlay.is_hidden(rel):
            return None
        try:
            entry = self.base.stat(rel)
        except OSError:
            return None
        return Found(entry, self.base.view.part(rel, 1), self.base.view.part(rel, 2))

    # ---- looking ----

    def ask(self, path: bytes) -> Found | None:
        """What the file system says; None: there is nothing."""
        self.looked += 1
        try:
            return Found(*_native.entry_whole(path, self.layout))
        except OSError as error:
            if error.errno in _IS_GONE:
                return None
            raise

    def look(self, rel: bytes) -> None:
        try:
            now = self.ask(self.whole(rel))
        except OSError:
            return  # not to be had now: what is known stays
        was = self.known(rel)
        if was is not None and was.entry.st_nlink > 1 and not stat.S_ISDIR(was.entry.st_mode):
            self._look_at_links(rel, was)
        if now is None:
            if was is not None:
                self._forget(rel, was)
                self.overlay.found[rel] = None
            return
        self._take(rel, now, was)

    def _forget(self, rel: bytes, was: Found) -> None:
        """It is not what it was, nor is what was below it."""
        if stat.S_ISDIR(was.entry.st_mode):
            self.overlay.forget_below(rel)

    def _take(self, rel: bytes, now: Found, was: Found | None) -> None:
        is_folder = stat.S_ISDIR(now.entry.st_mode)
        same = was is not None and (was.entry.st_ino, stat.S_IFMT(was.entry.st_mode)) == (
            now.entry.st_ino,
            stat.S_IFMT(now.entry.st_mode),
        )
        if rel and not same:
            if was is not None:
                self._forget(rel, was)
            if is_folder:
                self.overlay.hidden.add(rel)
                if self.whole(rel) in self.watch.made:
                    self.overlay.complete.add(rel)
                else:
                    self.watch.whole.add(self.whole(rel))
        self.overlay.found[rel] = now

    def _look_at_links(self, rel: bytes, was: Found) -> None:
        """Other names of the same file have changed with it."""
        for other in self._names_of(was.entry.st_ino):
            if other != rel:
                with suppress(OSError):
                    now = self.ask(self.whole(other))
                    if now is not None and now.entry.st_ino == was.entry.st_ino:
                        self.overlay.found[other] = now

    def _names_of(self, ino: int) -> list[bytes]:
        here = [p for p, found in self.overlay.found.items() if found and found.entry.st_ino == ino]
        return here + [p for p in self._links().get(ino, ()) if p not in self.overlay.found]

    def _links(self) -> dict[int, list[bytes]]:
        """Names of the base whose files have several, by inode; made when they are first needed."""
        if self._base_links is None:
            self._base_links = {}
            for rel, entry in _files_with_links(self.base):
                if not self.overlay.is_hidden(rel):
                    self._base_links.setdefault(entry.st_ino, []).append(rel)
        return self._base_links

    _base_links: dict[int, list[bytes]] | None = None

    # ---- moves ----

    def move(self, move: Move) -> None:
        """What is known of a folder goes with it; whether it is still there, looking at both names will tell.

        Names that wait to be looked at the Watch has moved already.
        """
        old, new = self.below_root(move.old), self.below_root(move.new)
        if not old or not new:
            return
        was = self.known(old)
        if was is None or not stat.S_ISDIR(was.entry.st_mode):
            return
        rows = {new + p[len(old) :]: found for p, found in self._known_below(old)}
        complete = {new + p[len(old) :] for p in self._complete_below(old)}
        self.overlay.forget_below(old)
        self.overlay.forget_below(new)
        self.overlay.found[old] = None
        self.overlay.found[new] = was
        self.overlay.found |= rows
        self.overlay.complete |= complete

    def _known_below(self, rel: bytes) -> Iterator[tuple[bytes, Found]]:
        if self.base is not None and not self.overlay.is_hidden(rel):
            for path, entry in _below(self.base, rel):
                if path not in self.overlay.found and not self.overlay.is_hidden(path):
                    yield path, Found(entry, self.base.view.part(path, 1), self.base.view.part(path, 2))
        for path in self.overlay.below(rel):
            found = self.overlay.found[path]
            if found is not None:
                yield path, found

    def _complete_below(self, rel: bytes) -> Iterator[bytes]:
        yield from (p for p in self.overlay.complete if p == rel or p.startswith(rel + b"/"))
        if self.base is None or self.overlay.is_hidden(rel):
            return
        folders = [rel, *(p for p, entry in _below(self.base, rel) if stat.S_ISDIR(entry.st_mode))]
        for path in folders:
            if not self.overlay.is_hidden(path) and self.base.folder(path).complete:
                yield path

    # ---- a round ----

    def round(self, events: list[tuple[Any, ...]]) -> None:
        """Take events, and look at what they name."""
        for row in events:
            self.watch.feed(Event(*row))
        taken = self.watch.take()
        for each in taken.moves:
            self.move(each)
        for path in taken.look:
            if (rel := self.below_root(path)) is not None:
                self.look(rel)
        self._note_astray(taken.closed)

    def _note_astray(self, closed: set[bytes]) -> None:
        """Was a file written whose name is gone?  It may have another that nobody said."""
        for path in closed:
            rel = self.below_root(path)
            self.astray = self.astray or (rel is not None and self.overlay.found.get(rel) is None)

    def _look_astray(self) -> None:
        """At all names of files that have several."""
        here = [p for p, found in self.overlay.found.items() if found and found.entry.st_nlink > 1]
        for rel in [*here, *(p for names in self._links().values() for p in names)]:
            if (found := self.known(rel)) is not None and not stat.S_ISDIR(found.entry.st_mode):
                self.look(rel)

    def flush(self) -> None:
        """Writes what was found as a segment."""
        for path in list(self.watch.open):
            rel = self.below_root(path)
            if rel and self.known(rel) is None:
                self.look(rel)
        for rel in self._below_root(self.watch.folders.take()):
            self.look(rel)
        if self.overlay.found or self.overlay.complete:
            self._write()
        self._scan()

    def _write(self) -> None:
        now_ns = time.time_ns()
        batch = _native.batch_new()
        folders: dict[bytes, list[bytes]] = {p: [] for p in self.overlay.complete}
        for rel, found in self.overlay.found.items():
            if rel:
                folders.setdefault(rel.rpartition(b"/")[0], []).append(rel)
            elif found is not None:
                _native.batch_root(batch, b"", _as_captured(found.entry, now_ns), None, None, None)
        for folder, names in sorted(folders.items()):
            for rel in names:
                found = self.overlay.found[rel]
                name = rel.rpartition(b"/")[2]
                if found is None:
                    _native.batch_add(batch, name, _TOMBSTONE, None, None, None)
                else:
                    entry = _as_captured(found.entry, now_ns)
                    _native.batch_add(batch, name, entry, found.target, found.layout, None)
            _native.batch_close(batch, folder, COMPLETE if folder in self.overlay.complete else 0, now_ns)
        self._add(store.put(self.folder, [batch]))
        self.overlay = Overlay()

    def _add(self, part: store.Part) -> None:
        try:
            sums.prepend(self.folder, part)
        except PenstockError:
            if part not in (held.parts if (held := store.read(self.folder).manifest) else ()):
                raise  # else only the merging of segments was given up
        self.base = Catalog.open(self.folder)
        self._base_links = None

    def _scan(self) -> None:
        """Folders that came from elsewhere, with all that is in them."""
        paths = [
            p
            for p in self._below_root(self.watch.whole.take())
            if (found := self.known(p)) and stat.S_ISDIR(found.entry.st_mode)
        ]
        if not paths:
            return
        scan = Scan(self.root, self.folder, self.options(), Limits())
        scan.push(paths)
        for part in scan.run(quiet, lambda part: None).parts:
            self._add(part)

    def options(self) -> store.Options:
        held = store.read(self.folder).manifest
        return held.options if held else store.Options(excludes=EXCLUDES)

    def finish(self, state: tuple[Any, ...]) -> None:
        """Nothing comes any more: look at what may have changed without an event, and at what got lost."""
        _, _, holes, _, all_lost, dropped = state
        self.watch.finish()
        self.round([])
        if self.astray:
            self._look_astray()
        for path in dropped:
            rel = self.below_root(path)
            if rel is not None:
                self.watch.whole.add(path)
                self.look(rel)
        self.flush()
        if holes or all_lost:
            update(self.folder, full=True)


def _as_captured(entry: Any, now_ns: int) -> tuple[Any, ...]:
    fields = list(entry.fields)
    fields[_LEARNT_AT], fields[_FLAGS_AT] = now_ns, CAPTURED
    return tuple(fields)


def _below(catalog: Catalog, rel: bytes) -> Iterator[tuple[bytes, Any]]:
    """All that a catalog knows below a folder; nothing is in no particular order."""
    todo = [rel]
    while todo:
        here = todo.pop()
        try:
            rows = catalog.view.list(here)
        except OSError:
            continue
        for name, entry, *_ in rows:
            path = here + b"/" + name if here else name
            yield path, entry
            if stat.S_ISDIR(entry.st_mode):
                todo.append(path)


def _files_with_links(catalog: Catalog | None) -> Iterator[tuple[bytes, Any]]:
    if catalog is not None:
        for rel, entry in _below(catalog, b""):
            if entry.st_nlink > 1 and not stat.S_ISDIR(entry.st_mode):
                yield rel, entry


def _opened(folder: Path, root: bytes) -> Catalog | None:
    """The catalog that is there, or None after a new one was begun."""
    held = store.read(folder).manifest
    if held is not None and held.root != root:
        raise PenstockError(
            f"{folder}: is the catalog of {os.fsdecode(held.root)}, not of {os.fsdecode(root)}; name another with "
            "--catalog, or that folder with --set catalog.root"
        )
    if held is not None and held.parts:
        return Catalog.open(folder, check=True)
    if held is None:
        store.prepare(folder)
        made = store.Manifest(root, identity_of(root), store.Options(excludes=EXCLUDES))
        store.commit(folder, lambda now: now or made)
    return None


# ---- the loop ----


def lives(pid: int, start_ticks: int) -> bool:
    """Is it the process that began then?  One that has ended and that nobody has waited for yet does nothing more."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return words[0] not in (b"Z", b"X") and int(words[19]) == start_ticks


def nobody_lives(board: str) -> bool:
    """Is no process of the board there any more?  A board that is gone has none."""
    from penstock.runs import board as boards

    try:
        seen = boards.read(Path(board))
    except (OSError, PenstockError):
        return True
    return not any(lives(p.pid, p.start_ticks) for p in seen.processes)


def follow(folder: Path, root: bytes, ring: int, board: str, alive: int) -> Follower:
    """Until `alive` is at its end and nobody lives; then all is looked at once more."""
    reader = _native.ring_open(ring)
    follower = Follower(folder, root)
    flushed = time.monotonic()
    stalled_since: float | None = None
    wait_s, ended = WAIT_S[0], False
    while True:
        now = time.monotonic()
        skip = stalled_since is not None and now - stalled_since > STALLED_S
        events, behind = _native.ring_events(reader, EVENTS_AT_ONCE, skip)
        stalled_since = (stalled_since or now) if behind and not events else None
        if events:
            follower.round(events)
            wait_s = WAIT_S[0]
            if len(follower.overlay.found) >= FLUSH_ENTRIES or now - flushed > FLUSH_S:
                follower.flush()
                flushed = time.monotonic()
            continue
        if ended and not behind and nobody_lives(board):
            break
        ended = ended or bool(select.select([alive], [], [], wait_s)[0])
        if ended:
            time.sleep(wait_s)
        wait_s = min(WAIT_S[1], wait_s * 2)
    rest, _ = _native.ring_events(reader, EVENTS_AT_ONCE, True)
    while rest:
        follower.round(rest)
        rest, _ = _native.ring_events(reader, EVENTS_AT_ONCE, True)
    follower.finish(_native.ring_state(reader))
    return follower
