# SPDX-License-Identifier: Apache-2.0
"""The testbed against a plain folder: random operations give the same results, errors and trees."""

import errno
import fcntl
import mmap
import os
import stat
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

NAMES = st.sampled_from(["a", "b", "c", "d/a", "d/b", "d/e/a", "d/e", "d", "f/a", "f", "new"])
OFFSETS = st.one_of(
    st.integers(0, 70_000), st.integers(0, 3_000_000), st.sampled_from([65535, 65536, 131072])
)
SIZES = st.one_of(st.integers(0, 300), st.sampled_from([4096, 65536, 65537, 200_000]))
MODES = st.sampled_from([0o600, 0o644, 0o755, 0o4755, 0o2775])
TIMES = st.integers(-(10**9), 4 * 10**9)
XATTRS = st.sampled_from(["user.a", "user.longer"])

CASES = [("contention", 80), ("posix", 80)]


def outcome(call, *args: Any) -> Any:
    """What a call gave: its result, or the name of its error."""
    try:
        return call(*args)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, error.errno)


def tree(top: Path) -> dict[str, Any]:
    """All that a walk can see, but for times that the operations did not set."""
    found: dict[str, Any] = {}
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = os.path.join(folder, name)  # noqa: PTH118
            seen = os.lstat(path)
            row: list[Any] = [seen.st_mode, seen.st_nlink, seen.st_uid, seen.st_gid]
            if stat.S_ISREG(seen.st_mode):
                row += [seen.st_size, Path(path).read_bytes()]
            elif stat.S_ISLNK(seen.st_mode):
                row.append(str(Path(path).readlink()))
            if not stat.S_ISLNK(seen.st_mode):
                own = [n for n in os.listxattr(path) if n.startswith("user.")]
                row.append(sorted((n, os.getxattr(path, n)) for n in own))
            found[os.path.relpath(path, top)] = row
    return found


