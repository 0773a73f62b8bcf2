# SPDX-License-Identifier: Apache-2.0
"""The law of placing: a program's results, and its files' names, bytes, modes and owners, are as without, whatever it
does to create files.  Random programs on a real mount, under plans that place, leave and refuse.
"""

import os
import random
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from placing import Job, match, place, stock

from penstock.policy.placing.contract import DIGITS, WORD
from penstock.targets import lov

pytestmark = pytest.mark.root
NOBODY = 65534
STEPS = 120

PROGRAM = """
import errno, fcntl, os, sys
os.umask(int(sys.argv[2], 8))
if sys.argv[3] != '0':
    os.setgroups([])
    os.setgid(int(sys.argv[3]))
    os.setuid(int(sys.argv[3]))
fds = {}
def tried(step):
    what, name, flags, mode, number = step
    if what == 'open':
        fd = os.open(name, flags, mode)
        fds[number] = fd
        return os.fstat(fd).st_size
    if what == 'write':
        return os.pwrite(fds[number], b'%d,' % flags * mode, flags)
    if what == 'append':
        return os.write(fds[number], b'a' * mode)
    if what == 'read':
        return os.pread(fds[number], 100, flags)
    if what == 'truncate':
        return os.ftruncate(fds[number], flags)
    if what == 'close':
        return os.close(fds.pop(number))
    if what == 'dup':
        fds[number + 1000] = os.dup(fds[number])
        return 0
    if what == 'flags':
        return fcntl.fcntl(fds[number], fcntl.F_GETFL)
    if what == 'stream':
        with open(name, ('w', 'x', 'a', 'w+')[flags % 4]) as file:
            return file.write('s' * mode)
    if what == 'fork':
        child = os.fork()
        if child == 0:
            try:
                os.close(os.open(name, flags, mode))
            except OSError as error:
                os._exit(error.errno)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return getattr(os, what)(*(name if isinstance(name, tuple) else (name,)))
for step in eval(sys.argv[1]):
    try:
        print(step[0], tried(step))
    except KeyError:
        print(step[0], 'no such descriptor')
    except OSError as error:
        print(step[0], errno.errorcode[error.errno])
"""


def steps(dice: random.Random) -> list[tuple[object, ...]]:
    """A program: opens of all kinds, and what is done with what they give."""
    names = [f"{kind}{i}" for kind in ("placed", "left", "other", "bad") for i in range(4)] + [
        "d/placed1",
        "d/other2",
    ]
    found: list[tuple[object, ...]] = [("mkdir", "d", 0, 0, 0)]
    for number in range(STEPS):
        name, target = dice.choice(names), dice.randrange(max(number, 1))
        flags = dice.choice([os.O_WRONLY, os.O_RDWR, os.O_RDONLY]) | os.O_CREAT * (dice.random() < 0.85)
        for flag in (os.O_EXCL, os.O_TRUNC, os.O_APPEND, os.O_CLOEXEC, os.O_SYNC, os.O_NOFOLLOW, os.O_NOCTTY):
            flags |= flag * (dice.random() < 0.15)
        mode = dice.choice([0o644, 0o600, 0o444, 0o666, 0o000, 0o200, 0o4755])
        kinds = (
            ["open"] * 6 + ["write"] * 5 + ["append", "read", "truncate", "close", "close", "dup", "flags"]
        )
        kinds += ["stream", "stream", "fork", "unlink", "rename", "link", "mknod", "symlink"]
        what = dice.choice(kinds)
        if what in ("rename", "link", "symlink"):
            found.append((what, (name, dice.choice(names)), 0, 0, 0))
        elif what == "open":
            found.append((what, name, flags, mode, number))
        elif what in ("stream", "fork"):
            found.append(
                (
                    what,
                    name,
                    flags if what == "fork" else dice.randrange(4),
                    mode if what == "fork" else 50,
                    0,
                )
            )
        else:
            found.append((what, name, dice.randrange(300_000), dice.randrange(1, 2000), target))
    return found


def tree(top: Path) -> dict[str, object]:
    """All that a user sees of files; where they lie, and times, are not among it."""
    found: dict[str, object] = {}
    for path in sorted(top.rglob("*")):
        st = path.lstat()
        data = (
            path.readlink() if path.is_symlink() else path.read_bytes() if stat.S_ISREG(st.st_mode) else None
        )
        found[str(path.relative_to(top))] = (st.st_mode, st.st_uid, st.st_gid, st.st_size, st.st_nlink, data)
    return found


@pytest.fixture
def job(testbed) -> Iterator[Job]:
    folder = Path(f"/dev/shm/penstock-same-{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)
    yield Job(folder / "board", testbed.path)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("seed", range(12))
def test_a_program_and_its_files_are_as_without(job, seed):
    dice = random.Random(seed)
    program = repr(steps(dice))
    umask = dice.choice(["22", "77", "0", "777"])
    alone, under = job.top / "alone", job.top / "under"
    for folder in (alone, under):
        folder.mkdir()
        folder.chmod(0o777)
    if dice.random() < 0.5:
        part = lov.encode(lov.Lov(parts=(lov.template(2, 65536),)))
        for folder in (alone, under):
            os.setxattr(folder, lov.XATTR, part)
    job.plan(
        place(match(under / "placed", DIGITS), [3, 1], [0, 2], size=65536),
        place(match(under / "d/placed", WORD), [2], size=65536),
        place(match(under / "bad", DIGITS), [1, 99]),
        stock(match(under / "left", DIGITS)),
        spare=[3, 2, 1, 0],
    )
    who = NOBODY if dice.random() < 0.7 else 0
    said = [
        job.python(PROGRAM, program, umask, who, under=folder == under, cwd=folder)
        for folder in (alone, under)
    ]
    assert said[0] == said[1]
    assert tree(alone) == tree(under)
    assert job.counts().get("placed", 0) > 0
