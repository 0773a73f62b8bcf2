# SPDX-License-Identifier: Apache-2.0
"""How ls, find and du show names and sizes: for eyes on a terminal, as they are into a pipe."""

import io
import sys

_LETTERS = "KMGTPEZY"


def raw() -> bool:
    """Is nobody looking?  Then names go out as they are, byte for byte."""
    if sys.stdout.isatty():
        return False
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=sys.getfilesystemencoding(), errors="surrogateescape")
    return True


def human(size_bytes: int, base: int = 1024) -> str:
    """A size as ls -h and du -h show it, rounded up: 310M, 1.5K, 12."""
    if size_bytes < base:
        return str(size_bytes)
    unit, power = base, 0
    while True:
        tenths = -(-size_bytes * 10 // unit)
        if tenths < 100:
            shown = f"{tenths // 10}.{tenths % 10}"
            break
        if (whole := -(-size_bytes // unit)) < base or power == len(_LETTERS) - 1:
            shown = str(whole)
            break
        unit, power = unit * base, power + 1
    letter = _LETTERS[power]
    return shown + (letter.lower() if base == 1000 and power == 0 else letter)


def scaled(size_bytes: int, unit_bytes: int) -> str:
    """In units, begun ones counted."""
    return str(-(-size_bytes // unit_bytes))
