# SPDX-License-Identifier: Apache-2.0
"""Bring in what killed collectors left in shared memory: `penstock runs collect`.

Invariants:
1. A board that has an agent is left alone: that one will write its record.  What a node's agent keeps for its users
   is brought in by control/unrecorded.py.
2. A board goes only when its record is in the history and nobody lives on it.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from penstock import _native
from penstock.base.settings import Settings

_BOARD = re.compile(r"[0-9a-f]{32}-[0-9a-f]{16}")


@dataclass(frozen=True)
class Board:
    """What became of one board: brought in, still served by an agent, or left because of an error."""

    path: Path
    run: str
    served: bool = False
    living: int = 0
    error: str = ""


def folders(settings: Settings) -> list[Path]:
    """Where this user's boards may lie on this node."""
    if settings["board.dir"]:
        return [Path(settings["board.dir"])]
    return [Path(place) / f"penstock-{os.getuid()}" for place in ("/dev/shm", "/tmp")]


def boards(settings: Settings) -> list[Path]:
    """All boards of this user on this node, in a stable order."""
    found = []
    for folder in folders(settings):
        try:
            names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
        except OSError:
            continue
        found += [folder / name for name in names if _BOARD.fullmatch(name)]
    return found


def node_name() -> str:
    """This node as records name it."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def collect(settings: Settings) -> list[Board]:
    """Bring in every board that has no agent."""
    return [_collect_one(path, settings) for path in boards(settings)]


def _collect_one(path: Path, settings: Settings) -> Board:
    run = path.name[:32]
    try:
        group = settings["history.readers"] == "group"
        living = _native.collect_board(path, settings.history_dir, node_name(), group)
    except BlockingIOError:
        return Board(path, run, served=True)
    except OSError as error:
        return Board(path, run, error=error.strerror or "error")
    return Board(path, run, living=living)
