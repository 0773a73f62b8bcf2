# SPDX-License-Identifier: Apache-2.0
"""`penstock run`: the program is as it was, and what it did is in the history."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import launching
import pytest
from launching import PENSTOCK, PENSTOCK_RUN, call

from penstock.runs import merge

STARTERS = {"penstock run": [PENSTOCK, "run", "--"], "penstock-run": [PENSTOCK_RUN, "--"]}
starters = pytest.mark.parametrize("start", STARTERS.values(), ids=STARTERS)


@starters
def test_what_a_program_wrote_is_recorded(start: list[object], env: dict[str, str], tmp_path: Path) -> None:
    target = tmp_path / "data"
    done = call(*start, "dd", "if=/dev/zero", f"of={target}", "bs=64k", "count=16", env=env)

    assert done.returncode == 0
    [run] = launching.runs(env)
    assert (run.end.status, run.end.signal) == (0, 0)
    assert run.begin.argv[0] == b"dd"
    assert run.begin.cwd == os.fsencode(Path.cwd())
    assert (run.begin.job_source, run.begin.node) == ("made up", os.uname().nodename)
    assert merge.program(run) == "dd"
    row = launching.row(run, target)
    assert (row.writes, row.bytes_written, row.highest_offset) == (16, 1 << 20, 1 << 20)
    assert row.common_sizes == [(65536, 16)]
    assert row.filesystem not in ("", "proc")
    assert [node.final for node in run.nodes] == [True]
    assert merge.partial(run) == []
    assert launching.boards(env) == []


ENDS = {
    "0": "exit 0",
    "1": "exit 1",
    "3": "exit 3",
    "126": "exit 126",
    "255": "exit 255",
    "TERM": "kill -TERM $$",
    "KILL": "kill -KILL $$",
    "SEGV": "kill -SEGV $$",
    "HUP": "kill -HUP $$",
    "PIPE": "kill -PIPE $$",
    "RTMIN": "kill -34 $$",
}


@starters
@pytest.mark.parametrize("script", ENDS.values(), ids=ENDS)
def test_exit_status_is_the_programs(start: list[object], script: str, env: dict[str, str]) -> None:
    alone = call("bash", "-c", script, env=env)
    done = call(*start, "bash", "-c", script, env=env)

    assert done.returncode == alone.returncode
    [run] = launching.runs(env)
    ended = run.end.status if run.end.signal == 0 else -run.end.signal
    assert ended == alone.returncode


@starters
@pytest.mark.parametrize(("word", "status"), [("no-such-program", 127), ("/no/such", 127), ("/tmp", 126)])
def test_what_cannot_start_ends_as_in_a_shell(
    start: list[object], word: str, status: int, env: dict[str, str]
) -> None:
    done = call(*start, word, env=env)

    assert done.returncode == status
    assert done.stdout == b""
    assert re.fullmatch(rb"penstock[- ]run: \S+: [A-Za-z ]+\n", done.stderr)
    assert launching.runs(env) == []
    assert launching.boards(env) == []


@starters
def test_streams_are_the_programs_alone(start: list[object], env: dict[str, str]) -> None:
    script = "cat; echo out; echo err >&2"
    done = call(*start, "sh", "-c", script, env=env, input=b"in\n\xff")

    assert (done.stdout, done.stderr) == (b"in\n\xffout\n", b"err\n")


SURROUNDINGS = {
    "descriptors": "import os; print(sorted(os.listdir('/proc/self/fd')))",
    "signals": "print([x for x in open('/proc/self/status') if x[:3] in ('Sig', 'Shd')])",
    "folder": "import os; print(os.getcwd(), os.umask(0))",
    "limits": "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))",
    "session": "import os; print(os.getsid(0), os.getpgid(0))",
    "niceness": "import os; print(os.nice(0))",
}


@starters
@pytest.mark.parametrize("script", SURROUNDINGS.values(), ids=SURROUNDINGS)
def test_surroundings_are_as_without(start: list[object], script: str, env: dict[str, str]) -> None:
    """Run under a shell that ignores a signal and blocks nothing, with an odd descriptor open."""
    words = " ".join(str(w) for w in start)
    python = [sys.executable, "-I", "-S", "-c", script]
    shell = ["bash", "-c", 'trap "" USR2; exec 7</dev/null; ulimit -c 0; "$@"; true', "bash"]

    alone = call(*shell, *python, env=env, start_new_session=False)
    done = call(*shell, *start, *python, env=env, start_new_session=False)

    assert words
    strip = rb"Sig(Q|Pnd)[^']*|Shd[^']*"
    if script == SURROUNDINGS["session"]:
        assert done.stdout.split()[0] == alone.stdout.split()[0]
    else:
        assert re.sub(strip, b"", done.stdout) == re.sub(strip, b"", alone.stdout)
    assert done.stderr == alone.stderr == b""


@starters
@pytest.mark.parametrize("locale", ["C", "C.UTF-8", ""])
def test_environment_gains_three_variables(start: list[object], locale: str, env: dict[str, str]) -> None:
    env = {**env, "LC_ALL": locale, "ODD": "a=b\nc", "EMPTY": ""}
    if not locale:
        del env["LC_ALL"]
    alone = set(call("env", "-0", env=env).stdout.split(b"\0"))
    under = set(call(*start, "env", "-0", env=env).stdout.split(b"\0"))

    names = {word.partition(b"=")[0] for word in under - alone}
    assert names == {b"LD_PRELOAD", b"PENSTOCK_BOARD", b"PENSTOCK_RUN"}
    assert alone - under <= {b"_=" + os.fsencode(PENSTOCK)}


SIGNALS = ["TERM", "INT", "HUP", "USR1", "USR2", "QUIT", "WINCH", "CONT"]


@starters
@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_that_is_sent_reaches_the_program(
    start: list[object], name: str, env: dict[str, str]
) -> None:
    script = f"trap 'echo got {name}; exit 5' {name}; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        [*map(str, start), "bash", "-c", script], env=env, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.stdout.readline() == f"got {name}\n".encode()
        assert process.wait(timeout=30) == 5


@starters
def test_streams_end_when_the_program_ends_them(start: list[object], env: dict[str, str]) -> None:
    """Nobody else holds the program's pipes open."""
    script = "exec >&- 2>&-; read line; exit 4"
    with subprocess.Popen(
        [*map(str, start), "bash", "-c", script],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdin
        assert process.stdout.read() == b""  # its end, while the program still runs
        assert process.poll() is None
        process.stdin.write(b"go\n")
        process.stdin.close()
        assert process.wait(timeout=30) == 4


def test_agent_holds_no_folder_of_the_programs(env: dict[str, str], tmp_path: Path) -> None:
    with subprocess.Popen([str(PENSTOCK_RUN), "sleep", "30"], env=env, cwd=tmp_path) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        launching.until(lambda: children.read_text().split(), "the program is there")
        launching.until(
            lambda: Path(f"/proc/{process.pid}/cwd").readlink() == Path("/"), "it let go of its folder"
        )
        held = {str(fd.readlink()) for fd in Path(f"/proc/{process.pid}/fd").iterdir()}
        assert all(path == "/dev/null" or env["PENSTOCK_BOARD_DIR"] in path for path in held)
        process.terminate()
        assert process.wait(timeout=30) == -signal.SIGTERM


def test_penstock_disable_turns_all_off(env: dict[str, str]) -> None:
    for start in STARTERS.values():
        done = call(*start, "env", env={**env, "PENSTOCK_DISABLE": "1"})
        assert b"LD_PRELOAD" not in done.stdout
        assert done.stderr == b""
    assert launching.runs(env) == []
    assert launching.boards(env) == []


def test_no_record_records_nothing(env: dict[str, str], tmp_path: Path) -> None:
    done = call(PENSTOCK, "run", "--no-record", "--", "cp", "/etc/hostname", tmp_path / "x", env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [f for run in launching.runs(env) for f in launching.rows(run)] == []


def test_verbose_says_one_line_at_the_end(env: dict[str, str]) -> None:
    done = call(PENSTOCK, "run", "-v", "--", "echo", "out", env=env)
    assert done.stdout == b"out\n"
    [line] = done.stderr.splitlines()
    shown = call(PENSTOCK, "report", re.findall(rb"report (\w+)", line)[0].decode(), env=env)
    assert shown.returncode == 0


def test_verbose_says_so_when_nothing_could_be_recorded(env: dict[str, str], tmp_path: Path) -> None:
    everybodys = tmp_path / "everybodys"
    everybodys.mkdir()
    everybodys.chmod(0o777)
    words = ["run", "-v", "--set", f"board.dir={everybodys}", "--", "echo", "out"]
    done = call(PENSTOCK, *words, env=env)
    assert (done.returncode, done.stdout) == (0, b"out\n")
    told = f"no board could be made at {everybodys} (Permission denied)"
    assert done.stderr.decode() == f"penstock: not recorded: {told}\n"
    [line] = Path(env["PENSTOCK_STATE_DIR"], "penstock.log").read_text().splitlines()
    assert line.endswith(f": {told}; the program runs without")


def test_verbose_does_not_call_a_run_recorded_that_is_not(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    here = {
        **env,
        "PENSTOCK_HISTORY_DIR": str(tmp_path / "file"),
        "PENSTOCK_BOARD_DIR": str(tmp_path / "boards"),
    }
    done = call(PENSTOCK, "run", "-v", "--", "echo", "out", env=here)
    assert (done.returncode, done.stdout) == (0, b"out\n")
    assert b"recorded;" not in done.stderr
    assert b"cannot be written (Not a directory); penstock runs collect" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--set", "record.filesmax=3"], "did you mean record.files_max"),
        (["--set", "record.files_max=many"], "record.files_max: 'many' is not a whole number"),
        (["--stages", "recrod"], "'recrod' is none of the stages"),
        (["--config", "/no/such.toml"], "there is no file /no/such.toml"),
    ],
)
def test_wrong_settings_are_named_and_nothing_starts(
    words: list[str], says: str, env: dict[str, str], tmp_path: Path
) -> None:
    done = call(PENSTOCK, "run", *words, "--", "touch", tmp_path / "made", env=env)
    assert done.returncode == 2
    assert says in done.stderr.decode()
    assert not (tmp_path / "made").exists()


def test_settings_of_files_hold_for_both_starters(env: dict[str, str], tmp_path: Path) -> None:
    """penstock-run reads the same files without Python."""
    del env["PENSTOCK_STATE_DIR"]
    config = tmp_path / ".config" / "penstock"
    config.mkdir(parents=True)
    (config / "penstock.toml").write_text(f'[history]\ndir = "{tmp_path}/elsewhere" # there\n')
    for start in STARTERS.values():
        assert call(*start, "true", env=env).returncode == 0
    assert len(list((tmp_path / "elsewhere").glob("*/*.seg"))) == 1
    env["PENSTOCK_STATE_DIR"] = str(tmp_path)
    (tmp_path / "elsewhere").rename(tmp_path / "history")
    assert len(launching.runs(env)) == 2


def test_a_nested_run_is_a_run_of_its_own(env: dict[str, str], tmp_path: Path) -> None:
    inner = f"{PENSTOCK} run -- sh -c 'echo inner > {tmp_path}/inner'"
    script = f"echo a > {tmp_path}/outer; {inner}; echo b >> {tmp_path}/outer"
    assert call(PENSTOCK, "run", "--", "bash", "-c", script, env=env).returncode == 0

    outer, nested = launching.runs(env)
    assert launching.written(outer, tmp_path / "outer") == 4
    assert launching.written(outer, tmp_path / "inner") == 0
    assert launching.written(nested, tmp_path / "inner") == 6
    assert nested.end.status == 0
    assert nested.nodes[0].final
    assert launching.boards(env) == []


OTHER = """
#include <stdlib.h>
__attribute__((constructor)) static void here(void) { setenv("OTHER_WAS_HERE", "1", 1); }
"""


@pytest.mark.parametrize("where", ["before", "after"])
def test_other_preloads_go_on_working(where: str, env: dict[str, str], tmp_path: Path) -> None:
    other = launching.compile_c(tmp_path, "other.so", OTHER, "-shared", "-fPIC")
    script = f"echo $OTHER_WAS_HERE > {tmp_path}/said"
    if where == "before":
        done = call(PENSTOCK, "run", "--", "sh", "-c", script, env={**env, "LD_PRELOAD": str(other)})
    else:
        words = ["env", f"LD_PRELOAD={launching.LIBRARY}:{other}", "sh", "-c", script]
        done = call(PENSTOCK, "run", "--", *words, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "said").read_text() == "1\n"
    [run] = launching.runs(env)
    assert launching.written(run, tmp_path / "said") == 2


def test_i22_a_library_that_cannot_be_preloaded_is_left_out(env: dict[str, str], tmp_path: Path) -> None:
    """LD_PRELOAD cannot carry a blank; a missing library would make the loader complain in every process."""
    for prefix, library in (("with blank", True), ("without", False)):
        top = tmp_path / prefix
        (top / "bin").mkdir(parents=True)
        (top / "lib/penstock").mkdir(parents=True)
        shutil.copy(PENSTOCK_RUN, top / "bin")
        if library:
            shutil.copy(launching.LIBRARY, top / "lib/penstock")
        done = call(top / "bin/penstock-run", "sh", "-c", "echo $LD_PRELOAD; exit 4", env=env)
        assert (done.returncode, done.stdout, done.stderr) == (4, b"\n", b"")
    assert len(launching.log(env)) == 2
    assert all("is missing or cannot be preloaded; the program runs without" in s for s in launching.log(env))


def test_other_spawners_keep_the_recorder(env: dict[str, str], tmp_path: Path) -> None:
    """bash, make -j, env -i, xargs, Python's subprocess and multiprocessing."""
    (tmp_path / "Makefile").write_text("all: a b c d\n%:\n\techo $@ > out-$@\n")
    (tmp_path / "pool.py").write_text(
        "import multiprocessing, sys\n"
        "def work(n):\n    open(f'{sys.argv[1]}/out-pool{n}', 'w').write('x')\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool: pool.map(work, range(4))\n"
    )
    script = f"""set -e
cd {tmp_path}
make -s -j4
env -i /bin/sh -c 'echo x > out-env'
seq 3 | xargs -P2 -I{{}} sh -c 'echo x > out-xargs{{}}'
{sys.executable} pool.py {tmp_path}
"""
    done = call(PENSTOCK, "run", "--", "bash", "-c", script, env=env)
    assert (done.returncode, done.stderr) == (0, b"")

    [run] = launching.runs(env)
    names = [*"abcd", "env", *(f"xargs{n}" for n in (1, 2, 3)), *(f"pool{n}" for n in range(4))]
    missed = [n for n in names if launching.written(run, tmp_path / f"out-{n}") == 0]
    assert missed == []
    assert run.overflow == {}


def test_a_thousand_short_processes_are_all_there(env: dict[str, str], tmp_path: Path) -> None:
    """More than the board holds at once: chunks of the dead come back."""
    short = launching.compile_c(tmp_path, "short", "int main(void) { return 0; }")
    script = f"for i in $(seq 1000); do {short}; done; echo done > {tmp_path}/end"
    env = {**env, "PENSTOCK_BOARD_MAX_SIZE": "8MiB"}
    assert call(PENSTOCK, "run", "--", "bash", "-c", script, env=env, seconds=120).returncode == 0

    [run] = launching.runs(env)
    found = launching.processes(run)
    assert sum(p.exe == os.fsencode(short) for p in found) == 1000
    assert len({(p.pid, p.start_ns) for p in found}) == len(found)
    assert launching.written(run, tmp_path / "end") == 5
    assert run.overflow == {}


def test_a_daemon_is_recorded_to_its_end(env: dict[str, str], tmp_path: Path) -> None:
    """`penstock run` ends with its program; a collector stays for what that left behind."""
    go, target = tmp_path / "go", tmp_path / "late"
    loop = f"while ! test -e {go}; do sleep 0.05; done; echo late > {target}"
    script = f"(setsid bash -c '{loop}' >/dev/null 2>&1 </dev/null &); exit 3"
    assert call(PENSTOCK, "run", "--", "bash", "-c", script, env=env).returncode == 3

    [run] = launching.runs(env)
    assert not run.nodes[0].final
    [board] = launching.boards(env)
    collected = json.loads(call(PENSTOCK, "runs", "collect", "--json", env=env).stdout)
    assert [b["served"] for b in collected["boards"]] == [True]
    go.touch()
    launching.until(lambda: not board.exists(), "the collector ends")
    [run] = launching.runs(env)
    assert run.nodes[0].final
    assert launching.written(run, target) == 5
    assert run.end.status == 3


@pytest.mark.parametrize("wait_ms", [0, 1, 3, 5, 8, 12, 20, 40, 80, 150])
def test_killing_the_agent_costs_nothing_but_the_exit_status(
    wait_ms: int, env: dict[str, str], tmp_path: Path
) -> None:
    """kill -9 of the agent at some moment: the program lives, and its record is collected later."""
    go, target = tmp_path / "go", tmp_path / "data"
    script = f"while ! test -e {go}; do sleep 0.02; done; echo all > {target}"
    with subprocess.Popen([str(PENSTOCK), "run", "--", "bash", "-c", script], env=env) as process:
        launching.until(lambda: launching.boards(env), "there is a board")
        time.sleep(wait_ms / 1000)  # a moment, not a wait: any is right
        process.kill()
    [board] = launching.boards(env)
    began = [p for p in Path("/proc").glob("[0-9]*/environ") if os.fsencode(board) in _bytes(p)]
    go.touch()
    if began:
        launching.until(target.exists, "the program goes on")
        launching.until(lambda: not _living(board), "the program ends")
    assert call(PENSTOCK, "runs", "collect", env=env).returncode == 0
    assert launching.boards(env) == []
    for run in launching.runs(env):
        assert run.ended
        assert launching.written(run, target) == (4 if target.exists() else 0)
    assert call(PENSTOCK, "runs", "collect", env=env).stderr.startswith(b"penstock: no collector left")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _living(board: Path) -> bool:
    return any(os.fsencode(board) in _bytes(p) for p in Path("/proc").glob("[0-9]*/environ"))


def test_eight_jobs_at_once_lose_nothing(env: dict[str, str], tmp_path: Path) -> None:
    """All append to one segment of this node."""
    script = "for i in 1 2 3 4 5; do echo $i >> {}; done"
    jobs = [
        subprocess.Popen([str(PENSTOCK_RUN), "sh", "-c", script.format(tmp_path / f"job{n}")], env=env)
        for n in range(8)
        for _ in range(3)
    ]
    assert [job.wait(timeout=60) for job in jobs] == [0] * 24

    found = launching.runs(env)
    assert len(found) == 24
    assert all(run.ended and run.end.status == 0 for run in found)
    for n in range(8):
        assert sum(launching.written(run, tmp_path / f"job{n}") for run in found) == 30


# ---- look-ups ----


def look_ups(trace: Path, until_exec_of: str) -> list[str]:
    """The system calls that name a path, up to the one that starts the program."""
    found = []
    for line in trace.read_text(errors="replace").splitlines():
        if "resumed>" in line or '""' in line or "+++" in line or "---" in line:
            continue
        if f'execve("{until_exec_of}"' in line:
            return found
        found.append(line)
    raise AssertionError(f"{until_exec_of} was never started")


def traced(trace: Path, *words: object, env: dict[str, str]) -> None:
    strace = ["strace", "-f", "-qq", "-e", "trace=%file", "-o", str(trace)]
    assert call(*strace, *words, env=env).returncode == 0


def test_penstock_run_makes_at_most_320_look_ups(env: dict[str, str], tmp_path: Path) -> None:
    del env["PENSTOCK_BOARD_DIR"], env["PENSTOCK_PLACE_WAIT"]
    traced(tmp_path / "trace", PENSTOCK, "run", "--", "/bin/true", env=env)
    assert len(look_ups(tmp_path / "trace", "/bin/true")) <= 320


def test_a_rank_whose_board_is_there_makes_at_most_6_look_ups(env: dict[str, str], tmp_path: Path) -> None:
    """As one of several ranks, found by the job's variables, and inside of a run, found by the environment."""
    rank = {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77", "SLURM_STEP_NUM_TASKS": "2"}
    first = {**env, **rank, "SLURM_PROCID": "0"}
    with subprocess.Popen([str(PENSTOCK_RUN), "cat"], env=first, stdin=subprocess.PIPE) as process:
        launching.until(lambda: launching.boards(env), "there is a board")
        traced(tmp_path / "trace", PENSTOCK_RUN, "/bin/true", env={**env, **rank})
        process.communicate(timeout=30)
    ours = look_ups(tmp_path / "trace", "/bin/true")[1:]
    assert len(ours) <= 6, ours
    [run] = launching.runs(env)
    assert run.ranks == {0, 1}
