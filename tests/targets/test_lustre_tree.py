# SPDX-License-Identifier: Apache-2.0
"""What the Lustre driver makes of a tree of statistics, its texts as Lustre writes them."""

import contextlib
import gc
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.targets.lustre import Lustre, fsname_of, job_rows, layout_of
from penstock.targets.mounts import Mount
from penstock.targets.params import Params, path_of, split_lctl

JOBS = """\
job_stats:
- job_id:          dd.0
  snapshot_time:   1795041945.262279930 secs.nsecs
  start_time:      1795041945.048792783 secs.nsecs
  read_bytes:      { samples:           0, unit: bytes, min:        0, max:        0, sum:                0, sumsq:                  0, hist: {  } }
  write_bytes:     { samples:           2, unit: bytes, min:  4194304, max:  4194304, sum:          8388608, sumsq:     17592186044416, hist: { 4M: 2 } }
  write:           { samples:           2, unit: usecs, min:    30691, max:    30691, sum:            61382, sumsq:          941937481 }
- job_id:          "a\\x20b:c"
  open:            { samples:           3, unit:  reqs }
"""  # noqa: E501 - as Lustre writes it


class Tree:
    """A file system's statistics in a folder, as on a server or as on a client."""

    def __init__(self, top: Path) -> None:
        self.top = top / "state" / "sys" / "fs" / "lustre"
        self.mount = Mount(1, str(top / "mnt"), "fuse.penstock", str(top), "0:1", ())

    def put(self, name: str, text: object) -> None:
        path = self.top / path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def ost(self, number: int, server: bool, **values: object) -> None:
        name = f"fs-OST{number:04x}" if server else f"fs-OST{number:04x}-osc-ffff1"
        for key, value in {"kbytestotal": 1000, "kbytesavail": 400, **values}.items():
            self.put(f"{'obdfilter' if server else 'osc'}/{name}/{key}", value)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def stats(*, reads: int, read_bytes: int, writes: int, written: int, read_us: int, write_us: int) -> str:
    rows = [("read_bytes", reads, read_bytes), ("write_bytes", writes, written)]
    rows += [("read", reads, read_us), ("write", writes, write_us)]
    return "\n".join(f"{n:<25} {c} samples [x] 1 1 {s} 1" for n, c, s in rows if c)


def test_targets_and_load_as_the_servers_count(tree: Tree) -> None:
    tree.ost(0, True, stats=stats(reads=5, read_bytes=5000, writes=7, written=9000, read_us=50, write_us=70))
    tree.ost(11, True, stats=stats(reads=0, read_bytes=0, writes=1, written=10, read_us=0, write_us=3))
    tree.put("osc/fs-OST000b-osc-ffff1/ost_conn_uuid", "192.168.1.5@tcp")
    lustre = Lustre(tree.mount)
    assert [(t.id, t.name, t.size_bytes, t.free_bytes) for t in lustre.targets()] == [
        (0, "fs-OST0000", 1024000, 409600),
        (11, "fs-OST000b", 1024000, 409600),
    ]
    assert [t.server for t in lustre.targets()] == ["", "192.168.1.5@tcp"]
    load = lustre.load()
    assert tuple(load[0][:5]) == (5, 7, 5000, 9000, 120_000)
    assert tuple(load[11][:5]) == (0, 1, 0, 10, 3000)


def test_client_counts_where_servers_cannot_be_seen(tree: Tree) -> None:
    tree.ost(3, False, stats="ost_write 4 samples [usecs] 1 1 80 1\nwrite_bytes 4 samples [bytes] 1 1 99 1")
    lustre = Lustre(tree.mount)
    assert [t.name for t in lustre.targets()] == ["fs-OST0003"]
    assert lustre.load()[3].written_bytes == 99
    assert lustre.load()[3].busy_ns == 80_000


