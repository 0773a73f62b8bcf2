# SPDX-License-Identifier: Apache-2.0
"""The server killed, the store damaged: what was acknowledged is there, what is lost is named, the rest is repaired."""

import contextlib
import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.base.errors import PenstockError
from penstock.testbed import emulated

WRITER = """
import os, sys
top, note = sys.argv[1], open(sys.argv[2], "ab", buffering=0)
os.chdir("/")
n = 0
while True:
    name = f"{top}/f{n}"
    data = bytes([n % 256]) * (n * 977 % 200_000)
    with open(name + ".tmp", "wb", buffering=0) as f:
        for at in range(0, len(data), 30_000):
            f.write(data[at : at + 30_000])
    made = name
    if n % 3:
        os.rename(name + ".tmp", name)
    else:
        made = name + ".tmp"
    note.write(f"made {made} {n}\\n".encode())
    if n % 7 == 6:
        note.write(f"gone {made} {n}\\n".encode())
        os.unlink(made)
    n += 1
"""


def expected(note: Path) -> dict[str, int]:
    """What the writer was told is there: name and the number that its content follows from."""
    there: dict[str, int] = {}
    for line in note.read_text().splitlines():
        word, path, number = line.split(" ")
        if word == "made":
            there[Path(path).name] = int(number)
        else:
            there.pop(Path(path).name, None)
    return there


def wait_for_lines(note: Path, count: int) -> None:
    end = time.monotonic() + 60
    while not note.exists() or note.read_bytes().count(b"\n") < count:
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("lines", [30, 200])
def test_no_closed_file_is_lost_when_the_server_is_killed(testbed, tmp_path, lines):
    note = tmp_path / "note"
    other = testbed.more("node2")
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(other), str(note)], stderr=subprocess.DEVNULL
    )
    wait_for_lines(note, lines)
    testbed.kill()
    writer.wait(timeout=20)  # its next call fails
    testbed.said.clear()
    testbed.start()
    assert any("left mounted by a server that died" in line for line in testbed.said)
    assert not [line for line in testbed.said if line.startswith(("lost:", "found:"))]
    there = expected(note)
    assert len(there) > lines / 2
    for name, n in there.items():
        assert (testbed.path / name).read_bytes() == bytes([n % 256]) * (n * 977 % 200_000), name
    (testbed.path / "after").write_text("works")


def test_an_open_file_without_a_name_is_gone_after_a_kill_and_its_room_free(testbed):
    fd = os.open(testbed.path / "x", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 100_000)
    (testbed.path / "x").unlink()
    assert os.pread(fd, 5, 0) == b"xxxxx"
    assert os.fstat(fd).st_nlink == 0
    testbed.kill()
    with contextlib.suppress(OSError):
        os.close(fd)
    testbed.start()
    objects = [f for ost in testbed.store.glob("ost*") for f in ost.iterdir()]
    assert objects == []
    assert testbed.status().inodes == 1


def test_down_works_and_says_so_when_the_server_died(testbed):
    testbed.kill()
    with pytest.raises(OSError) as caught:
        list(testbed.path.iterdir())
    assert caught.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    testbed.stop()
    assert not [m for m in emulated.mounts() if m.folder == testbed.folder]
    assert any("not running" in line for line in testbed.said)
    assert any("left mounted" in line for line in testbed.said)


def damaged(bed) -> list[str]:
    """Killed, then up again: what was said to be lost or found."""
    bed.said.clear()
    bed.start()
    return [line for line in bed.said if line.startswith(("lost:", "found:"))]


def ino_of(bed, name: str) -> int:
    return (bed.path / name).stat().st_ino


@pytest.fixture
def filled(make_testbed):
    """A small tree, and its server killed."""
    bed = make_testbed(settings={"model": "off", "layout.stripe_size": "65536", "layout.stripe_count": "2"})
    (bed.path / "d" / "e").mkdir(parents=True)
    for name in ("a", "b", "d/c", "d/e/f"):
        (bed.path / name).write_bytes(name.encode() * 40_000)
    (bed.path / "l").symlink_to("/" + "long/" * 60)
    os.setxattr(bed.path / "a", "user.x", b"y")
    return bed


