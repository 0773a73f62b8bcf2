# SPDX-License-Identifier: Apache-2.0
"""Ranks: one run however many processes and nodes, by real launchers."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import launching
import nodes
import pytest
from launching import OPEN_MPI, PENSTOCK, PENSTOCK_RUN, call

from penstock.runs import merge

PROGRAM = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv) {
  int rank;
  char name[4096];
  MPI_File shared;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  snprintf(name, sizeof name, "%s/own.%d", argv[1], rank);
  FILE *own = fopen(name, "w");
  fprintf(own, "rank %d\\n", rank);
  fclose(own);
  snprintf(name, sizeof name, "%s/./shared", argv[1]);
  MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &shared);
  MPI_File_write_at(shared, rank * 8, &rank, sizeof rank, MPI_BYTE, MPI_STATUS_IGNORE);
  MPI_File_close(&shared);
  MPI_Finalize();
  return 0;
}
"""
H5 = """
#include <hdf5.h>
int main(int argc, char **argv) {
  (void)argc;
  hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  return file < 0 || H5Fclose(file) < 0;
}
"""
LAUNCHERS = {
    "Open MPI": ("mpicc.openmpi", ["mpirun.openmpi", "--oversubscribe"]),
    "MPICH": ("mpicc.mpich", ["mpirun.mpich"]),
}
launchers = pytest.mark.parametrize("which", LAUNCHERS)


def program(folder: Path, which: str = "Open MPI") -> Path:
    return launching.compile_c(folder, "app", PROGRAM, compiler=LAUNCHERS[which][0])


def check_all_ranks(run: merge.Run, folder: Path, count: int) -> None:
    """Every rank, its own file, and the shared one with the size of the communicator."""
    assert run.ranks == set(range(count))
    assert run.expected_ranks == count
    assert merge.partial(run) == []
    assert merge.program(run) == "app"
    for rank in range(count):
        assert launching.row(run, folder / f"own.{rank}").rank == rank
    shared = [f for f in launching.rows(run) if f.path == os.fsencode(folder / "shared")]
    assert {f.mpi_ranks for f in shared} == {count}
    assert {p.mpi_largest for p in launching.processes(run) if p.rank >= 0} == {count}


@launchers
def test_ranks_through_penstock_run(which: str, env: dict[str, str], tmp_path: Path) -> None:
    """mpirun penstock-run ./app"""
    app, (_, words) = program(tmp_path, which), LAUNCHERS[which]
    done = call(*words, "-n", 4, PENSTOCK_RUN, app, tmp_path, env={**env, **OPEN_MPI})

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    [run] = launching.runs(env)
    check_all_ranks(run, tmp_path, 4)
    assert run.end.status == 0


@launchers
def test_penstock_run_before_the_launcher(which: str, env: dict[str, str], tmp_path: Path) -> None:
    """penstock run -- mpirun ./app: the environment reaches ranks of the same node."""
    app, (_, words) = program(tmp_path, which), LAUNCHERS[which]
    done = call(PENSTOCK, "run", "--", *words, "-n", 4, app, tmp_path, env={**env, **OPEN_MPI})

    assert done.returncode == 0
    [run] = launching.runs(env)
    check_all_ranks(run, tmp_path, 4)
    assert run.end.status == 0


def test_ranks_that_were_not_seen_make_a_run_partial_and_say_what_to_type(
    env: dict[str, str], tmp_path: Path
) -> None:
    """A launcher that drops the environment."""
    app = program(tmp_path)
    launcher = tmp_path / "mpirun"
    launcher.write_text(
        "#!/bin/sh\nunset LD_PRELOAD PENSTOCK_BOARD PENSTOCK_RUN\n"
        'exec setarch "$(uname -m)" mpirun.openmpi --oversubscribe "$@"\n'
    )
    launcher.chmod(0o755)
    # A static program between: what is preloaded does not get through it.
    static = launching.compile_c(
        tmp_path,
        "launch",
        "#include <unistd.h>\n#include <stdlib.h>\nint main(int c, char **v) { (void)c;"
        'clearenv(); putenv("PATH=/usr/bin:/bin"); putenv("OMPI_ALLOW_RUN_AS_ROOT=1");'
        'putenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"); execv(LAUNCHER, v); return 1; }',
        "-static",
        f'-DLAUNCHER="{launcher}"',
    )
    static.rename(tmp_path / "bin-mpirun")
    (tmp_path / "mpiexec").symlink_to(tmp_path / "bin-mpirun")
    done = call(PENSTOCK, "run", "--", tmp_path / "mpiexec", "-n", 2, app, tmp_path, env=env)

    assert (done.returncode, done.stderr) == (0, b"")
    [run] = launching.runs(env)
    [missing] = [p for p in merge.partial(run) if p.word == "ranks_missing"]
    assert missing.hint == f"{tmp_path}/mpiexec -n 2 penstock-run {app} {tmp_path}"


