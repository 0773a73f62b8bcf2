# SPDX-License-Identifier: Apache-2.0
"""The service model through real mounts: what calls cost and what is counted of them.

The kernel sends more and other requests than a Lustre client would (a LOOKUP for each part of a path, a GETATTR for
permissions); the counters must be those observed on Lustre.
"""

import errno
import fcntl
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.targets import lov
from penstock.targets.driver import driver_for
from penstock.targets.layouts import wish
from penstock.testbed import emulated

pytestmark = pytest.mark.root

MIB = 1 << 20


@pytest.fixture
def bed(make_testbed: Callable[..., object]) -> object:
    """Requests are counted and take no time."""
    return make_testbed(oss=2, osts=4, settings={"model": "count", "job.var": "PENSTOCK_TEST_JOB"})


def cold(bed) -> None:
    bed.ask("drop")


def until(done: Callable[[], bool]) -> None:
    assert emulated._wait_until(done)


def make(path: Path, size: int = 0) -> Path:
    with path.open("wb") as file:
        file.write(b"x" * size)
    return path


DELAY = os.O_NOCTTY | os.O_ASYNC
SETSTRIPE = 0x4008669A
ONE_ON_OST_2 = lov.encode(lov.Lov(composite=False, parts=(lov.template(1, MIB, (2,), ""),)))


def plain(path: Path, data: bytes = b"") -> None:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.write(fd, data)
    os.close(fd)


def placed(path: Path, data: bytes = b"") -> None:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | DELAY)
    os.setxattr(fd, "lustre.lov", ONE_ON_OST_2)
    os.write(fd, data)
    os.close(fd)


def placed_by_ioctl(path: Path) -> None:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | DELAY)
    fcntl.ioctl(fd, SETSTRIPE, bytearray(ONE_ON_OST_2))
    os.close(fd)


def placed_by_reader(path: Path) -> None:
    fd = os.open(path, os.O_CREAT | os.O_RDONLY)
    os.setxattr(fd, "lustre.lov", ONE_ON_OST_2)
    os.close(fd)


def placed_by_name(path: Path) -> None:
    os.mknod(path)
    os.setxattr(path, "lustre.lov", ONE_ON_OST_2)
    os.close(os.open(path, os.O_WRONLY))


SET = {"enq:open": 2, "close": 2, "cancel": 1, "cb": 1}


@pytest.mark.parametrize(
    ("make_it", "words", "wanted"),
    [
        (plain, (), {"enq:open": 1, "close": 1}),
        (plain, (b"x" * 4096,), {"enq:open": 1, "close": 1, "ext": 1}),
        (placed, (), SET),
        (placed, (b"x" * 4096,), {**SET, "enq:layout": 1, "enq:getxattr": 1, "ext": 1}),
        (placed_by_ioctl, (), {**SET, "enq:layout": 1}),
        (placed_by_reader, (), SET),
        (placed_by_name, (), {**SET, "enq:getattr": 1, "reint": 1}),
    ],
)
def test_placed_create_costs_what_it_costs_on_lustre(bed, make_it, words, wanted) -> None:
    bed.path.stat()
    with bed.counted(0) as got:
        make_it(bed.path / "new", *words)
    assert got == wanted


