# SPDX-License-Identifier: Apache-2.0
"""The emulated file system answers as Lustre does: the rows of lustre_rows.toml through a real mount.

The cases are the lines that the C tests run too; what takes more than one call is a function marked with
its rows.
"""

import ctypes
import errno
import mmap
import os
import shutil
import stat
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.testbed import emulated

sys.path.insert(0, str(Path(__file__).parent))
import lustre_calls as lustre
from lustre_calls import DELAY, as_user, get, has_layout, mknod, said, set_layout, stripe

HELD: set[str] = {str(case.row) for case in lustre.cases() if "DOWN" not in case.words}
"""Rows that this file holds; test_rows.py compares them with the table."""

DEFAULT = "V1 n=56 p=0x1 s=4194304 c=1 (?)"
LIST = "V1 n=80 p=0x1 s=4194304 c=2 (3,1)"


def rows(*numbers: int | str) -> Callable[[Any], Any]:
    HELD.update(map(str, numbers))
    return lambda function: function


def check(answer: str, actual: str) -> None:
    assert fnmatchcase(actual, answer), f"{actual!r} is not {answer!r}"


@contextmanager
def opened(path: Path, flags: int, mode: int = 0o644) -> Iterator[int]:
    fd = os.open(path, flags, mode)
    try:
        yield fd
    finally:
        os.close(fd)


# ---- the file system: four OSTs on one OSS, two mounts ----

STATES = {"INACTIVE": "inactive", "NO_CREATE": "no_create", "DEGRADED": "degraded", "READ_ONLY": "read_only"}


class FileSystem:
    def __init__(self, top: Path, caching: str, model: str) -> None:
        self.path, self.other = top / "one", top / "two"
        settings = {"model": model, "pool.p1": "1,2", "layout.seed": "1"}
        self.folder = emulated.up(self.path, emulated.Shape(oss=1, osts=4), caching, settings).folder
        emulated.mount_more(self.folder, self.other)

    @contextmanager
    def _changed(self, what: str, line: str) -> Iterator[None]:
        emulated.ask(self.folder, line)
        try:
            yield
        finally:
            emulated.ask(self.folder, f"heal {what}")

    def ost_in_state(self, ost: int, state: str) -> Any:
        full = state == "FULL"
        line = f"fill ost.{ost} 100%" if full else f"set ost.{ost}.{STATES[state]}=on"
        return self._changed(f"ost.{ost}", line)

    def ost_filled(self, ost: int, percent: float) -> Any:
        return self._changed(f"ost.{ost}", f"fill ost.{ost} {percent}%")


@pytest.fixture(scope="module", params=[("contention", "on"), ("posix", "off")], ids="-".join)
def fs(request: pytest.FixtureRequest) -> Iterator[FileSystem]:
    if why := emulated.missing():
        pytest.skip(why)
    top = Path(tempfile.mkdtemp(prefix="penstock-conformance-"))
    top.chmod(0o755)  # for callers without rights
    try:
        found = FileSystem(top, *request.param)
        try:
            yield found
        finally:
            emulated.down(found.folder, purge=True)
    finally:
        shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def work(fs: FileSystem) -> Path:
    folder = Path(tempfile.mkdtemp(dir=fs.path))
    folder.chmod(0o777)
    return folder


# ---- the table ----


def shown(path: Path, how: str) -> str:
    if how == "X":
        found = said(get, path)
    else:
        with opened(path, os.O_RDONLY) as fd:
            found = said(lambda: lustre.text_of(lustre.whole(lustre.getstripe(fd))))
    return "none" if found == "ENODATA" else found


def put(path: Path, how: str, text: str) -> str | None:
    """None, or the name of the error."""
    if how == "X":
        return said(set_layout, path, text)
    with opened(path, os.O_RDONLY) as fd:
        answer = said(stripe, fd, text)
    return answer if isinstance(answer, str) else None


def file_case(path: Path, ways: str, text: str, answer: str) -> None:
    for how in ways:
        one = mknod(path.with_name(f"{path.name}-{how}"))
        refused = put(one, how, text)
        check(answer, refused or shown(one, how))
        if refused:
            assert not has_layout(one)
        one.unlink()


