# SPDX-License-Identifier: Apache-2.0
"""The parts of the CephFS driver that need no cluster, and what it says where there is none."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from penstock.base.errors import PenstockError
from penstock.targets.ceph_ask import Cluster
from penstock.targets.cephfs import CephFS, below, conf_of, parse_layout
from penstock.targets.layouts import ALL, Component, Layout, wish
from penstock.targets.mounts import Mount

MOUNT = Mount(1, "/mnt/of-nobody", "fuse.ceph-fuse", "ceph-fuse", "0:1", ())
NODES = [
    {"id": -1, "name": "default", "type": "root", "children": [-2, -3]},
    {"id": -2, "name": "h0", "type": "host", "children": [0, 1]},
    {"id": -3, "name": "h1", "type": "host", "children": [2]},
    *({"id": i, "name": f"osd.{i}", "type": "osd"} for i in range(3)),
]


def test_text_of_a_layout() -> None:
    said = "stripe_unit=65536 stripe_count=3 object_size=1048576 pool=data pool_namespace=x"
    assert parse_layout(said)["stripe_count"] == "3"
    assert parse_layout(said)["pool"] == "data"
    assert parse_layout("rubbish") == {}


def test_osds_below_a_bucket() -> None:
    assert below(NODES, "default") == {0, 1, 2}
    assert below(NODES, "h0~ssd") == {0, 1}
    assert below(NODES, "absent") == set()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (wish(), b"stripe_unit=4194304 stripe_count=1 object_size=4194304"),
        (wish(3, 65536, pool="p"), b"stripe_unit=65536 stripe_count=3 object_size=4194304 pool=p"),
        (wish(1, 3 << 20), b"stripe_unit=3145728 stripe_count=1 object_size=6291456"),
        (wish(1, 8 << 20), b"stripe_unit=8388608 stripe_count=1 object_size=8388608"),
        (wish(targets=(2,)), b"stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=osd2"),
        (wish(ALL, pool="data"), b"stripe_unit=4194304 stripe_count=3 object_size=4194304 pool=data"),
    ],
)
def test_wishes_in_cephs_words(asked: Layout, text: bytes) -> None:
    ceph = CephFS(MOUNT)
    ceph.__dict__["pools"] = {"data": frozenset({0, 1, 2}), "osd2": frozenset({2})}
    assert ceph.text_of(asked, "f") == text


def test_progressive_layouts_are_refused() -> None:
    with pytest.raises(PenstockError, match="one way from begin to end"):
        CephFS(MOUNT).text_of(Layout("wish", (Component(), Component())), "f")


def test_no_cluster_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="cannot connect"):
        Cluster(str(tmp_path / "absent.conf"))


@pytest.mark.skipif(os.geteuid() != 0, reason="skipped: only root can start processes of others")
@pytest.mark.parametrize(("user", "believed"), [(0, True), (65534, False)])
def test_conf_is_taken_from_nobodys_process(user: int, believed: bool) -> None:
    words = ["ceph-fuse", "-c", "import time; time.sleep(60)", MOUNT.point]
    with subprocess.Popen(
        words, executable="/usr/bin/python3", user=user, group=user, extra_groups=[]
    ) as other:
        try:
            end = time.monotonic() + 30
            while b"ceph-fuse" not in Path(f"/proc/{other.pid}/cmdline").read_bytes():
                assert time.monotonic() < end
            assert (conf_of(MOUNT) == words[2]) is believed
        finally:
            other.kill()