def test_statistics_that_may_not_be_read_are_not_known(tree: Tree) -> None:
    tree.ost(3, False)
    assert Lustre(tree.mount).load()[3].reads == -1


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda t: None, "up"),
        (lambda t: t.put("obdfilter/fs-OST0000/degraded", 1), "degraded"),
        (lambda t: t.put("obdfilter/fs-OST0000/no_create", 1), "no-create"),
        (lambda t: t.put("obdfilter/fs-OST0000/readonly", 1), "read-only"),
        (lambda t: t.put("osp/fs-OST0000-osc-MDT0000/active", 0), "inactive"),
        (lambda t: t.put("osp/fs-OST0000-osc-MDT0000/prealloc_status", -28), "full"),
        (lambda t: t.put("osp/fs-OST0000-osc-MDT0000/prealloc_status", -107), "down"),
        (lambda t: t.put("lov/fs-clilov-ffff1/target_obd", "0: fs-OST0000_UUID INACTIVE"), "inactive"),
    ],
)
def test_states(tree: Tree, change: Callable[[Tree], None], state: str) -> None:
    tree.ost(0, True)
    tree.ost(1, True)
    tree.put("lov/fs-clilov-ffff1/target_obd", "0: fs-OST0000_UUID ACTIVE\n1: fs-OST0001_UUID ACTIVE")
    tree.put("osp/fs-OST0000-osc-MDT0000/active", 1)
    change(tree)
    assert Lustre(tree.mount).health() == {0: state, 1: "up"}


def test_target_that_comes_later_is_seen(tree: Tree) -> None:
    tree.ost(0, True)
    now = [0.0]
    lustre = Lustre(tree.mount, lambda: now[0])
    assert len(lustre.targets()) == 1
    tree.ost(1, True)
    tree.put("obdfilter/fs-OST0000/degraded", 1)
    now[0] = 5
    assert len(lustre.targets()) == 2
    assert lustre.health() == {0: "degraded", 1: "up"}


def test_job_counts_of_all_servers_together(tree: Tree) -> None:
    tree.put("obdfilter.fs-OST0000.job_stats", JOBS)
    tree.put("obdfilter.fs-OST0001.job_stats", JOBS)
    tree.put("mdt.fs-MDT0000.job_stats", "job_stats:")
    counts = Lustre(tree.mount).job_counts()
    assert counts == {"dd.0": {"write_bytes": 2 * 8388608, "write": 4}, "a b:c": {"open": 6}}


def opened_below(folder: Path) -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            count += os.readlink(f"/proc/self/fd/{name}").startswith(f"{folder}/")  # noqa: PTH115
    return count


@pytest.mark.parametrize(("limit", "kept"), [(1000, 6), (7, 3), (5, 0)])
def test_files_stay_open_if_so_many_may_and_no_longer_than_the_driver(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, limit: int, kept: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (limit, limit))
    for number in range(3):
        tree.ost(number, True, stats="")
    lustre = Lustre(tree.mount)
    for _ in range(2):
        assert [t.free_bytes for t in lustre.targets()] == [400 * 1024] * 3
        assert len(lustre.load()) == 3
        assert opened_below(tree.top) == kept
    del lustre
    gc.collect()
    assert opened_below(tree.top) == 0


def test_broken_job_stats_are_left_out() -> None:
    assert job_rows("- job_id: x\n  open: { samples: many }\nrubbish\n") == []


def test_names_of_file_systems() -> None:
    mount = Mount(1, "/s", "lustre", "10.0.0.1@tcp:10.0.0.2@tcp:/scratch/sub", "0:1", ())
    assert fsname_of(mount) == "scratch"


def test_bytes_of_no_known_layout_are_unknown() -> None:
    blob = b"\xd0\x0b\xd7\x0b" + bytes(60)
    assert layout_of(blob) == ("unknown", (), blob)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b", "", "x;y"])
def test_names_that_are_no_parameters(name: str) -> None:
    with pytest.raises(ValueError, match="no parameter"):
        path_of(name)


def test_first_tree_that_can_be_read_wins(tmp_path: Path) -> None:
    for root in ("a", "b"):
        (tmp_path / root / "osc").mkdir(parents=True)
        (tmp_path / root / "osc" / "x").write_text(root)
    assert Params([tmp_path / "absent", tmp_path / "b", tmp_path / "a"]).read("osc.x") == {"osc.x": "b"}


def test_output_of_lctl_is_taken_apart() -> None:
    text = "osc.a.active=1\nosc.a.stats=\nopen 1 samples [x]\nclose 2 samples [x]\nosc.b.active=0\n"
    assert dict(split_lctl(text.splitlines(keepends=True))) == {
        "osc.a.active": "1\n",
        "osc.a.stats": "open 1 samples [x]\nclose 2 samples [x]\n",
        "osc.b.active": "0\n",
    }
