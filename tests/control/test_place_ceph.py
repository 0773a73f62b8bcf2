# SPDX-License-Identifier: Apache-2.0
"""Placing on a real CephFS: files lie in the pool of the OSD that was chosen, and that OSD holds their objects."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import launching
import pytest
from launching import PENSTOCK

from penstock.targets.cephfs import CephFS
from penstock.targets.driver import driver_for
from penstock.testbed import ceph

WHY_NOT = ceph.missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"skipped: no CephFS lab: {WHY_NOT}"),
]
MIB = 1 << 20
APP = """
import os, sys
top = sys.argv[1]
os.makedirs(top)
for i in range(6):
    with open(f"{top}/part{i}", "wb") as file:
        file.write(bytes([i]) * (2 << 20))
        os.fsync(file.fileno())
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[ceph.Status]:
    made = subprocess.run(
        ["mktemp", "-d", "/tmp/penstock-ceph.XXXX"], capture_output=True, text=True, check=True
    )
    place = Path(made.stdout.strip())
    try:
        yield ceph.up(place, osds=3)
    finally:
        ceph.down(place)


@pytest.fixture
def driver(lab: ceph.Status) -> Iterator[CephFS]:
    found = driver_for(lab.mount)
    assert isinstance(found, CephFS)
    yield found
    found.cluster.close()


def test_files_lie_on_the_osds_of_the_plan(lab, driver, env, tmp_path):
    app = tmp_path / "app.py"
    app.write_text(APP)
    for number in (1, 2, 3):
        words = [
            "run",
            "--place",
            "--mount",
            lab.mount,
            "--set",
            "place.small=64KiB",
            "--set",
            "place.wait=20s",
            "--",
        ]
        done = launching.call(
            PENSTOCK, *words, "python3", app, f"{lab.mount}/out{number}", env=env, seconds=120
        )
        assert (done.returncode, done.stderr) == (0, b"")
    report = launching.call(PENSTOCK, "report", "--json", env=env)
    placed = json.loads(report.stdout)["placed"]
    assert (placed["expected"], placed["placed"]) == (6, 6)
    pools = Counter()
    for i in range(6):
        path = Path(lab.mount, "out3", f"part{i}")
        pool = driver.layout(str(path)).components[0].pool
        inode = f"{path.stat().st_ino:x}"
        assert [n for n in driver.cluster.objects(pool) if n.startswith(inode)] == [f"{inode}.00000000"]
        assert path.read_bytes() == bytes([i]) * (2 * MIB)
        pools[pool] += 1
    assert pools == {"osd0": 2, "osd1": 2, "osd2": 2}


def test_a_folder_of_another_pool_keeps_it(lab, driver, env, tmp_path):
    """The user wins: his folder's pool is not the file system's own."""
    import os

    folder = Path(lab.mount, "mine")
    folder.mkdir()
    os.setxattr(folder, "ceph.dir.layout.pool", b"osd1")
    words = ["run", "--place", "--mount", lab.mount, "--set", "place.wait=20s", "--"]
    done = launching.call(
        PENSTOCK, *words, "dd", "if=/dev/zero", f"of={folder}/file", "bs=1M", "count=2", env=env
    )
    assert done.returncode == 0
    assert driver.layout(str(folder / "file")).components[0].pool == "osd1"
