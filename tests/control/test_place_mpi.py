# SPDX-License-Identifier: Apache-2.0
"""MPI-IO and parallel HDF5 programs under `penstock run --place`: one layout for a shared file, and all ranks agree."""

import json
import os
import subprocess
from pathlib import Path

import launching
import pytest
from launching import OPEN_MPI, PENSTOCK, PENSTOCK_RUN

from penstock.targets import lov

pytestmark = pytest.mark.root
RANKS = 4
HDF5 = "/usr/include/hdf5/openmpi"
SOURCE = Path(__file__).parents[1] / "programs" / "parallel.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("parallel")
    libraries = "/usr/lib/x86_64-linux-gnu/hdf5/openmpi"
    flags = ["-DHDF5", f"-I{HDF5}", f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lhdf5"]
    return launching.compile_c(folder, "parallel", SOURCE.read_text(), *flags, compiler="mpicc.openmpi")


def osts(path: Path) -> tuple[int, ...]:
    return tuple(lov.decode(os.getxattr(path, lov.XATTR)).parts[0].osts)


def run(env: dict[str, str], *words: object) -> None:
    done = launching.call(*words, env={**env, **OPEN_MPI}, seconds=120)
    assert done.returncode == 0, done.stderr.decode()


def placed(env: dict[str, str]) -> dict[str, int]:
    done = subprocess.run(
        [PENSTOCK, "report", "--json"], env=env, capture_output=True, check=True, timeout=60
    )
    found: dict[str, int] = json.loads(done.stdout)["placed"]
    return found


@pytest.mark.parametrize("how", ["independent", "collective"])
@pytest.mark.parametrize("api", ["mpiio", "hdf5"])
def test_a_shared_file(make_testbed, env, program, api, how):
    bed = make_testbed(settings={"model": "off", "layout.stripe_size": "65536"})
    os.setxattr(bed.path, lov.XATTR, lov.encode(lov.Lov(parts=(lov.template(3, 65536),))))
    mpirun = ["mpirun.openmpi", "--oversubscribe", "-n", RANKS]
    way = f"{api}-{how}"
    run(env, *mpirun, program, way, bed.path / "alone")
    for number in (1, 2):
        words = ["run", "--place", "--mount", bed.path, "--set", "place.small=64KiB", "--"]
        run(env, PENSTOCK, *words, *mpirun, program, way, bed.path / f"shared{number}")
    counts = placed(env)
    assert counts["expected"] >= 1 and counts["placed"] == 1, counts
    assert (counts["checked"], counts["as_planned"]) == (counts["checked"], counts["checked"])
    assert len(set(osts(bed.path / "shared2"))) == 3
    if api == "mpiio":  # HDF5 writes the time into its files
        assert (bed.path / "shared2").read_bytes() == (bed.path / "alone").read_bytes()
    assert (bed.path / "shared2").stat().st_size == (bed.path / "alone").stat().st_size


def test_ranks_that_a_launcher_starts_share_one_plan(make_testbed, env, program, tmp_path):
    """mpirun penstock-run ./app: the first rank of a node makes the board, with the plan of the file."""
    bed = make_testbed()
    mpirun = ["mpirun.openmpi", "--oversubscribe", "-n", RANKS]
    for number in (1, 2):
        run(env, *mpirun, PENSTOCK_RUN, program, "mpiio-independent", bed.path / f"shared{number}")
    plan = tmp_path / "plan"
    words = ["run", "--place", "--mount", bed.path, "--set", "place.small=64KiB", "--plan-file", plan, "--"]
    run(env, PENSTOCK, *words, program)
    run(
        {**env, "PENSTOCK_PLAN": str(plan)},
        *mpirun,
        PENSTOCK_RUN,
        program,
        "mpiio-collective",
        bed.path / "shared3",
    )
    counts = placed(env)
    assert counts["expected"] >= 1 and counts["placed"] == 1, counts