def of_kind(kind: str) -> Any:
    chosen = [case for case in lustre.cases() if case.kind == kind]
    return pytest.mark.parametrize("case", chosen, ids=[f"{c.row}:{'/'.join(c.words[:-1])}" for c in chosen])


@of_kind("FILE")
def test_template_on_file(work: Path, case: lustre.Case) -> None:
    file_case(work / "file", *case.words)


@of_kind("STATE")
def test_template_with_ost_in_state(work: Path, fs: FileSystem, case: lustre.Case) -> None:
    state, *words = case.words
    if state == "DOWN":
        return  # held by the layout code alone: the kernel looks at the file first, and that waits for the OST
    with fs.ost_in_state(2, state):
        for _ in range(6):  # wherever the turn is
            file_case(work / "file", *words)


@of_kind("FOLDER")
def test_template_on_folder(work: Path, case: lustre.Case) -> None:
    ways, text, answer = case.words
    for how in ways:
        folder = work / f"folder-{how}"
        folder.mkdir()
        check(answer, put(folder, how, text) or shown(folder, "X"))


@of_kind("CHILD")
def test_default_of_folder(work: Path, case: lustre.Case) -> None:
    text, answer = case.words
    set_layout(work, text)
    (work / "file").touch()
    check(answer, get(work / "file"))


# ---- which calls leave a file without a layout ----


@rows(1, 146)
def test_mknod(work: Path) -> None:
    assert not has_layout(mknod(work / "file"))


@rows(2, 6)
@pytest.mark.parametrize(
    "flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_EXCL, os.O_WRONLY | 0o100000000]
)
def test_open_fixes_layout(work: Path, flags: int) -> None:
    with opened(work / "file", os.O_CREAT | flags) as fd:
        check(DEFAULT, get(fd))


@rows(2)
def test_append_gets_one_stripe(work: Path) -> None:
    set_layout(work, "V1 c=4")
    with opened(work / "file", os.O_CREAT | os.O_WRONLY | os.O_APPEND) as fd:
        check(DEFAULT, get(fd))


@rows(3, 4)
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | DELAY, os.O_RDWR | DELAY])
def test_open_without_layout(work: Path, flags: int) -> None:
    with opened(work / "file", os.O_CREAT | flags) as fd:
        assert not has_layout(fd)


@rows(5, 144)
def test_half_of_delay(work: Path) -> None:
    with opened(work / "noctty", os.O_CREAT | os.O_WRONLY | os.O_NOCTTY) as fd:
        assert has_layout(fd)
    with opened(work / "async", os.O_CREAT | os.O_WRONLY | os.O_ASYNC) as fd:
        assert not has_layout(fd)  # Lustre would give one; FUSE does not pass the other half


@rows(8)
def test_calls_that_need_no_layout(work: Path) -> None:
    path = mknod(work / "file")
    path.stat()
    path.chmod(0o600)
    os.utime(path, (1, 1))
    with opened(path, os.O_RDONLY) as fd:
        assert os.read(fd, 10) == b""
        os.fsync(fd)
        assert os.lseek(fd, 0, os.SEEK_END) == 0
    os.truncate(path, 100)
    with opened(path, os.O_RDONLY) as fd:
        assert os.read(fd, 200) == bytes(100)
    with opened(path, os.O_RDONLY | os.O_TRUNC):
        pass
    os.link(path, work / "link")
    path.rename(work / "renamed")
    assert not has_layout(work / "renamed")


@rows(9)
def test_truncate_keeps_size(work: Path) -> None:
    path = mknod(work / "file")
    os.truncate(path, 0)
    os.truncate(path, 5000000)
    assert not has_layout(path)
    set_layout(path, "COMP | 0-1M V1 | 1M-4M V1 | 4M-8M V1 | 8M-EOF V1")
    assert path.stat().st_size == 5000000
    check("COMP * | 0x1 0x10 * | 0x2 0x10 * | 0x3 0x10 * | 0x4 0x0 *", get(path))
    assert path.read_bytes() == bytes(5000000)


@rows(10)
@pytest.mark.parametrize("flags", [os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND])
def test_open_gives_missing_layout(work: Path, flags: int) -> None:
    with opened(mknod(work / "file"), flags) as fd:
        check(DEFAULT, get(fd))


