# SPDX-License-Identifier: Apache-2.0
"""What escapes is found: real programs that do escape, and those that do not."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.elf import Elf
from penstock.control import bypass, seen
from penstock.policy.bypass import Reason
from tests.conftest import Bed
from tests.control.launching import PENSTOCK, PENSTOCK_RUN, call, compile_c, until
from tests.control.plane import Site

SLEEP = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
RING = """
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
  struct io_uring_params p = {0};
  if (syscall(SYS_io_uring_setup, 4, &p) < 0) return 3;
  for (;;) pause();
}
"""
LOST = """
#include <unistd.h>
int main(int argc, char **argv) { char *none[] = {0}; return argc > 1 ? execve(argv[1], argv + 1, none) : 1; }
"""
MKDIRS = """
#include <stdio.h>
#include <sys/stat.h>
int main(int argc, char **argv) {
  char path[4096];
  for (int i = 0; argc > 1 && i < 50; i++) {
    snprintf(path, sizeof path, "%s/%d", argv[1], i);
    if (mkdir(path, 0700)) return 1;
  }
  return 0;
}
"""


@contextlib.contextmanager
def running(env: dict[str, str], *words: object) -> Iterator[int]:
    """A command in a session of its own, whose every process ends with it."""
    process = subprocess.Popen([str(word) for word in words], env=env, start_new_session=True)
    try:
        yield process.pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def told(env: dict[str, str], job: str) -> dict[str, Any]:
    shown = subprocess.run(
        [PENSTOCK, "bypass", job, "--json"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert shown.returncode == 0, shown.stderr
    rows = json.loads(shown.stdout)["jobs"]
    return dict(rows[0]) if rows else {}


def words_of(row: dict[str, Any]) -> dict[str, int]:
    return {reason["word"]: reason["count"] for reason in row.get("reasons", [])}


def with_job(env: dict[str, str], job: str) -> dict[str, str]:
    return {**env, "SLURM_JOB_ID": job}


def test_static_programs_and_dropped_preloads_are_named(env: dict[str, str], tmp_path: Path) -> None:
    """An emptied environment alone changes nothing (exec puts back what is ours), but a static program's does."""
    static = compile_c(tmp_path, "static", SLEEP, "-static")
    lost = compile_c(tmp_path, "lost", LOST, "-static")
    plain = compile_c(tmp_path, "plain", SLEEP)
    script = f"{static} & {static} & {lost} {plain} & env -i {plain} & {plain} & wait"
    with running(with_job(env, "b1"), PENSTOCK_RUN, "sh", "-c", script):
        until(lambda: words_of(told(env, "b1")) == {"static": 2, "dropped": 1}, "all are named")
        row = told(env, "b1")

    assert row["bypassing"]
    assert row["unseen"] == 3
    assert row["processes"] == 6  # the shell and two programs are seen
    assert {reason["text"] for reason in row["reasons"]} == {
        "static is statically linked: no library can be put before it, nothing is seen",
        "plain was started without LD_PRELOAD",
    }


def test_a_job_that_is_seen_is_not_named(env: dict[str, str], tmp_path: Path) -> None:
    plain = compile_c(tmp_path, "plain", SLEEP)
    with running(with_job(env, "b2"), PENSTOCK_RUN, "sh", "-c", f"{plain} & {plain} & wait"):
        until(lambda: told(env, "b2").get("processes") == 3, "all three are there")
        row = told(env, "b2")

    assert (row["bypassing"], row["unseen"], row["reasons"]) == (False, 0, [])


def test_a_setuid_copy_is_named(env: dict[str, str], tmp_path: Path) -> None:
    """The loader of a setuid program of another user ignores LD_PRELOAD."""
    if os.geteuid() != 0:
        pytest.skip("needs root: to become another user")
    folder = Path("/tmp") / f"penstock-test-setuid-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        plain = compile_c(folder, "asroot", SLEEP)
        plain.chmod(0o4755)
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        with running(with_job(env, "b3"), PENSTOCK_RUN, *nobody, plain):
            until(lambda: words_of(told(env, "b3")) == {"privileged": 1}, "it is named")
    finally:
        shutil.rmtree(folder)


def test_io_uring_is_named(env: dict[str, str], tmp_path: Path) -> None:
    ring = compile_c(tmp_path, "ring", RING)
    with running(
        with_job(env, "b4"), PENSTOCK_RUN, "sh", "-c", f"{ring}; echo $? >{tmp_path}/status; sleep 100"
    ):
        until(lambda: words_of(told(env, "b4")) or (tmp_path / "status").exists(), "it runs, or may not")
        if (tmp_path / "status").exists():
            assert (tmp_path / "status").read_text() == "3\n"  # this kernel forbids io_uring to everybody
            return
        row = told(env, "b4")

    assert row["bypassing"]
    assert words_of(row) == {"io_uring": 1}


