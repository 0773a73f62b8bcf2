# SPDX-License-Identifier: Apache-2.0
"""Real programs under libpenstock.so: what they did stands on the board, once, however they end."""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.runs import board


def test_python_program_is_counted(under: Any) -> None:
    under.python(
        "import os\n"
        "with open('a', 'wb', buffering=0) as f:\n"
        "    for _ in range(100): f.write(b'x' * 1000)\n"
        "with open('a', 'rb', buffering=0) as f:\n"
        "    while f.read(4096): pass\n"
        "os.stat('a'); os.chmod('a', 0o600)\n"
    )
    file = under.file("a")
    assert (file.opens, file.threads, file.highest) == (2, 1, 100_000)
    assert (file.writing.calls, file.writing.bytes) == (100, 100_000)
    assert (file.writing.sequential, file.writing.consecutive) == (99, 99)
    assert file.writing.sizes[1] == 100
    assert file.reading.bytes == 100_000
    assert file.reading.calls == 26
    assert file.common == ((1000, 100), (4096, 26))
    assert file.switches == 1
    assert 0 < file.first_ns <= file.last_ns
    assert 0 < file.writing.sampled <= 100
    (process,) = under.seen().processes
    assert process.argv[1] == b"-c"
    assert process.exe.startswith(b"/")
    assert process.end_ns > process.start_ns
    assert process.rank == -1


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8", "SLURM_PROCID": "0"}, (3, 8)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, (2, 4)),
        ({"SLURM_PROCID": "5", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "6"}, (5, 6)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "6"}, (-1, 0)),  # the batch script is no rank
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "PMI_RANK": "0"}, (1, 2)),
        ({"RANK": "1"}, (-1, 0)),
        ({"PMI_RANK": "x", "PMI_SIZE": "4"}, (-1, 0)),
        ({"PMI_RANK": "99999999999999", "PMI_SIZE": "4"}, (-1, 0)),
    ],
)
def test_rank_comes_from_the_launcher(
    under: Any, variables: dict[str, str], expected: tuple[int, int]
) -> None:
    under.python("pass", env=variables)
    (process,) = under.seen().processes
    assert (process.rank, process.size) == expected


@pytest.mark.parametrize(
    "ending",
    [
        "os._exit(0)",
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getpid(), 15)",
        "os.execv('/bin/true', ['true'])",
        "os.abort()",
    ],
)
def test_r01_counters_outlive_every_end(under: Any, ending: str) -> None:
    text = f"import os\nf = os.open('a', os.O_CREAT | os.O_WRONLY)\nos.write(f, b'12345')\n{ending}"
    under.run(sys.executable, "-c", text, cwd=under.data)
    assert under.file("a").writing.bytes == 5


def test_r01_multiprocessing_children_are_counted(under: Any) -> None:
    under.python(
        "import multiprocessing as m\n"
        "def work(i):\n"
        "    with open(f'child{i}', 'wb') as f: f.write(b'x' * i)\n"
        "if __name__ == '__main__':\n"
        "    with m.get_context('fork').Pool(3) as pool: pool.map(work, range(1, 9))\n"
    )
    assert [under.file(f"child{i}").writing.bytes for i in range(1, 9)] == list(range(1, 9))


def test_r02_files_past_the_maximum_are_summed_by_directory(under: Any) -> None:
    board.delete(under.folder)
    under.make(files_max=50)
    under.python(
        "import os\n"
        "for d in 'de':\n"
        "    os.mkdir(d)\n"
        "    for i in range(100):\n"
        "        with open(f'{d}/{i}', 'wb', buffering=0) as f: f.write(b'1234')\n"
    )
    seen = under.seen()
    (process,) = seen.processes
    own = [f for f in process.files if f.kind == 3]
    sums = [f for f in process.files if f.kind == 4 and f.files]
    assert len(own) < 50
    assert {Path(os.fsdecode(f.name)).name for f in sums} <= {"d", "e"}
    assert sum(f.writing.bytes for f in process.files) == 800
    assert seen.lost[board.Lost.FILES] == sum(f.files for f in sums) == 200 - len(own)