@rows(11, 12, 13, 14)
def test_delayed_file_without_layout(work: Path) -> None:
    path = work / "file"
    with opened(path, os.O_CREAT | os.O_WRONLY | DELAY) as first:
        assert os.write(first, b"") == 0
        assert said(os.write, first, b"x") == "EBADF"
        with opened(path, os.O_WRONLY) as second:
            assert not has_layout(path)
            assert said(os.write, second, b"x") == "EBADF"
            assert said(os.write, first, b"x") == "EBADF"
    assert not has_layout(path)
    with opened(path, os.O_WRONLY) as fd:
        check(DEFAULT, get(path))
        assert os.write(fd, b"x") == 1


@rows(15)
def test_size_of_delayed_file(work: Path) -> None:
    with opened(work / "file", os.O_CREAT | os.O_WRONLY | DELAY) as fd:
        os.ftruncate(fd, 1000000)
        os.posix_fallocate(fd, 0, 2000000)
        assert not has_layout(fd)


@rows(17)
def test_no_unnamed_files(work: Path) -> None:
    assert said(os.open, work, os.O_TMPFILE | os.O_WRONLY) == "EOPNOTSUPP"


# ---- setting a layout on a file ----


@rows(20)
@pytest.mark.parametrize("text", ["V1", "V3 pool=nope", "SPEC list=3,1", "COMP | 0-1M V1 | 1M-EOF V1"])
def test_set_by_any_way(work: Path, text: str) -> None:
    set_layout(mknod(work / "path"), text)
    mknod(work / "linked")
    os.link(work / "linked", work / "other")
    set_layout(work / "other", text)
    for flags in (os.O_RDONLY, os.O_WRONLY | DELAY, os.O_RDWR | DELAY):
        with opened(mknod(work / f"fd-{flags}"), flags) as fd:
            set_layout(fd, text)
    for path in work.iterdir():
        assert has_layout(path)
        path.write_bytes(b"there")
        assert path.read_bytes() == b"there"


@rows(21, 22, 23, 140, 141)
@pytest.mark.parametrize("number", [lustre.SETSTRIPE, lustre.SETSTRIPE_NEW], ids=["old", "new"])
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | DELAY, os.O_RDWR | DELAY])
@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("V1 c=2", 32),
        ("V3 c=2", 48),
        ("SPEC list=3,1", 80),
        ("SPEC pool=p1 list=2,1", 96),
        ("COMP | 0-1M V1 | 1M-EOF V1", 192),
    ],
)
def test_ioctl_writes_back(work: Path, number: int, flags: int, text: str, size: int) -> None:
    asked = lustre.template(text)
    with opened(mknod(work / "file"), flags) as fd:
        buffer = lustre.ioctl(fd, number, asked + b"\xee" * 200)
        assert buffer[:size] == lustre.whole(lustre.getstripe(fd))[:size]
        rest = max(size, len(asked))
        assert buffer[rest : len(asked) + 200] == b"\xee" * (len(asked) + 200 - rest)
        assert has_layout(fd)


@rows(24, 25, 26)
@pytest.mark.parametrize("data", [b"", b"data"])
def test_layout_is_set_once(work: Path, data: bytes) -> None:
    path = mknod(work / "file")
    set_layout(path, "SPEC list=3,1")
    path.write_bytes(data)
    for text in ("V1 c=4", "SPEC list=2", "COMP | 0-EOF V1", "V1 size=0"):
        for flags in (0, os.XATTR_CREATE, os.XATTR_REPLACE):
            set_layout(path, text, flags)
        os.setxattr(path, "trusted.lov", lustre.template(text))
    os.removexattr(path, lustre.XATTR)
    os.removexattr(path, "trusted.lov")
    with opened(path, os.O_RDONLY) as fd:
        for number in (lustre.SETSTRIPE, lustre.SETSTRIPE_NEW):
            assert said(stripe, fd, "V1 c=4", number) == "EEXIST"
    check(LIST, get(path))
    assert path.read_bytes() == data
    os.removexattr(mknod(work / "none"), lustre.XATTR)


@rows(28, 143)
def test_value_too_large(work: Path) -> None:
    assert said(set_layout, mknod(work / "file"), "V1 size=65537") == "E2BIG"


@rows(30)
def test_ioctl_refusals(work: Path) -> None:
    with opened(mknod(work / "file"), os.O_RDONLY) as fd:
        assert said(lustre.ioctl_null, fd, lustre.SETSTRIPE) == "EFAULT"
        assert said(lustre.ioctl, fd, 0x400866FE, b"") == "ENOTTY"
        assert not has_layout(fd)


