# SPDX-License-Identifier: Apache-2.0
"""The CephFS lab, and the CephFS driver on it: real daemons, a real mount, OSDs asked what they hold."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.base.errors import BusyError, PenstockError, UsageError
from penstock.targets.cephfs import CephFS
from penstock.targets.driver import NoLayoutError, UnsupportedError, driver_for
from penstock.targets.layouts import bytes_on, wish
from penstock.testbed import ceph

WHY_NOT = ceph.missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"skipped: no CephFS lab: {WHY_NOT}"),
]
MIB = 1 << 20


def until(what: str, true: Callable[[], bool], limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"not within {limit_s} s: {what}"
        time.sleep(0.05)


def processes_naming(folder: Path) -> list[str]:
    found = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in cmdline.read_bytes() and int(cmdline.parent.name) != os.getpid():
                found.append(cmdline.parent.name)
        except OSError:
            continue
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, since Unix sockets lie in it."""
    done = subprocess.run(
        ["mktemp", "-d", "/tmp/penstock-ceph.XXXX"], capture_output=True, text=True, check=True
    )
    place = Path(done.stdout.strip())
    yield place
    ceph.down(place)


@pytest.fixture(scope="module")
def lab() -> Iterator[ceph.Status]:
    done = subprocess.run(
        ["mktemp", "-d", "/tmp/penstock-ceph.XXXX"], capture_output=True, text=True, check=True
    )
    place = Path(done.stdout.strip())
    try:
        yield ceph.up(place, osds=3)
    finally:
        ceph.down(place)
    assert not place.exists()
    assert not processes_naming(place)


@pytest.fixture
def driver(lab: ceph.Status) -> Iterator[CephFS]:
    found = driver_for(lab.mount)
    assert isinstance(found, CephFS)
    yield found
    found.cluster.close()


def test_lab_is_up_and_said_what_runs(lab: ceph.Status) -> None:
    assert lab.mounted
    assert {d.name for d in lab.daemons} == {"mon.a", "mgr.x", "mds.a", "osd.0", "osd.1", "osd.2", "fuse"}
    assert Path(lab.mount, "x").write_text("y") == 1


def test_second_lab_in_the_same_folder_is_refused(lab: ceph.Status) -> None:
    with pytest.raises(BusyError, match="is up there"):
        ceph.up(lab.dir)


def test_osd_that_would_lose_its_data_is_not_killed(lab: ceph.Status) -> None:
    with pytest.raises(UsageError, match="--store bluestore"):
        ceph.fail(lab.dir, "osd.1")
    with pytest.raises(UsageError, match=r"no daemon osd\.9"):
        ceph.fail(lab.dir, "osd.9")


def test_targets_are_the_osds(driver: CephFS) -> None:
    targets = driver.targets()
    assert [(t.id, t.name, t.server) for t in targets] == [(i, f"osd.{i}", f"h{i}") for i in range(3)]
    assert all(0 < t.free_bytes <= t.size_bytes for t in targets)
    assert driver.health() == {0: "up", 1: "up", 2: "up"}
    assert driver.pools["osd1"] == {1}
    assert driver.pools["data"] == {0, 1, 2}


def test_file_on_a_chosen_osd_really_lies_there(driver: CephFS, lab: ceph.Status) -> None:
    path = f"{lab.mount}/chosen"
    driver.create(path, wish(targets=(2,)))
    before = driver.load()
    with Path(path).open("wb") as f:
        f.write(os.urandom(12 * MIB))
        os.fsync(f.fileno())
    read = driver.layout(path)
    assert (read.targets, read.components[0].pool) == ((2,), "osd2")
    assert bytes_on(read, 12 * MIB) == {2: 12 * MIB}
    # The names come from the pool's OSD itself, which here is only that one.
    inode = f"{Path(path).stat().st_ino:x}"
    held = [name for name in driver.cluster.objects("osd2") if name.startswith(inode)]
    assert held == [f"{inode}.{i:08x}" for i in range(3)]
    assert not [
        name for pool in ("osd0", "osd1", "data") for name in driver.cluster.objects(pool) if inode in name
    ]
    after = driver.load()
    grown = {osd: after[osd].written_bytes - before[osd].written_bytes for osd in after}
    assert grown[2] >= 12 * MIB
    assert grown[0] + grown[1] < MIB  # the MDS's journal, which lies in another pool
    assert after[2].writes > before[2].writes
    assert after[2].busy_ns > before[2].busy_ns


