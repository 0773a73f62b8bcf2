# SPDX-License-Identifier: Apache-2.0
"""Who is at work on a catalog: a helper's mark stands in the manifest from its start until its last word.

A mark names a process (its node's boot, its number, when it began) and has a random word of its own.  One whose process
is gone, or lives where nobody here can see it, says that something may be missing.  A helper that lives sets its mark
again with each segment.

Invariant: a mark is taken away by its own helper, or by who has looked at everything since.
"""

import os
import secrets
from pathlib import Path

import msgspec

from penstock.catalog import store


def _started(pid: int) -> int | None:
    """When the process began, in ticks; None: it does not run."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if words[0] in (b"Z", b"X") else int(words[19])


def lives(pid: int, start_ticks: int) -> bool:
    """Is it the process that began then?  One that has ended and that nobody has waited for yet does nothing more."""
    return _started(pid) == start_ticks


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def own() -> str:
    """A mark of this process that no other helper has."""
    return f"{_boot()} {os.getpid()} {_started(os.getpid())} {secrets.token_hex(4)}"


def is_at_work(mark: str) -> bool:
    """Does its process live on this node?"""
    words = mark.split()
    return (
        len(words) == 4
        and words[0] == _boot()
        and all(it.isdecimal() for it in words[1:3])
        and lives(int(words[1]), int(words[2]))
    )


def lost(doubts: tuple[str, ...]) -> frozenset[str]:
    """Those of which nobody here is going to have the last word."""
    return frozenset(it for it in doubts if not is_at_work(it))


def marked(held: store.Manifest, mark: str) -> store.Manifest:
    if not mark or mark in held.doubts:
        return held
    return msgspec.structs.replace(held, doubts=(*held.doubts, mark))


def unmarked(held: store.Manifest, mark: str) -> store.Manifest:
    return msgspec.structs.replace(held, doubts=tuple(it for it in held.doubts if it != mark))
