# SPDX-License-Identifier: Apache-2.0
"""Plans that change under running programs, and what placing must leave alone: locks, lists of access rights."""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from placing import LIBRARY, PYTHON, Job, Seen, a_plan, exact, match, osts, place
from stage_programs import compiled

from penstock.base.errors import PenstockError
from penstock.policy.placing.contract import DIGITS
from penstock.runs import board, place_section

pytestmark = pytest.mark.root
MIB = 1 << 20


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(f"/dev/shm/penstock-changes-{os.getpid()}")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(mode=0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


class Spots:
    """A board that has room for plans, as an agent's; programs under it."""

    def __init__(self, folder: Path, top: Path) -> None:
        self.board, self.top, self.log = folder / "board", top, folder / "log"
        rules = [*board.noise(), (str(top), int(board.Under.RECORD | board.Under.MOUNT))]
        on = board.Stages.RECORD | board.Stages.PLACE
        board.create(self.board, bytes(16), on, board.Under.NOTHING, rules, place_spots=2)

    def section(self, *entries: object, spare: tuple[int, ...] = (), mount: object = None) -> bytes:
        where = place_section.Place("lustre", str(mount or self.top), self.top.stat().st_dev)
        return place_section.encode(a_plan(entries, spare, self.top), where).data  # type: ignore[arg-type]

    def start(self, text: str, *words: object) -> "subprocess.Popen[str]":
        env = {
            "PATH": "/usr/bin:/bin",
            "LD_PRELOAD": str(LIBRARY),
            "PENSTOCK_BOARD": str(self.board),
            "PENSTOCK_LOG": str(self.log),
        }
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [PYTHON, "-c", text, *map(str, words)], env=env, cwd=self.top, text=True, **pipes
        )

    def counts(self) -> dict[str, int]:
        return {name: n for name, n in board.placed(self.board).items() if n}


def test_a_plan_that_comes_holds_for_a_program_that_runs_already(testbed, folder):
    spots = Spots(folder, testbed.path)
    board.put_plan(spots.board, place_section.nothing(str(testbed.path), place_section.WHY_LATE, 1))
    text = "import sys; open('a', 'w').write('x'); print(flush=True); sys.stdin.readline(); open('b', 'w').write('x')"
    with spots.start(text) as running:
        assert running.stdout and running.stdout.readline() == "\n"
        assert spots.counts() == {"early": 1}
        board.put_plan(spots.board, spots.section(place(exact(testbed.path / "b"), [3, 1])))
        assert running.communicate("\n", timeout=60)[1] == ""
    assert Seen(testbed.path / "a").count == 1 and osts(testbed.path / "b") == (3, 1)
    assert spots.counts()["placed"] == 1


MAKES = """
import os, sys, threading
def work(number):
    for i in range(150):
        with open(f'f{number}{i:03}', 'wb') as file:
            file.write(b'x' * 100)
threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
[t.start() for t in threads]
[t.join() for t in threads]
"""


def test_a_plan_that_changes_all_the_time_breaks_no_file(testbed, folder):
    """Each file has one of the plans' layouts or the default, whole; none is without."""
    spots = Spots(folder, testbed.path)
    names = match(testbed.path / "f", DIGITS)
    long = [place(exact(testbed.path / f"other{i}"), [i % 4]) for i in range(400)]
    plans = [
        spots.section(place(names, [0, 1], size=2 * MIB)),
        spots.section(*long, place(names, [3, 2], size=MIB), spare=(3, 2)),
    ]
    with spots.start(MAKES) as running:
        turns = 0
        while running.poll() is None:
            board.put_plan(spots.board, plans[turns % 2])
            turns += 1
        assert running.communicate(timeout=120)[1] == ""
    assert running.returncode == 0 and turns > 10
    seen = [Seen(path) for path in testbed.path.glob("f*")]
    assert len(seen) == 600
    for one in seen:
        assert (one.osts, one.size) in (((0, 1), 2 * MIB), ((3, 2), MIB)) or one.count == 1
    counts = spots.counts()
    found = sum(counts.get(name, 0) for name in ("placed", "spare", "early", "changing", "unexpected"))
    assert found >= 600 and counts["placed"] > 0 and "failed" not in counts


