# SPDX-License-Identifier: Apache-2.0
"""The Lustre driver and its commands on the testbed: layouts set, read back, refused, drawn."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.errors import DeniedError, PenstockError
from penstock.targets import lov
from penstock.targets.driver import NoLayoutError, driver_for
from penstock.targets.layouts import EOF, Component, Layout, bytes_on, wish
from penstock.targets.lustre import Lustre
from tests.conftest import Bed

MIB = 1 << 20
PENSTOCK = Path(sys.executable).with_name("penstock")


def penstock(*words: object, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(word) for word in (PENSTOCK, *words)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture
def bed(testbed: Bed) -> Bed:
    return testbed


@pytest.fixture
def lustre(bed: Bed) -> Lustre:
    found = driver_for(bed.path)
    assert isinstance(found, Lustre)
    return found


def held_by(bed: Bed) -> list[int]:
    """Bytes in each OST's folder of the store, holes not among them."""
    folders = sorted(bed.store.glob("ost????"))
    return [sum(f.stat().st_blocks * 512 for f in folder.iterdir()) for folder in folders]


def test_file_on_chosen_osts_really_lies_there(bed: Bed, lustre: Lustre) -> None:
    path = str(bed.path / "chosen")
    lustre.create(path, wish(targets=(3, 1), stripe_size_bytes=MIB))
    Path(path).write_bytes(os.urandom(5 * MIB))
    read = lustre.layout(path)
    assert read.targets == (3, 1)
    held = bytes_on(read, 5 * MIB)
    assert held == {3: 3 * MIB, 1: 2 * MIB}
    assert held_by(bed) == [held.get(i, 0) for i in range(4)]


def test_count_and_size_without_a_list(bed: Bed, lustre: Lustre) -> None:
    for count, expected in ((1, 1), (3, 3), (-1, 4), (9, 4)):
        path = str(bed.path / f"c{count}")
        lustre.create(path, wish(count, 65536))
        assert len(lustre.layout(path).targets) == expected


def test_layout_by_descriptor_and_of_a_folder(bed: Bed, lustre: Lustre) -> None:
    lustre.set_default(str(bed.path), wish(2, 131072))
    (bed.path / "f").write_text("x")
    fd = os.open(bed.path / "f", os.O_RDONLY)
    (part,) = lustre.layout(fd).components
    os.close(fd)
    assert (part.stripe_count, part.stripe_size_bytes) == (2, 131072)
    (default,) = lustre.layout(bed.path).components
    assert (default.stripe_count, default.targets) == (2, ())


def test_progressive_layout_grows_with_the_file(bed: Bed, lustre: Lustre) -> None:
    path = str(bed.path / "pfl")
    first = Component(0, MIB, MIB, 1, (2,))
    rest = Component(MIB, EOF, MIB, 2)
    lustre.create(path, Layout("wish", (first, rest)))
    assert [c.targets for c in lustre.layout(path).components] == [(2,), ()]
    with Path(path).open("wb") as f:
        f.write(b"x" * (3 * MIB))
    layout = lustre.layout(path)
    assert layout.components[0].targets == (2,)
    assert len(layout.components[1].targets) == 2
    assert bytes_on(layout, 3 * MIB)[2] >= MIB
    held = bytes_on(layout, 3 * MIB)
    assert held_by(bed) == [held.get(i, 0) for i in range(4)]


def test_no_layout_is_its_own_answer(bed: Bed, lustre: Lustre) -> None:
    os.mknod(bed.path / "bare")
    with pytest.raises(NoLayoutError):
        lustre.layout(bed.path / "bare")
    lustre.create(str(bed.path / "bare"), wish(targets=(0,)))
    assert lustre.layout(bed.path / "bare").targets == (0,)


