# SPDX-License-Identifier: Apache-2.0
"""A throw-away CephFS on loopback: a mon, mgr and MDS, N OSDs, mounted with ceph-fuse; all under one folder.

Pools: "meta" and "data" over all OSDs, and "osdI" for each OSD I alone, so that a file can be put on it.
OSD I listens on 127.0.1.(I+1).

Invariants:
1. Everything lies under the folder: conf, stores, sockets, logs, pids, mnt; `down` leaves nothing of it.
2. `up` says so only after a file in each pool was written and read; if it fails, it
   stops all and leaves the logs.
3. Only processes started here are ended: those of the pid files whose command line names the folder.
4. Nothing waits without a limit.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base.errors import BusyError, DeniedError, PenstockError, TimeoutError_, UsageError
from penstock.targets.ceph_ask import SYSTEM_PYTHON, Cluster

PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-mds", "ceph-osd", "ceph-fuse", "monmaptool", "fusermount3")
PACKAGES = "ceph-mon ceph-mgr ceph-mds ceph-osd ceph-fuse python3-rados"
MAX_OSDS = 64
STEP_S = 30.0
_SOCKET_PATH_MAX = 107

CONF = """[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{port2},v1:127.0.0.1:{port1}]
auth cluster required = none
auth service required = none
auth client required = none
run dir = {dir}/run
admin socket = {dir}/run/$name.asok
pid file =
log file = {dir}/log/$name.log
mon cluster log file = {dir}/log/cluster.log
crash dir = {dir}/log
public addr = 127.0.0.1
cluster addr = 127.0.0.1
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
# The monitor reads the grace too: here, not in [osd].
osd heartbeat interval = 1
osd heartbeat grace = 4
paxos propose interval = 0.05
paxos min wait = 0.01
[mon]
mon data = {dir}/mon
mon allow pool size one = true
mon warn on pool no redundancy = false
mon warn on insecure global id reclaim allowed = false
mon max pg per osd = 1000
mon data avail warn = 1
mon data avail crit = 1
mon osd min in ratio = 0
mon osd min up ratio = 0
mon osd down out interval = 86400
mon osd adjust heartbeat grace = false
mon osd min down reporters = 1
mon osd reporter subtree level = osd
[mgr]
mgr data = {dir}/mgr
mgr stats period = 1
mgr tick period = 1
[mds]
mds data = {dir}/mds
mds beacon interval = 0.5
# fsync waits for the journal, which is flushed at this pace.
mds tick interval = 0.1
mds cache memory limit = 134217728
[osd]
osd data = {dir}/osd.$id
osd objectstore = {store}
# Else each OSD moves itself to a bucket of this machine, and the pools of single OSDs stay empty.
osd crush update on start = false
osd mgr report interval = 1
osd op num shards = 2
osd op num threads per shard = 1
memstore device bytes = {size_bytes}
bluestore block size = {size_bytes}
bluestore cache autotune = false
bluestore cache size = 67108864
[client]
client mount timeout = 10
log file =
admin socket = {dir}/run/$name.$pid.asok
"""

_TRY = """
import os, sys
for pool in sys.argv[2:]:
    path = os.path.join(sys.argv[1], ".try-" + pool)
    with open(path, "wb") as f:
        os.setxattr(path, "ceph.file.layout.pool", pool.encode())
        f.write(pool.encode())
        f.flush()
        os.fsync(f.fileno())
    os.posix_fadvise(os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
    assert open(path, "rb").read() == pool.encode()
    os.unlink(path)
"""


class Daemon(NamedTuple):
    name: str
    pid: int
    memory_bytes: int


class Status(NamedTuple):
    dir: str
    mount: str
    mounted: bool
    conf: str
    daemons: tuple[Daemon, ...]


def missing() -> str:
    """Why there can be no lab here, or nothing."""
    if os.geteuid() != 0:
        return "it needs root"
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse"
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    if absent:
        return f"{', '.join(absent)} missing; apt-get install {PACKAGES}"
    seen = subprocess.run(
        [SYSTEM_PYTHON, "-I", "-c", "import rados"], check=False, capture_output=True, timeout=30
    )
    return "python3-rados is missing; apt-get install python3-rados" if seen.returncode else ""


def _under(folder: str | os.PathLike[str], *parts: str) -> Path:
    return Path(os.path.abspath(folder), *parts)  # noqa: PTH100 - resolve() would follow links


def _daemons(folder: Path) -> list[Daemon]:
    """Those of the pid files that still run; a zombie has no command line."""
    found = []
    for note in sorted((folder / "run").glob("*.pid")):
        try:
            pid = int(note.read_text() or 0)
            if str(folder) in Path(f"/proc/{pid}/cmdline").read_text():
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                found.append(Daemon(note.stem, pid, pages * os.sysconf("SC_PAGE_SIZE")))
        except (OSError, ValueError):
            continue
    return found


def status(folder: str | os.PathLike[str]) -> Status:
    place = _under(folder)
    mount = place / "mnt"
    mounted = str(mount) in Path("/proc/self/mounts").read_text()
    return Status(str(place), str(mount), mounted, str(place / "ceph.conf"), tuple(_daemons(place)))


def _wait(what: str, done: Callable[[], Any], limit_s: float = STEP_S) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        value = done()
        if value:
            return value
        time.sleep(0.03)
    raise TimeoutError_(f"CephFS lab: {what}: not within {limit_s:.0f} s; the folder log has the reasons")


def _free_ports(count: int) -> list[int]:
    doors = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [door.getsockname()[1] for door in doors]
    for door in doors:
        door.close()
    return ports


class _Lab:
    """The folder while it is being filled."""

    def __init__(self, folder: Path) -> None:
        self.dir = folder
        self.conf = folder / "ceph.conf"

    def spawn(self, name: str, words: list[str]) -> None:
        with (self.dir / "log" / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd=self.dir
            )
        (self.dir / "run" / f"{name}.pid").write_text(f"{process.pid}\n")

    def daemon(self, name: str) -> None:
        kind, _, number = name.partition(".")
        self.spawn(name, [f"ceph-{kind}", "-f", "-i", number, "-c", str(self.conf)])

    def make(self, *words: object) -> "subprocess.Popen[bytes]":
        """A program that prepares something; its words go to a log."""
        with (self.dir / "log" / "make.out").open("ab") as out:
            return subprocess.Popen(list(map(str, words)), stdout=out, stderr=out, cwd=self.dir)

    def made(self, *some: "subprocess.Popen[bytes]") -> None:
        for process in some:
            if process.wait(timeout=STEP_S * 2):
                raise PenstockError(f"CephFS lab: {process.args!r} failed; see {self.dir}/log/make.out")


def _check_wishes(place: Path, osds: int, store: str) -> None:
    why = missing()
    if why:
        raise (DeniedError if "root" in why else PenstockError)(
            f"no CephFS lab here: {why}; the emulated testbed needs none of this (leave --real out)"
        )
    if not 1 <= osds <= MAX_OSDS:
        raise UsageError(f"a CephFS lab has 1 to {MAX_OSDS} OSDs, not {osds}")
    if store not in ("memstore", "bluestore"):
        raise UsageError(f"the store of a CephFS lab is memstore or bluestore, not {store!r}")
    if len(str(place / "run" / "client.admin.1234567.asok")) > _SOCKET_PATH_MAX:
        raise UsageError(f"{place}: too long a path for Unix sockets; choose a shorter folder")
    if _daemons(place):
        raise BusyError(f"{place}: a CephFS lab is up there; take it down first")
    if place.exists() and any(place.iterdir()):
        raise BusyError(f"{place}: the folder is not empty; a lab wants one of its own")


def _write_conf(lab: _Lab, osds: int, store: str, size_bytes: int) -> tuple[str, int, int]:
    for sub in ("run", "log", "mon", "mgr", "mds", "mnt", *(f"osd.{i}" for i in range(osds))):
        (lab.dir / sub).mkdir(parents=True, exist_ok=True)
    fsid = str(uuid.uuid4())
    port2, port1 = _free_ports(2)
    text = CONF.format(fsid=fsid, dir=lab.dir, port1=port1, port2=port2, store=store, size_bytes=size_bytes)
    for i in range(osds):
        text += f"[osd.{i}]\npublic addr = 127.0.1.{i + 1}\ncluster addr = 127.0.1.{i + 1}\n"
    lab.conf.write_text(text)
    return fsid, port1, port2


def _make_cluster(lab: _Lab, osds: int, say: Callable[[str], None], addresses: tuple[str, int, int]) -> None:
    fsid, port1, port2 = addresses
    mon_map = lab.dir / "monmap"
    where = f"[v2:127.0.0.1:{port2},v1:127.0.0.1:{port1}]"
    lab.made(lab.make("monmaptool", "--create", "--fsid", fsid, "--addv", "a", where, mon_map))
    lab.made(lab.make("ceph-mon", "--mkfs", "-i", "a", "-c", lab.conf, "--monmap", mon_map))
    lab.daemon("mon.a")
    ids = [str(uuid.uuid4()) for _ in range(osds)]
    stores = [
        lab.make("ceph-osd", "--mkfs", "-i", i, "-c", lab.conf, "--monmap", mon_map, "--osd-uuid", ids[i])
        for i in range(osds)
    ]
    cluster = Cluster(str(lab.conf), STEP_S)
    try:
        say("mon answers")
        lab.daemon("mgr.x")
        for i in range(osds):
            cluster.ask("osd new", uuid=ids[i], id=i)
        lab.made(*stores)
        say("stores made")
        _make_pools(lab, cluster, osds)
        say("pools made")
        _wait("OSDs up", lambda: sum(o["up"] for o in cluster.ask("osd dump")["osds"]) == osds)
        say("OSDs up")
        _wait("MDS active", lambda: _mds_is_active(cluster))
        say("MDS active")
    finally:
        cluster.close()


def _make_pools(lab: _Lab, cluster: Cluster, osds: int) -> None:
    """A bucket of its own for each OSD, so that a rule can take it alone."""
    for i in range(osds):
        cluster.ask("osd crush add", id=i, weight=1.0, args=["root=default", f"host=h{i}"])
        cluster.ask("osd crush rule create-simple", name=f"only{i}", root=f"h{i}", type="osd")
        lab.daemon(f"osd.{i}")
    lab.daemon("mds.a")
    for pool in ("meta", "data"):
        cluster.ask("osd pool create", pool=pool, pg_num=8)
    for i in range(osds):
        cluster.ask("osd pool create", pool=f"osd{i}", pg_num=4, rule=f"only{i}")
    cluster.ask("fs new", fs_name="lab", metadata="meta", data="data")
    for i in range(osds):
        cluster.ask("fs add_data_pool", fs_name="lab", pool=f"osd{i}")


def _mds_is_active(cluster: Cluster) -> bool:
    systems = cluster.ask("fs dump")["filesystems"]
    return any(m["state"] == "up:active" for fs in systems for m in fs["mdsmap"]["info"].values())


def _try(mount: Path, osds: int) -> None:
    """A file in each pool, in a process of its own: a lab that only looks up hangs right here."""
    pools = ["data", *(f"osd{i}" for i in range(osds))]
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _TRY, str(mount), *pools],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _, said = process.communicate(timeout=STEP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise TimeoutError_(
            "CephFS lab: a file in each pool: the file system hangs; see the folder log"
        ) from None
    if process.returncode:
        raise PenstockError(f"CephFS lab: a file in each pool: {said.decode().strip().splitlines()[-1]}")


def _wait_for_manager(lab: _Lab) -> None:
    """Until it knows the OSDs' sizes: df of the mount shows nothing before."""
    cluster = Cluster(str(lab.conf))
    try:
        _wait("manager", lambda: all(row["kb"] > 0 for row in cluster.ask("osd df")["nodes"]))
    finally:
        cluster.close()


def up(
    folder: str | os.PathLike[str],
    osds: int = 3,
    store: str = "memstore",
    size_bytes: int = 2 << 30,
    say: Callable[[str], None] = lambda step: None,
) -> Status:
    """Bring the lab up and mount it at FOLDER/mnt.  Use bluestore where OSDs will be killed."""
    place = _under(folder)
    _check_wishes(place, osds, store)
    lab = _Lab(place)
    try:
        addresses = _write_conf(lab, osds, store, size_bytes)
        (place / "lab.json").write_text(json.dumps({"osds": osds, "store": store}))
        _make_cluster(lab, osds, say, addresses)
        mount = place / "mnt"
        lab.spawn("fuse", ["ceph-fuse", "-f", "-c", str(lab.conf), "-n", "client.admin", str(mount)])
        _wait("mount", lambda: status(place).mounted)
        say("mounted")
        _try(mount, osds)
        say("a file in each pool written and read")
        _wait_for_manager(lab)
        say("manager counts")
    except BaseException:
        _stop(place)
        raise
    return status(place)


def down(folder: str | os.PathLike[str]) -> None:
    """Unmount, end all daemons, remove the folder.  Right too when nothing or half of it is there."""
    place = _under(folder)
    if place.exists() and any(place.iterdir()) and not (place / "ceph.conf").exists():
        raise UsageError(f"{place}: no CephFS lab is there")
    _stop(place)
    shutil.rmtree(place, ignore_errors=True)


def _stop(place: Path) -> None:
    if status(place).mounted:
        subprocess.run(["fusermount3", "-uz", str(place / "mnt")], check=False, timeout=STEP_S)
    for number, limit_s in ((signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0)):
        for daemon in _daemons(place):
            os.kill(daemon.pid, number)
        end = time.monotonic() + limit_s
        while _daemons(place) and time.monotonic() < end:
            time.sleep(0.03)
    left = _daemons(place)
    if left:
        raise TimeoutError_(f"{place}: still running: {', '.join(f'{d.name} ({d.pid})' for d in left)}")


def fail(folder: str | os.PathLike[str], name: str) -> None:
    """Kill one daemon, as a crash does: `osd.1`, `mds.a`."""
    place = _under(folder)
    found = [daemon for daemon in _daemons(place) if daemon.name == name]
    if not found:
        raise UsageError(f"{place}: no daemon {name} is running there")
    if name.startswith("osd.") and json.loads((place / "lab.json").read_text())["store"] == "memstore":
        raise UsageError(
            f"{place}: {name} holds its data in memory and would lose it, and what waits for it would wait for ever; "
            "bring the lab up with --store bluestore"
        )
    os.kill(found[0].pid, signal.SIGKILL)
    _wait(f"{name} gone", lambda: all(d.name != name for d in _daemons(place)), 5.0)


def heal(folder: str | os.PathLike[str], name: str) -> None:
    """Start a daemon again that was killed."""
    place = _under(folder)
    if any(daemon.name == name for daemon in _daemons(place)):
        raise UsageError(f"{place}: {name} is running")
    if not (place / "run" / f"{name}.pid").exists():
        raise UsageError(f"{place}: there is no daemon {name}")
    _Lab(place).daemon(name)