def test_striped_layout_is_set_and_read_back(driver: CephFS, lab: ceph.Status) -> None:
    path = f"{lab.mount}/striped"
    driver.create(path, wish(3, 65536, pool="osd1"))
    (part,) = driver.layout(path).components
    assert (part.stripe_size_bytes, part.stripe_count, part.pool) == (65536, 3, "osd1")
    assert part.object_size_bytes == 4 * MIB
    assert part.targets == (1, 1, 1)
    fd = os.open(path, os.O_RDONLY)
    assert driver.layout(fd).components == (part,)
    os.close(fd)


def test_hashed_pool_states_no_targets(driver: CephFS, lab: ceph.Status) -> None:
    path = f"{lab.mount}/hashed"
    Path(path).write_bytes(b"x" * 1000)
    assert driver.layout(path).targets == ()
    assert bytes_on(driver.layout(path), 1000) == {None: 1000}


def test_folder_hands_its_layout_down(driver: CephFS, lab: ceph.Status) -> None:
    sub = Path(lab.mount, "d", "e")
    sub.mkdir(parents=True)
    with pytest.raises(NoLayoutError):
        driver.layout(str(sub.parent))
    driver.set_default(str(sub.parent), wish(targets=(0,)))
    (sub / "f").write_text("x")
    assert driver.layout(str(sub / "f")).targets == (0,)


def test_file_with_data_keeps_its_layout(driver: CephFS, lab: ceph.Status) -> None:
    path = Path(lab.mount, "full")
    path.write_text("data")
    with pytest.raises(PenstockError, match="holds data"):
        driver.create(str(path), wish(targets=(1,)))
    assert path.read_text() == "data"


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        (wish(pool="nowhere"), PenstockError, "unknown target or pool"),
        (wish(stripe_size_bytes=65537), PenstockError, "a size it does not take"),
        (wish(targets=(0, 1)), UnsupportedError, "no pool lies on exactly the OSDs 0, 1"),
        (wish(targets=(9,)), UnsupportedError, "osd0, osd1, osd2"),
    ],
)
def test_impossible_wish_leaves_no_file(
    driver: CephFS, lab: ceph.Status, asked: object, kind: type[Exception], said: str
) -> None:
    path = Path(lab.mount, "never")
    with pytest.raises(kind, match=said):
        driver.create(str(path), asked)  # type: ignore[arg-type]
    assert not path.exists()


def penstock(*words: object) -> str:
    command = [str(word) for word in (Path(sys.executable).with_name("penstock"), *words)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_as_a_user_types_them(lab: ceph.Status) -> None:
    rows = json.loads(penstock("targets", lab.mount, "--json"))["targets"]
    assert [(row["name"], row["state"]) for row in rows] == [(f"osd.{i}", "up") for i in range(3)]
    assert all(row["ops_per_s"] is not None for row in rows)
    file = f"{lab.mount}/typed"
    penstock("layout", "set", "--osts", 1, file)
    Path(file).write_bytes(b"x" * 5 * MIB)
    assert penstock("layout", "get", file) == (
        f"{file}: 1 stripe of 4 MiB, on target 1, objects of 4 MiB, pool osd1\n"
    )
    held = json.loads(penstock("layout", "explain", "--json", file))["targets"]
    assert held == [{"target": 1, "bytes": 5 * MIB}]


def test_lab_by_command(folder: Path) -> None:
    """As the guide types it: the lab in the usual place is meant; beside a testbed in its own folder only."""
    lab = folder / "penstock" / "ceph"
    env = {**os.environ, "XDG_RUNTIME_DIR": str(folder), "PWD": str(lab)}

    def typed(*words: object) -> str:
        command = [str(word) for word in (Path(sys.executable).with_name("penstock"), "testbed", *words)]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=120, env=env, cwd="/"
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        said = json.loads(typed("up", "--real", "ceph", "--osds", 1, "--json"))
        assert said["mounted"]
        assert Path(said["mount"], "x").write_text("y") == 1
        assert f"CephFS is mounted at {lab}/mnt" in typed("status")
        assert typed("status") == typed("status", "--dir", lab)
        typed("down")
        assert not lab.exists()
    finally:
        ceph.down(lab)
        lab.parent.rmdir()
    assert not processes_naming(lab)


_WRITER = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY)
block = bytes(range(256)) * 256
while True:
    os.write(fd, block)
    os.fsync(fd)
    print(os.lseek(fd, 0, os.SEEK_CUR), flush=True)
