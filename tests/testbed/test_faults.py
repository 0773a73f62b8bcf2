# SPDX-License-Identifier: Apache-2.0
"""Faults of servers and targets, as a program on a mount meets them."""

import contextlib
import errno
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testbed import emulated

QUICK = {"mds.commit": "10ms"}


def on_osts(path: Path, *osts: int) -> Path:
    """A new file whose stripes lie on these OSTs, 64 KiB each."""
    os.mknod(path)
    head = struct.pack("<IIQQIHH16x", 0x0BD50BD0, 1, 0, 0, 65536, len(osts), 0xFFFF)
    os.setxattr(path, "lustre.lov", head + b"".join(struct.pack("<20xI", ost) for ost in osts))
    return path


def error_of(call, *args) -> int:
    try:
        call(*args)
    except OSError as error:
        return error.errno or 0
    return 0


def write_synced(path: Path, data: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())


@pytest.fixture
def bed(make_testbed):
    return make_testbed(settings=QUICK)


def test_a_dead_ost_gives_eio_to_its_files_alone(bed):
    dead, well = on_osts(bed.path / "dead", 1, 2), on_osts(bed.path / "well", 0, 2)
    for path in (dead, well):
        write_synced(path, b"x" * 200_000)
    bed.ask("fail ost.1")
    assert error_of(write_synced, dead, b"y" * 200_000) == errno.EIO
    assert error_of(dead.read_bytes) == errno.EIO
    assert well.read_bytes() == b"x" * 200_000
    assert [error_of((bed.path / f"new{i}").write_bytes, b"n" * 100_000) for i in range(8)] == [0] * 8
    bed.ask("heal ost.1")
    write_synced(dead, b"z" * 200_000)
    assert dead.read_bytes() == b"z" * 200_000


def test_a_full_ost_gives_enospc_though_there_is_room(bed):
    path = on_osts(bed.path / "x", 3)
    bed.ask("fill ost.3 100%")
    space = os.statvfs(bed.path)
    assert space.f_bavail * space.f_frsize > 1 << 30
    assert error_of(write_synced, path, b"x" * 1_000_000) == errno.ENOSPC
    (bed.path / "elsewhere").write_bytes(b"x" * 1_000_000)
    bed.ask("heal ost.3")
    bed.ask("fill ost.3 0%")
    write_synced(path, b"x" * 1_000_000)


def test_room_is_given_back(bed):
    before = os.statvfs(bed.path).f_bfree
    path = on_osts(bed.path / "x", 0, 1, 2)
    write_synced(path, b"x" * 10_000_000)
    assert (before - os.statvfs(bed.path).f_bfree) * 4096 in range(10_000_000, 10_100_000)
    assert path.stat().st_blocks * 512 in range(10_000_000, 10_100_000)
    os.truncate(path, 1_000_000)
    assert (before - os.statvfs(bed.path).f_bfree) * 4096 in range(1_000_000, 1_100_000)
    path.unlink()
    assert emulated._wait_until(lambda: os.statvfs(bed.path).f_bfree == before)


READER = "import sys; print('reads', flush=True); print(len(open(sys.argv[1], 'rb').read()))"


def start_reader(path: Path) -> "subprocess.Popen[bytes]":
    child = subprocess.Popen([sys.executable, "-c", READER, str(path)], stdout=subprocess.PIPE)
    assert child.stdout and child.stdout.readline() == b"reads\n"
    return child


def test_calls_wait_for_a_server_that_is_down_and_go_on(bed):
    path = on_osts(bed.path / "x", 0, 1, 2, 3)
    write_synced(path, b"x" * 500_000)
    other = bed.more("node2")
    bed.ask("fail oss.1")
    child = start_reader(other / "x")
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.3)
    bed.ask("heal oss.1")
    assert child.communicate(timeout=30)[0] == b"500000\n"


def test_a_killed_waiter_is_gone_at_once(bed):
    path = on_osts(bed.path / "x", 1)
    write_synced(path, b"x" * 500_000)
    other = bed.more("node2")
    bed.ask("fail oss.1")
    child = start_reader(other / "x")
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.3)
    child.send_signal(signal.SIGKILL)
    child.wait(20)  # and not when the server is healed
    bed.ask("heal oss.1")
    assert len((other / "x").read_bytes()) == 500_000


def test_a_paused_mds_holds_names_up_and_no_bytes(bed):
    path = on_osts(bed.path / "x", 1)
    write_synced(path, b"x" * 100_000)
    other = bed.more("node2")
    with path.open("rb", buffering=0) as file:
        bed.ask("set mds.pause=20s")
        assert len(file.read(100_000)) == 100_000
        child = start_reader(other / "x")
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        bed.ask("set mds.pause=0s")
        assert child.communicate(timeout=30)[0] == b"100000\n"


def test_down_does_not_wait_for_those_who_wait(bed):
    path = on_osts(bed.path / "x", 1)
    write_synced(path, b"x" * 500_000)
    other = bed.more("node2")
    bed.ask("fail oss.1")
    child = start_reader(other / "x")
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.2)
    bed.stop()
    assert child.wait(20) is not None
    child.communicate()
    assert not [m for m in emulated.mounts() if m.folder == bed.folder]


def test_a_client_that_dies_with_its_mount_frees_what_it_held(bed):
    other = bed.more("node2")
    fd = os.open(other / "x", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 100_000)
    (bed.path / "x").unlink()
    assert os.fstat(fd).st_nlink == 0
    emulated.unmount(other, force=True)
    with contextlib.suppress(OSError):
        os.close(fd)
    assert emulated._wait_until(lambda: bed.status().inodes == 1)