def test_hdf5_files_are_seen(env: dict[str, str], tmp_path: Path) -> None:
    target = tmp_path / "data.h5"
    app = launching.compile_c(tmp_path, "app", H5, "-shlib", compiler="h5pcc")
    done = call(PENSTOCK, "run", "--", app, target, env={**env, **OPEN_MPI})
    assert (done.returncode, done.stderr) == (0, b"")
    [run] = launching.runs(env)
    assert launching.row(run, target).mpi_ranks == 1


def test_second_library_is_preloaded_only_where_libmpi_is_needed(env: dict[str, str], tmp_path: Path) -> None:
    show = '#include <stdio.h>\n#include <stdlib.h>\nint main(void) { puts(getenv("LD_PRELOAD")); return 0; }'
    plain = launching.compile_c(tmp_path, "plain", show)
    needs = launching.compile_c(tmp_path, "needs", show, "-Wl,--no-as-needed", compiler="mpicc.openmpi")
    between = launching.compile_c(
        tmp_path,
        "libbetween.so",
        "int x;",
        "-shared",
        "-fPIC",
        "-Wl,--no-as-needed",
        compiler="mpicc.openmpi",
    )
    indirect = launching.compile_c(
        tmp_path, "indirect", show, "-Wl,--no-as-needed", str(between), f"-Wl,-rpath,{tmp_path}"
    )
    for start in ([PENSTOCK, "run", "--"], [PENSTOCK_RUN]):
        assert b"-mpi" not in call(*start, plain, env=env).stdout
        assert b"libpenstock-mpi.so" in call(*start, needs, env=env).stdout
        assert b"libpenstock-mpi.so" in call(*start, indirect, env=env).stdout


def test_a_failing_rank_ends_the_job_as_without(env: dict[str, str], tmp_path: Path) -> None:
    """The first rank of a node, whose parent is the agent, fails while others wait for it."""
    abort = "#include <mpi.h>\n#include <stdlib.h>\nint main(int c, char **v) { int r; MPI_Init(&c, &v);"
    abort += "MPI_Comm_rank(MPI_COMM_WORLD, &r); if (r == atoi(v[1])) abort(); MPI_Barrier(MPI_COMM_WORLD);"
    app = launching.compile_c(tmp_path, "app", abort + "return 0; }", compiler="mpicc.openmpi")
    words = ["mpirun.openmpi", "--oversubscribe", "-n", 3]
    for rank in (0, 2):
        alone = call(*words, app, rank, env={**env, **OPEN_MPI}, seconds=60)
        done = call(*words, PENSTOCK_RUN, app, rank, env={**env, **OPEN_MPI}, seconds=60)
        assert done.returncode == alone.returncode != 0
    assert len(launching.runs(env)) == 2


def test_ranks_that_start_late_join_the_run(env: dict[str, str], tmp_path: Path) -> None:
    """The second rank of a node comes when the first is long gone, and its board too."""
    rank = {"SLURM_STEP_ID": "3", "SLURM_JOB_ID": "88", "SLURM_STEP_NUM_TASKS": "2"}
    for number in (0, 1):
        target = tmp_path / f"rank{number}"
        words = [PENSTOCK_RUN, "sh", "-c", f"echo x > {target}"]
        assert call(*words, env={**env, **rank, "SLURM_PROCID": str(number)}).returncode == 0
    [run] = launching.runs(env)
    assert run.ranks == {0, 1}
    assert [launching.written(run, tmp_path / f"rank{n}") for n in (0, 1)] == [2, 2]
    assert (run.begin.job, run.begin.step, run.begin.job_source) == ("88", "3", "SLURM_JOB_ID")


