# SPDX-License-Identifier: Apache-2.0
"""Corners of POSIX, one by one, on the testbed and in a plain folder: the same answers."""

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.root


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, error.errno)


def as_user(uid: int, call: Callable[..., Any], *args: Any) -> Any:
    """In a process of its own; its answer as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        os.write(writing, repr(outcome(call, *args)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        text = said.read().decode()
    os.waitpid(child, 0)
    return text


def mode_and_group(path: Path) -> tuple[int, int]:
    seen = path.lstat()
    return seen.st_mode, seen.st_gid


# Each works below a folder and says what it saw.


def setgid_folder(top: Path) -> list[tuple[int, int]]:
    shared = top / "shared"
    shared.mkdir()
    os.chown(shared, 0, 1000)
    shared.chmod(0o2775)
    (shared / "d").mkdir()
    (shared / "f").write_text("x")
    (shared / "l").symlink_to("f")
    os.mkfifo(shared / "p")
    return [mode_and_group(shared / name) for name in "dflp"]


def sticky_folder(top: Path) -> list[Any]:
    shared = top / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    for name, owner in (("mine", 1000), ("theirs", 1001)):
        (shared / name).write_text(name)
        os.chown(shared / name, owner, owner)
    return [
        as_user(1000, os.unlink, shared / "theirs"),
        as_user(1000, os.rename, shared / "theirs", shared / "taken"),
        as_user(1000, os.rename, shared / "mine", shared / "theirs"),
        as_user(1000, os.rename, shared / "mine", shared / "other"),
        as_user(1000, os.unlink, shared / "other"),
    ]


def links_are_counted(top: Path) -> list[Any]:
    (top / "a").write_text("x")
    found: list[Any] = [(top / "a").stat().st_nlink]
    os.link(top / "a", top / "b")
    found.append((top / "a").stat().st_nlink)
    fd = os.open(top / "a", os.O_RDWR)
    (top / "a").unlink()
    (top / "b").unlink()
    os.write(fd, b"still there")
    found += [os.fstat(fd).st_nlink, os.fstat(fd).st_size, os.pread(fd, 99, 0)]
    found.append(outcome(os.link, f"/proc/self/fd/{fd}", top / "back"))
    os.close(fd)
    (top / "d").mkdir()
    (top / "d" / "e").mkdir()
    found += [(top / "d").stat().st_nlink, outcome(os.link, top / "d", top / "d2")]
    return found


def renames(top: Path) -> list[Any]:
    for name in ("d", "d/sub", "full", "full/x", "empty"):
        (top / name).mkdir()
    for name in ("a", "b"):
        (top / name).write_text(name)
    os.link(top / "a", top / "same")
    pairs = [
        ("d", "d/sub/in"),  # into itself
        ("d", "full"),
        ("d", "a"),
        ("a", "d"),
        ("a", "same"),  # two names of one file: nothing happens
        ("a", "b"),
        ("missing", "b"),
        ("empty", "d/sub"),
        (".", "x"),
        ("d/..", "x"),
        ("b/", "c"),
        ("b", "c/"),
    ]
    told = [
        outcome(os.rename, top / old if old != "d/.." else f"{top}/{old}", f"{top}/{new}")
        for old, new in pairs
    ]
    return [*told, sorted(str(p.relative_to(top)) for p in top.rglob("*"))]


def exclusive(top: Path) -> list[Any]:
    (top / "there").write_text("x")
    (top / "dangling").symlink_to("nowhere")
    (top / "loop").symlink_to("loop")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    return [
        outcome(os.open, top / "there", flags),
        outcome(os.open, top / "dangling", flags),
        outcome(os.open, top / "loop", os.O_RDONLY),
        outcome(os.open, top / "there", os.O_RDONLY | os.O_DIRECTORY),
        outcome(os.open, top / "dangling", os.O_RDONLY | os.O_NOFOLLOW),
        outcome(os.open, top, os.O_WRONLY),
        outcome(lambda: os.close(os.open(top / "dangling", os.O_CREAT | os.O_WRONLY))),
        (top / "nowhere").exists(),
    ]


def names(top: Path) -> list[Any]:
    (top / "f").write_text("x")
    odd = [b"line\nbreak", b"\xff\xfe", b"a" * 255, b"#?%20", b" "]
    made = [outcome(os.mkdir, os.fsencode(top) + b"/" + name) for name in [*odd, b"a" * 256]]
    deep = os.fsencode(top) + b"/d" * 2100
    return [
        made,
        sorted(os.listdir(os.fsencode(top))),  # noqa: PTH208
        outcome(os.stat, top / "f" / "below"),
        outcome(os.stat, f"{top}/f/"),
        outcome(os.stat, deep),
        outcome(os.mkdir, top / "missing" / "d"),
        outcome(os.rmdir, f"{top}/."),
        outcome(os.rmdir, top / "f"),
        outcome(os.unlink, top / " "),
    ]


def sizes(top: Path) -> list[Any]:
    path = top / "f"
    path.write_bytes(b"x" * 100)
    reading, writing = os.open(path, os.O_RDONLY), os.open(path, os.O_RDWR)
    found = [
        outcome(os.ftruncate, reading, 5),
        outcome(os.truncate, top, 5),
        outcome(os.write, reading, b"x"),
        outcome(os.pread, writing, 10, 95),
        outcome(os.pread, writing, 10, 100),
        outcome(os.lseek, writing, -1, os.SEEK_SET),
        outcome(os.lseek, writing, 10, os.SEEK_END),
        outcome(os.ftruncate, writing, 300_000),
        outcome(os.pread, writing, 200, 0),
        path.stat().st_size,
    ]
    os.close(reading)
    os.close(writing)
    return found


def ownership(top: Path) -> list[Any]:
    path = top / "f"
    path.write_text("x")
    os.chown(path, 1000, 1000)
    path.chmod(0o640)
    return [
        as_user(1000, os.chown, path, 1001, -1),
        as_user(1000, os.chown, path, -1, 1001),
        as_user(1001, os.chmod, path, 0o777),
        as_user(1001, Path.read_text, path),
        as_user(1001, os.utime, path),
        as_user(1000, os.chmod, path, 0o2755),
        as_user(1000, os.utime, path, (5, 5)),
        mode_and_group(path),
        path.stat().st_mtime_ns,
    ]


def searching_needs_a_right(top: Path) -> list[Any]:
    closed, listed = top / "closed", top / "listed"
    for folder, mode in ((closed, 0o311), (listed, 0o744)):
        folder.mkdir()
        (folder / "f").write_text("x")
        folder.chmod(mode)
    return [
        as_user(1000, os.listdir, closed),
        as_user(1000, Path.read_text, closed / "f"),
        as_user(1000, os.listdir, listed),
        as_user(1000, Path.read_text, listed / "f"),
        as_user(1000, os.mkdir, closed / "d"),
    ]


def times_to_the_nanosecond(top: Path) -> list[Any]:
    """Set while data is under way, they stay as they were set."""
    path = top / "f"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"x" * 300_000)
    os.utime(fd, ns=(1_234_567_891, 9_876_543_219))
    os.close(fd)
    found = [path.stat().st_atime_ns, path.stat().st_mtime_ns]
    os.utime(path, ns=(-1_500_000_000, -1), follow_symlinks=False)
    return [*found, path.stat().st_atime_ns, path.stat().st_mtime_ns]


CASES = [
    setgid_folder,
    sticky_folder,
    links_are_counted,
    renames,
    exclusive,
    names,
    sizes,
    ownership,
    searching_needs_a_right,
    times_to_the_nanosecond,
]


@pytest.fixture(scope="module")
def plain() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-posix-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(params=["contention", "posix"])
def bed(request: pytest.FixtureRequest, make_testbed: Callable[..., Any]) -> Any:
    return make_testbed(caching=request.param, settings={"model": "off", "layout.stripe_count": "2"})


def test_corners(bed: Any, plain: Path) -> None:
    for case in CASES:
        seen = []
        for top in (plain, bed.path):
            work = Path(tempfile.mkdtemp(dir=top))
            work.chmod(0o755)
            seen.append(case(work))
        assert seen[1] == seen[0], case.__name__
        assert stat.S_ISDIR(work.stat().st_mode)


def test_inodes_come_and_go_in_balance(bed: Any) -> None:
    """Listings with attributes make the kernel know inodes without asking for them one by one."""
    before = bed.status().inodes
    for _ in range(2):
        folder = bed.path / "many"
        folder.mkdir()
        for i in range(80):
            (folder / f"f{i}").write_text("x")
        with os.scandir(folder) as entries:
            assert len([entry.stat() for entry in entries]) == 80
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    assert bed.status().inodes == before
    assert not [f for i in range(4) for f in (bed.store / f"ost{i:04x}").iterdir()]
