# SPDX-License-Identifier: Apache-2.0
"""Files that are there whole or not at all.

Invariant: what is no ordinary file (a device, a pipe, /dev/stdout) is written into, never replaced.
"""

import os
from pathlib import Path


def write(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write beside the place, then move it there; a link is followed, and stays.  `mode`: at most, of a new file."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            file.write(data)
        return
    place = path.resolve()
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        with os.fdopen(
            os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), "wb"
        ) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