def test_file_keeps_the_layout_it_has(bed: Bed, lustre: Lustre) -> None:
    """Lustre calls it success and changes nothing."""
    (bed.path / "old").write_text("data")
    before = lustre.layout(bed.path / "old")
    with pytest.raises(PenstockError, match="has a layout and keeps it"):
        lustre.create(str(bed.path / "old"), wish(targets=(0, 1, 2)))
    assert lustre.layout(bed.path / "old") == before
    assert (bed.path / "old").read_text() == "data"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (wish(targets=(1, 9)), "unknown target"),
        (wish(stripe_size_bytes=100_000), "64 KiB"),
        (wish(1, 65536, pool="sixteen letters!"), "no such layout"),
        (wish(targets=tuple(range(2001))), "no such layout"),
    ],
)
def test_refused_wish_leaves_no_file(bed: Bed, lustre: Lustre, asked: Layout, said: str) -> None:
    with pytest.raises(PenstockError, match=said):
        lustre.create(str(bed.path / "never"), asked)
    assert list(bed.path.iterdir()) == []


def as_nobody(do: Callable[[], str]) -> str:
    """What a function says in a process without rights."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            said = do()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="skipped: only root can become somebody else")


@needs_root
def test_files_of_others_are_denied(bed: Bed, lustre: Lustre) -> None:
    os.mknod(bed.path / "roots", 0o644)
    bed.path.parent.chmod(0o755)
    said = as_nobody(lambda: str(lustre.create(str(bed.path / "roots"), wish(targets=(1,)))))
    assert said.startswith("DeniedError: "), said
    with pytest.raises(NoLayoutError):
        lustre.layout(bed.path / "roots")


@needs_root
def test_file_that_its_owner_may_not_write(bed: Bed, lustre: Lustre) -> None:
    """The attribute is refused, and the layout goes through the ioctl."""
    bed.path.chmod(0o777)
    bed.path.parent.chmod(0o755)
    path = str(bed.path / "readonly")

    def make() -> str:
        os.umask(0o222)
        lustre.create(path, wish(targets=(3, 0)))
        return oct(Path(path).stat().st_mode)

    assert as_nobody(make) == "0o100444"
    assert lustre.layout(path).targets == (3, 0)


def test_mount_that_died_is_a_sentence(bed: Bed) -> None:
    bed.kill()
    with pytest.raises(PenstockError, match="the mount is dead"):
        driver_for(bed.path / "x").layout(bed.path / "x")
    said = penstock("targets", bed.path, "--every", "100ms", status=1)
    assert said.stdout == ""
    assert (
        f"{bed.path}: the mount is dead; penstock testbed up --dir {bed.path} starts it again" in said.stderr
    )


def test_commands_of_layouts(bed: Bed) -> None:
    file = bed.path / "a"
    penstock("layout", "set", "-S", "1M", "--osts", "3,0-1", file)
    file.write_bytes(b"x" * 3 * MIB)
    assert penstock("layout", "get", file).stdout == f"{file}: 3 stripes of 1 MiB, on targets 3, 0, 1\n"
    (row,) = json.loads(penstock("layout", "get", "--json", file).stdout)["files"]
    assert row["components"][0]["targets"] == [3, 0, 1]
    drawn = penstock("layout", "explain", file).stdout
    assert [line.split()[0] for line in drawn.splitlines()[2:5]] == ["0", "1", "3"]
    assert drawn.count("1 MiB (33 %)") == 3
    assert "<svg" in penstock("layout", "explain", "--html", file).stdout
    assert "keeps it" in penstock("layout", "set", "-c", "1", file, status=1).stderr
    os.mknod(bed.path / "bare")
    assert "no layout yet" in penstock("layout", "get", bed.path / "bare", status=4).stderr


def test_layout_survives_a_copy_of_its_bytes(bed: Bed, lustre: Lustre) -> None:
    """What is read and set on another file keeps count and size, the OSTs are chosen anew."""
    lustre.create(str(bed.path / "a"), wish(targets=(2, 3), stripe_size_bytes=65536))
    os.mknod(bed.path / "b")
    os.setxattr(bed.path / "b", lov.XATTR, lustre.layout(bed.path / "a").blob)
    (part,) = lustre.layout(bed.path / "b").components
    assert (part.stripe_count, part.stripe_size_bytes) == (2, 65536)


def test_denied_is_not_missing() -> None:
    assert not issubclass(DeniedError, NoLayoutError)
    assert not issubclass(NoLayoutError, DeniedError)