class Pair(RuleBasedStateMachine):
    """The same operations below two folders."""

    tested: Path

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory(prefix="penstock-model-")
        self.tops = (Path(self.temporary.name), Path(tempfile.mkdtemp(dir=self.tested)))
        self.open: list[tuple[int, int]] = []
        self.count = 0
        for top in self.tops:
            for folder in ("d", "d/e", "f"):
                (top / folder).mkdir()
            for name in ("a", "b", "d/a", "d/e/a", "f/a"):
                (top / name).write_bytes(b"first" * 30_000)
        for name in ("a", "d/a"):
            pair = [os.open(top / name, os.O_RDWR) for top in self.tops]
            self.open.append((pair[0], pair[1]))

    def teardown(self) -> None:
        for pair in self.open:
            for fd in pair:
                os.close(fd)
        self.temporary.cleanup()

    def both(self, call, *args: Any) -> Any:
        """Do it to both; `Path` arguments are below each top.  The results are the same."""
        results = [outcome(call, *[top / a if isinstance(a, Path) else a for a in args]) for top in self.tops]
        assert results[0] == results[1], (call, args)
        return results[0]

    def both_open(self, call, *args: Any) -> Any:
        """The same for an open file, chosen by its number."""
        if not self.open:
            return None
        pair = self.open[args[0] % len(self.open)]
        results = [outcome(call, fd, *args[1:]) for fd in pair]
        assert results[0] == results[1], (call, args)
        return results[0]

    @rule(name=NAMES, size=SIZES)
    def write(self, name: str, size: int) -> None:
        self.both(lambda p: p.write_bytes(os.fsencode(name[-1]) * size), Path(name))

    @rule(name=NAMES, offset=OFFSETS, size=SIZES)
    def write_at(self, name: str, offset: int, size: int) -> None:
        def work(path: Path) -> int:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o640)
            try:
                return os.pwrite(fd, b"w" * size, offset)
            finally:
                os.close(fd)

        self.both(work, Path(name))

    @rule(name=NAMES, size=SIZES)
    def append(self, name: str, size: int) -> None:
        def work(path: Path) -> int:
            with path.open("ab", buffering=0) as file:
                return (file.write(b"a" * size) or 0) + (file.write(b"end") or 0)

        self.both(work, Path(name))

    @rule(name=NAMES, size=OFFSETS)
    def truncate(self, name: str, size: int) -> None:
        self.both(os.truncate, Path(name), size)

    @rule(name=NAMES, offset=OFFSETS, size=st.integers(1, 200_000))
    def punch(self, name: str, offset: int, size: int) -> None:
        def work(path: Path) -> int:
            fd = os.open(path, os.O_RDWR)
            try:
                return fallocate(fd, 3, offset, size)
            finally:
                os.close(fd)

        self.both(work, Path(name))

    @rule(name=NAMES, offset=OFFSETS, size=st.integers(1, 200_000))
    def allocate(self, name: str, offset: int, size: int) -> None:
        def work(path: Path) -> None:
            fd = os.open(path, os.O_RDWR)
            try:
                os.posix_fallocate(fd, offset, size)
            finally:
                os.close(fd)

        self.both(work, Path(name))

    @rule(name=NAMES, mode=MODES)
    def mkdir(self, name: str, mode: int) -> None:
        self.both(os.mkdir, Path(name), mode)

    @rule(name=NAMES)
    def rmdir(self, name: str) -> None:
        self.both(os.rmdir, Path(name))

    @rule(name=NAMES)
    def unlink(self, name: str) -> None:
        self.both(os.unlink, Path(name))

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        self.both(os.rename, Path(old), Path(new))

    @rule(old=NAMES, new=NAMES)
    def link(self, old: str, new: str) -> None:
        self.both(lambda a, b: os.link(a, b, follow_symlinks=False), Path(old), Path(new))

    @rule(to=NAMES, name=NAMES)
    def symlink(self, to: str, name: str) -> None:
        self.both(os.symlink, to, Path(name))

    @rule(name=NAMES)
    def fifo(self, name: str) -> None:
        self.both(lambda p: os.mkfifo(p, 0o600), Path(name + ".fifo"))

    @rule(name=NAMES, mode=MODES)
    def chmod(self, name: str, mode: int) -> None:
        self.both(os.chmod, Path(name), mode)

    @rule(name=NAMES, uid=st.sampled_from([0, 1000]), gid=st.sampled_from([-1, 0, 1000]))
    def chown(self, name: str, uid: int, gid: int) -> None:
        if os.geteuid() == 0:
            self.both(os.chown, Path(name), uid, gid)

    @rule(name=NAMES, times=st.tuples(TIMES, TIMES))
    def utime(self, name: str, times: tuple[int, int]) -> None:
        def work(path: Path) -> tuple[int, int]:
            os.utime(path, ns=(times[0] * 10**9 + 123_456_789, times[1] * 10**9 + 1))
            seen = path.stat()
            return seen.st_atime_ns, seen.st_mtime_ns

        self.both(work, Path(name))

    @rule(name=NAMES, attribute=XATTRS, size=st.sampled_from([0, 3, 2000]))
    def setxattr(self, name: str, attribute: str, size: int) -> None:
        self.both(lambda p: os.setxattr(p, attribute, b"v" * size), Path(name))

    @rule(name=NAMES, attribute=XATTRS)
    def removexattr(self, name: str, attribute: str) -> None:
        self.both(lambda p: os.removexattr(p, attribute), Path(name))

    @rule(name=NAMES, flags=st.sampled_from([os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_APPEND]))
    def open_file(self, name: str, flags: int) -> None:
        if len(self.open) >= 6:
            return
        got = [outcome(os.open, top / name, flags, 0o600) for top in self.tops]
        if isinstance(got[0], int) and isinstance(got[1], int):
            self.open.append((got[0], got[1]))
        else:
            assert got[0] == got[1]

    @rule(which=st.integers(0, 5))
    def close_file(self, which: int) -> None:
        if self.open:
            for fd in self.open.pop(which % len(self.open)):
                os.close(fd)

    @rule(which=st.integers(0, 5), offset=OFFSETS, size=SIZES)
    def write_open(self, which: int, offset: int, size: int) -> None:
        self.both_open(lambda fd: os.pwrite(fd, b"o" * size, offset), which)

    @rule(which=st.integers(0, 5), offset=OFFSETS, size=SIZES)
    def read_open(self, which: int, offset: int, size: int) -> None:
        self.both_open(lambda fd: os.pread(fd, size, offset), which)

    @rule(which=st.integers(0, 5), size=OFFSETS)
    def truncate_open(self, which: int, size: int) -> None:
        self.both_open(os.ftruncate, which, size)

    @rule(which=st.integers(0, 5))
    def stat_open(self, which: int) -> None:
        def seen(fd: int) -> tuple[int, ...]:
            s = os.fstat(fd)
            return (s.st_size, s.st_nlink, s.st_mode)

        self.both_open(seen, which)

    @rule(name=NAMES, flags=st.sampled_from([0, os.O_TRUNC, os.O_NOFOLLOW]))
    def create_exclusively(self, name: str, flags: int) -> None:
        self.both(lambda p: os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags)), Path(name))

    @rule(name=NAMES)
    def read_mapped(self, name: str) -> None:
        def work(path: Path) -> bytes:
            fd = os.open(path, os.O_RDONLY)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode) or not os.fstat(fd).st_size:
                    return b""
                with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as view:
                    return bytes(view)
            finally:
                os.close(fd)

        self.both(work, Path(name))

    @rule(name=NAMES)
    def writing_moves_the_times(self, name: str) -> None:
        """But not backwards, and reading nothing moves none."""

        def work(path: Path) -> tuple[bool, bool, bool]:
            fd = os.open(path, os.O_RDWR)
            try:
                os.utime(fd, ns=(1, 1))
                before = os.fstat(fd)
                os.pwrite(fd, b"t", 0)
                after = os.fstat(fd)
                os.utime(fd, ns=(2, 2))
                again = os.fstat(fd)
            finally:
                os.close(fd)
            return after.st_mtime_ns > 10**18, after.st_ctime_ns >= before.st_ctime_ns, again.st_mtime_ns == 2

        self.both(work, Path(name))

    @rule(which=st.integers(0, 5), kind=st.sampled_from([fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_UN]))
    def lock_whole(self, which: int, kind: int) -> None:
        self.both_open(lambda fd: fcntl.flock(fd, kind | fcntl.LOCK_NB), which)

    @rule(
        which=st.integers(0, 5),
        kind=st.sampled_from([fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK]),
        start=st.integers(0, 20),
        length=st.integers(0, 20),
    )
    def lock_range(self, which: int, kind: int, start: int, length: int) -> None:
        """Of the open file, not of the process: all descriptors are this process's."""
        asked = struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)
        self.both_open(lambda fd: fcntl.fcntl(fd, fcntl.F_OFD_SETLK, asked) and None, which)

    @invariant()
    def trees_are_equal(self) -> None:
        self.count += 1
        if self.count % 5 == 0:
            assert tree(self.tops[0]) == tree(self.tops[1])


def fallocate(fd: int, mode: int, offset: int, size: int) -> int:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(size)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return 0


@pytest.mark.parametrize(("caching", "examples"), CASES)
def test_random_operations_give_what_a_plain_folder_gives(make_testbed, caching, examples):
    bed = make_testbed(
        caching=caching,
        settings={"model": "off", "layout.stripe_size": "65536", "layout.stripe_count": "3"},
    )

    class Tested(Pair):
        tested = bed.path

    old = os.umask(0o022)
    try:
        run_state_machine_as_test(
            Tested,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        os.umask(old)
