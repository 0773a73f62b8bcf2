# SPDX-License-Identifier: Apache-2.0
"""How long records are kept: which months go.  Deciding is pure; `remove` does it.

Invariants:
1. A month goes as a whole, on all nodes: no run loses a part of itself to make room.
2. The oldest go first; the running month never, nor one that ended less than an hour ago.
"""

import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from penstock.runs import segments

_GRACE_S = 3600


class Held(NamedTuple):
    """A segment as it lies on disk."""

    name: str  # node/month.seg
    month: str
    size_bytes: int


def month_end_s(month: str) -> float:
    """The first second after a month `YYYY-MM`, in UTC."""
    year, number = int(month[:4]), int(month[5:])
    return datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC).timestamp()


def to_remove(held: list[Held], keep_ns: int, max_bytes: int, now_s: float) -> list[Held]:
    """Which segments go, oldest first; 0 is no limit."""
    months = sorted({h.month for h in held if month_end_s(h.month) <= now_s - _GRACE_S})
    total = sum(h.size_bytes for h in held)
    gone: list[Held] = []
    for month in months:
        too_old = keep_ns and month_end_s(month) + keep_ns / 1e9 < now_s
        too_much = max_bytes and total > max_bytes
        if not (too_old or too_much):
            break
        these = sorted(h for h in held if h.month == month)
        gone += these
        total -= sum(h.size_bytes for h in these)
    return gone


def held(history: Path) -> list[Held]:
    """All segments of months that exist."""
    found = []
    for path in segments.segments(history):
        if re.fullmatch(r"[1-9]\d{3}-(0[1-9]|1[0-2])", path.stem, re.ASCII):
            try:
                found.append(Held(f"{path.parent.name}/{path.name}", path.stem, path.stat().st_size))
            except OSError:
                continue
    return found


def remove(history: Path, keep_ns: int, max_bytes: int, dry_run: bool = False) -> list[Held]:
    """Remove what may go; what went."""
    gone = to_remove(held(history), keep_ns, max_bytes, time.time())
    for item in gone:
        if not dry_run:
            (history / item.name).unlink(missing_ok=True)
            _remove_if_empty((history / item.name).parent)
    return gone


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return


def set_readers(history: Path, group: bool) -> None:
    """Give this user's folders and segments the modes that `history.readers` asks for."""
    folder_mode, file_mode = (0o750, 0o640) if group else (0o700, 0o600)
    for path in [history, *history.glob("*"), *segments.segments(history)]:
        info = path.lstat()
        wanted = folder_mode if path.is_dir() else file_mode
        if info.st_uid == os.getuid() and info.st_mode & 0o777 != wanted and not path.is_symlink():
            path.chmod(wanted)
