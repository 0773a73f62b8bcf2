# SPDX-License-Identifier: Apache-2.0
"""Targets, load and states of a testbed whose servers are modelled, as users and scripts see them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.errors import PenstockError
from penstock.targets.driver import driver_for
from penstock.targets.layouts import wish
from penstock.targets.lustre import Lustre
from penstock.targets.params import Params
from tests.conftest import Bed

MIB = 1 << 20
PENSTOCK = Path(sys.executable).with_name("penstock")
QUICK = {"stats.period": "50ms", "ost.bandwidth": "2GB/s"}


@pytest.fixture
def bed(make_testbed: Callable[..., Bed]) -> Bed:
    return make_testbed(oss=2, osts=3, settings=QUICK)


def driver(bed: Bed) -> Lustre:
    """A new one: it has looked at nothing yet."""
    found = driver_for(bed.path)
    assert isinstance(found, Lustre)
    return found


def until(what: str, true: Callable[[], bool], limit_s: float = 30) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"not within {limit_s} s: {what}"
        time.sleep(0.02)


def run(bed: Bed, *words: object, status: int = 0) -> str:
    env = {**os.environ, "PATH": f"{bed.folder}/bin:{PENSTOCK.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(word) for word in words], check=False, capture_output=True, text=True, timeout=60, env=env
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def write(path: Path, size: int) -> None:
    with path.open("wb") as f:
        f.write(b"x" * size)
        f.flush()
        os.fsync(f.fileno())


def test_targets_right_after_the_start(bed: Bed) -> None:
    targets = driver(bed).targets()
    assert [t.id for t in targets] == list(range(6))
    assert [t.name for t in targets] == [f"pfs-OST{i:04x}" for i in range(6)]
    assert len({t.server for t in targets}) == 2
    assert all(0 < t.free_bytes <= t.size_bytes for t in targets)
    assert set(driver(bed).health().values()) == {"up"}


def test_load_and_room_of_the_target_that_is_written(bed: Bed) -> None:
    lustre = driver(bed)
    before, room = lustre.load(), lustre.targets()
    lustre.create(str(bed.path / "f"), wish(targets=(4,)))
    write(bed.path / "f", 16 * MIB)
    until("the statistics say so", lambda: lustre.load()[4].written_bytes >= 16 * MIB)
    after = lustre.load()
    assert [number for number in after if after[number].written_bytes != before[number].written_bytes] == [4]
    assert after[4].writes > before[4].writes
    assert after[4].busy_ns > before[4].busy_ns
    assert lustre.targets()[4].free_bytes <= room[4].free_bytes - 16 * MIB


def test_jobs_are_counted_by_the_servers(bed: Bed) -> None:
    run(bed, "dd", "if=/dev/zero", f"of={bed.path}/f", "bs=1M", "count=4", "conv=fsync")
    bed.ask("stats")
    counts = {job.partition(".")[0]: row for job, row in driver(bed).job_counts().items()}
    assert counts["dd"]["write_bytes"] == 4 * MIB
    assert (counts["dd"]["mknod"], counts["dd"]["open"]) == (1, 1)


@pytest.mark.parametrize(
    ("line", "target", "state", "refusal"),
    [
        ("fail ost.3", 3, "down", "OST 3 is down"),
        ("fill ost.2 99.99%", 2, "full", "full.*OST 2 is full"),
        ("set ost.1.no_create=1", 1, "no-create", "no new files.*OST 1 is no-create"),
        ("set ost.5.inactive=1", 5, "inactive", "inactive.*OST 5 is inactive"),
        ("set ost.0.read_only=1", 0, "read-only", "read-only"),
        ("set ost.4.degraded=1", 4, "degraded", ""),
    ],
)
def test_states_and_what_they_refuse(bed: Bed, line: str, target: int, state: str, refusal: str) -> None:
    bed.ask(line)
    until(f"{target} is {state}", lambda: driver(bed).health()[target] == state)
    assert [s for i, s in driver(bed).health().items() if i != target] == ["up"] * 5
    path = bed.path / "on-it"
    if not refusal:
        driver(bed).create(str(path), wish(targets=(target,)))
        return
    with pytest.raises(PenstockError, match=refusal):
        driver(bed).create(str(path), wish(targets=(target, (target + 1) % 6)))
    assert not path.exists()


def test_failed_server_takes_its_targets_along(bed: Bed) -> None:
    server = driver(bed).targets()[1].server
    bed.ask("fail oss.1")
    mine = [t.id for t in driver(bed).targets() if t.server == server]
    assert len(mine) == 3
    until("they are down", lambda: all(driver(bed).health()[i] == "down" for i in mine))
    bed.ask("heal all")
    until("they are up", lambda: set(driver(bed).health().values()) == {"up"})


def test_table_and_json(bed: Bed) -> None:
    bed.ask("fail ost.3")
    until("it is down", lambda: driver(bed).health()[3] == "down")
    lines = run(bed, "penstock", "targets", bed.path, "--every", "200ms").splitlines()
    assert len(lines) == 8
    assert lines[4].split()[:2] == ["3", "pfs-OST0003"]
    assert lines[4].endswith("down")
    rows = json.loads(run(bed, "penstock", "targets", bed.path, "--every", "200ms", "--json"))["targets"]
    assert [row["state"] for row in rows].count("up") == 5


@pytest.mark.skipif(os.geteuid() != 0, reason="skipped: only root can become somebody else")
def test_another_user_sees_the_targets(bed: Bed) -> None:
    lustre = driver(bed)
    for folder in (bed.path.parent, bed.path):
        folder.chmod(0o755)
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.write(into, f"{len(lustre.targets())} {lustre.load()[0].reads}".encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as answer:
        assert answer.read() == "6 0"
    os.waitpid(child, 0)


def test_lfs_df_and_osts(bed: Bed) -> None:
    bed.more("node2")
    bed.ask("set ost.4.degraded=1")
    until("it is degraded", lambda: driver(bed).health()[4] == "degraded")
    lines = run(bed, "lfs", "df", bed.path).splitlines()
    assert lines[0] == "UUID                   1K-blocks        Used   Available Use%  Mounted on"
    osts = [line for line in lines if "[OST:" in line]
    assert [line.split()[0] for line in osts] == [f"pfs-OST{i:04x}_UUID" for i in range(6)]
    assert osts[4].endswith("[OST:4] D")
    assert sum("[MDT:" in line for line in lines) == 1
    assert "IUse%" in run(bed, "lfs", "df", "-i", bed.path)
    assert run(bed, "lfs", "osts", bed.path).splitlines()[:2] == ["OBDS:", "0: pfs-OST0000_UUID ACTIVE"]


def test_lctl_reads_and_sets(bed: Bed) -> None:
    assert run(bed, "lctl", "get_param", "-n", "obdfilter.pfs-OST0003.degraded") == "0\n"
    assert run(bed, "lctl", "set_param", "obdfilter.*-OST0003.degraded=1") == (
        "obdfilter.pfs-OST0003.degraded=1\n"
    )
    assert run(bed, "lctl", "get_param", "obdfilter.*.degraded").splitlines()[3:5] == [
        "obdfilter.pfs-OST0003.degraded=1",
        "obdfilter.pfs-OST0004.degraded=0",
    ]
    until("the driver sees it", lambda: driver(bed).health()[3] == "degraded")
    stats = run(bed, "lctl", "get_param", "mdt.*.md_stats").splitlines()
    assert stats[0] == "mdt.pfs-MDT0000.md_stats="
    assert stats[1].startswith("snapshot_time  ")
    names = run(bed, "lctl", "list_param", "obdfilter.*").splitlines()
    assert names == [f"obdfilter.pfs-OST{i:04x}" for i in range(6)]
    said = run(bed, "lctl", "get_param", "no.such", status=2)
    assert said == "error: get_param: param_path 'no/such': No such file or directory\n"
    assert "set_param" in run(bed, "lctl", "set_param", "../../etc/passwd=1", status=2)


def test_parameters_by_lctl_where_no_file_can_be_read(bed: Bed) -> None:
    asked = Params([], f"{bed.folder}/bin/lctl").read("obdfilter.*.kbytestotal")
    assert asked == driver(bed).params.read("obdfilter.*.kbytestotal")
    assert len(asked) == 6


def test_busy_metadata_server_keeps_placement_off(bed: Bed) -> None:
    """The guard of placement, from the servers' own /proc."""
    assert sorted(driver(bed).servers()) == ["mds0", "oss0", "oss1"]
    words = ("penstock", "targets", bed.path, "--server", "--every", "300ms", "--json")
    calm = json.loads(run(bed, *words))
    assert [row["name"] for row in calm["servers"]] == ["mds0", "oss0", "oss1"]
    assert calm["placement"]["allowed"], calm
    bed.ask("set mds.memory=80%")
    bed.ask("stats")
    full = json.loads(run(bed, *words))
    assert not full["placement"]["allowed"]
    assert "mds0 uses 80% of its memory" in full["placement"]["why"]
