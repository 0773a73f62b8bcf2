# SPDX-License-Identifier: Apache-2.0
"""Importing Darshan's logs: made by its own library, samples of its package, its parser's text, and broken ones."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import darshan
import numpy as np
import pytest

from penstock.runs import darshan_import, darshan_log, merge, record, segments, stats, tuned
from tools import darshan_logs
from tools.darshan_logs import MIB, File, Log

TEXT = """# darshan log version: 3.41
# compression method: ZLIB
# exe: /opt/bin/vpic in.deck -v
# uid: 1007
# jobid: 4711
# start_time: 1570000000
# start_time_asci: Wed Oct  2 07:06:40 2019
# end_time: 1570000100
# nprocs: 32
# run time: 100.0
# mount entry:\t/scratch\tlustre
# POSIX module data
#<module>\t<rank>\t<record id>\t<counter>\t<value>\t<file name>\t<mount pt>\t<fs type>
POSIX\t-1\t77\tPOSIX_OPENS\t32\t/scratch/out.h5\t/scratch\tlustre
POSIX\t-1\t77\tPOSIX_WRITES\t3200\t/scratch/out.h5\t/scratch\tlustre
POSIX\t-1\t77\tPOSIX_BYTES_WRITTEN\t3355443200\t/scratch/out.h5\t/scratch\tlustre
POSIX\t-1\t77\tPOSIX_F_WRITE_TIME\t320.0\t/scratch/out.h5\t/scratch\tlustre
POSIX\t-1\t77\tPOSIX_F_SLOWEST_RANK_TIME\t20.0\t/scratch/out.h5\t/scratch\tlustre
LUSTRE\t-1\t77\tLUSTRE_OSTS\t256\t/scratch/out.h5\t/scratch\tlustre
LUSTRE\t-1\t77\tLUSTRE_STRIPE_SIZE\t4194304\t/scratch/out.h5\t/scratch\tlustre
LUSTRE\t-1\t77\tLUSTRE_STRIPE_WIDTH\t2\t/scratch/out.h5\t/scratch\tlustre
LUSTRE\t-1\t77\tLUSTRE_STRIPE_COUNT\t2\t/scratch/out.h5\t/scratch\tlustre
LUSTRE\t-1\t77\tLUSTRE_OST_ID_0\t17\t/scratch/out.h5\t/scratch\tlustre
LUSTRE\t-1\t77\tLUSTRE_OST_ID_1\t18\t/scratch/out.h5\t/scratch\tlustre
"""


@pytest.fixture(scope="module")
def writer() -> darshan_logs.Writer:
    return darshan_logs.Writer()


OWN = Log(
    81, "/opt/bin/ior -a POSIX", 4,
    tuple(File(f"/scratch/out.{r}", r, 64 * MIB, time_s=2.0 + r, targets=(r, r + 4)) for r in range(4)),
)  # fmt: skip
SHARED = Log(
    82, "/opt/bin/vpic", 16, (File("/scratch/all.h5", -1, 512 * MIB, time_s=8.0, targets=tuple(range(9))),)
)


def run_of(frames: bytes) -> merge.Run:
    found = segments.scan(frames).frames
    return merge.merge(found[0].run, [f.decode() for f in found])


def read(writer: darshan_logs.Writer, folder: Path, log: Log) -> merge.Run:
    path = folder / f"{log.job}.darshan"
    writer.write(path, log)
    got = darshan_import.convert([path], frozenset())
    assert got.broken == []
    return run_of(got.frames[0])


def test_files_of_each_process(writer: darshan_logs.Writer, tmp_path: Path) -> None:
    run = read(writer, tmp_path, OWN)
    summary = merge.summarize(run)

    assert (summary.program, summary.job, summary.bytes_written, summary.files) == ("ior", "81", 256 * MIB, 4)
    context = tuned.context_of(run)
    assert (context.processes, context.shared, context.request_bytes) == (4, False, MIB)
    (sample,) = tuned.samples_of(run, summary)
    assert (sample.layout.count, sample.teaches) == (2, True)
    assert sample.rate_bytes_per_s == pytest.approx(256 * MIB / 5.0)  # the slowest process
    facts = stats.facts_of("ior", run.nodes)
    assert (facts.targets, facts.widest) == (8, 2)  # both counts


def test_a_shared_file(writer: darshan_logs.Writer, tmp_path: Path) -> None:
    run = read(writer, tmp_path, SHARED)

    context = tuned.context_of(run)
    assert (context.processes, context.shared) == (16, True)
    (sample,) = tuned.samples_of(run, merge.summarize(run))
    assert sample.rate_bytes_per_s == pytest.approx(512 * MIB / 8.0)


def test_the_text_of_the_parser() -> None:
    run = run_of(darshan_log.frames(darshan_log.read_text(TEXT.encode()), bytes(16)))

    (row,) = run.nodes[0].files
    assert row.layout == record.Layout("lustre.lov", b"", 2, 4 * MIB, [17, 18])
    assert (row.bytes_written, row.write_ns, row.mpi_ranks, row.filesystem) == (
        3355443200,
        20 * 10**9,
        32,
        "lustre",
    )
    assert merge.summarize(run).program == "vpic"


def test_the_samples_of_the_package() -> None:
    """Logs of many releases, with and without POSIX and Lustre parts."""
    logs = sorted(Path(os.fspath(darshan.__file__)).parent.glob("**/*.darshan"))

    got = darshan_import.convert(logs, frozenset())

    assert len(logs) >= 10
    assert len(got.frames) + len(got.broken) == len(logs)
    assert len(got.broken) <= 1
    for frames in got.frames:
        merge.summarize(run_of(frames))


def test_odd_values_cost_themselves_only(writer: darshan_logs.Writer, tmp_path: Path) -> None:
    """R05: zero times, bad targets, nothing written."""
    log = Log(
        83, "/x", 2, (File("/scratch/a", 0, MIB, time_s=0.0, targets=(-5, 3)), File("/scratch/b", 1, 0, 0))
    )

    run = read(writer, tmp_path, log)

    assert run.nodes[0].files[0].layout is not None
    assert run.nodes[0].files[0].layout.targets == [3]
    assert tuned.samples_of(run, merge.summarize(run)) == []


def test_broken_logs_stop_nothing(writer: darshan_logs.Writer, tmp_path: Path) -> None:
    """R05: cut, empty, foreign and mutated logs: each is a run or is named."""
    good = tmp_path / "good.darshan"
    writer.write(good, OWN)
    data = good.read_bytes()
    draw = np.random.default_rng(1)
    for i in range(60):
        broken = bytearray(data)
        for _ in range(int(draw.integers(1, 6))):
            broken[int(draw.integers(len(broken)))] = int(draw.integers(256))
        (tmp_path / f"mutated{i}.darshan").write_bytes(broken)
    for i in range(1, 20):
        (tmp_path / f"cut{i}.darshan").write_bytes(data[: len(data) * i // 20])
    (tmp_path / "empty.darshan").touch()
    (tmp_path / "foreign.darshan").write_bytes(b"PK\x03\x04" + bytes(3000))
    (tmp_path / "gone.darshan").symlink_to(tmp_path / "nowhere")
    (tmp_path / "text.darshan.txt").write_text("# darshan log version: 3.41\nrubbish\n")

    result = darshan_import.bring_in(tmp_path / "history", [tmp_path], frozenset(), jobs=2)

    assert result.found == 84
    assert result.imported + len(result.broken) == result.found
    assert result.imported >= 1
    named = {Path(path).name for path, why in result.broken if why}
    assert {"empty.darshan", "foreign.darshan", "gone.darshan", "text.darshan.txt", "cut3.darshan"} <= named


def test_the_published_tables_come_out_exactly(writer: darshan_logs.Writer, tmp_path: Path) -> None:
    """On a 1:2000 set; `make bench NAME=darshan` does the 1:10 set."""
    for log in darshan_logs.of_marginals(2000):
        writer.write(tmp_path / f"{log.job}.darshan", log)

    darshan_import.bring_in(tmp_path / "history", [tmp_path], frozenset(), jobs=2)
    found = stats.stats(stats.walk(tmp_path / "history"))

    made = list(darshan_logs.marginals(2000))
    assert found.runs == len(made)
    assert found.by_targets == dict(sorted(Counter(stats.class_of(c) for c, _ in made).items()))
    assert found.by_size == dict(sorted(Counter(s * MIB for _, s in made).items()))


# -- as people type it ---------------------------------------------------------------------------------------


def penstock(tmp_path: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "PENSTOCK_STATE_DIR": str(tmp_path),
        "LC_ALL": "C.UTF-8",
    }
    command = [str(Path(sys.executable).parent / "penstock"), *words]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)


def test_again_brings_nothing_and_elsewhere_is_the_same(writer: darshan_logs.Writer, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for log in (OWN, SHARED):
        writer.write(logs / f"{log.job}.darshan", log)
    (logs / "bad.darshan").write_bytes(b"no log")

    first = penstock(tmp_path, "runs", "import", "darshan", str(logs), "--json")
    (logs / "81.darshan").rename(logs / "moved.darshan")
    again = penstock(tmp_path, "runs", "import", "darshan", str(logs), "--json")

    assert first.returncode == again.returncode == 3
    assert "bad.darshan" in json.loads(first.stdout)["broken"][0]["log"]
    assert json.loads(first.stdout)["imported"] == 2
    assert (json.loads(again.stdout)["imported"], json.loads(again.stdout)["known"]) == (0, 2)
    listed = json.loads(penstock(tmp_path, "runs", "--json").stdout)["runs"]
    assert sorted(r["program"] for r in listed) == ["ior", "vpic"]
    assert len(list((tmp_path / "history").glob("*/*.seg"))) == 1


def semaphores_of(group: int) -> set[Path]:
    """Files in shared memory that the processes of a group have as semaphores."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if os.getpgid(int(maps.parent.name)) == group:
                found |= set(re.findall(r"/dev/shm/sem\.mp-\S+", maps.read_text()))
        except OSError:
            continue  # it has ended
    return {Path(name) for name in found}


