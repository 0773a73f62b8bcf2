# SPDX-License-Identifier: Apache-2.0
"""Making, growing and reading boards; the structures of Python are those of the compiler."""

import ctypes
import multiprocessing
import os
import stat
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.base.errors import PenstockError, VersionError
from penstock.runs import board

TOP = Path(__file__).resolve().parents[2]
RUN = bytes(range(16))
MIB = 1 << 20


def make(folder: Path, **words: int) -> Path:
    board.create(folder, RUN, board.Stages.RECORD, board.Under.RECORD, board.noise(), **words)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path / "board")


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_structures_are_those_of_the_compiler(tmp_path: Path) -> None:
    lines = []
    for name, structure in board.STRUCTURES.items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for field in structure._fields_:
            lines.append(f'printf("{name}.{field[0]} %zu\\n", offsetof(struct {name}, {field[0]}));')
    source = tmp_path / "offsets.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "board/board.h"\nint main(void) {\n'
        + "\n".join(lines)
        + "\nreturn 0; }\n"
    )
    subprocess.run(["gcc", "-I", TOP / "native", source, "-o", tmp_path / "offsets"], check=True)
    printed = subprocess.run([tmp_path / "offsets"], check=True, capture_output=True, text=True).stdout
    ours = {}
    for name, structure in board.STRUCTURES.items():
        ours[name] = ctypes.sizeof(structure)
        for field in structure._fields_:
            ours[f"{name}.{field[0]}"] = getattr(structure, field[0]).offset
    assert ours == {name: int(value) for name, value in (line.split() for line in printed.splitlines())}


def test_words_are_those_of_the_header() -> None:
    text = (TOP / "native" / "board" / "board.h").read_text()
    for what in board.Lost:
        assert f"PENSTOCK_LOST_{what.name}," in text
    for stage in board.Stages:
        assert f"PENSTOCK_STAGE_{stage.name} = 1 << {stage.value.bit_length() - 1}," in text
    for under in board.Under:
        assert f"PENSTOCK_UNDER_{under.name} = {under.value}," in text
    assert f"PENSTOCK_BOARD_VERSION = {board.VERSION}," in text


def test_new_board_says_what_was_asked(folder: Path) -> None:
    head = board.control(folder)
    assert bytes(head.run) == RUN
    assert head.stages == board.Stages.RECORD
    assert head.otherwise == board.Under.RECORD
    assert head.prefix_count == len(board.noise())
    assert head.generation % 2 == 0
    assert head.usage_bytes == (folder / "usage").stat().st_size < head.usage_max_bytes
    seen = board.read(folder)
    assert (seen.lost, seen.attached, seen.skipped, seen.processes) == ({}, 0, 0, [])


