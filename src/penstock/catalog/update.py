# SPDX-License-Identifier: Apache-2.0
"""Bringing a catalog up to date: folders whose times changed are listed again, names that are new are asked for.

What is not seen: a file written in place changes no folder.  `full` asks for every entry, `check` for a sample.

Invariants:
1. What is learnt is a further segment; readers see the catalog before or after, never between.
2. An entry that changed within a clock's tick of being learnt is asked for again, since its times could not show it.
"""

import time
from pathlib import Path

import msgspec

from penstock.base.errors import PenstockError
from penstock.catalog import store
from penstock.catalog.build import merged
from penstock.catalog.reader import Catalog
from penstock.catalog.scanning import TICK_NS, Limits, Outcome, Say, Scan, is_local, quiet

PARTS_MAX = 8
"""So many segments are merged to one."""
PARTS_MOST = 48
"""So many, and nothing is added until they are merged: a view holds 64."""


def update(
    folder: str | Path,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    full: bool = False,
    say: Say = quiet,
    tick_ns: int | None = None,
) -> Outcome:
    """What changed, into a further segment; `full`: the whole tree anew, checksums kept where files are the same."""
    catalog = Catalog.open(folder, check=True)
    into = catalog.path
    if catalog.damaged and not full:
        raise PenstockError(f"{into}: {', '.join(catalog.damaged)} is damaged; update it with --full")
    scan = Scan(catalog.manifest.root, into, catalog.manifest.options, limits)
    scan.known(catalog.view, TICK_NS[is_local(catalog.manifest.root)] if tick_ns is None else tick_ns, full)
    outcome = scan.run(say)
    scan.kernel = None  # it uses the view
    _commit(into, outcome, full)
    return outcome


def _commit(folder: Path, outcome: Outcome, full: bool) -> None:
    new = tuple(outcome.parts)

    def change(held: store.Manifest | None) -> store.Manifest:
        if held is None:
            raise PenstockError(f"{folder}: somebody removed the catalog while it was updated")
        return msgspec.structs.replace(
            held,
            parts=new if full else (*new, *held.parts),
            updated_ns=time.time_ns(),
            problems=len(outcome.problems) if full else held.problems + len(outcome.problems),
            moved=len(outcome.moved),
        )

    held = store.commit(folder, change)
    if should_merge(tuple(part.entries for part in held.parts)):
        merge(folder)


def should_merge(entries: tuple[int, ...]) -> bool:
    """Segments, newest first: too many, or those on top grew to half of the rest?"""
    return len(entries) > PARTS_MAX or 2 * sum(entries[:-1]) > sum(entries[-1:])


def merge(folder: Path) -> None:
    """Makes the segments one; what others add meanwhile stays on top."""
    held = store.read(folder).manifest
    if held is None or len(held.parts) < 2:
        return
    old, whole = held.parts, merged(folder, held.parts)

    def change(now: store.Manifest | None) -> store.Manifest:
        if now is None or now.parts[-len(old) :] != old:
            raise PenstockError(f"{folder}: somebody else merged its segments meanwhile")
        return msgspec.structs.replace(now, parts=(*now.parts[: -len(old)], whole))

    store.commit(folder, change)
