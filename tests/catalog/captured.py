# SPDX-License-Identifier: Apache-2.0
"""Runs whose catalog is kept, on whatever file system: the tree, its catalog inside of it, and what must hold after."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock import Catalog
from penstock.catalog.build import build
from tests.catalog.conftest import PENSTOCK, facts, walked

PYTHON = Path(sys.executable).resolve()
DISORDER = Path(__file__).with_name("disorder.py")


class Set:
    """A tree, its catalog inside of it, and places for a run."""

    def __init__(self, top: Path) -> None:
        self.tree, self.catalog = top / "tree", top / "tree" / "set.cat"
        self.tree.mkdir(parents=True)
        self.boards = Path(f"/dev/shm/penstock-test-{os.getpid()}-{time.monotonic_ns()}")
        self.boards.mkdir(mode=0o700)
        self.state = top / "state"
        self.env = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "HOME": str(top),
            "PENSTOCK_STATE_DIR": str(self.state),
            "PENSTOCK_BOARD_DIR": str(self.boards),
        }

    def build(self) -> None:
        build(self.tree, self.catalog)

    def start(self, *command: object, **more: str) -> "subprocess.Popen[bytes]":
        words = [str(w) for w in (PENSTOCK, "run", "--catalog", self.catalog, "--", *command)]
        return subprocess.Popen(words, env={**self.env, **more}, cwd=self.tree, start_new_session=True)

    def run(self, *command: object, **more: str) -> int:
        with self.start(*command, **more) as process:
            return process.wait(timeout=120)

    def shell(self, text: str, **more: str) -> None:
        assert self.run("bash", "-ec", text, **more) == 0

    @property
    def log(self) -> str:
        path = self.state / "penstock.log"
        return path.read_text() if path.exists() else ""

    def helpers(self) -> list[int]:
        """Helpers at work on this catalog."""
        found = []
        for pid in filter(str.isdecimal, (p.name for p in Path("/proc").iterdir())):
            try:
                words = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"follow" in words and os.fsencode(self.catalog) in words:
                found.append(int(pid))
        return found

    def wait(self) -> None:
        """Until no helper works any more: after the agent was killed nobody waits for it."""
        wait_until(lambda: not self.helpers())

    def is_as_fresh(self) -> None:
        """Every name, and no other, with the attributes that it has now: folders' sizes and link counts aside."""
        cat, top = Catalog.open(self.catalog), os.fsencode(self.tree)
        own = os.fsencode(self.catalog.name)
        paths = {p for p in walked(self.tree) if p != own and not p.startswith(own + b"/")}
        has = set(names(cat))
        assert (has - paths, paths - has) == (set(), set())
        for path in sorted(paths):
            now = os.lstat(top + b"/" + path)
            known, real = stripped(cat.stat(path)), stripped(now)
            assert known == real, f"{path!r}: {known} is not {real}"


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 150
    while not is_so():
        assert time.monotonic() < until, "it does not come to be"
        time.sleep(0.01)


def stripped(entry: Any) -> tuple[int, ...]:
    is_folder = entry.st_mode & 0o170000 == 0o040000
    skipped = (2, 5, 6) if is_folder else ()
    return tuple(value for i, value in enumerate(facts(entry)) if i not in skipped)


def names(cat: Catalog) -> Iterator[bytes]:
    todo = [b""]
    while todo:
        here = todo.pop()
        yield here
        for name, entry, *_ in cat.view.list(here):
            path = here + b"/" + name if here else name
            if entry.st_mode & 0o170000 == 0o040000:
                todo.append(path)
            else:
                yield path


def send(pid: int, sig: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sig)


def kill_all(agent: int, it: Set, with_agent: bool) -> None:
    """A killed parent's children become others' children: looked for first, again and again."""
    seen: set[int] = set()
    while found := set(descendants(agent)) - set(it.helpers()) - seen:
        for pid in found:
            send(pid, signal.SIGSTOP)  # so that it makes no more
        seen |= found
    for pid in [agent, *seen] if with_agent else seen:
        send(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    found, todo = [], [pid]
    while todo:
        children: list[int] = []
        with contextlib.suppress(OSError):  # it ends meanwhile
            for task in list(Path(f"/proc/{todo.pop()}/task").iterdir()):
                with contextlib.suppress(OSError):
                    children += map(int, (task / "children").read_text().split())
        found += children
        todo += children
    return found


def kill_amid(it: Set, seed: int, with_agent: bool) -> None:
    """A disorderly run, killed somewhere in it."""
    process = it.start(PYTHON, DISORDER, it.tree, seed, 100_000, 2, 2)
    wait_until(lambda: sum(1 for _ in it.tree.iterdir()) > 2)
    time.sleep(random.Random(seed).uniform(0.0, 0.3))
    kill_all(process.pid, it, with_agent)
    process.wait(timeout=120)
    it.wait()


@contextlib.contextmanager
def sets() -> Iterator[Callable[[Path], Set]]:
    """Makes sets; at the end nothing works on them any more."""
    made: list[Set] = []

    def make(top: Path) -> Set:
        made.append(Set(top))
        return made[-1]

    try:
        yield make
    finally:
        for it in made:
            for pid in it.helpers():
                send(pid, signal.SIGKILL)
            shutil.rmtree(it.boards, ignore_errors=True)
