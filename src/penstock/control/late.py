# SPDX-License-Identifier: Apache-2.0
"""Plans that are made in a process of its own, and put onto the board when the program runs already.

`within` gives what is ready when the time is over.  Whoever makes the plan then goes on, as nobody's child, until it is
told where the board is (penstock-run --tell-board) and has put the plan there.

Invariants:
1. The program neither waits for it nor inherits anything of it: no child, no descriptor, no terminal.
2. It ends by itself, killed by an alarm if need be, and what went wrong stands in the log.
"""

import contextlib
import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.errors import PenstockError
from penstock.control import local
from penstock.runs import board, place_section

ASK_S = 5.0

if TYPE_CHECKING:
    from penstock.control.placing import Prepared

Work = Callable[[Callable[["Prepared"], None]], "Prepared"]


def within(work: Work, seconds: float, most_s: float, follows: bool, state_dir: Path) -> "Prepared":
    """What `work` gives within the time: all, or what it said last.  `follows`: what is missing comes later; `waits` of
    the result is then the descriptor at which to tell it the board's name."""
    from penstock.control.placing import Prepared

    reader, writer = os.pipe()
    hear, tell = os.pipe()
    middle = os.fork()
    if middle == 0:
        with contextlib.suppress(BaseException):
            if os.fork() == 0:
                _alone({writer, hear})
                signal.alarm(int(most_s) + 1)
                _make(work, writer, hear, state_dir)
        os._exit(0)
    os.close(writer)
    os.close(hear)
    os.waitpid(middle, 0)
    found, final, ended = _gathered(reader, time.monotonic() + seconds)
    os.close(reader)
    if not final and not ended and follows:
        os.set_inheritable(tell, True)
        return replace(found or Prepared(), waits=tell)
    os.close(tell)
    if found is None:
        why = "could not be made" if ended else f"was not ready in {seconds:g} s"
        return Prepared(notes=(f"the plan {why}: new files go where the file system puts them",))
    return found


def _gathered(reader: int, until_s: float) -> tuple["Prepared | None", bool, bool]:
    """The last thing said, whether it is the final one, and whether nothing more comes."""
    data, found, final = b"", None, False
    while not final:
        left_s = until_s - time.monotonic()
        if left_s <= 0 or not select.select([reader], [], [], left_s)[0]:
            return found, False, False
        part = os.read(reader, 1 << 20)
        if not part:
            return found, final, True
        data += part
        while len(data) >= 8 and len(data) >= 8 + (size := int.from_bytes(data[:8])):
            final, found = pickle.loads(data[8 : 8 + size])
            data = data[8 + size :]
    return found, True, True


def _alone(keep: set[int]) -> None:
    """Nothing of the terminal, nor of what others wait to see closed."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    begin = 3
    for fd in [*sorted(keep), 1 << 20]:
        os.closerange(begin, fd)
        begin = fd + 1


def _make(work: Work, writer: int, hear: int, state_dir: Path) -> None:
    def say(found: "Prepared", final: bool = False) -> None:
        data = pickle.dumps((final, found))
        data = len(data).to_bytes(8) + data
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(writer, data) :]

    final = tried(work, say)
    say(final, True)
    os.close(writer)
    told = b""
    while part := os.read(hear, 4096):
        told += part
    if told:
        _put(final, told, state_dir)


def tried(work: Work, say: Callable[["Prepared"], None]) -> "Prepared":
    """Whatever goes wrong, the program is to start; what it was is said."""
    from penstock.control.placing import Prepared

    try:
        return work(say)
    except Exception as error:
        said = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        return Prepared(
            notes=(f"no plan could be made ({said}): new files go where the file system puts them",)
        )


def _put(made: "Prepared", told: bytes, state_dir: Path) -> None:
    """Onto the board of the program that runs already; a run that is over has no use for it."""
    from penstock.control import placing

    name, socket, run = (os.fsdecode(text) for text in told.split(b"\0")[:3])
    notes, sections = list(made.notes), made.sections()
    try:
        if not sections and notes:
            sections = _failed(Path(name))
        if socket:
            words = {f"place{i}": data.hex() for i, data in enumerate(sections)}
            local.ask(socket, ASK_S, op="put", board=name, run=run, **words)
        else:
            for data in sections:
                board.put_plan(Path(name), data)
    except (PenstockError, OSError) as error:
        notes.append(f"the plan came too late ({error})")
        for one in made.made:
            placing.LedgerFile(str(state_dir), one.mount).end(one.number)
    log = Path(os.environ.get("PENSTOCK_LOG") or state_dir / "penstock.log")
    with contextlib.suppress(OSError), log.open("a") as file:
        for note in notes:
            file.write(f"penstock run: {note}\n")


def _failed(path: Path) -> list[bytes]:
    """For the spots that wait for a plan: none could be made."""
    head = board.control(path)
    spots = place_section.heads(path / "control", [(s.kind, s.offset_bytes) for s in head.sections])
    return [
        place_section.nothing(spot.mount, place_section.WHY_FAILED, time.time_ns())
        for spot in spots
        if not spot.driver
    ]