@rows(52)
def test_copied_value_pins_nothing(work: Path) -> None:
    set_layout(mknod(work / "source"), "SPEC list=3,1 s=1M")
    value = os.getxattr(work / "source", lustre.XATTR)
    first = set()
    for i in range(8):
        path = mknod(work / f"copy-{i}")
        os.setxattr(path, lustre.XATTR, value if i % 2 else value[:30] + b"\0\0" + value[32:])
        check("V1 n=80 p=0x1 s=1048576 c=2 (?,?)", get(path))
        first.add(lustre.osts_of(os.getxattr(path, lustre.XATTR))[0])
    assert len(first) > 1


@rows(53)
def test_other_names(work: Path) -> None:
    path = mknod(work / "file")
    for name, answer in [
        ("lustre.lov.add", "EINVAL"),
        ("lustre.lov.bogus", "EINVAL"),
        ("lustre.foo", "EOPNOTSUPP"),
    ]:
        assert said(os.setxattr, path, name, lustre.template("V1")) == answer
    os.setxattr(path, "user.lov", b"mine")
    assert os.getxattr(path, "user.lov") == b"mine"
    assert not has_layout(path)


@rows(54)
def test_what_is_no_file(work: Path) -> None:
    os.mkfifo(work / "fifo")
    (work / "link").symlink_to("nowhere")
    for path in (work / "fifo", work / "link"):
        os.setxattr(path, lustre.XATTR, lustre.template("V1"), follow_symlinks=False)
        assert said(lambda p: os.getxattr(p, lustre.XATTR, follow_symlinks=False), path) == "ENODATA"


def write_at(path: Path, offset: int, data: bytes) -> None:
    with opened(path, os.O_WRONLY) as fd:
        assert os.pwrite(fd, data, offset) == len(data)


@rows(56, 57)
def test_component_by_first_write(work: Path) -> None:
    path = mknod(work / "file")
    set_layout(path, "COMP | 0-1M V1 c=1 s=1M | 1M-EOF V1 c=-1 s=1M")
    write_at(path, 0, b"begin")
    check("COMP n=216 g=2 * | 0x2 0x0 *", get(path))
    write_at(path, 3 << 20, b"middle")
    said_now = get(path)
    check("COMP n=288 g=3 * | 0x1 0x10 * (?) | 0x2 0x10 1048576-EOF V1 p=0x1 s=1048576 c=3 (?,?,?)", said_now)
    first = said_now[said_now.index("(") + 1]
    assert first not in said_now[said_now.rindex("(") :]
    data = path.read_bytes()
    assert data == b"begin".ljust(3 << 20, b"\0") + b"middle"


@rows(56)
def test_write_over_the_border(work: Path) -> None:
    path = mknod(work / "file")
    set_layout(path, "COMP | 0-64K V1 c=1 s=64K | 64K-256K V1 c=2 s=64K | 256K-EOF V1 c=-1 s=64K")
    data = os.urandom(400000)
    write_at(path, 0, data)
    check("COMP * | 0x1 0x10 * | 0x2 0x10 * | 0x3 0x10 *", get(path))
    assert path.read_bytes() == data


@rows(58)
def test_list_of_component(work: Path) -> None:
    path = mknod(work / "file")
    set_layout(path, "COMP | 0-1M SPEC list=2 | 1M-EOF SPEC list=3,1")
    write_at(path, 1 << 20, b"x")
    check("COMP * g=3 * (2) | 0x2 0x10 1048576-EOF V1 p=0x1 s=4194304 c=2 (3,1)", get(path))


@rows(59)
def test_data_on_the_mdt(work: Path) -> None:
    path = mknod(work / "file")
    set_layout(path, "COMP | 0-1M V1 p=0x100 s=1M | 1M-EOF V1")
    write_at(path, 1000, b"small")
    check("COMP n=192 *", get(path))
    write_at(path, (1 << 20) - 2, b"over")
    check("COMP n=216 g=3 * | 0x1 0x10 0-1048576 V1 p=0x100 s=1048576 c=0 () | 0x2 0x10 * (?)", get(path))
    data = path.read_bytes()
    assert (data[1000:1005], data[-4:], len(data)) == (b"small", b"over", (1 << 20) + 2)