def test_a_missing_object_is_named_and_the_rest_is_whole(filled):
    ino = ino_of(filled, "d/c")
    before = {name: (filled.path / name).read_bytes() for name in ("a", "b")}
    filled.kill()
    min(
        filled.store.glob("ost*/*"), key=lambda p: p.stat().st_mtime_ns
    ).unlink()  # of the first file, or the second
    said = damaged(filled)
    assert len(said) == 1
    lost = said[0].removeprefix("lost: /").partition(" (its object ")[0]
    assert lost in before
    (other,) = before.keys() - {lost}
    assert (filled.path / other).read_bytes() == before[other]
    assert ino_of(filled, "d/c") == ino
    assert len((filled.path / lost).read_bytes()) == len(before[lost])  # with a hole
    filled.kill()
    assert damaged(filled) == []


def test_a_missing_ost_folder_is_named_by_each_file_on_it(filled):
    filled.kill()
    one = max(filled.store.glob("ost*"), key=lambda p: len(list(p.iterdir())))
    count = len(list(one.iterdir()))
    for path in one.iterdir():
        path.unlink()
    one.rmdir()
    said = damaged(filled)
    assert len(said) == count > 0
    assert all(f"on OST {int(one.name[3:], 16)})" in line for line in said)
    (filled.path / "new").write_text("works")


def test_a_wrecked_record_is_named_and_a_wrecked_folder_gives_its_files_to_lost_and_found(filled):
    b, d = ino_of(filled, "b"), ino_of(filled, "d")
    filled.kill()
    with (filled.store / "inodes").open("r+b") as table:
        table.seek(b * 256)
        table.write(os.urandom(256))
        table.seek(d * 256)
        table.write(bytes(256))
    said = damaged(filled)
    assert "lost: /b (its inode)" in said
    assert "lost: /d (its inode)" in said
    assert sum(line.startswith("found:") for line in said) == 2  # d/c and d/e, with f in it
    found = sorted(p.relative_to(filled.path) for p in (filled.path / "lost+found").rglob("*") if p.is_file())
    assert len(found) == 2
    assert {(filled.path / p).read_bytes() for p in found} == {b"d/c" * 40_000, b"d/e/f" * 40_000}
    assert (filled.path / "a").read_bytes() == b"a" * 40_000
    filled.kill()
    assert damaged(filled) == []


def test_damaged_names_and_long_targets_are_named(filled):
    ino = os.lstat(filled.path / "l").st_ino
    filled.kill()
    (filled.store / "names" / "1" / "a").unlink()
    (filled.store / "names" / "1" / "a").write_text("nonsense")
    (filled.store / "bytes" / f"{ino:x}").unlink()
    said = damaged(filled)
    assert "lost: /a (its name is damaged)" in said
    assert "lost: /l (its target)" in said
    kept = [p for p in (filled.path / "lost+found").iterdir() if p.is_file()]
    assert [p.read_bytes() for p in kept] == [b"a" * 40_000]
    assert os.getxattr(kept[0], "user.x") == b"y"


def test_too_long_objects_are_cut_and_strangers_removed(filled):
    filled.kill()
    victim = next(filled.store.glob("ost*/*"))
    with victim.open("ab") as file:
        file.write(b"written, and not yet counted")
    (victim.parent / "fffff").write_bytes(b"nobody's")
    assert damaged(filled) == []
    for name in ("a", "b", "d/c", "d/e/f"):
        assert (filled.path / name).read_bytes() == name.encode() * 40_000
    assert not (victim.parent / "fffff").exists()


def test_a_store_without_its_table_is_refused_in_one_sentence(filled):
    filled.kill()
    (filled.store / "inodes").unlink()
    with pytest.raises(PenstockError, match="lost its header or inode table; restore it"):
        filled.start()
    assert not emulated.is_running(filled.folder)
    assert not [m for m in emulated.mounts() if m.folder == filled.folder]
