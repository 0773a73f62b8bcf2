# SPDX-License-Identifier: Apache-2.0
"""The catalog's helper: while a run goes on, keeps a catalog of what it writes.

penstock-run starts it beside the program.  It reads the events of the board's ring, asks the file system about the
names in them, off the program's path, and writes segments now and then and at the end.

Invariants:
1. Only names that the run touched are asked about, and their folders; whole folders are read where events were lost,
   and where a folder came from outside of what is known.
2. What the file system says holds, never what an event said; asking twice gives the same.
3. A folder is called complete if it was before, or if it was made, or brought, before our eyes.  One that was made is
   listed once before that is written: others may have put names into it.
4. What others added to the catalog since we looked is looked at again before we say otherwise.  While others are at
   work, names that are gone are told though we never knew them, and folders that moved are read whole.
5. Its mark stands in the manifest while it works.  Killed, it leaves the catalog as it was written last, with the mark:
   `penstock catalog update` then looks at everything.
6. Names are told as programs gave them, and kept as they are without links in their folders.
7. Errors of single names are nothing: files come and go.
"""

import errno
import os
import select
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from penstock import _native
from penstock.base.errors import DeniedError, PenstockError, UsageError
from penstock.catalog import marks, store
from penstock.catalog.events import Event, Move, Watch, What, parent
from penstock.catalog.identity import identity_of
from penstock.catalog.reader import CAPTURED, COMPLETE, GONE, Catalog, segments_of
from penstock.catalog.scanning import EXCLUDES, LAYOUTS, Limits, Scan, quiet
from penstock.catalog.update import add, update
from penstock.targets.mounts import mount_of

FLUSH_ENTRIES = 50_000
FLUSH_S = 5.0
EVENTS_AT_ONCE = 2_000
STALLED_S = 2.0
"""So long a slot of the ring may be in the making, while its writer may be waiting for a processor."""
WAIT_S = (0.002, 0.1)
LOOKS_MAX = 1_000
"""So many names that a folder has besides those that were told are looked at one by one; else it is scanned."""
TRIES = 5
_TOMBSTONE = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, GONE, 0)
_IS_GONE = (errno.ENOENT, errno.ENOTDIR)
_FLAGS_AT, _LEARNT_AT = 13, 12


class Found(NamedTuple):
    """A name as the file system has it."""

    entry: Any
    target: bytes | None
    layout: bytes | None
    learnt_ns: int


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
    complete: dict[bytes, int] = field(default_factory=dict)
    """Folders of which every name is here: since when that is known; 0: they were made, and not listed yet."""
    came: dict[bytes, bytes] = field(default_factory=dict)  # folders that were renamed: their names before
    gone: set[bytes] = field(
        default_factory=set
    )  # names that are not there and that we never knew: others may
    hidden: set[bytes] = field(default_factory=set)  # folders below which older segments say nothing true

    def below(self, path: bytes) -> list[bytes]:
        return [p for p in self.found if p.startswith(path + b"/")]

    def forget_below(self, path: bytes) -> None:
        """Nothing that was known below the path holds any more."""
        for p in self.below(path):
            del self.found[p]
        self.complete = {
            p: ns for p, ns in self.complete.items() if p != path and not p.startswith(path + b"/")
        }
        self.hidden.add(path)

    def is_hidden(self, path: bytes) -> bool:
        """Does what older segments say of the path not hold?  Of a hidden folder itself they are not asked either."""
        return any(p in self.hidden for p in parents(path))


