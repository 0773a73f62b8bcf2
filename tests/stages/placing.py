# SPDX-License-Identifier: Apache-2.0
"""A plan made by hand on a board of its own, and programs under it on a real mount."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.policy.placing.contract import MARKS, Action, Entry, Match, Plan
from penstock.runs import board, place_section
from penstock.targets import lov

LIBRARY = Path(sys.prefix) / "lib" / "penstock" / "libpenstock.so"
PYTHON = Path(sys.executable).resolve()
MIB = 1 << 20


def exact(path: object) -> Match:
    return Match((os.fsencode(str(path)),))


def match(*pieces: object, values: Sequence[bytes | None] | None = None) -> Match:
    """Pieces of a path and marks; values of the marks, or any."""
    raw = tuple(p if isinstance(p, bytes) else os.fsencode(str(p)) for p in pieces)
    marks = sum(piece in MARKS for piece in raw)
    return Match(raw, tuple(values) if values is not None else (None,) * marks)


def place(found: Match, *turns: Sequence[int], size: int = MIB, count: int = 0, **words: object) -> Entry:
    """An entry with these lists of targets."""
    rows = tuple(tuple(turn) for turn in turns)
    return Entry(found, Action.PLACE, count or (len(rows[0]) if rows else 0), size, rows, **words)  # type: ignore[arg-type]


def stock(found: Match) -> Entry:
    return Entry(found, Action.STOCK)


def a_plan(entries: Sequence[Entry], spare: Sequence[int] = (), mount: object = "/") -> Plan:
    return Plan(str(mount), time.time(), tuple(entries), tuple(spare), 0.0, 0, 0.0, 0.0)


def put_on_board(folder: Path, section: bytes) -> None:
    """As if the board had been made with it: another section behind all that is in control."""
    file = folder / "control"
    data = bytearray(file.read_bytes())
    data += bytes(-len(data) % 64)
    head = board.Control.from_buffer(data)
    free = next(s for s in head.sections if s.kind == 0)
    free.kind, free.version = place_section.KIND, place_section.VERSION
    free.offset_bytes, free.size_bytes = len(data), len(section)
    control = bytes(data)
    aside = folder / "control.new"
    aside.write_bytes(control + section)
    aside.rename(file)


class Job:
    """A board for the mount of `top`; `env` starts programs under it."""

    def __init__(self, folder: Path, top: Path, driver: str = "lustre") -> None:
        self.folder, self.top, self.driver = folder, top, driver

    def make(self, plan: Plan, stages: board.Stages | None = None, **words: object) -> None:
        on = board.Stages.RECORD | board.Stages.PLACE if stages is None else stages
        rules = [*board.noise(), (str(self.top), int(board.Under.RECORD | board.Under.MOUNT))]
        if self.folder.exists():
            board.delete(self.folder)
        board.create(self.folder, bytes(16), on, board.Under.NOTHING, rules)
        where = {"driver": self.driver, "mount": str(self.top), "dev": self.top.stat().st_dev, **words}
        self.section = place_section.encode(plan, place_section.Place(**where)).data  # type: ignore[arg-type]
        put_on_board(self.folder, self.section)

    def plan(self, *entries: Entry, spare: Sequence[int] = (), **words: object) -> None:
        self.make(a_plan(entries, spare, self.top), **words)  # type: ignore[arg-type]

    @property
    def env(self) -> dict[str, str]:
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "LD_"))}
        log = str(self.folder.parent / "log")
        return plain | {"LD_PRELOAD": str(LIBRARY), "PENSTOCK_BOARD": str(self.folder), "PENSTOCK_LOG": log}

    def start(self, *words: object, under: bool = True, **more: object) -> "subprocess.Popen[str]":
        env = (
            self.env
            if under
            else {k: v for k, v in self.env.items() if not k.startswith(("PENSTOCK_", "LD_"))}
        )
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": self.top}
        return subprocess.Popen([str(w) for w in words], env=env, **{**pipes, **more})  # type: ignore[call-overload]

    def run(self, *words: object, **more: object) -> "subprocess.CompletedProcess[str]":
        with self.start(*words, **more) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def python(self, text: str, *words: object, **more: object) -> str:
        """Python text that must succeed and say nothing on standard error."""
        done = self.run(PYTHON, "-c", text, *words, **more)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def counts(self) -> dict[str, int]:
        """What the board counted, without the zeros."""
        return {name: n for name, n in board.placed(self.folder).items() if n}


class Seen:
    """A file's layout as it is."""

    def __init__(self, path: object) -> None:
        found = lov.decode(os.getxattr(path, lov.XATTR, follow_symlinks=False))  # type: ignore[call-overload]
        (part,) = found.parts
        self.osts = part.osts
        self.count, self.size, self.pool = part.stripe_count, part.stripe_size_bytes, part.pool


def osts(path: object) -> tuple[int, ...]:
    return tuple(Seen(path).osts)
