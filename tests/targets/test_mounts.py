# SPDX-License-Identifier: Apache-2.0
"""Which mount a path lies on, and what the driver for any file system says of it."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import targets
from penstock.base.errors import DeniedError, PenstockError
from penstock.targets import posix
from penstock.targets.driver import (
    NoLayoutError,
    NotThereError,
    UnsupportedError,
    answer,
    driver_for,
    driver_names,
)
from penstock.targets.layouts import bytes_on, wish
from penstock.targets.mounts import mount_of, parse

LINE = r"36 35 98:0 /root /mnt/a\040b\134c rw,noatime master:1 - fuse.x src\011y rw,errors=continue"


def test_line_of_mountinfo() -> None:
    (mount,) = parse(LINE + "\nrubbish\n")
    assert (mount.id, mount.point, mount.type, mount.source) == (36, r"/mnt/a b\c", "fuse.x", "src\ty")
    assert {"noatime", "errors=continue"} <= set(mount.options)


def test_mount_of_proc_and_of_a_descriptor() -> None:
    assert mount_of("/proc/self/status").type == "proc"
    with Path("/proc/self/status").open() as f:
        assert mount_of(f.fileno()).point == "/proc"


def test_new_file_lies_where_its_folder_does(tmp_path: Path) -> None:
    assert mount_of(tmp_path / "new") == mount_of(tmp_path)


def test_missing_folder_is_an_error() -> None:
    with pytest.raises(PenstockError, match="No such file"):
        mount_of("/nowhere/at/all")


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "a b"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "penstock-test", point], check=True)
    yield point
    subprocess.run(["umount", "-l", point], check=True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="skipped: only root mounts a tmpfs")
def test_plain_mount_is_one_target(tmpfs: Path) -> None:
    found = driver_for(tmpfs)
    assert found.kind == "posix"
    (target,) = found.targets()
    assert (target.id, target.name, target.size_bytes) == (0, "penstock-test", 1 << 20)
    assert found.health() == {0: "up"}
    assert found.load()[0].reads == -1
    (tmpfs / "f").write_bytes(b"x" * 1000)
    assert bytes_on(found.layout(tmpfs / "f"), 1000) == {0: 1000}
    with pytest.raises(UnsupportedError, match="no layouts"):
        found.create(str(tmpfs / "g"), wish(stripe_count=4))
    subprocess.run(["dd", "if=/dev/zero", f"of={tmpfs}/full", "bs=4k"], check=False, capture_output=True)
    assert found.health() == {0: "full"}
    subprocess.run(["mount", "-o", "remount,ro", tmpfs], check=True)
    assert found.health() == {0: "read-only"}


def test_posix_is_asked_last() -> None:
    assert driver_names()[-1] == "posix"
    assert {"cephfs", "posix"} <= set(driver_names())


DRIVER = """
from penstock.targets.posix import Posix

class Mine(Posix):
    kind = "mine"

def detect(mount):
    return Mine(mount) if mount.type == "proc" else None
"""


def test_new_file_system_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(DRIVER)
    monkeypatch.setattr(targets, "__path__", [*targets.__path__, str(tmp_path)])
    try:
        assert driver_for("/proc").kind == "mine"
        assert driver_for(tmp_path).kind == "posix"
    finally:
        sys.modules.pop("penstock.targets.mine", None)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENODATA, NoLayoutError),
        (errno.EOPNOTSUPP, UnsupportedError),
        (errno.ENOTTY, NotThereError),
        (errno.EACCES, DeniedError),
        (errno.EPERM, DeniedError),
        (errno.EIO, PenstockError),
    ],
)
def test_refusals_are_different_answers(code: int, kind: type[Exception]) -> None:
    for doing in ("reading the layout", "setting the layout"):
        said = answer(OSError(code, "why"), "/f", doing)
        assert type(said) is kind
        assert str(said).startswith("/f: ")


def test_missing_file_has_no_layout_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="No such file"):
        posix.Posix(mount_of(tmp_path)).layout(tmp_path / "absent")