class Follower:
    """One helper at work on one catalog."""

    def __init__(self, folder: Path, root: bytes) -> None:
        self.folder = folder
        self.watch = Watch()
        self.overlay = Overlay()
        self.looked = 0
        self.astray: set[int] = set()
        """Inodes of files that were written and whose names are gone; 0: of some that nobody told."""
        self.mark = marks.own()
        self.base, self.root = _opened(folder, root, self.mark)
        self.real_root = os.path.realpath(root)
        self.folders: dict[bytes, bytes] = {}  # what folders are called without links; of one round
        kind = mount_of(os.fsdecode(root)).type
        self.layout = LAYOUTS.get(kind)
        self.own = os.path.relpath(os.path.realpath(os.fsencode(folder)), self.real_root)

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
        return self._found(rel, entry)

    def _found(self, rel: bytes, entry: Any) -> Found:
        """An entry of the base."""
        assert self.base is not None
        learnt_ns = entry.learnt_ns or self.base.known(rel.rpartition(b"/")[0]).learnt_ns
        return Found(entry, self.base.view.part(rel, 1), self.base.view.part(rel, 2), learnt_ns)

    @property
    def begin(self) -> tuple[store.Part, ...]:
        """The segments of the base."""
        return self.base.manifest.parts if self.base else ()

    # ---- links in folders ----

    def real(self, path: bytes) -> bytes:
        """What a name is called without links in its folder; in the tree it begins as the root was given."""
        folder = parent(path)
        real = self.folders.get(folder) or self._real_folder(folder)
        if real != folder:
            path = real.rstrip(b"/") + path[len(folder.rstrip(b"/")) :]
        return self.root if path == self.real_root else path

    def _real_folder(self, folder: bytes) -> bytes:
        try:
            fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return self.real(folder)  # gone: those above it may be links
        try:
            found = os.readlink(b"/proc/self/fd/%d" % fd)  # noqa: PTH115 - names are bytes
        finally:
            os.close(fd)
        self.folders[folder] = self._as_given(found)
        return self.folders[folder]

    def _as_given(self, path: bytes) -> bytes:
        """A path without links, below the root as it was given."""
        top = self.real_root.rstrip(b"/")
        below = path == self.real_root or path.startswith(top + b"/")
        return self.whole(path[len(top) + 1 :]) if below else path

    def feed(self, event: Event) -> None:
        said = event.path, event.path2
        now = tuple(self.real(path) if path else path for path in said)
        self.watch.feed(event if now == said else event._replace(path=now[0], path2=now[1]))
        for path, real in zip(said, now, strict=True):
            if path != real:
                self.watch.look.add(path)  # when it was told there may have been no link

    def _look_behind(self, path: bytes) -> None:
        """A change by the name of a link is one of what it leads to."""
        rel = self.below_root(path)
        found = self.overlay.found.get(rel) if rel is not None else None
        if found is None or stat.S_ISLNK(found.entry.st_mode):
            target = self.below_root(self._as_given(os.path.realpath(path)))
            if target is not None and target != rel:
                self.look(target)

    # ---- looking ----

    def ask(self, path: bytes) -> Found | None:
        """What the file system says; None: there is nothing."""
        self.looked += 1
        now_ns = time.time_ns()
        if self.real(path) != path:
            return None  # a link leads to it
        try:
            entry, target, layout = _native.entry_whole(path, self.layout)
        except OSError as error:
            if error.errno in _IS_GONE:
                return None
            raise
        return Found(entry, target, layout, now_ns)

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
            elif rel not in self.overlay.found:
                self.overlay.gone.add(rel)
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
                    self.overlay.complete[rel] = 0
                else:
                    self._read_whole([rel])
        self.overlay.found[rel] = now

    def _read_whole(self, folders: Iterable[bytes]) -> None:
        for rel in folders:
            self.watch.whole.add(self.whole(rel))

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
        complete = {new + p[len(old) :]: ns for p, ns in self._complete_below(old)}
        self.overlay.forget_below(old)
        self.overlay.forget_below(new)
        self.overlay.found[old] = None
        self.overlay.found[new] = was
        self.overlay.found |= rows
        self.overlay.complete |= complete
        self.overlay.came[new] = self.overlay.came.pop(old, old)

    def _known_below(self, rel: bytes) -> Iterator[tuple[bytes, Found]]:
        if self.base is not None and not self.overlay.is_hidden(rel):
            for path, entry in _below(self.base, rel):
                if path not in self.overlay.found and not self.overlay.is_hidden(path):
                    yield path, self._found(path, entry)
        for path in self.overlay.below(rel):
            found = self.overlay.found[path]
            if found is not None:
                yield path, found

    def _complete_below(self, rel: bytes) -> Iterator[tuple[bytes, int]]:
        for path, learnt_ns in self.overlay.complete.items():
            if path == rel or path.startswith(rel + b"/"):
                yield path, learnt_ns
        if self.base is None or self.overlay.is_hidden(rel):
            return
        folders = [rel, *(p for p, entry in _below(self.base, rel) if stat.S_ISDIR(entry.st_mode))]
        for path in folders:
            if not self.overlay.is_hidden(path) and (known := self.base.known(path)).complete:
                yield path, known.learnt_ns

    # ---- a round ----

    def round(self, events: list[tuple[Any, ...]]) -> None:
        """Take events, and look at what they name."""
        self.folders.clear()
        by_name: set[bytes] = set()
        for row in events:
            event = Event(*row)
            self.feed(event)
            if event.what == What.CHANGE and event.path:
                by_name.add(event.path)
        taken = self.watch.take()
        for each in taken.moves:
            self.move(each)
        for path in taken.look:
            if (rel := self.below_root(path)) is not None:
                self.look(rel)
        for path in by_name:
            self._look_behind(path)
        self._note_astray(taken.closed)

    def _note_astray(self, closed: dict[bytes, int]) -> None:
        """Was a file written whose name is gone?  It may have another that nobody said."""
        for path, ino in closed.items():
            rel = self.below_root(path)
            if rel is not None and self.overlay.found.get(rel) is None:
                self.astray.add(ino)

    def _look_astray(self) -> None:
        """At all names that these files may have."""
        here = [p for p, found in self.overlay.found.items() if found and found.entry.st_nlink > 1]
        for rel in [*here, *(p for names in self._links().values() for p in names)]:
            found = self.known(rel)
            if found is None or stat.S_ISDIR(found.entry.st_mode):
                continue
            if 0 in self.astray or found.entry.st_ino in self.astray:
                self.look(rel)

    def flush(self) -> None:
        """Writes what was found as a segment."""
        self.folders.clear()
        for path in list(self.watch.open):
            rel = self.below_root(path)
            if rel and self.known(rel) is None:
                self.look(rel)
        for rel in self._below_root(self.watch.folders.take()):
            self.look(rel)
        if self.overlay.found or self.overlay.complete or (self.overlay.gone and self._others()):
            self._write()
        self.overlay.gone.clear()
        self._scan()

    def _write(self) -> None:
        """On top of what we know; what others have added since is looked at first, as often as has an end."""
        listed: list[bytes] = []
        for left in reversed(range(TRIES)):
            if self._others():
                self._read_whole(self.overlay.came)
                self.overlay.found = dict.fromkeys(self.overlay.gone) | self.overlay.found
            self.overlay.complete |= dict.fromkeys(listed, 0)
            listed = self._list_made()
            self._look_above()
            part = self._put()
            if add(self.folder, self.begin, (part,), self.mark, alone=left > 0):
                break
            self._take_news(part)
            (self.folder / part.name).unlink(missing_ok=True)
        self.overlay = Overlay()
        self._reopen()

    def _look_above(self) -> None:
        """At folders above what was found of which nothing is known: a name is found from the root on."""
        above = {it for rel in (*self.overlay.found, *self.overlay.complete) for it in parents(rel)}
        for rel in sorted(above - self.overlay.found.keys()):
            if self.known(rel) is None:
                with suppress(OSError):
                    now = self.ask(self.whole(rel))
                    if now is not None and stat.S_ISDIR(now.entry.st_mode):
                        self.overlay.found[rel] = now

    def _others(self) -> bool:
        """Has anybody else written since we looked, or is at work?"""
        held = store.read(self.folder).manifest
        return held is not None and (held.parts != self.begin or any(it != self.mark for it in held.doubts))

    def _take_news(self, ours: store.Part) -> None:
        """What others added to the catalog since: names of which it says something else than we are looked at again.
        Where they merged it with what there was, it does not say of all names any more that they are gone."""
        begin = self.begin
        self._reopen()
        later, older = self.begin[: len(self.begin) - len(begin)], self.begin[len(self.begin) - len(begin) :]
        view = None
        if begin and older == begin:
            with suppress(FileNotFoundError):  # merged again
                view = segments_of(self.folder, (*later, ours))
        for rel, found in sorted(self.overlay.found.items(), key=lambda it: it[0]):
            if view is None or _said(view, rel) != (found.entry.fields[:_LEARNT_AT] if found else None):
                self.look(rel)

    def _list_made(self) -> list[bytes]:
        """Lists folders that were made, and looks at what is there and was not told, or was told and is not there.
        Gives those of which every name is known then."""
        listed: list[bytes] = []
        names: dict[bytes, set[bytes]] = {}
        for rel, found in self.overlay.found.items():
            if rel and found is not None:
                names.setdefault(rel.rpartition(b"/")[0], set()).add(rel)
        while made := [p for p, learnt_ns in self.overlay.complete.items() if not learnt_ns]:
            for rel in made:
                if self.overlay.complete.pop(rel, None) is None:
                    continue  # not there any more
                learnt_ns = time.time_ns()
                try:
                    there = {rel + b"/" + name for name in _names(self.whole(rel))}
                except OSError:
                    continue
                other = (there ^ names.get(rel, set())) - {self.own}
                if len(other) > LOOKS_MAX:
                    self._read_whole([rel])
                    continue
                for path in sorted(other):
                    self.look(path)
                self.overlay.complete[rel] = learnt_ns
                listed.append(rel)
        return listed

    def _put(self) -> store.Part:
        now_ns = time.time_ns()
        batch = _native.batch_new()
        folders: dict[bytes, list[bytes]] = {p: [] for p in self.overlay.complete}
        for rel, found in self.overlay.found.items():
            if rel:
                folders.setdefault(rel.rpartition(b"/")[0], []).append(rel)
            elif found is not None:
                _native.batch_root(batch, b"", _as_captured(found), None, None, None)
        for folder, names in sorted(folders.items()):
            for rel in names:
                found = self.overlay.found[rel]
                name = rel.rpartition(b"/")[2]
                if found is None:
                    _native.batch_add(batch, name, _TOMBSTONE, None, None, None)
                else:
                    _native.batch_add(batch, name, _as_captured(found), found.target, found.layout, None)
            learnt_ns = self.overlay.complete.get(folder)
            _native.batch_close(batch, folder, 0 if learnt_ns is None else COMPLETE, learnt_ns or now_ns)
        return store.put(self.folder, [batch])

    def _reopen(self) -> None:
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
        held = store.read(self.folder).manifest
        if held is None:
            raise PenstockError(f"{self.folder}: somebody removed the catalog meanwhile")
        scan = Scan(self.root, self.folder, held.options, Limits())
        scan.push(paths)
        outcome = scan.run(quiet)
        add(self.folder, held.parts, tuple(outcome.parts), self.mark)
        if count := len(outcome.problems):
            store.commit(self.folder, lambda now: _with_problems(now or held, count))
        self._reopen()

    def finish(self, state: tuple[Any, ...]) -> None:
        """Nothing comes any more: look at what may have changed without an event, and at what got lost."""
        _, _, holes, _, all_lost, dropped = state
        followed = list(self.watch.open)
        self.watch.finish()
        self.round([])
        for path in followed:
            self._look_behind(path)
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
        store.commit(self.folder, self._unmarked)

    def _unmarked(self, held: store.Manifest | None) -> store.Manifest:
        if held is None:
            raise PenstockError(f"{self.folder}: somebody removed the catalog meanwhile")
        return marks.unmarked(held, self.mark)