def test_r03_child_begins_at_zero_and_its_descriptors_keep_their_names(under: Any) -> None:
    under.python(
        "import os\n"
        "f = os.open('a', os.O_CREAT | os.O_WRONLY)\n"
        "os.write(f, b'parent')\n"
        "if os.fork() == 0:\n"
        "    os.write(f, b'kid')\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "os.write(f, b'parent')\n"
    )
    rows = under.files("a")
    assert sorted((f.opens, f.writing.bytes) for f in rows) == [(0, 3), (1, 12)]


def test_r04_bytes_are_results(under: Any) -> None:
    under.python(
        "import os\n"
        "f = os.open('a', os.O_CREAT | os.O_RDWR)\n"
        "os.truncate('a', 10)\n"
        "assert len(os.read(f, 1000)) == 10\n"
        "assert os.read(f, 1000) == b''\n"
        "try: os.write(os.open('a', os.O_RDONLY), b'x')\n"
        "except OSError: pass\n"
    )
    file = under.file("a")
    assert (file.reading.calls, file.reading.bytes) == (2, 10)
    assert (file.writing.calls, file.writing.bytes) == (0, 0)


def test_r04_read_of_three_gigabytes(under: Any) -> None:
    under.python(
        "import mmap, os\n"
        "f = os.open('a', os.O_CREAT | os.O_RDWR)\n"
        "os.truncate('a', 3 << 30)\n"
        "m = mmap.mmap(-1, 3 << 30)\n"
        "print(os.preadv(f, [memoryview(m)[:1 << 20]], (3 << 30) - 100))\n"
    )
    file = under.file("a")
    assert (file.reading.bytes, file.highest) == (100, 3 << 30)


def test_r04_stream_and_descriptor_are_counted_once(under: Any, program: Any) -> None:
    done = under.run(program("streams.c"), under.data / "a")
    assert done.returncode == 0
    file = under.file("a")
    assert file.writing.bytes == 3000
    assert file.reading.bytes == 3000


def test_exec_keeps_the_process(under: Any) -> None:
    under.python("import os\nopen('a', 'w').write('1')\nos.execv('/bin/cp', ['cp', 'a', 'b'])")
    (process,) = under.seen().processes
    assert process.execs == 1
    assert process.argv[0] == b"cp"
    assert under.file("a").opens == 2
    assert under.file("b").opens == 1


def test_copies_inside_the_kernel_are_a_read_and_a_write(under: Any) -> None:
    under.python(
        "import os\n"
        "open('a', 'wb').write(b'x' * 5000)\n"
        "a, b = os.open('a', os.O_RDONLY), os.open('b', os.O_CREAT | os.O_WRONLY)\n"
        "assert os.copy_file_range(a, b, 3000) == 3000\n"
        "assert os.sendfile(b, a, 3000, 2000) == 2000\n"
    )
    assert under.file("a").reading.bytes == 5000
    assert under.file("b").writing.bytes == 5000


def test_shell_redirection_is_known_by_name(under: Any) -> None:
    done = under.run(
        "bash", "-c", "for i in 1 2 3; do echo line $i; done >> out; cat out | wc -c", cwd=under.data
    )
    assert done.stdout.strip() == "21"
    assert sum(f.writing.bytes for f in under.files("out")) == 21


def test_what_is_not_recorded_leaves_no_row(under: Any) -> None:
    under.python("import json, email\nopen('/etc/passwd').read()\nopen('/proc/self/stat').read()")
    assert [f for process in under.seen().processes for f in process.files if f.kind == 3] == []


KILLS = 200


def test_r01_b01_b02_killed_at_random_moments(under: Any, program: Any) -> None:
    """Nothing but the operation in flight is missing; later processes find the board as good as new."""
    writers = program("writers.c")
    chance = random.Random(1)
    late = 0
    for turn in range(KILLS):
        process = under.start(writers, under.data)
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.random() * 0.004)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        process.stderr.close()
        (row,) = [p for p in under.seen().processes if p.pid == process.pid]
        for thread in range(4):
            done = (under.data / str(thread)).stat().st_size
            name = os.fsencode(under.data / str(thread))
            counted = [f for f in row.files if f.name == name]
            calls = sum(f.writing.calls for f in counted)
            written = sum(f.writing.bytes for f in counted)
            assert done // 64 - 1 <= calls <= done // 64, f"turn {turn}"
            assert abs(written - done) <= 64
            late += calls != done // 64
        assert row.end_ns == 0
    seen = under.seen()
    assert (len(seen.processes), seen.skipped, seen.attached) == (KILLS, 0, KILLS)
    assert late < KILLS * 4