def replaced(path: Path) -> None:
    """As editors and writers of checkpoints do."""
    fd = os.open(path.with_name("aside"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.write(fd, b"y" * 4096)
    os.fsync(fd)
    os.close(fd)
    path.with_name("aside").rename(path)


def read_bare(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.read(fd, 4096)
    os.close(fd)


def tarred(path: Path) -> None:
    subprocess.run(
        ["tar", "-cf", "-", path], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60
    )


@pytest.mark.parametrize(
    ("work", "wanted"),
    [
        (read_bare, {"enq:open": 1, "close": 1, "ext": 1, "read": 1}),
        (lambda p: p.read_text(), {"enq:open": 1, "close": 1, "glimpse": 1, "read": 1}),
        (tarred, {"enq:getattr": 1, "enq:open": 1, "cancel": 1, "close": 1, "glimpse": 1, "read": 1}),
        (
            lambda p: p.with_name("new").write_text("x" * 4096),
            {"enq:open": 1, "close": 1, "glimpse": 1, "ext": 1, "ost:cancel": 1, "cb": 2},
        ),
        (
            lambda p: replaced(p.with_name("old")),
            {
                "enq:open": 1,
                "sync": 1,
                "close": 1,
                "reint": 1,
                "ext": 1,
                "write": 1,
                "ost:sync": 1,
                "destroy": 1,
            },
        ),
    ],
    ids=["open-read-close", "python-read", "tar", "python-write", "replace"],
)
def test_patterns_of_programs_cost_what_they_cost_on_lustre(bed, work, wanted) -> None:
    file = make(bed.path / "cold", 4096)
    bed.ask("flush")
    bed.counters()
    cold(bed)
    bed.path.stat()
    make(bed.path / "old", 4096)  # is known to the client
    bed.ask("flush")
    with bed.counted(0) as got:
        work(file)
    assert got == wanted


def a_while_of_lustres() -> None:
    """100 ms, after which a file that is opened again was not just closed; here a hundredth of that."""
    began = time.monotonic()
    until(lambda: time.monotonic() > began + 0.01)


def test_cached_file_costs_its_open_and_close(bed) -> None:
    bed.ask("set time.scale=0.01")
    file = make(bed.path / "a", 4096)
    a_while_of_lustres()
    file.read_bytes()
    a_while_of_lustres()
    with bed.counted(0) as got:
        file.read_bytes()
    assert got == {"enq:open": 1, "cancel": 1, "close": 1}


def test_stat_is_paid_once(bed) -> None:
    file = make(bed.path / "a", 4096)
    bed.ask("flush")
    cold(bed)
    bed.path.stat()
    with bed.counted(0) as got:
        file.stat()
    assert got == {"enq:getattr": 1, "glimpse": 1}
    with bed.counted(0) as got:
        file.stat()
    assert got == {}


def test_file_is_closed_once_however_many_hold_it(bed) -> None:
    """FUSE tells of each close of a duplicate, and of the last one once more."""
    bed.path.stat()
    with bed.counted(0) as got:
        fd = os.open(bed.path / "a", os.O_CREAT | os.O_WRONLY)
        more = [os.dup(fd), os.dup(fd)]
        child = subprocess.Popen(["true"], pass_fds=[fd])
        assert child.wait(30) == 0
        for each in (fd, *more):
            os.close(each)
    assert got == {"enq:open": 1, "close": 1}


def test_truncating_open_costs_what_it_costs_on_lustre(bed) -> None:
    file = make(bed.path / "a", 4096)
    bed.ask("flush")
    bed.counters()
    cold(bed)
    bed.path.stat()
    with bed.counted(0) as got:
        os.close(os.open(file, os.O_WRONLY | os.O_TRUNC))
    wanted = {"enq:open": 1, "enq:layout": 1, "enq:getxattr": 1, "reint": 1, "close": 1, "ext": 1, "punch": 1}
    assert got == wanted


@pytest.mark.parametrize("direct", [0, os.O_DIRECT])
def test_every_byte_is_counted_once_however_the_kernel_cuts_it(bed, direct) -> None:
    """Requests of 3 MiB that do not begin at a page of memory, from two clients, over four stripes."""
    other = bed.more("node2")
    driver_for(bed.path).create(str(bed.path / "f"), wish(4, MIB))
    room = mmap.mmap(-1, 4 * MIB)
    for number, top in enumerate((bed.path, other)):
        fd = os.open(top / "f", os.O_WRONLY | direct)
        skew = 0 if direct else 4095
        for i in range(4):
            at = (number * 4 + i) * 3 * MIB
            assert os.pwrite(fd, memoryview(room)[skew : skew + 3 * MIB], at) == 3 * MIB
        os.fsync(fd)
        os.close(fd)
    text = bed.ask("param obdfilter.*.stats")
    written = sum(int(row.split()[6]) for row in text.splitlines() if "write_bytes" in row)
    assert written == 2 * 4 * 3 * MIB


def test_what_the_client_refuses_reaches_no_server(bed) -> None:
    file = make(bed.path / "a", 4096)
    fd = os.open(file, os.O_RDONLY)
    with bed.counted(0) as got:
        assert not os.isatty(fd)
        for name in ("security.selinux", "system.posix_acl_access", "strange.name"):
            with pytest.raises(OSError, match="not supported"):
                os.getxattr(fd, name)
    os.close(fd)
    assert got == {}


def test_writing_and_fsync(bed) -> None:
    bed.path.stat()
    with bed.counted(0) as got:
        fd = os.open(bed.path / "w", os.O_CREAT | os.O_WRONLY)
        for _ in range(16):
            os.write(fd, b"x" * MIB)
        os.fsync(fd)
        os.close(fd)
    assert got == {"enq:open": 1, "close": 1, "sync": 1, "ext": 1, "write": 4, "ost:sync": 1}


def test_metadata_calls(bed) -> None:
    file = make(bed.path / "f")
    rows: list[tuple[Callable[[], object], dict[str, int]]] = [
        ((bed.path / "d").mkdir, {"reint": 1}),
        (lambda: (bed.path / "l").symlink_to("f"), {"reint": 1}),
        (lambda: file.chmod(0o600), {"enq:layout": 1, "reint": 1, "ost:setattr": 1}),
        ((bed.path / "missing").exists, {"enq:lookup": 1}),
        (lambda: file.rename(bed.path / "g"), {"enq:getattr": 1, "enq:lookup": 1, "reint": 1}),
        (lambda: os.statvfs(bed.path), {"statfs": 1}),
        ((bed.path / "g").unlink, {"enq:getattr": 1, "reint": 1, "destroy": 1}),
    ]
    for number, (call, wanted) in enumerate(rows):
        with bed.counted(0) as got:
            call()
        assert got == wanted, number


def walk(folder: Path, *calls: Callable[[str], object]) -> None:
    """Calls on each name while the folder is open."""
    with os.scandir(folder) as entries:
        for entry in entries:
            for call in calls:
                call(entry.path)


def layout(path: str) -> None:
    os.getxattr(path, "lustre.lov")


def program(*words: object) -> None:
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL, timeout=60)


@pytest.mark.parametrize(
    ("work", "ahead", "enqueues", "glimpses"),
    [
        (lambda d: walk(d, os.lstat), True, 8, 300),
        (lambda d: walk(d, os.lstat, layout), True, 8, 300),  # the layout is free
        (lambda d: program("ls", "-l", d), True, 10, 300),
        (lambda d: walk(d, layout), False, 303, 0),
        (lambda d: [p.lstat() for p in sorted(d.iterdir())], False, 303, 300),  # the folder is closed
        (lambda d: program("find", d, "-type", "f"), False, 5, 0),
    ],
    ids=["lstat", "lstat and layout", "ls -l", "layout alone", "after closedir", "find -type f"],
)
def test_looking_through_a_folder(bed, work, ahead, enqueues, glimpses) -> None:
    folder = bed.path / "many"
    folder.mkdir()
    for i in range(300):
        make(folder / f"file{i}", 10)
    bed.ask("flush")
    bed.counters()
    cold(bed)
    bed.path.stat()
    with bed.counted(0) as got:
        work(folder)
    assert (7 <= got["batch"] <= 14) if ahead else got["batch"] == 0
    asked = got["enq:open"] + got["enq:getattr"] + got["enq:readdir"]
    assert asked <= enqueues
    assert enqueues < 100 or asked >= 299
    assert got["glimpse"] == glimpses
    assert got["enq:layout"] + got["enq:getxattr"] == 0


def test_looking_ahead_can_be_turned_off(bed) -> None:
    bed.ask("set client.statahead=0")
    for i in range(30):
        make(bed.path / f"file{i}", 10)
    bed.ask("flush")
    bed.counters()
    cold(bed)
    with bed.counted(0) as got:
        walk(bed.path, os.lstat)
    assert got["batch"] == 0
    assert got["enq:getattr"] >= 30


def test_jobs_are_told_apart(bed) -> None:
    """50 files by each of two jobs, found in job_stats by the id in their environment."""
    script = (
        "import os, sys\n"
        "for i in range(50):\n"
        "    fd = os.open(f'{sys.argv[1]}{i}', os.O_CREAT | os.O_WRONLY)\n"
        "    os.write(fd, b'x' * 4096)\n"
        "    os.close(fd)\n"
    )
    jobs = [f"job.{number}" for number in (17, 18)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(bed.path / job)],
            env={**os.environ, "PENSTOCK_TEST_JOB": job},
        )
        for job in jobs
    ]
    assert [process.wait(60) for process in running] == [0, 0]
    bed.ask("flush")
    bed.counters()
    found = bed.jobs()
    for job in jobs:
        assert {k: found[job][k] for k in ("mknod", "open", "close", "write", "write_bytes")} == {
            "mknod": 50,
            "open": 50,
            "close": 50,
            "write": 50,
            "write_bytes": 50 * 4096,
        }