def _with_problems(held: store.Manifest, count: int) -> store.Manifest:
    return msgspec.structs.replace(held, problems=held.problems + count)


def _said(view: Any, rel: bytes) -> Any:
    try:
        return view.stat(rel).fields[:_LEARNT_AT]
    except OSError:
        return None


def _names(folder: bytes) -> list[bytes]:
    with os.scandir(folder) as listing:
        return [it.name for it in listing]


def _as_captured(found: Found) -> tuple[Any, ...]:
    fields = list(found.entry.fields)
    fields[_LEARNT_AT], fields[_FLAGS_AT] = found.learnt_ns, CAPTURED
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


def root_of(folder: Path, root: bytes) -> bytes:
    """The root of the catalog that a run is to keep: as given, or else (empty) that of the catalog that is there, or
    the folder that it lies in.  What can be told before the run of why it cannot be kept is a PenstockError."""
    held = _held(folder, root)
    if held is None:
        store.prepare(folder)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise DeniedError(f"{folder}: cannot be written; name a catalog of your own with --catalog")
    found = held.root if held else root or os.path.realpath(os.fsencode(folder.parent))
    if not Path(os.fsdecode(found)).is_dir():
        raise UsageError(f"{os.fsdecode(found)}: is no folder; name the catalog's with --set catalog.root")
    return found


