# SPDX-License-Identifier: Apache-2.0
"""Bringing a catalog up to date: folders whose times changed are listed again, names that are new are asked for.

What is not seen: a file written in place changes no folder.  `full` asks for every entry, `check` for a sample.

Invariants:
1. What is learnt is a further segment; readers see the catalog before or after, never between.
2. What others add meanwhile lies above it: a listing hides only what was learnt before it.
3. Where a helper ended without its last word, or others merged what came before with what came after, nobody knows
   which names changed: everything is asked for.
4. An entry that changed within a clock's tick of being learnt is asked for again, since its times could not show it.
"""

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.base.errors import IncompleteError, PenstockError
from penstock.catalog import marks, store
from penstock.catalog.build import merged
from penstock.catalog.reader import Catalog
from penstock.catalog.scanning import TICK_NS, Limits, Outcome, Say, Scan, is_local, quiet

PARTS_MAX = 8
"""So many segments are merged to one."""
_TRIES = 20
PARTS_MOST = 48
"""So many, and nothing is added until they are merged: a view holds 64."""


def update(
    folder: str | Path,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    full: bool = False,
    say: Say = quiet,
    tick_ns: int | None = None,
) -> Outcome:
    """What changed, into a further segment; `full`, or where the catalog is in doubt: the whole tree anew, checksums
    kept where files are the same."""
    catalog = Catalog.open(folder, check=True)
    into = catalog.path
    damaged = [*catalog.damaged, *(() if full else catalog.damaged_blocks())]
    if damaged and not full:
        raise IncompleteError(
            f"{into}: {', '.join(damaged)} is damaged, and nothing was updated; "
            f"penstock catalog update --full {into} makes it anew"
        )
    lost = marks.lost(catalog.manifest.doubts)
    full = full or bool(lost)
    scan = Scan(catalog.manifest.root, into, catalog.manifest.options, limits)
    scan.known(catalog.view, TICK_NS[is_local(catalog.manifest.root)] if tick_ns is None else tick_ns, full)
    outcome = scan.run(say)
    scan.kernel = None  # it uses the view
    _commit(into, outcome, catalog.manifest.parts, full, lost)
    return outcome


def _commit(
    folder: Path, outcome: Outcome, begin: tuple[store.Part, ...], full: bool, lost: frozenset[str]
) -> None:
    new = tuple(outcome.parts)

    def change(held: store.Manifest | None) -> store.Manifest:
        if held is None:
            raise PenstockError(f"{folder}: somebody removed the catalog while it was updated")
        settled = msgspec.structs.replace(held, doubts=tuple(it for it in held.doubts if it not in lost))
        return msgspec.structs.replace(
            store.laid(settled, begin, new, instead=full),
            updated_ns=time.time_ns(),
            problems=len(outcome.problems) if full else held.problems + len(outcome.problems),
            moved=len(outcome.moved),
        )

    _merge_if_many(folder, store.commit(folder, change))


def add(
    folder: Path,
    begin: tuple[store.Part, ...],
    new: tuple[store.Part, ...],
    mark: str = "",
    alone: bool = False,
) -> bool:
    """Segments that were learnt while the catalog had the parts `begin`, and a mark that is to stand while more come.
    `alone`: only if nobody has added anything since; false: somebody has, and nothing was done."""

    def change(held: store.Manifest | None) -> store.Manifest:
        if held is None:
            raise PenstockError(f"{folder}: somebody removed the catalog meanwhile")
        if alone and held.parts != begin:
            raise _MeanwhileError
        if len(held.parts) >= PARTS_MOST:
            raise _FullError
        return store.laid(marks.marked(held, mark), begin, new)

    for _ in range(_TRIES):
        try:
            _merge_if_many(folder, store.commit(folder, change))
            return True
        except _FullError:
            with suppress(PenstockError, FileNotFoundError):  # somebody else merges them
                merge(folder)
        except _MeanwhileError:
            return False
    raise PenstockError(f"{folder}: its many segments cannot be merged; build it anew with --fresh")


class _MeanwhileError(Exception):
    """Somebody else changed the catalog."""


class _FullError(Exception):
    """There are too many segments for another."""


def _merge_if_many(folder: Path, held: store.Manifest) -> None:
    if should_merge(tuple(part.entries for part in held.parts)):
        with suppress(PenstockError, FileNotFoundError):  # another time, or by somebody else
            merge(folder)


def should_merge(entries: tuple[int, ...]) -> bool:
    """Segments, newest first: too many, or those on top grew to half of the rest?"""
    return len(entries) > PARTS_MAX or 2 * sum(entries[:-1]) > sum(entries[-1:])


def merge(folder: Path) -> None:
    """Makes the segments one, if nobody puts others between them meanwhile; what others add on top stays there."""
    held = store.read(folder).manifest
    if held is None or len(held.parts) < 2:
        return
    old, whole = held.parts, merged(folder, held.parts)

    def change(now: store.Manifest | None) -> store.Manifest:
        if now is None or now.parts[-len(old) :] != old:
            raise _MeanwhileError
        return msgspec.structs.replace(now, parts=(*now.parts[: -len(old)], whole))

    try:
        store.commit(folder, change)
    except _MeanwhileError:
        with suppress(OSError):
            (folder / whole.name).unlink()