@rows(61)
def test_write_makes_mirror_stale(work: Path) -> None:
    path = mknod(work / "file")
    set_layout(path, "COMP m=1 | 0-EOF V1 | 0-EOF V1")
    write_at(path, 0, b"once")
    check("COMP * g=3 st=2 m=1 | 0x10001 0x10 * | 0x20002 0x11 *", get(path))
    write_at(path, 4, b"more")
    check("COMP * g=3 *", get(path))
    assert path.read_bytes() == b"oncemore"


@rows(63)
def test_write_behind_the_last_component(work: Path) -> None:
    path = mknod(work / "file")
    set_layout(path, "COMP | 0-1M V1 s=1M")
    write_at(path, 0, b"in")
    with opened(path, os.O_WRONLY) as fd:
        assert said(os.pwrite, fd, b"out", 1 << 20) == "ENODATA"
    assert path.read_bytes() == b"in"


# ---- states of OSTs ----


@rows(76)
@pytest.mark.parametrize(
    ("state", "answer"), [("INACTIVE", "EREMOTEIO"), ("NO_CREATE", "ENOBUFS"), ("FULL", "ENOSPC")]
)
def test_refused_ioctl_leaves_no_layout(work: Path, fs: FileSystem, state: str, answer: str) -> None:
    with fs.ost_in_state(2, state), opened(work / "file", os.O_CREAT | os.O_WRONLY | DELAY) as fd:
        assert said(stripe, fd, "SPEC list=2,0") == answer
        assert said(os.write, fd, b"x") == "EBADF"


@rows(75)
def test_full_for_data_but_not_for_files(work: Path, fs: FileSystem) -> None:
    with fs.ost_filled(2, 99.6):  # 40 MiB are left of 10 GiB; the MDS takes it for full below 10
        with opened(work / "file", os.O_CREAT | os.O_WRONLY | DELAY) as fd:
            set_layout(fd, "SPEC list=2")
            written = 0
            with pytest.raises(OSError) as caught:
                while written < 1 << 30:
                    written += os.write(fd, bytes(1 << 20))
            assert caught.value.errno == errno.ENOSPC


@rows(80)
def test_in_turn(work: Path) -> None:
    osts = []
    for i in range(60):
        (work / str(i)).touch()
        osts += lustre.osts_of(os.getxattr(work / str(i), lustre.XATTR))
    assert all((b - a) % 4 == 1 for a, b in pairwise(osts))


def test_weighted_by_what_was_filled(work: Path, fs: FileSystem) -> None:
    with fs.ost_filled(2, 70):
        osts: list[int] = []
        for i in range(200):
            (work / str(i)).touch()
            osts += lustre.osts_of(os.getxattr(work / str(i), lustre.XATTR))
    assert 0 < osts.count(2) < min(osts.count(ost) for ost in (0, 1, 3))


# ---- reading a layout ----


@rows(90)
def test_nothing_to_read(work: Path) -> None:
    path = mknod(work / "file")
    for name in (lustre.XATTR, "trusted.lov"):
        assert said(os.getxattr, path, name) == "ENODATA"
    with opened(path, os.O_RDONLY) as fd:
        assert said(os.getxattr, fd, lustre.XATTR) == "ENODATA"
        assert said(lustre.getstripe, fd) == "ENODATA"


@rows(91)
def test_size_of_answer(work: Path) -> None:
    (work / "file").touch()
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(100)

    def ask(size: int) -> int | str:
        got = libc.getxattr(bytes(work / "file"), lustre.XATTR.encode(), buffer, ctypes.c_size_t(size))
        return got if got >= 0 else errno.errorcode[ctypes.get_errno()]

    assert [ask(size) for size in (0, 1, 55, 56, 100)] == [56, "ERANGE", "ERANGE", 56, 56]


