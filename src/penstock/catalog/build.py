# SPDX-License-Identifier: Apache-2.0
"""Making a catalog of a tree that is there already: by this process, or by many on many nodes.

A build puts segments aside on the way, named in the manifest as `building`; killed, it goes on where it was: folders
that were listed are not listed again.  At the end the segments become one, and that one becomes the catalog; until
then the one before, if there was one, stays as it was.

Invariants:
1. A catalog says of no folder that it is complete which was not listed wholly.
2. What others add while a build goes on lies above what it brings.
"""

import os
import stat
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from penstock import _native
from penstock.base.errors import PenstockError
from penstock.catalog import marks, store
from penstock.catalog.identity import identity_of
from penstock.catalog.reader import COMPLETE, DOUBT, LEFT_OUT, LISTED, UNREADABLE, segments_of
from penstock.catalog.scanning import Limits, Outcome, Problem, Progress, Say, Scan, quiet

_DONE = COMPLETE | LISTED | UNREADABLE | LEFT_OUT
_CALL, _ALL_DEPTHS = 27, 2**32 - 1
PARTS_MOST, JOINED_AT_ONCE = 64, 32
"""Segments that are put aside: so many at most, as a view holds no more; so many become one when they are more."""
TASK_S = 3.0
"""So long a task of an executor reads before it gives back what is left."""


@dataclass(frozen=True)
class Built:
    """What came of it."""

    manifest: store.Manifest
    outcome: Outcome
    resumed: bool


def absolute(root: str | bytes | os.PathLike[str]) -> bytes:
    """The path with which a tree is named in its catalog: absolute, without symlinks."""
    return os.path.realpath(os.fsencode(root))


def build(
    root: str | bytes | os.PathLike[str],
    folder: str | os.PathLike[str],
    options: store.Options = store.Options(),  # noqa: B008 - immutable
    limits: Limits = Limits(),  # noqa: B008
    say: Say = quiet,
    fresh: bool = False,
    executor: Executor | None = None,
    workers: int = 0,
) -> Built:
    """Builds, or goes on with a build of the same tree that was killed."""
    top, into = absolute(root), Path(folder)
    store.prepare(into)
    began, resumed = _begin(top, into, options, fresh)
    pending = _pending(into, _gathered(into, began)) if resumed else [b""]
    if executor is None:
        scan = Scan(top, into, options, limits)
        scan.push(pending)
        outcome = scan.run(say, lambda part: _put_aside(into, part))
    else:
        outcome = _spread(executor, workers, top, into, options, limits, say, pending)
    lost = frozenset[str]() if resumed else marks.lost(began.doubts)
    return Built(_finish(into, outcome, resumed, lost), outcome, resumed)


def _begin(root: bytes, folder: Path, options: store.Options, fresh: bool) -> tuple[store.Manifest, bool]:
    try:
        identity = identity_of(root)
    except NotADirectoryError as error:
        raise PenstockError(f"{os.fsdecode(root)}: is no folder") from error
    except OSError as error:
        raise PenstockError(f"{os.fsdecode(root)}: {error.strerror}; name a folder") from error
    resumed = False

    def change(held: store.Manifest | None) -> store.Manifest:
        nonlocal resumed
        resumed = False
        if held is None:
            return store.Manifest(root, identity, options)
        if absolute(held.root) != root:
            raise PenstockError(
                f"{folder}: is the catalog of {os.fsdecode(held.root)}; name another place with -o, or remove it"
            )
        resumed = bool(held.building) and not fresh and held.is_built_as(options, identity)
        if resumed:
            return held
        return msgspec.structs.replace(
            held,
            root=root,
            building=(),
            over=held.parts,
            building_options=options,
            building_identity=identity,
        )

    return store.commit(folder, change), resumed


def _put_aside(folder: Path, part: store.Part) -> None:
    def change(held: store.Manifest | None) -> store.Manifest:
        if held is None:
            raise PenstockError(f"{folder}: somebody removed the catalog while it was built")
        return msgspec.structs.replace(held, building=(part, *held.building))

    _gathered(folder, store.commit(folder, change))


def each_folder(view: Any, say: Callable[[bytes, Any, int], None]) -> list[tuple[bytes, int]]:
    """Calls for each folder: path, entry, flags.  Gives the folders that could not be read, and why."""

    def take(which: int, row: Any, target: Any, path: bytes, depth: int) -> bool:
        say(path, row[1], row[2])
        return True

    tests = [(8, 0, 0, 1 << (stat.S_IFDIR >> 12), 0, None), (_CALL, 0, 0, 0, 0, None), (1, 0, 1, 0, 0, None)]
    damaged: list[tuple[bytes, int]] = view.find("", b"", 0, _ALL_DEPTHS, tests, 1, take)
    return damaged


def _pending(folder: Path, parts: tuple[store.Part, ...]) -> list[bytes]:
    """The folders that the segments know of and that were not listed."""
    view = segments_of(folder, parts)
    found: list[bytes] = []
    try:
        damaged = each_folder(view, lambda path, entry, flags: None if flags & _DONE else found.append(path))
    except OSError:
        return [b""]  # not even the root
    return found + [path for path, _ in damaged]