def test_a_board_takes_no_plan_that_makes_no_sense_or_has_no_room(testbed, folder):
    spots = Spots(folder, testbed.path)
    good = spots.section(place(exact(testbed.path / "x"), [1]))
    for at, value in ((0, 99), (8, 77), (300, 1 << 30)):
        bad = bytearray(good)
        struct.pack_into("<I", bad, at, value)
        with pytest.raises(PenstockError, match=r"cannot be put onto the board .*makes no sense"):
            board.put_plan(spots.board, bytes(bad))
    big = spots.section(*(place(exact(f"{testbed.path}/{i}"), [i % 4]) for i in range(20_000)))
    with pytest.raises(PenstockError, match="no room"):
        board.put_plan(spots.board, big)
    for mount in ("/one", "/two"):
        board.put_plan(spots.board, spots.section(mount=mount))
    with pytest.raises(PenstockError, match="no room"):
        board.put_plan(spots.board, spots.section(mount="/three"))
    board.put_plan(spots.board, spots.section(mount="/two"))


LOCKS = """
import fcntl, os, sys
held = os.open('held', os.O_RDWR | os.O_CREAT)
fcntl.lockf(held, fcntl.LOCK_EX)
for i in range(20):
    with open(f'd/f{i}', 'w') as file:
        file.write('x')
more = os.open('held', os.O_RDWR | os.O_CREAT)
print(flush=True)
sys.stdin.readline()
"""


def test_i09_locks_stay_while_files_are_placed(testbed, folder):
    """Nothing of the program's is opened and closed behind its back: that would drop its locks."""
    spots = Spots(folder, testbed.path)
    (testbed.path / "d").mkdir()
    names = match(testbed.path / "d/f", DIGITS)
    held = exact(testbed.path / "held")
    board.put_plan(spots.board, spots.section(place(held, [2]), place(names, [1, 0])))
    with spots.start(LOCKS) as running:
        assert running.stdout and running.stdout.readline() == "\n", running.communicate()[1]
        with (testbed.path / "held").open("r+") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert running.communicate("\n", timeout=60)[1] == ""
    assert osts(testbed.path / "held") == (2,) and osts(testbed.path / "d/f7") == (1, 0)


def default_acl(path: Path) -> None:
    """What new files in it get: their owner all, user 1234 to read and write, the rest nothing."""
    rows = ((0x01, 7, -1), (0x02, 6, 1234), (0x04, 0, -1), (0x10, 7, -1), (0x20, 0, -1))
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *row) for row in rows)
    os.setxattr(path, "system.posix_acl_default", data)


@pytest.mark.parametrize("umask", [0o22, 0o777])
@pytest.mark.parametrize("mode", ["644", "600", "000"])
def test_a_default_acl_holds_for_files_that_place_touches(folder, mode, umask):
    """On a file system that keeps such lists, which has no layouts: the open gets its bits, the layout is refused, and
    the file is as without."""
    top = folder / "data"
    top.mkdir()
    default_acl(top)
    job = Job(folder / "board", top)
    plain = {os.fsencode(top): place_section.Default("none")}
    job.plan(place(exact(top / "placed"), [1, 0]), folders=plain)
    program = compiled("creates.c")
    done = job.run(program, "excl", "placed", mode, umask=umask)
    alone = job.run(program, "excl", "alone", mode, under=False, umask=umask)
    assert (done.returncode, done.stdout, done.stderr) == (alone.returncode, alone.stdout, "")
    assert job.counts()["refused_other"] == 1
    mine, other = top / "placed", top / "alone"
    assert mine.read_text() == other.read_text() == "a line\n"
    assert mine.stat().st_mode == other.stat().st_mode
    lists = [os.getxattr(path, "system.posix_acl_access") for path in (mine, other)]
    assert lists[0] == lists[1]