@rows(92, 93, 94, 96, 97)
def test_fields_of_plain_layout(work: Path) -> None:
    path = mknod(work / "file")
    set_layout(path, "SPEC list=3,1 s=1M")
    with opened(path, os.O_RDONLY) as fd:
        value, stripes = os.getxattr(fd, lustre.XATTR), lustre.whole(lustre.getstripe(fd))
        assert struct.unpack_from("=H", value, 30)[0] == 0xFFFF
        assert struct.unpack_from("=H", stripes, 30)[0] == 0
        assert value[:30] == stripes[:30] and value[32:] == stripes[32:]
        sequences = [struct.unpack_from("=Q", value, at)[0] for at in (32, 56)]
        assert sequences == [0x300000400, 0x280000400]
        oid, seq = struct.unpack_from("=QQ", value, 8)
        assert (seq, oid > 0) == (0x200000401, True)
        for count, size in enumerate((32, 56, 80, 80)):
            buffer = lustre.ioctl(fd, lustre.GETSTRIPE, lustre.template(f"V1 c={count}") + b"\xee" * 100)
            assert buffer[:size] == stripes[:size]
            assert buffer[max(size, 32) : 132] == b"\xee" * (132 - max(size, 32))
        assert lustre.ioctl(fd, lustre.GETSTRIPE_NEW, b"")[:80] == stripes


@rows(95, 98)
def test_fields_of_composite(work: Path) -> None:
    path = mknod(work / "file")
    set_layout(path, "COMP | 0-1M V1 s=1M | 1M-EOF V1 c=-1")
    value = os.getxattr(path, lustre.XATTR)
    with opened(path, os.O_RDONLY) as fd:
        stripes = lustre.whole(lustre.getstripe(fd))
        plain = lustre.whole(lustre.getstripe(fd, lustre.template("V1 c=9")))
    offsets = [struct.unpack_from("=I", value, 32 + 48 * i + 24)[0] for i in range(2)]
    for at in offsets:
        assert struct.unpack_from("=H", value, at + 30)[0] == 0xFFFF
        assert struct.unpack_from("=H", stripes, at + 30)[0] == 0
        assert value[at + 8 : at + 24] == bytes(16)
    assert struct.unpack_from("=H", value, offsets[1] + 28)[0] == 0xFFFF
    check("V1 n=56 p=0x1 s=1048576 c=1 (?)", lustre.text_of(plain))


@rows(102)
def test_block_size(work: Path) -> None:
    set_layout(mknod(work / "file"), "V1 s=1M")
    assert (work / "file").stat().st_blksize == 4 << 20


@rows("148a")
def test_by_name_on_folder(work: Path) -> None:
    set_layout(mknod(work / "file"), "SPEC list=3,1")
    mknod(work / "none")
    with opened(work, os.O_RDONLY | os.O_DIRECTORY) as fd:
        assert lustre.text_of(lustre.whole(lustre.ioctl(fd, lustre.BY_NAME, b"file\0"))) == LIST
        assert said(lustre.ioctl, fd, lustre.BY_NAME, b"none\0") == "ENODATA"
        assert said(lustre.ioctl, fd, lustre.BY_NAME, b"missing\0") == "ENOENT"


@rows(99)
def test_names_in_list(work: Path) -> None:
    (work / "file").touch()
    assert set(os.listxattr(work / "file")) == {"trusted.lov", "lustre.lov"}
    assert as_user(os.listxattr, work / "file") == ["lustre.lov"]
    assert os.listxattr(mknod(work / "none")) == []


@rows(100, 101)
def test_who_may_read(work: Path) -> None:
    (work / "file").touch(0o644)
    assert as_user(get, work / "file") == get(work / "file")
    assert as_user(os.getxattr, work / "file", "trusted.lov") == "ENODATA"
    assert as_user(os.setxattr, work / "file", "trusted.lov", lustre.template("V1")) == "EPERM"
    (work / "file").chmod(0o600)
    assert as_user(get, work / "file") == "EACCES"


# ---- directories ----


@rows(110)
def test_default_of_the_root(work: Path, fs: FileSystem) -> None:
    assert said(get, work) == "ENODATA"
    with opened(work, os.O_RDONLY) as fd:
        assert said(lustre.getstripe, fd) == "ENODATA"
    set_layout(fs.path, "V1 c=3")
    try:
        check("V1 n=32 p=0x1 s=0 c=3 ()", get(work))
        assert "lustre.lov" in os.listxattr(work)
        (work / "file").touch()
        check("V1 n=104 *", get(work / "file"))
        (work / "sub").mkdir()
        check("V1 n=32 * c=3 ()", get(work / "sub"))
    finally:
        os.removexattr(fs.path, lustre.XATTR)
    assert said(get, work / "sub") == "ENODATA"


