# SPDX-License-Identifier: Apache-2.0
"""Programs under libpenstock.so with a board of their own, and what the board says of them then."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.runs import board

sys.path.insert(0, str(Path(__file__).parent))
from stage_programs import compiled

LIBRARY = Path(sys.prefix) / "lib" / "penstock" / "libpenstock.so"
PYTHON = Path(sys.executable).resolve()


@pytest.fixture(scope="session", autouse=True)
def _programs_go() -> Iterator[None]:
    yield
    shutil.rmtree(f"/tmp/penstock-test-programs-{os.getpid()}", ignore_errors=True)


class Under:
    """A board, a folder whose files are recorded, and how to start programs under both."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder = folder
        self.data = data

    def make(self, **words: int) -> None:
        rules = [*board.noise(), (str(self.data), int(board.Under.RECORD))]
        board.create(self.folder, bytes(16), board.Stages.RECORD, board.Under.NOTHING, rules, **words)

    @property
    def env(self) -> dict[str, str]:
        log = str(self.folder.parent / "log")
        return {
            **os.environ,
            "LD_PRELOAD": str(LIBRARY),
            "PENSTOCK_BOARD": str(self.folder),
            "PENSTOCK_LOG": log,
        }

    def start(self, *command: object, **words: object) -> "subprocess.Popen[str]":
        env = {**self.env, **words.pop("env", {})}  # type: ignore[dict-item]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([str(w) for w in command], env=env, text=True, **pipes, **words)  # type: ignore[call-overload]

    def run(self, *command: object, **words: object) -> "subprocess.CompletedProcess[str]":
        with self.start(*command, **words) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def python(self, text: str, *arguments: object, **words: object) -> "subprocess.CompletedProcess[str]":
        """Run Python text; it must succeed and say nothing on stderr."""
        done = self.run(PYTHON, "-c", text, *arguments, cwd=self.data, **words)
        assert (done.returncode, done.stderr) == (0, "")
        return done

    def seen(self) -> board.Seen:
        return board.read(self.folder)

    def files(self, name: str) -> list[board.SeenFile]:
        """The rows of a file, one a process."""
        path = os.fsencode(self.data / name)
        return [file for process in self.seen().processes for file in process.files if file.name == path]

    def file(self, name: str) -> board.SeenFile:
        (only,) = self.files(name)
        return only


@pytest.fixture
def under(tmp_path: Path) -> Iterator[Under]:
    """The board lies in /dev/shm, as boards do."""
    folder = Path(f"/dev/shm/penstock-test-{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    data = tmp_path / "data"
    data.mkdir()
    ready = Under(folder, data)
    ready.folder = folder / "board"
    folder.mkdir(mode=0o700)
    ready.make()
    yield ready
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def program() -> Callable[..., Path]:
    return compiled