def test_faults_reach_programs(bed) -> None:
    template = lov.encode(lov.Lov(composite=False, parts=(lov.template(1, MIB, (3,), ""),)))
    fd = os.open(bed.path / "f", os.O_CREAT | os.O_RDWR | os.O_NOCTTY | os.O_ASYNC)
    os.setxattr(fd, "lustre.lov", template)
    os.write(fd, b"data")
    bed.ask("fail ost.3")
    with pytest.raises(OSError) as caught:
        os.pread(fd, 4, 0)
    assert caught.value.errno == errno.EIO
    bed.ask("heal ost.3")
    assert os.pread(fd, 4, 0) == b"data"
    bed.ask("fill ost.3 100%")
    with pytest.raises(OSError) as caught:
        os.pwrite(fd, b"x" * MIB, 0)
    assert caught.value.errno == errno.ENOSPC
    os.close(fd)
    free = os.statvfs(bed.path)
    assert free.f_bavail > 0  # df shows room, yet a file on that OST has none


def test_killed_while_the_mds_is_paused(make_testbed) -> None:
    """It ends long before the pause does."""
    bed = make_testbed(settings={"model": "on"})
    bed.ask("set mds.pause=3600s")
    child = subprocess.Popen([sys.executable, "-c", f"import os; os.stat({str(bed.path / 'nothing')!r})"])
    until(lambda: waits_for_fuse(child.pid))
    child.kill()
    assert child.wait(120) == -9
    bed.ask("heal all")
    assert not (bed.path / "nothing").exists()


def waits_for_fuse(pid: int) -> bool:
    where = Path(f"/proc/{pid}/wchan").read_bytes()
    return b"fuse" in where or b"request" in where


def test_slow_ost_is_slow_and_a_partitioned_client_waits(make_testbed) -> None:
    bed = make_testbed(settings={"model": "on"})
    other = bed.more("other")
    make(bed.path / "f", 4096)
    bed.ask("fail client.1")
    child = subprocess.Popen([sys.executable, "-c", f"import os; os.stat({str(other / 'f')!r})"])
    assert (bed.path / "f").stat().st_size == 4096
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)
    bed.ask("heal client.1")
    assert child.wait(20) == 0