"""


class Writer:
    """Writes and syncs without end in a process of its own; `done` is what it has put down."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.out = Path(f"/tmp/penstock-writer-{os.getpid()}-{Path(path).name}")
        with self.out.open("wb") as out:
            self.process = subprocess.Popen([sys.executable, "-c", _WRITER, path], stdout=out)

    @property
    def done(self) -> int:
        lines = self.out.read_text().splitlines()
        return int(lines[-1]) if lines else 0

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(timeout=60)
        self.out.unlink()


def test_killed_osd_stalls_its_files_alone_and_loses_nothing(folder: Path) -> None:
    lab = ceph.up(folder, osds=2, store="bluestore")
    found = driver_for(lab.mount)
    assert isinstance(found, CephFS)
    found.create(f"{lab.mount}/a", wish(targets=(0,)))
    found.create(f"{lab.mount}/b", wish(targets=(1,)))
    other, hurt = Writer(f"{lab.mount}/a"), Writer(f"{lab.mount}/b")
    try:
        until("both write", lambda: other.done > 0 and hurt.done > 0)
        ceph.fail(folder, "osd.1")
        until("the cluster notices", lambda: found.health()[1] == "down")
        assert found.load()[1].writes == -1  # not known, instead of a wait
        stalled, passed = hurt.done, other.done
        until("the other goes on", lambda: other.done > passed)
        assert hurt.done == stalled
        ceph.heal(folder, "osd.1")
        until("the hurt one goes on", lambda: hurt.done > stalled)
        assert hurt.process.poll() is None
        assert found.health()[1] == "up"
    finally:
        written = hurt.done
        other.stop()
        hurt.stop()
        found.cluster.close()
    read = subprocess.run(["cat", hurt.path], capture_output=True, timeout=60, check=True).stdout
    assert len(read) >= written
    assert read[:written] == (bytes(range(256)) * (written // 256))


def test_down_twice_and_of_half_a_lab(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "ceph.conf").write_text("")
    (folder / "run" / "mon.a.pid").write_text("1\n")  # an old pid that is somebody else's now
    ceph.down(folder)
    assert not folder.exists()
    ceph.down(folder)


def test_foreign_folder_is_not_removed(folder: Path) -> None:
    (folder / "thesis.tex").write_text("years")
    with pytest.raises(UsageError, match="no CephFS lab"):
        ceph.down(folder)
    with pytest.raises(BusyError, match="not empty"):
        ceph.up(folder)
    (folder / "thesis.tex").unlink()


@pytest.mark.parametrize(
    ("words", "said"),
    [({"osds": 0}, "1 to 64"), ({"osds": 65}, "1 to 64"), ({"store": "floppy"}, "memstore or bluestore")],
)
def test_impossible_labs(folder: Path, words: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ceph.up(folder, **words)  # type: ignore[arg-type]


def test_too_long_a_path_is_refused() -> None:
    with pytest.raises(UsageError, match="too long"):
        ceph.up("/tmp/" + "x" * 100)
    assert not Path("/tmp/" + "x" * 100).exists()
