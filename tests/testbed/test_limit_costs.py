# SPDX-License-Identifier: Apache-2.0
"""What the stage `limit` charges is what the emulated servers count: pattern by pattern, in one client."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.policy import costs
from penstock.runs import board, limits

pytestmark = pytest.mark.root

LIBRARY = Path(sys.prefix) / "lib" / "penstock" / "libpenstock.so"
MDS = ("enq:", "close", "reint", "readpage", "statfs", "sync", "flock", "batch")
CREATE = "os.close(os.open(p + '/new', os.O_CREAT | os.O_WRONLY))"

# Python, with p the mount's path; what there is before; requests at the metadata server.
PATTERNS = {
    "create and close": (CREATE, 2),
    "a missing name, 20 times": ("for _ in range(20): os.access(p + '/none', os.F_OK)", 20),
    "stat, cold and 9 times warm": ("for _ in range(10): os.stat(p + '/file')", 1),
    "stat of what was just created": (CREATE + "\nfor _ in range(5): os.stat(p + '/new')", 2),
    "open and close, cold": ("os.close(os.open(p + '/file', os.O_RDONLY))", 2),
    "mkdir, 5": ("for i in range(5): os.mkdir(f'{p}/made{i}')", 5),
    "mkdir and rmdir": ("os.mkdir(p + '/made'); os.rmdir(p + '/made')", 3),
    "create and unlink": (CREATE + "\nos.unlink(p + '/new')", 3),
    "create and rename": (CREATE + "\nos.rename(p + '/new', p + '/newer')", 4),
    "rename, cold": ("os.rename(p + '/file', p + '/newer')", 3),
    "unlink, cold": ("os.unlink(p + '/file')", 2),
    "create and chmod": (CREATE + "\nos.chmod(p + '/new', 0o640)", 4),
    "create and setxattr": (CREATE + "\nos.setxattr(p + '/new', 'user.a', b'b')", 3),
    "symlink": ("os.symlink('there', p + '/link')", 1),
    "listing, cold": ("os.listdir(p + '/folder')", 4),
    "fstat, any number": (
        "fd = os.open(p + '/file', os.O_RDONLY)\nfor _ in range(9): os.fstat(fd)\nos.close(fd)",
        2,
    ),
}


@pytest.fixture
def charged(make_testbed: Callable[..., object]) -> Iterator[Callable[[str], tuple[float, int]]]:
    """Runs Python text on a cold mount: what was charged, and what the metadata server was asked."""
    bed = make_testbed(oss=1, osts=2, settings={"model": "count"})
    top = Path(f"/dev/shm/penstock-test-costs-{os.getpid()}")
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir(mode=0o700)
    rules = [*board.noise(), (str(bed.path), int(board.Under.RECORD))]
    board.create(top / "board", bytes(16), board.Stages.RECORD, board.Under.NOTHING, rules)
    bucket = limits.Bucket("metadata", 1e7, limits.operations_of(["metadata"]))
    (bed.path / "file").touch()
    (bed.path / "folder").mkdir()

    def run(text: str) -> tuple[float, int]:
        with limits.Hold(top / "board") as hold:
            hold.apply(limits.spec([bucket], lease_s=3600))
            bed.ask("drop")
            bed.path.stat()
            env = {**os.environ, "LD_PRELOAD": str(LIBRARY), "PENSTOCK_BOARD": str(top / "board")}
            command = [sys.executable, "-c", f"import os\np = {str(bed.path)!r}\n{text}"]
            with bed.counted(0) as got:
                subprocess.run(command, env=env, check=True, timeout=60, cwd="/")
            asked = sum(n for kind, n in got.items() if kind.startswith(MDS))
            return hold.observe()[0].asked, asked

    yield run
    shutil.rmtree(top)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_charged_as_the_servers_count_it(charged, pattern: str) -> None:
    text, wanted = PATTERNS[pattern]
    assert charged(text) == (wanted, wanted)


def test_a_placed_create_is_five() -> None:
    assert 2 * costs.COSTS["open"].calls + costs.PLACED == 5