@rows(112, 142)
def test_ioctl_on_folder_leaves_buffer(work: Path) -> None:
    asked = lustre.template("SPEC list=3,1")
    with opened(work, os.O_RDONLY | os.O_DIRECTORY) as fd:
        assert lustre.ioctl(fd, lustre.SETSTRIPE, asked, len(asked)) == asked
        check("SPEC n=96 * (3,1)", lustre.text_of(lustre.whole(lustre.getstripe(fd))))


@rows(113)
def test_default_is_inherited(work: Path) -> None:
    set_layout(work, "V1 c=2")
    assert not has_layout(mknod(work / "nl"))
    (work / "sub" / "deeper").mkdir(parents=True)
    for folder in (work / "sub", work / "sub" / "deeper"):
        check("V1 n=32 * c=2 ()", get(folder))
        oid, seq = struct.unpack_from("=QQ", os.getxattr(folder, lustre.XATTR), 8)
        assert (seq, oid) == (0x200000401, folder.stat().st_ino) or seq == 0x200000401
    set_layout(work, "V1 c=3")
    check("V1 n=32 * c=2 ()", get(work / "sub"))


@rows(114)
def test_list_for_every_file(work: Path) -> None:
    set_layout(work, "SPEC list=3,1")
    for i in range(5):
        (work / str(i)).touch()
        check(LIST, get(work / str(i)))


@rows(115)
def test_default_comes_and_goes(work: Path) -> None:
    os.removexattr(work, lustre.XATTR)
    set_layout(work, "V1 c=2")
    set_layout(work, "SPEC list=3,1")
    check("SPEC *", get(work))
    set_layout(work, "V1 size=0")
    assert said(get, work) == "ENODATA"
    set_layout(work, "V1 c=2")
    os.removexattr(work, lustre.XATTR)
    assert said(get, work) == "ENODATA"


@rows(120)
def test_folder_of_another_user(work: Path) -> None:
    folder = work / "roots"
    folder.mkdir()

    def ask() -> str:
        with opened(folder, os.O_RDONLY) as fd:
            return f"{said(set_layout, folder, 'V1 c=2')} {said(stripe, fd, 'V1 c=2')}"

    folder.chmod(0o755)
    assert as_user(ask) == "EACCES EPERM"
    folder.chmod(0o777)
    assert as_user(ask) == "EPERM EPERM"
    assert said(get, folder) == "ENODATA"


# ---- who may do it ----


@rows(130)
def test_owner_may(work: Path) -> None:
    def ask() -> None:
        set_layout(mknod(work / "one"), "SPEC list=3,1")
        with opened(work / "two", os.O_CREAT | os.O_WRONLY | DELAY) as fd:
            stripe(fd, "SPEC list=3,1")
            os.write(fd, b"x")
        (work / "sub").mkdir()
        set_layout(work / "sub", "V1 c=2")
        os.removexattr(work / "sub", lustre.XATTR)

    assert as_user(ask) is None
    check(LIST, get(work / "one"))
    check(LIST, get(work / "two"))


@rows(131, 133, 134, 147)
def test_owner_of_unwritable_file(work: Path) -> None:
    def ask() -> list[Any]:
        answers = [said(set_layout, mknod(work / oct(mode), mode), "V1") for mode in (0o444, 0o000, 0o200)]
        answers.append(said(get, work / "0o200"))
        late = mknod(work / "late", 0o600)
        set_layout(late, "SPEC list=3,1")
        late.chmod(0o444)
        return answers

    assert as_user(ask) == ["EACCES", "EACCES", None, "EACCES"]
    check(LIST, get(work / "late"))


@rows(132, 148, 160, 161, 162)
@pytest.mark.parametrize("mode", [0o444, 0o000])
def test_placing_an_unwritable_file(work: Path, mode: int) -> None:
    path = work / "file"

    def ask() -> list[Any]:
        with opened(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | DELAY, mode) as fd:
            first = said(set_layout, fd, "SPEC list=3,1")
            return [first, said(stripe, fd, "SPEC list=3,1"), said(os.write, fd, b"0123456789")]

    assert as_user(ask) == ["EACCES", "EACCES", 10]
    check(LIST, get(path))
    assert path.read_bytes() == b"0123456789"
    assert stat.S_IMODE(path.stat().st_mode) == mode