# ---- a run spans nodes ----


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nodes.Nodes]:
    assert not nodes.MISSING, f"make setup installs what is missing: {nodes.MISSING}"
    with nodes.Nodes(tmp_path_factory.mktemp("nodes")) as found:
        yield found


@pytest.fixture(scope="module")
def slurm(two_nodes: nodes.Nodes) -> nodes.Nodes:
    two_nodes.start_slurm()
    return two_nodes


@pytest.fixture
def job_env(tmp_path: Path) -> dict[str, str]:
    """Boards lie on each node's own /dev/shm; the history is on the file system that both share."""
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "PENSTOCK_STATE_DIR": str(tmp_path / "state"),
        **OPEN_MPI,
    }


@pytest.mark.root
def test_a_run_spans_nodes_by_srun(slurm: nodes.Nodes, job_env: dict[str, str], tmp_path: Path) -> None:
    script = f"echo $SLURM_PROCID > {tmp_path}/own.$SLURM_PROCID"
    done = slurm.srun("-N2", "-n8", PENSTOCK_RUN, "bash", "-c", script, env=job_env)

    assert (done.stdout, done.stderr) == ("", "")
    [run] = launching.runs(job_env)
    assert run.node_names == ["node1", "node2"]
    assert run.ranks == set(range(8))
    assert run.expected_ranks == 8
    assert run.ended
    assert merge.partial(run) == []
    assert run.begin.job_source == "SLURM_JOB_ID"
    for rank in range(8):
        assert launching.row(run, tmp_path / f"own.{rank}").rank == rank
    report = call(PENSTOCK, "report", "--json", env=job_env)
    assert report.returncode == 0


@pytest.mark.root
def test_a_run_spans_nodes_by_mpirun(two_nodes: nodes.Nodes, job_env: dict[str, str], tmp_path: Path) -> None:
    app = program(tmp_path)
    network = "10.88.0.0/24"
    done = two_nodes.head(
        *("mpirun.openmpi", "--mca", "plm_rsh_agent", two_nodes.rsh_agent(), "--mca", "btl", "tcp,self"),
        *("--mca", "oob_tcp_if_include", network, "--mca", "btl_tcp_if_include", network),
        *("--host", "node1:4,node2:4", "-n", 8, "--wdir", tmp_path, PENSTOCK_RUN, app, tmp_path),
        env=job_env,
    )

    assert done.stdout == ""
    assert "penstock" not in done.stderr  # mpirun has remarks of its own on how it started its daemons
    [run] = launching.runs(job_env)
    assert run.node_names == ["node1", "node2"]
    check_all_ranks(run, tmp_path, 8)


@pytest.mark.root
def test_srun_gives_the_programs_exit_status(slurm: nodes.Nodes, job_env: dict[str, str]) -> None:
    done = slurm.srun(
        "-N2", "-n4", PENSTOCK_RUN, "bash", "-c", "exit $((SLURM_PROCID + 3))", env=job_env, check=False
    )
    alone = slurm.srun("-N2", "-n4", "bash", "-c", "exit $((SLURM_PROCID + 3))", env=job_env, check=False)
    assert done.returncode == alone.returncode == 6
    [run] = launching.runs(job_env)
    assert run.ranks == {0, 1, 2, 3}


@pytest.mark.root
def test_scancel_leaves_a_record(slurm: nodes.Nodes, job_env: dict[str, str], tmp_path: Path) -> None:
    """The step is killed: what was counted until then is in the history, at the latest after `runs collect`."""
    script = f"echo $SLURM_PROCID > {tmp_path}/own.$SLURM_PROCID; sleep 60"
    words = slurm._words("head", ("srun", "-N2", "-n4", PENSTOCK_RUN, "bash", "-c", script))
    conf = {**job_env, "SLURM_CONF": str(slurm.conf)}
    with subprocess.Popen(words, env=conf, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as step:
        launching.until(lambda: len(list(tmp_path.glob("own.*"))) == 4, "all ranks are there")
        slurm.head("scancel", "--user=root", env=conf)
        assert step.wait(timeout=60) != 0

    def all_there() -> bool:
        for node in nodes.NAMES:
            slurm.on(node, PENSTOCK, "runs", "collect", env=job_env, check=False)
        found = launching.runs(job_env)
        return len(found) == 1 and found[0].ranks == {0, 1, 2, 3} and all(n.final for n in found[0].nodes)

    launching.until(all_there, "every rank is in the record")