AN_ELF = Elf(machine="x86-64", bits=64, interpreter="/lib64/ld-linux-x86-64.so.2")


@pytest.mark.parametrize(
    ("look", "elf", "preload", "word"),
    [
        ({"loaded": True}, {}, "libpenstock.so", None),
        ({"loaded": True, "io_uring": True}, {}, "libpenstock.so", "io_uring"),
        ({"loaded": True}, {"direct_calls": 3}, "libpenstock.so", "direct"),
        (
            {"loaded": False},
            {"sections": frozenset([".gopclntab"]), "interpreter": ""},
            "libpenstock.so",
            "go",
        ),
        ({"loaded": False}, {"interpreter": "/lib/ld-musl-x86_64.so.1"}, "libpenstock.so", "musl"),
        ({"loaded": False}, {"machine": "i386", "bits": 32}, "libpenstock.so", "machine"),
        ({"loaded": False}, {}, "", "dropped"),
        ({"loaded": False}, {}, "/x/libpenstock.so", "unloaded"),
    ],
)
def test_reasons(look: dict[str, bool], elf: dict[str, Any], preload: str, word: str | None) -> None:
    import dataclasses

    process = bypass.Process(1, 0, 0, "/board", preload, "", True)
    facts = seen.Facts("x", dataclasses.replace(AN_ELF, **elf))
    found = bypass.why(process, bypass.Look("/x", (1, 1), **{"io_uring": False, **look}), facts, "x86-64")

    assert (found.word if found else None) == word
    assert found is None or found.certain == (word != "direct")


def test_who_is_inside_is_told_by_the_nearest_board() -> None:
    def process(pid: int, parent: int, board: str = "") -> bypass.Process:
        return bypass.Process(pid, parent, 0, board, "", "", True)

    rows = [
        process(1, 0),
        process(2, 1, "/a"),
        process(3, 2),
        process(4, 3),
        process(5, 4, "/b"),
        process(6, 5),
    ]
    rows += [process(7, 1), process(8, 99), process(9, 9)]

    assert bypass.inside({p.pid: p for p in rows}) == {2: "/a", 3: "/a", 4: "/a", 5: "/b", 6: "/b"}


def test_a_job_is_called_by_its_whole_id() -> None:
    at = "/run/penstock/boards/1000/20261120-012507-13003-0123456789abcdef"
    assert bypass.name_of(at, []) == "20261120-012507-13003"
    assert bypass.name_of(f"/dev/shm/penstock-0/{'0' * 32}-{'1' * 16}", []) == "0" * 12  # as penstock status


def test_nobody_blackens_the_job_of_another(tmp_path: Path) -> None:
    """A process that names the board of another user is not inside that job."""
    for pid, uid in ((1, 1000), (2, 1001)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (a) b) S 0 1\n")
        (folder / "cgroup").write_text("0::/\n")
        (folder / "status").write_text(f"Name:\ta\nUid:\t{uid}\t0\t0\t0\n")
        (folder / "environ").write_bytes(b"PENSTOCK_BOARD=/run/penstock/boards/1000/4711-ab\0")

    assert {pid: p.board for pid, p in bypass.processes(tmp_path).items()} == {
        1: "/run/penstock/boards/1000/4711-ab",
        2: "",
    }


def test_what_was_found_is_handed_on(tmp_path: Path) -> None:
    path = tmp_path / "bypass.json"
    reason = Reason("static", 2, "x is static")
    bypass.write(
        path, [bypass.Job("4711", {"/b/7/4711-ab"}, reasons=[reason]), bypass.Job("4712", {"/b/7/4712-cd"})]
    )

    assert bypass.known(path) == {"4711-ab": [reason], "4712-cd": []}
    assert bypass.sentence([reason, Reason("direct", 1, "perhaps", certain=False)]) == "x is static"
    assert bypass.known(path, max_age_s=-1) == {}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema_version": 2}', '{"schema_version":1,"time_s":"x","boards":{}}']
)
def test_a_damaged_file_says_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bypass.json"
    path.write_text(text)

    assert bypass.known(path) == {}
    assert bypass.known(tmp_path / "none") == {}


def test_written_again_and_again(env: dict[str, str], tmp_path: Path) -> None:
    """As a service does: the file is renewed until it is stopped."""
    path = tmp_path / "bypass.json"
    with running(env, PENSTOCK, "bypass", "--every", "100ms", "--write", path):
        until(path.exists, "it is written")
        before = path.stat().st_ino
        until(lambda: path.stat().st_ino != before, "it is written again")
    assert isinstance(bypass.known(path), dict)