def test_board_is_allocated_and_only_its_user_may_touch_it(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("control", "usage"):
        status = (folder / name).stat()
        assert stat.S_IMODE(status.st_mode) == 0o600
        assert status.st_blocks * 512 >= status.st_size


@pytest.mark.root
def test_b11_another_user_cannot_open_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    if os.geteuid():
        pytest.skip("needs root to become another user")
    place = Path(f"/dev/shm/penstock-test-{os.getpid()}")
    make(place)
    try:
        words = ["python3", "-c", f"open('{place}/usage', 'r+b')"]
        done = subprocess.run(words, user=65534, group=65534, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "PermissionError" in done.stderr
    finally:
        board.delete(place)


def test_noise_is_named_and_shared_memory_is_not() -> None:
    rules = dict(board.noise())
    assert rules["/proc"] == rules["/usr"] == rules["site-packages"] == board.Under.NOTHING
    assert rules["/dev/shm"] == board.Under.RECORD


def test_rules_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for path in ("", "a/b", "/" + "x" * 300):
        with pytest.raises(ValueError, match="rule"):
            board.create(tmp_path / "b", RUN, board.Stages.RECORD, board.Under.RECORD, [(path, 0)])
    with pytest.raises(ValueError, match="at most 64"):
        board.create(tmp_path / "b", RUN, board.Stages.RECORD, board.Under.RECORD, [("/x", 0)] * 65)
    assert list(tmp_path.iterdir()) == []


def test_second_board_of_one_name_is_refused(folder: Path) -> None:
    nonce = bytes(board.control(folder).nonce)
    with pytest.raises(FileExistsError):
        make(folder)
    assert bytes(board.control(folder).nonce) == nonce
    assert [path.name for path in folder.parent.iterdir()] == ["board"]


def try_to_make(place: str, begin: "multiprocessing.synchronize.Barrier") -> bool:  # type: ignore[name-defined]
    begin.wait()
    try:
        make(Path(place))
    except FileExistsError:
        return False
    return True


def test_b08_of_many_creators_at_once_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        begin = manager.Barrier(4)
        with context.Pool(4) as pool:
            for attempt in range(5):
                place = str(tmp_path / f"board{attempt}")
                won = pool.starmap(try_to_make, [(place, begin)] * 4)
                assert won.count(True) == 1
                assert board.read(Path(place)).processes == []
    assert len(list(tmp_path.iterdir())) == 5


def test_board_grows_ahead_of_use_up_to_its_maximum(tmp_path: Path) -> None:
    folder = make(tmp_path / "board", max_bytes=9 * MIB)
    assert not board.grow(folder)
    claims, sizes = 4096, [board.control(folder).usage_bytes]
    for chunk in range(board.control(folder).chunk_count):
        overwrite(folder / "usage", claims + 16 * chunk, struct.pack("<IIII", 1, 1, chunk, 1))
        if board.grow(folder):
            sizes.append(board.control(folder).usage_bytes)
    head = board.control(folder)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == head.usage_max_bytes == (folder / "usage").stat().st_size <= 9 * MIB
    assert not board.grow(folder)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 6 MiB."""
    if os.geteuid():
        pytest.skip("needs root to mount")
    place = tmp_path / "tiny"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tiny", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.root
def test_b03_full_tmpfs_refuses_a_board_and_its_growth(tiny: Path) -> None:
    folder = make(tiny / "board", max_bytes=64 * MIB)
    before = board.control(folder).usage_bytes
    for chunk in range(200):
        overwrite(folder / "usage", 4096 + 16 * chunk, struct.pack("<IIII", 1, 1, chunk, 1))
    with pytest.raises(OSError, match="No space left"):
        board.grow(folder)
    assert board.control(folder).usage_bytes == before
    with pytest.raises(OSError, match="No space left"):
        make(tiny / "second")
    assert [path.name for path in tiny.iterdir()] == ["board"]


def test_b09_board_of_another_version_is_refused(folder: Path) -> None:
    overwrite(folder / "control", board.Control.version.offset, struct.pack("<I", 2))
    with pytest.raises(VersionError, match="version 2"):
        board.control(folder)
    with pytest.raises(VersionError, match="another version"):
        board.read(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("magic", 1),
        ("chunk_count", 0),
        ("chunk_count", 1 << 31),
        ("control_bytes", 1 << 40),
        ("usage_max_bytes", 1 << 62),
        ("usage_bytes", 1 << 50),
        ("prefix_count", 65),
    ],
)
def test_control_that_makes_no_sense_is_refused(folder: Path, field: str, value: int) -> None:
    where = getattr(board.Control, field)
    overwrite(folder / "control", where.offset, value.to_bytes(where.size, "little"))
    with pytest.raises(PenstockError):
        board.read(folder)


@pytest.mark.parametrize("size", [0, 7, 4095])
def test_r05_usage_without_a_head_is_refused(folder: Path, size: int) -> None:
    os.truncate(folder / "usage", size)
    if size < 168:
        with pytest.raises(VersionError):
            board.read(folder)
    else:
        assert board.read(folder).processes == []


def test_usage_of_another_board_is_refused(folder: Path) -> None:
    overwrite(folder / "usage", board.Usage.nonce.offset, bytes(16))
    with pytest.raises(VersionError):
        board.read(folder)


def test_missing_board_says_so(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="No such file"):
        board.read(tmp_path / "none")


def test_deleted_board_leaves_nothing(folder: Path) -> None:
    board.delete(folder)
    assert not folder.exists()
