# SPDX-License-Identifier: Apache-2.0
"""Trees to catalogue, and the penstock command."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PENSTOCK = Path(sys.executable).with_name("penstock")
Done = subprocess.CompletedProcess[str]


def penstock(*words: object, status: int = 0, **options: object) -> Done:
    """`penstock catalog WORDS`, with its status as expected."""
    done = subprocess.run(
        [str(PENSTOCK), "catalog", *map(str, words)],
        check=False, capture_output=True, text=True, errors="surrogateescape", timeout=120, **options,  # type: ignore[call-overload]
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done  # type: ignore[no-any-return]


def walked(root: Path) -> list[bytes]:
    """Every path below a root, relative to it."""
    found, top = [b""], os.fsencode(root)
    for folder, folders, files in os.walk(top):
        found += [(folder + b"/" + name)[len(top) + 1 :] for name in folders + files]
    return found


def as_nobody(act: Callable[[], object]) -> None:
    """Does it as another user, in a process of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    pid = os.fork()
    if pid == 0:
        status = 99
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            act()
            status = 0
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


FACTS = ("mode", "ino", "nlink", "uid", "gid", "size", "blocks", "mtime_ns", "ctime_ns")


def facts(entry: object) -> tuple[int, ...]:
    return tuple(getattr(entry, f"st_{name}") for name in FACTS)


def same(entry: object, path: bytes) -> bool:
    """Is an entry what lstat says?"""
    return facts(entry) == facts(os.lstat(path))


def plant(root: Path) -> Path:
    """Folders in folders, names with any bytes, links."""
    for folder in ("", "a", "a/b", "a b", "ab", "a/b/c", "empty", ".dot"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        for i in range(0 if folder == "empty" else 40):
            (root / folder / f"file{i}").write_bytes(b"x" * i * 100)
    (root / "a" / "new\nline").write_text("")
    (Path(os.fsdecode(os.fsencode(root) + b"/a/\xff\xfe#?"))).write_text("bytes")
    (root / "link").symlink_to("a/b/c/file1")
    os.link(root / "a/file3", root / "hard")
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture
def fast() -> Iterator[Path]:
    """A folder in memory: syncing files is not what most tests are about."""
    base = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="penstock-test-", dir=base if os.access(base, os.W_OK) else None
    ) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def tree(fast: Path) -> Path:
    return plant(fast / "tree")
