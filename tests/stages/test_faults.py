# SPDX-License-Identifier: Apache-2.0
"""Programs whose board is broken, gone, foreign or full: they never notice."""

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.runs import board

WORK = (
    "import os\n"
    "for i in range(int(os.environ.get('FILES', 40))):\n"
    "    with open(f'{i}', 'wb') as f: f.write(b'x' * 100)\n"
    "print(sum(os.path.getsize(p) for p in os.listdir()))\n"
)


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def log_of(under: Any) -> list[str]:
    path = under.folder.parent / "log"
    return path.read_text().splitlines() if path.exists() else []


def runs_as_without(under: Any) -> None:
    """The program does its work, says nothing of ours, and the log has one line a process."""
    done = under.python(WORK)
    assert done.stdout == "4000\n"
    (line,) = log_of(under)
    assert "runs without the board" in line


def attached(under: Any) -> int:
    return struct.unpack_from("<I", (under.folder / "usage").read_bytes(), board.Usage.attached.offset)[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("magic", 0),
        ("version", 2),  # B09
        ("version", 0),
        ("chunk_count", 0),
        ("chunk_count", (1 << 32) - 1),
        ("control_bytes", 1 << 60),
        ("usage_max_bytes", (1 << 64) - 1),
        ("usage_max_bytes", 1),
        ("usage_bytes", 1 << 63),
        ("usage_bytes", 0),
        ("prefix_count", (1 << 32) - 1),
        ("nonce", 1),  # B06: of another board
        ("monotonic_offset_ns", 1),
    ],
)
def test_b06_b09_hostile_control_is_refused(under: Any, field: str, value: int) -> None:
    where = getattr(board.Control, field)
    overwrite(under.folder / "control", where.offset, value.to_bytes(where.size, "little"))
    runs_as_without(under)
    assert attached(under) == 0


@pytest.mark.parametrize("value", [0, (1 << 32) - 1])
@pytest.mark.parametrize(
    "field", ["record_files_max", "record_sample_every", "stages", "generation", "otherwise"]
)
def test_settings_out_of_range_are_clamped(under: Any, field: str, value: int) -> None:
    where = getattr(board.Control, field)
    overwrite(under.folder / "control", where.offset, value.to_bytes(where.size, "little"))
    assert under.python(WORK).stdout == "4000\n"
    assert under.seen().skipped == 0


@pytest.mark.parametrize("name", ["control", "usage"])
@pytest.mark.parametrize("size", [0, 100, 5000])
def test_r05_truncated_files_are_refused(under: Any, name: str, size: int) -> None:
    os.truncate(under.folder / name, size)
    runs_as_without(under)


def test_b06_missing_board_is_silence(under: Any) -> None:
    board.delete(under.folder)
    runs_as_without(under)
    assert not under.folder.exists()


def test_b05_board_deleted_while_a_program_runs(under: Any) -> None:
    """It goes on; those that come later run without one, and make none."""
    text = (
        "import os, shutil, subprocess, sys\n"
        "open('a', 'w').write('1')\n"
        f"shutil.rmtree({str(under.folder)!r})\n"
        "for i in range(2000): open(f'f{i}', 'w').close()\n"
        "print(subprocess.run([sys.executable, '-c', 'print(open(\"a\").read())'], stdout=subprocess.PIPE).stdout)\n"
        "if os.fork() == 0:\n"
        "    open('b', 'w').write('22')\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print(os.path.getsize('b'))\n"
    )
    assert under.python(text).stdout == "b'1\\n'\n2\n"
    assert not under.folder.exists()


def test_full_board_loses_files_and_says_so(under: Any) -> None:
    """Chunks run out, since nobody gives more room or takes back what the dead left."""
    board.delete(under.folder)
    under.make(max_bytes=600_000)
    done = under.python(WORK, env={"FILES": "2000"})
    assert done.stdout == "200000\n"
    seen = under.seen()
    (process,) = seen.processes
    assert seen.lost[board.Lost.CHUNKS] > 0
    assert seen.lost[board.Lost.FILES] > 0
    total = sum(f.writing.bytes for f in process.files) + process.anonymous_written_bytes
    assert total == 200_000
    later = under.python(WORK, env={"FILES": "2000"})
    assert later.stdout == "200000\n"
    assert len(under.seen().processes) == 1


def test_memory_is_bounded_by_the_setting(under: Any) -> None:
    board.delete(under.folder)
    under.make(files_max=20)
    under.python(WORK, env={"FILES": "1000"})
    assert under.seen().chunks_held <= 2


@pytest.fixture
def tiny(under: Any, tmp_path: Path) -> Iterator[Any]:
    """The board on a tmpfs with room for it and hardly anything else."""
    if os.geteuid():
        pytest.skip("needs root to mount")
    place = tmp_path / "tiny"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tiny", place], check=True)
    under.folder = place / "board"
    under.make()
    yield under
    subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.root
def test_b03_full_tmpfs_is_no_bus_error(tiny: Any) -> None:
    with pytest.raises(OSError, match="No space"), (tiny.folder.parent / "filler").open("wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()
    done = tiny.python(WORK, env={"FILES": "15000"})
    assert done.stdout == "1500000\n"
    seen = tiny.seen()
    assert seen.lost[board.Lost.FILES] > 0
    (process,) = seen.processes
    assert sum(f.writing.bytes for f in process.files) + process.anonymous_written_bytes == 1_500_000


@pytest.mark.root
def test_b10_other_pid_and_mount_namespaces_share_the_board(under: Any) -> None:
    if os.geteuid():
        pytest.skip("needs root to unshare")
    text = "import os; open('inside', 'wb').write(b'12'); print(os.getpid())"
    done = under.run("unshare", "-pfm", "--mount-proc", sys.executable, "-c", text, cwd=under.data)
    assert (done.returncode, done.stdout) == (0, "1\n")
    under.python("open('outside', 'wb').write(b'345')")
    assert under.file("inside").writing.bytes == 2
    assert under.file("outside").writing.bytes == 3
    namespaces = {p.pid: p.pid_namespace for p in under.seen().processes}
    assert namespaces[1] != os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
    assert os.stat("/proc/self/ns/pid").st_ino in namespaces.values()  # noqa: PTH116


def test_chunks_of_the_dead_are_taken_again_once_freed(under: Any) -> None:
    """Trap B01 at the size of a job: more processes than chunks, harvested in between."""
    board.delete(under.folder)
    under.make(max_bytes=600_000)
    freed = ctypes.sizeof(board.Control)
    count = board.control(under.folder).chunk_count
    for turn in range(3 * count):
        under.run("/bin/true")
        with (under.folder / "usage").open("rb") as file:
            file.seek(4096)
            holders = struct.unpack(f"<{4 * count}I", file.read(16 * count))
        seqs = [holders[4 * i + 1] for i in range(count)]
        overwrite(under.folder / "control", freed, struct.pack(f"<{count}I", *seqs))
        assert sum(seqs) == turn + 1
    assert board.Lost.CHUNKS not in under.seen().lost
