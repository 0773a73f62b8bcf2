# SPDX-License-Identifier: Apache-2.0
"""Building with many workers: processes, MPI ranks, a Dask cluster; each a real one."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from penstock import Catalog
from penstock.catalog.build import build
from tests.catalog.conftest import PENSTOCK, penstock, same, walked


@pytest.fixture
def wide(fast: Path) -> Path:
    """Folders enough for all."""
    for i in range(200):
        folder = fast / "wide" / f"a{i % 7}" / f"b{i}"
        folder.mkdir(parents=True)
        for k in range(10):
            (folder / f"f{k}").touch()
    return fast / "wide"


def whole(catalog: Path, tree: Path) -> None:
    cat = Catalog.open(catalog)
    assert len(cat.manifest.parts) == 1
    assert cat.entries == len(walked(tree))
    for path in walked(tree):
        assert same(cat.stat(path), os.fsencode(tree) + b"/" + path)
    assert cat.folder("a1").complete


def test_processes(wide: Path, fast: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        built = build(wide, fast / "set.cat", executor=pool)
    assert built.outcome.entries == len(walked(wide)) - 1
    whole(fast / "set.cat", wide)


def test_processes_by_command(wide: Path, fast: Path) -> None:
    said = json.loads(
        penstock("build", wide, "-o", fast / "set.cat", "--executor", "processes:2", "--json").stdout
    )
    assert said["entries"] == len(walked(wide))
    assert (
        "processes:N"
        in penstock("build", wide, "-o", fast / "set.cat", "--executor", "many", status=2).stderr
    )
    whole(fast / "set.cat", wide)


def test_mpi_ranks(wide: Path, fast: Path) -> None:
    """Four ranks: one deals out, three read."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed; run make setup")
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun is None:
        pytest.skip("mpirun.openmpi is not installed; run make setup")
    words = [
        "-m",
        "mpi4py.futures",
        PENSTOCK,
        "catalog",
        "build",
        wide,
        "-o",
        fast / "set.cat",
        "--executor",
        "mpi",
        "--json",
    ]
    env = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [mpirun, "--oversubscribe", "-n", "4", sys.executable, *map(str, words)],
        capture_output=True, text=True, check=False, timeout=120, env=env,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    whole(fast / "set.cat", wide)


def test_dask_cluster(wide: Path, fast: Path) -> None:
    """A scheduler and three workers, each a process of its own."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed; run make setup")
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        words = [
            "build",
            wide,
            "-o",
            fast / "set.cat",
            "--executor",
            f"dask:{cluster.scheduler_address}",
            "--json",
        ]
        said = json.loads(penstock(*words).stdout)
    assert said["entries"] == len(walked(wide))
    whole(fast / "set.cat", wide)