def _gathered(folder: Path, held: store.Manifest) -> tuple[store.Part, ...]:
    """What was put aside, in as many segments as a view can hold; so it is kept."""
    parts = fewer(folder, held.building)
    if parts == held.building:
        return parts

    def change(now: store.Manifest | None) -> store.Manifest:
        if now is None or now.building != held.building:
            raise PenstockError(
                f"{folder}: somebody else builds this catalog; wait for that, or name another"
            )
        return msgspec.structs.replace(now, building=parts)

    return store.commit(folder, change).building


def fewer(folder: Path, parts: tuple[store.Part, ...]) -> tuple[store.Part, ...]:
    """The same in few segments.  The smallest become one first, so that no entry is written anew often."""
    made = set[str]()
    while len(parts) > PARTS_MOST:
        small = sorted(parts, key=lambda part: part.entries)[:JOINED_AT_ONCE]
        one = joined(folder, tuple(small))
        for part in small:
            if part.name in made:
                (folder / part.name).unlink(missing_ok=True)
        made.add(one.name)
        parts = (one, *(part for part in parts if part not in small))
    return parts


def joined(folder: Path, parts: tuple[store.Part, ...]) -> store.Part:
    """One segment of several of one scan, in any order."""
    return _made_one(folder, parts, _native.batch_join)


def merged(folder: Path, parts: tuple[store.Part, ...]) -> store.Part:
    """One segment of several, newest first, of which each says what changed since the one before it."""
    return _made_one(folder, parts, _native.batch_merge)


def _made_one(folder: Path, parts: tuple[store.Part, ...], add: Callable[[Any, Any], None]) -> store.Part:
    batch = _native.batch_new()
    try:
        add(batch, segments_of(folder, parts))
    except OSError as error:
        raise PenstockError(
            f"{folder}: merging its segments: {error.strerror}; build it anew with --fresh"
        ) from error
    return store.put(folder, [batch])


def _problems(folder: Path, part: store.Part) -> int:
    """How much of a segment is in doubt; for builds of which a part was done by a process that is gone."""
    view, count = segments_of(folder, (part,)), 0

    def take(which: int, row: Any, target: Any, path: bytes, depth: int) -> bool:
        nonlocal count
        count += bool(row[2] & UNREADABLE) or bool(row[1].flags & DOUBT)
        return True

    view.find("", b"", 0, _ALL_DEPTHS, [(_CALL, 0, 0, 0, 0, None)], 1, take)
    return count


def _finish(folder: Path, outcome: Outcome, resumed: bool, lost: frozenset[str]) -> store.Manifest:
    """What was put aside takes the place of what the catalog was when the build began."""
    held = store.read(folder).manifest
    if held is None or not held.building:
        raise PenstockError(f"{folder}: nothing was read, or somebody removed the catalog while it was built")
    whole = held.building[0] if len(held.building) == 1 else joined(folder, held.building)
    problems = _problems(folder, whole) if resumed else len(outcome.problems)

    def change(now: store.Manifest | None) -> store.Manifest:
        begun = now or held
        settled = msgspec.structs.replace(begun, doubts=tuple(it for it in begun.doubts if it not in lost))
        return msgspec.structs.replace(
            store.laid(settled, begun.over, (whole,), instead=True),
            options=begun.building_options or begun.options,
            identity=begun.building_identity or begun.identity,
            building=(),
            over=(),
            building_options=None,
            building_identity=None,
            built_ns=time.time_ns(),
            updated_ns=time.time_ns(),
            problems=problems,
            moved=len(outcome.moved),
        )

    return store.commit(folder, change)


# On many nodes


def task(root: bytes, folder: str, options: store.Options, limits: Limits, paths: list[bytes]) -> Outcome:
    """What a worker does: reads these folders and below for a while, writes a segment, gives back what is left."""
    scan = Scan(root, Path(folder), options, limits)
    scan.push(paths)
    return scan.run(quiet)


def shares(paths: list[bytes], count: int) -> list[list[bytes]]:
    """The paths dealt out to at most so many, evenly."""
    return [share for share in (paths[i::count] for i in range(count)) if share]


def _spread(
    executor: Executor,
    workers: int,
    root: bytes,
    folder: Path,
    options: store.Options,
    limits: Limits,
    say: Say,
    pending: list[bytes],
) -> Outcome:
    """Workers read for some seconds each and give back what is left, which is dealt out anew."""
    count = workers or int(getattr(executor, "_max_workers", 0) or 4)
    whole, began = Outcome(), time.monotonic()
    running: set[Future[Outcome]] = set()
    limit = limits._replace(threads=limits.threads or 4, seconds=0.3, rate_per_s=limits.rate_per_s / count)
    while pending or running:
        if count > len(running):
            for share in shares(pending, count - len(running)):
                running.add(executor.submit(task, root, str(folder.absolute()), options, limit, share))
            pending = []
        done, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            outcome = future.result()
            whole.add(outcome)
            pending += outcome.pending
            for part in outcome.parts:
                _put_aside(folder, part)
        limit = limit._replace(seconds=TASK_S if len(pending) + len(running) >= count else 0.3)
        say(Progress(whole.entries, whole.folders, len(pending), time.monotonic() - began, len(running)))
    whole.seconds = time.monotonic() - began
    return whole


__all__ = ["Built", "Limits", "Problem", "absolute", "build", "each_folder", "merged", "shares", "task"]
