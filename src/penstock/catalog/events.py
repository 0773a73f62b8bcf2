# SPDX-License-Identifier: Apache-2.0
"""What the events of a run ask the catalog's helper to look at: pure bookkeeping over names.

Each event comes twice: BEFORE its call, and DONE after it (native/board/ring.h).  Between them a thread has one call.

Invariants:
1. Every name that a call may have changed comes into `look` or `open`, whether its DONE comes or not.  What a call has
   made whose DONE did not come, if anything, nobody knows: such names are `whole`, and never `made`.
2. What is in `look` can be looked at now.  What is open for writing, or mapped, may still change without a further
   event: at the end all of that is to be looked at too.
3. Nothing is read here: what is on the file system decides, not what an event said.
4. Every name that waits, for whatever, waits here, and follows the moves that come meanwhile.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple


class What(IntEnum):
    OPEN = 1
    CLOSE = 2
    CHANGE = 3
    NAME = 4
    GONE = 5
    RENAME = 6
    MAP = 7


DONE, FAILED = 1, 2
_GONE = b" (deleted)"


class Event(NamedTuple):
    what: int
    flags: int
    pid: int
    thread: int
    dev: int
    ino: int
    path: bytes
    path2: bytes


class Move(NamedTuple):
    old: bytes
    new: bytes


class Taken(NamedTuple):
    """What came since the last time: the moves, in order; names to be looked at, a folder before what is in it; files
    that were written, and their inodes (0: nobody told)."""

    moves: list[Move]
    look: list[bytes]
    closed: dict[bytes, int]


def parent(path: bytes) -> bytes:
    """The folder of an absolute path."""
    return path.rpartition(b"/")[0] or b"/"


def is_below(path: bytes, folder: bytes) -> bool:
    """Is it the folder or something in it?"""
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")


def names_of_closed(path: bytes) -> tuple[bytes, ...]:
    """What a descriptor's file may be called: where its name is gone, the kernel says so behind it."""
    return (path, path.removesuffix(_GONE)) if path.endswith(_GONE) else (path,)


def moved(path: bytes, move: Move) -> bytes:
    """What the path is called after the move."""
    return move.new + path[len(move.old) :] if is_below(path, move.old) else path


@dataclass
class Names:
    """Names, and what they are called after the moves that came later.  Both count: events of several processes are not
    in the order of their calls."""

    said: set[bytes] = field(default_factory=set)
    moved: set[bytes] = field(default_factory=set)

    def add(self, path: bytes) -> None:
        self.said.add(path)

    def move(self, move: Move) -> None:
        self.moved = {moved(p, move) for p in self.moved}
        self.moved |= {moved(p, move) for p in self.said if is_below(p, move.old)}

    def take(self) -> set[bytes]:
        taken = self.said | self.moved
        self.said, self.moved = set(), set()
        return taken


@dataclass
class Watch:
    """The books of one helper."""

    doing: dict[tuple[int, int], Event] = field(default_factory=dict)
    moved_on: dict[tuple[int, int], set[bytes]] = field(default_factory=dict)  # other names of what is begun
    open: Counter[bytes] = field(default_factory=Counter)
    mapped: set[bytes] = field(default_factory=set)
    look: Names = field(default_factory=Names)
    folders: Names = field(default_factory=Names)  # whose own times changed: names came or went
    whole: Names = field(default_factory=Names)  # to be read whole: anything may have changed below
    closed: dict[bytes, int] = field(default_factory=dict)  # files that were written: their inodes
    moves: list[Move] = field(default_factory=list)  # names that were renamed, in order
    made: set[bytes] = field(default_factory=set)  # names that were not there before: by mkdir and the like

    def feed(self, event: Event) -> None:
        key = (event.pid, event.thread)
        if not event.flags & DONE:
            self._end(key)
            self.doing[key] = event
            return
        began = self.doing.get(key)
        if began is not None and began.what != event.what:
            self._end(key)  # its DONE is lost, and this one's BEFORE
            began = None
        if began is not None and (not event.flags & FAILED or event.what == What.CLOSE):
            self._end(key, event)
        elif began is None and event.path and not event.flags & FAILED:
            self._settle(event)
        self.doing.pop(key, None)
        self.moved_on.pop(key, None)

    def _end(self, key: tuple[int, int], done: Event | None = None) -> None:
        """What the thread had begun counts as done; a name that its DONE tells is the right one."""
        began = self.doing.pop(key, None)
        if began is None:
            return
        if done is None and began.what in (What.RENAME, What.NAME):
            for path in filter(None, (began.path, began.path2)):
                self.whole.add(path)
                self._see_name(path)
        else:
            self._settle(done if done is not None and done.path else began)
        for path in self.moved_on.pop(key, ()):
            self._see_name(path)

    def _see(self, path: bytes) -> None:
        self.look.add(path)

    def _see_name(self, path: bytes) -> None:
        self._see(path)
        self.folders.add(parent(path))

    def _settle(self, event: Event) -> None:
        path = event.path
        if event.what == What.OPEN:
            self.open[path] += 1
            self.folders.add(parent(path))
        elif event.what == What.CLOSE:
            for name in names_of_closed(path):
                self.open[name] -= 1
                if self.open[name] <= 0:
                    del self.open[name]
                self._see(name)
                if event.ino:
                    self.closed[name] = event.ino
        elif event.what == What.CHANGE:
            self._see(path)
        elif event.what == What.MAP:
            self.mapped.add(path)
        elif event.what == What.RENAME:
            if event.path2:
                self._rename(Move(path, event.path2))
            else:
                self._see_name(path)  # the new name could not be told
        else:
            self._see_name(path)
            if event.what == What.NAME:
                self.made.add(path)
            else:
                self.made.discard(path)
            if event.path2:  # of a link: the new name
                self._see_name(event.path2)

    def _rename(self, move: Move) -> None:
        """What is known under the old name goes on under the new one; both names are to be looked at."""
        for names in (self.look, self.folders, self.whole):
            names.move(move)
        self.closed |= {moved(p, move): ino for p, ino in self.closed.items()}
        for key, event in self.doing.items():  # which may have come before the move, or come after it
            if is_below(event.path, move.old):
                self.moved_on.setdefault(key, set()).add(moved(event.path, move))
        was_made = {p for p in self.made if is_below(p, move.old)}
        self.made = {p for p in self.made - was_made if not is_below(p, move.new)}
        self.made |= {moved(p, move) for p in was_made}
        self.moves.append(move)
        self._see_name(move.old)
        self._see_name(move.new)
        for path in [p for p in self.open if is_below(p, move.old)]:
            self.open[moved(path, move)] += self.open.pop(path)
        for path in [p for p in self.mapped if is_below(p, move.old)]:
            self.mapped.remove(path)
            self.mapped.add(moved(path, move))

    def take(self) -> Taken:
        moves, self.moves = self.moves, []
        closed, self.closed = self.closed, {}
        return Taken(moves, sorted(self.look.take()), closed)

    def finish(self) -> None:
        """Nothing comes any more: all that was begun counts as done."""
        for key in list(self.doing):
            self._end(key)
        for path in self.open.keys() | self.mapped:
            self._see(path)
            self.closed.setdefault(path, 0)