def test_penstock_jobs_marks_a_job_of_which_a_part_escapes(tmp_path: Path) -> None:
    """Checker, agent and controller, all real."""
    static = compile_c(tmp_path, "static", SLEEP, "-static")
    found = tmp_path / "bypass.json"
    with Site(tmp_path) as site:
        site.start_controller()
        site.start_agent("n1", **{"agent.bypass": str(found)})
        env = site.env("home") | {"PENSTOCK_AGENT_SOCKET": str(site.socket("n1")), "SLURM_JOB_ID": "4711"}
        checker = [PENSTOCK, "bypass", "--every", "200ms", "--write", found]
        with running(env, PENSTOCK, "run", "--", "sh", "-c", f"{static} & sleep 100; wait"):
            until(lambda: site.job("4711"), "the job is known")
            assert site.job("4711")["bypassing"] == ""
            with running(env, *checker):
                until(lambda: site.job("4711")["bypassing"], "it is marked")
            job = site.job("4711")
            screen = site.ask("jobs")

    assert job["bypassing"].startswith("static is statically linked")
    assert "4711 is bypassing: static is statically linked" in screen


def test_servers_count_what_a_static_program_did(
    env: dict[str, str], make_testbed: Callable[..., Bed], tmp_path: Path
) -> None:
    """The same 50 directories made twice, half of them by a program that nobody sees."""
    bed = make_testbed(settings={"stats.period": "50ms", "job.var": "SLURM_JOB_ID"})
    for job, flags in (("c1", []), ("c2", ["-static"])):
        program = compile_c(tmp_path, f"mk{job}", MKDIRS, *flags)
        work = bed.path / job
        work.mkdir()
        script = f"mkdir {work}/seen && {program} {work}"
        subprocess.run([PENSTOCK_RUN, "sh", "-c", script], env=with_job(env, job), check=True, timeout=60)
    bed.ask("stats")
    found = {}
    for job in ("c1", "c2"):
        end = time.monotonic() + 30
        command = [PENSTOCK, "bypass", job, "--mount", bed.path, "--json"]
        shown = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert shown.returncode == 0, shown.stderr
        assert time.monotonic() < end
        found[job] = json.loads(shown.stdout)

    assert (found["c1"]["bypassing"], found["c1"]["by"], found["c1"]["counted"]) == (False, {}, 51)
    assert found["c2"]["bypassing"]
    assert found["c2"]["by"] == {"mkdir": 50}
    assert found["c2"]["unseen_ratio"] == pytest.approx(50 / 51)


def test_the_report_says_what_of_its_job_nobody_saw(
    env: dict[str, str], make_testbed: Callable[..., Bed], tmp_path: Path
) -> None:
    """And says it still when the servers are gone."""
    bed = make_testbed(settings={"stats.period": "50ms", "job.var": "SLURM_JOB_ID"})
    for job, flags in (("r1", []), ("r2", ["-static"])):
        program = compile_c(tmp_path, f"mk{job}", MKDIRS, *flags)
        work = bed.path / job
        work.mkdir()
        script = f"mkdir {work}/seen && {program} {work}"
        subprocess.run([PENSTOCK_RUN, "sh", "-c", script], env=with_job(env, job), check=True, timeout=60)
    bed.ask("stats")

    def report(job: str, *words: str, **more: str) -> str:
        shown = call(PENSTOCK, "report", job, *words, env={**env, **more})
        assert shown.returncode == 0, shown.stderr
        return shown.stdout.decode()

    assert json.loads(report("r2", "--json"))["run"]["unseen_ratio"] is None  # nobody said where to look
    whole = json.loads(report("r1", "--json", PENSTOCK_RUN_MOUNTS=str(bed.path)))["run"]
    escaped = json.loads(report("r2", "--json", PENSTOCK_RUN_DETECT="fuse.penstock"))["run"]
    bed.stop()

    assert whole["unseen_ratio"] == 0.0
    assert escaped["unseen_ratio"] == pytest.approx(50 / 51)
    assert json.loads(report("r2", "--json"))["run"]["partial"] == []
    assert "NOT SEEN: 98 % of the requests" in report("r2")
    assert "NOT SEEN" not in report("r1")


def test_a_job_nobody_counted(env: dict[str, str], testbed: Bed) -> None:
    shown = subprocess.run(
        [PENSTOCK, "bypass", "nobody", "--mount", testbed.path],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert shown.returncode == 4
    assert "has counted nothing for a job 'nobody'" in shown.stderr
