# SPDX-License-Identifier: Apache-2.0
"""`penstock run`: the program is as it was, and what it did is in the history."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.runs import merge, segments

BIN = Path(sys.executable).parent
PENSTOCK, PENSTOCK_RUN = BIN / "penstock", BIN / "penstock-run"
HOME_SYSTEM = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with places of its own: nothing is shared with other tests."""
    boards = Path("/dev/shm") / f"penstock-test-{os.getpid()}-{tmp_path.name}"
    boards.mkdir(mode=0o700)
    yield {
        **HOME_SYSTEM,
        "HOME": str(tmp_path),
        "PENSTOCK_STATE_DIR": str(tmp_path / "state"),
        "PENSTOCK_BOARD_DIR": str(boards),
    }
    subprocess.run(["rm", "-rf", str(boards)], check=True)


def runs(env: dict[str, str]) -> list[merge.Run]:
    """All runs of the history, the earliest first."""
    payloads: dict[bytes, list] = {}
    for path in segments.segments(Path(env["PENSTOCK_STATE_DIR"]) / "history"):
        scan = segments.read(path)
        assert scan.damages == []
        for frame in scan.frames:
            payloads.setdefault(frame.run, []).append(frame.decode())
    found = [merge.merge(run, frames) for run, frames in payloads.items()]
    return sorted(found, key=lambda run: run.start_ns)


def call(*words: object, env: dict[str, str], **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(w) for w in words], env=env, capture_output=True, timeout=60, check=False, **options
    )


def test_what_a_program_wrote_is_recorded(env: dict[str, str], tmp_path: Path) -> None:
    target = tmp_path / "data"
    done = call(PENSTOCK, "run", "--", "dd", "if=/dev/zero", f"of={target}", "bs=64k", "count=16", env=env)

    assert done.returncode == 0
    [run] = runs(env)
    assert (run.end.status, run.end.signal) == (0, 0)
    assert run.begin.argv[0] == b"dd"
    assert merge.program(run) == "dd"
    [row] = [f for node in run.nodes for f in node.files if f.path == bytes(target)]
    assert (row.writes, row.bytes_written, row.highest_offset) == (16, 1 << 20, 1 << 20)
    assert row.common_sizes == [(65536, 16)]
    assert [node.final for node in run.nodes] == [True]
    assert list(Path(env["PENSTOCK_BOARD_DIR"]).iterdir()) == []