@rows(135, 136)
def test_file_of_root(work: Path) -> None:
    path = mknod(work / "file", 0o644)
    assert as_user(set_layout, path, "V1") == "EACCES"

    def ask() -> str:
        with opened(path, os.O_RDONLY) as fd:
            return str(said(stripe, fd, "SPEC list=3,1"))

    assert as_user(ask) == "EACCES"
    check(LIST, get(path))
    other = mknod(work / "other")
    other.chmod(0o666)
    assert as_user(set_layout, other, "V1") is None
    assert has_layout(other)


# ---- placing a file through the program's own open ----


@rows(163, 167)
def test_default_instead_of_refused_list(work: Path) -> None:
    def ask() -> list[Any]:
        with opened(work / "file", os.O_CREAT | os.O_EXCL | os.O_WRONLY | DELAY, 0o444) as fd:
            return [said(stripe, fd, "V1"), said(os.write, fd, b"x")]

    assert as_user(ask) == ["EACCES", 1]
    check(DEFAULT, get(work / "file"))
    with opened(work / "other", os.O_CREAT | os.O_WRONLY | DELAY) as fd:
        assert said(set_layout, fd, "SPEC list=9") == "EINVAL"
        set_layout(fd, "V1")
        assert os.write(fd, b"x") == 1
        check(DEFAULT, get(fd))


@rows(164, 165)
def test_plain_open_before_the_layout_is_set(work: Path) -> None:
    with (
        opened(work / "file", os.O_CREAT | os.O_WRONLY | DELAY) as a,
        opened(work / "file", os.O_WRONLY) as b,
    ):
        assert said(os.write, b, b"x") == "EBADF"
        set_layout(a, "SPEC list=2,0")
        assert (os.write(b, b"x"), os.write(a, b"x")) == (1, 1)
        check("V1 * (2,0)", get(a))


@rows(166)
def test_the_other_sets_the_default(work: Path) -> None:
    with (
        opened(work / "file", os.O_CREAT | os.O_WRONLY | DELAY) as a,
        opened(work / "file", os.O_WRONLY) as b,
    ):
        assert said(os.write, b, b"x") == "EBADF"
        set_layout(b, "V1")
        assert os.write(b, b"x") == 1
        set_layout(a, "SPEC list=2,0")
        check(DEFAULT, get(a))
        assert os.write(a, b"x") == 1


@rows(168)
def test_size_before_layout(work: Path) -> None:
    with opened(work / "file", os.O_CREAT | os.O_RDWR | DELAY) as fd:
        os.ftruncate(fd, 100)
        set_layout(fd, "SPEC list=3")
        assert os.fstat(fd).st_size == 100
        assert os.pread(fd, 200, 0) == bytes(100)


@rows(169)
def test_plain_open_on_another_node(work: Path, fs: FileSystem) -> None:
    there = fs.other / work.relative_to(fs.path)
    with (
        opened(work / "file", os.O_CREAT | os.O_WRONLY | DELAY) as a,
        opened(there / "file", os.O_WRONLY) as b,
    ):
        assert os.write(b, b"x") == 1
        set_layout(a, "SPEC list=2,0")
        check(DEFAULT, get(a))
        assert os.write(a, b"x") == 1


@rows(170)
def test_two_nodes_place(work: Path, fs: FileSystem) -> None:
    there = fs.other / work.relative_to(fs.path)
    flags = os.O_CREAT | os.O_WRONLY | DELAY
    with opened(work / "file", flags) as a, opened(there / "file", flags) as b:
        set_layout(a, "SPEC list=2,0")
        set_layout(b, "SPEC list=3,1")
        check("V1 * (2,0)", get(b))
        assert (os.write(a, b"x"), os.write(b, b"x")) == (1, 1)


def test_mapping_without_layout_reads_zeros(work: Path) -> None:
    """Row 16 in its harmless form: the table says that SIGBUS is not emulated."""
    path = mknod(work / "file")
    os.truncate(path, 4096)
    with opened(path, os.O_RDONLY) as fd:
        try:
            with mmap.mmap(fd, 4096, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as view:
                assert view[:] == bytes(4096)
        except OSError as error:
            assert error.errno == errno.ENODEV  # no mappings in this setting of the cache