def _held(folder: Path, root: bytes) -> store.Manifest | None:
    """The catalog that is there, if it is of this tree (empty: of whichever) and can be read."""
    held = store.read(folder)
    if held.manifest is None:
        if held.damaged:
            raise PenstockError(f"{folder}: {', '.join(held.damaged)} is damaged; build the catalog anew")
        return None
    if root and os.path.realpath(held.manifest.root) != os.path.realpath(root):
        raise UsageError(
            f"{folder}: is the catalog of {os.fsdecode(held.manifest.root)}, not of {os.fsdecode(root)}; name another "
            "with --catalog, or that folder with --set catalog.root"
        )
    if held.manifest.parts:
        Catalog.open(folder, check=True)
    return held.manifest


def _opened(folder: Path, root: bytes, mark: str) -> tuple[Catalog | None, bytes]:
    """The catalog that is there, or None after a new one was begun; with the mark.  And its root as it names it."""
    held = _held(folder, root)
    if held is None:
        store.prepare(folder)
    made = held or store.Manifest(os.path.realpath(root), identity_of(root), store.Options(excludes=EXCLUDES))
    now = store.commit(folder, lambda now: marks.marked(now or made, mark))
    return Catalog.open(folder) if now.parts else None, now.root


# ---- the loop ----


def nobody_lives(board: str) -> bool:
    """Is no process of the board there any more?  A board that is gone has none."""
    from penstock.runs import board as boards

    try:
        seen = boards.read(Path(board))
    except (OSError, PenstockError):
        return True
    return not any(marks.lives(p.pid, p.start_ticks) for p in seen.processes)


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
