# SPDX-License-Identifier: Apache-2.0
"""The service model through real mounts: what calls cost and what is counted of them.

The kernel sends more and other requests than a Lustre client would (a LOOKUP for each part of a path, a GETATTR for
permissions); the counters must be those observed on Lustre.
"""

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.root

MIB = 1 << 20


class Counted(dict[str, int]):
    """Requests by kind; those that are not there are 0."""

    def __missing__(self, key: str) -> int:
        return 0


@pytest.fixture
def bed(make_testbed: Callable[..., object]) -> object:
    """Requests are counted and take no time."""
    return make_testbed(oss=2, osts=4, settings={"model": "count", "job.var": "PENSTOCK_TEST_JOB"})


def counters(bed) -> Counted:
    rows = (line.split() for line in bed.ask("counters 0").splitlines())
    return Counted({name: int(count) for name, count in rows})


@contextlib.contextmanager
def counted(bed) -> Iterator[Counted]:
    """What clients sent meanwhile; filled at the end.  What goes out in the background settles first."""
    before = settled(bed)
    got = Counted()
    yield got
    after = settled(bed)
    got.update({k: after[k] - before[k] for k in after if after[k] != before[k]})


def settled(bed) -> Counted:
    """Counters that no longer move: a file's last RELEASE comes after close returned."""
    last = counters(bed)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        time.sleep(0.02)
        now = counters(bed)
        if now == last:
            return now
        last = now
    raise AssertionError("the counters do not come to rest")


def cold(bed) -> None:
    bed.ask("drop")


def make(path: Path, size: int = 0) -> Path:
    with path.open("wb") as file:
        file.write(b"x" * size)
    return path


def test_placed_create_costs_what_it_costs_on_lustre(bed) -> None:
    plain = bed.path / "plain"
    plain.parent.stat()
    with counted(bed) as got:
        os.close(os.open(plain, os.O_CREAT | os.O_WRONLY))
    assert got == {"enq:open": 1, "close": 1}

    from penstock.targets import lov

    template = lov.encode(lov.Lov(composite=False, parts=(lov.template(1, MIB, (2,), ""),)))
    with counted(bed) as got:
        fd = os.open(bed.path / "placed", os.O_CREAT | os.O_WRONLY | os.O_NOCTTY | os.O_ASYNC)
        os.setxattr(fd, "lustre.lov", template)
        os.close(fd)
    assert got == {"enq:open": 2, "close": 2, "cancel": 1, "cb": 1}


def test_stat_open_and_read_of_small_files(bed) -> None:
    file = make(bed.path / "a", 4096)
    bed.ask("flush")
    cold(bed)
    bed.path.stat()
    with counted(bed) as got:
        file.stat()
    assert got == {"enq:getattr": 1, "glimpse": 1}
    with counted(bed) as got:
        file.stat()
    assert got == {}
    cold(bed)
    bed.path.stat()
    with counted(bed) as got:
        fd = os.open(file, os.O_RDONLY)
        os.read(fd, 4096)
        os.close(fd)
    assert got == {"enq:open": 1, "close": 1, "ext": 1, "read": 1}


def test_writing_and_fsync(bed) -> None:
    bed.path.stat()
    with counted(bed) as got:
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
        with counted(bed) as got:
            call()
        assert got == wanted, number


def test_listing_with_stat_is_looked_ahead(bed) -> None:
    folder = bed.path / "many"
    folder.mkdir()
    for i in range(300):
        make(folder / f"file{i}", 10)
    bed.ask("flush")
    cold(bed)
    bed.path.stat()
    with counted(bed) as got:
        with os.scandir(folder) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)
    assert got["enq:open"] + got["enq:getattr"] + got["enq:readdir"] <= 8
    assert 7 <= got["batch"] <= 14
    assert got["glimpse"] == 300
    cold(bed)
    bed.path.stat()
    with counted(bed) as got:
        for path in sorted(folder.iterdir()):  # all of the listing first
            path.lstat()
    assert got["batch"] == 0
    assert got["enq:getattr"] >= 299


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
    settled(bed)
    said = bed.ask("param mdt.*.job_stats") + bed.ask("param obdfilter.*.job_stats")
    from penstock.targets.lustre import job_rows

    for job in jobs:
        sums: dict[str, int] = {}
        for name, counter, count in job_rows(said):
            if name == job:
                sums[counter] = sums.get(counter, 0) + count
        assert {k: sums[k] for k in ("mknod", "open", "close", "write", "write_bytes")} == {
            "mknod": 50,
            "open": 50,
            "close": 50,
            "write": 50,
            "write_bytes": 50 * 4096,
        }


def test_faults_reach_programs(bed) -> None:
    from penstock.targets import lov

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
    bed = make_testbed(settings={"model": "on"})
    bed.ask("set mds.pause=60s")
    child = subprocess.Popen([sys.executable, "-c", f"import os; os.stat({str(bed.path / 'nothing')!r})"])
    status = Path(f"/proc/{child.pid}/wchan")
    until = time.monotonic() + 20
    while (
        time.monotonic() < until
        and b"fuse" not in status.read_bytes()
        and b"request" not in status.read_bytes()
    ):
        time.sleep(0.01)
    began = time.monotonic()
    child.kill()
    assert child.wait(30) == -9
    assert time.monotonic() - began < 10
    bed.ask("heal all")
    assert not (bed.path / "nothing").exists()


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