def test_an_import_that_was_killed_is_taken_up(writer: darshan_logs.Writer, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for i in range(400):
        writer.write(logs / f"{i:03d}.darshan", Log(i + 1, f"/opt/app{i % 7}", 4, OWN.files))
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PENSTOCK_STATE_DIR": str(tmp_path)}
    command = [
        str(Path(sys.executable).parent / "penstock"),
        "runs",
        "import",
        "darshan",
        str(logs),
        "-j",
        "1",
    ]
    started = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 60
    while (
        not list((tmp_path / "history").glob("*/*.seg")) and started.poll() is None and time.monotonic() < end
    ):
        time.sleep(0.01)
    semaphores = semaphores_of(started.pid)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    for left in semaphores:  # who would remove them was killed as well
        left.unlink(missing_ok=True)

    result = json.loads(penstock(tmp_path, "runs", "import", "darshan", str(logs), "--json").stdout)

    assert result["imported"] + result["known"] == 400
    assert len(json.loads(penstock(tmp_path, "runs", "--json", "--limit", "1000").stdout)["runs"]) == 400


def test_stats_of_all_runs(writer: darshan_logs.Writer, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    narrow = tuple(File(f"/scratch/n.{r}", r, 512 * MIB, time_s=4.0, targets=(7,)) for r in range(4))
    for i, log in enumerate((OWN, SHARED, Log(90, "/opt/bin/vpic", 4, narrow))):
        writer.write(logs / f"{i}.darshan", log)
    penstock(tmp_path, "runs", "import", "darshan", str(logs))

    found = json.loads(penstock(tmp_path, "runs", "stats", "--json").stdout)
    shown = penstock(tmp_path, "runs", "stats").stdout

    assert (found["runs"], found["programs"]) == (3, 2)
    assert [(row["to"], row["runs"]) for row in found["distinct_targets"]] == [(1, 1), (8, 1), (16, 1)]
    assert found["single_stripe"] == {"runs": 1, "bytes": 4 * 512 * MIB, "shared": 0}
    assert found["programs_with_several_layouts"] == 1
    assert "3 runs of 2 programs" in shown
    assert "1 run of several processes moved" in shown
    assert "1 program ran with several layouts" in shown
    assert penstock(tmp_path / "none", "runs", "stats").returncode == 4


def test_predict_and_tune_learn_from_imports(writer: darshan_logs.Writer, tmp_path: Path) -> None:
    for i in range(3):
        writer.write(
            tmp_path / f"{i}.darshan",
            Log(i + 1, "/opt/bin/ior", 4, OWN.files, start_s=1_570_000_000 + i * 100),
        )
    penstock(tmp_path, "runs", "import", "darshan", str(tmp_path))

    files: Any = json.loads(penstock(tmp_path, "predict", "ior", "--json").stdout)["files"]
    tune = json.loads(penstock(tmp_path, "tune", "show", "ior", "--json").stdout)

    assert {f["name"] for f in files if f["files"]} == {f"/scratch/out.{r}" for r in range(4)}
    assert [s["stripe_count"] for s in tune["samples"]] == [2, 2, 2]
