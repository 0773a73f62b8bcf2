# SPDX-License-Identifier: Apache-2.0
"""`penstock run --limit`: a user's own limits, by hand."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import launching
import pytest
from launching import BIN, PENSTOCK, PENSTOCK_RUN
from plane import POLICY, Process, Site, settings

OPENS = """
import os, sys, time
n = int(sys.argv[2])
began = time.monotonic()
for _ in range(n):
    os.path.exists(sys.argv[1] + "/missing")
print(time.monotonic() - began)
"""


def seconds(env: dict[str, str], folder: Path, n: int, *words: object, **more: str) -> float:
    """How long so many look-ups of a missing name take."""
    command = [*words, sys.executable, "-c", OPENS, folder, str(n)]
    done = subprocess.run(
        [str(w) for w in command],
        env={**env, **more},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return float(done.stdout)


def test_a_limit_by_hand_holds(env: dict[str, str], tmp_path: Path) -> None:
    took = seconds(env, tmp_path, 300, PENSTOCK, "run", "--limit", "metadata=200/s", "--")
    assert (
        took >= 280 / 200 - 0.2
    )  # less the burst of 100 ms; the rest of Python's start is not waited for twice


def test_a_limit_by_hand_reaches_penstock_run_by_a_file(env: dict[str, str], tmp_path: Path) -> None:
    plan = tmp_path / "job.plan"
    command = [PENSTOCK, "run", "--limit", "metadata=200/s", "--plan-file", plan]
    subprocess.run(command, env=env, check=True, timeout=60)
    assert seconds(env, tmp_path, 300, PENSTOCK_RUN, "--", PENSTOCK_PLAN=str(plan)) >= 1.2


def test_a_limit_of_another_folder_delays_nobody(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    word = f"metadata=3/s@{tmp_path / 'other'}"
    seconds(env, tmp_path, 1000, PENSTOCK, "run", "--limit", word, "--")
    assert seconds(env, tmp_path / "other", 5, PENSTOCK, "run", "--limit", word, "--") >= 1


def test_limits_of_long_paths_are_told_apart(env: dict[str, str], tmp_path: Path) -> None:
    """A board has little room for a limit's name."""
    folders = [tmp_path / ("deep" * 12) / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir(parents=True)
    quick, slow = f"metadata=10k/s@{folders[0]}", f"metadata=3/s@{folders[1]}"
    words = [PENSTOCK, "run", "--limit", quick, "--limit", slow, "--"]
    seconds(env, folders[0], 1000, *words)
    assert seconds(env, folders[1], 5, *words) >= 1


def test_limits_hold_on_named_mounts_alone(env: dict[str, str], tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    words = [PENSTOCK, "run", "--limit", "metadata=3/s", "--mount", mount, "--"]
    seconds(env, tmp_path, 1000, *words)
    assert seconds(env, mount, 5, *words) >= 1


@pytest.mark.root
def test_mounts_of_parallel_file_systems_need_not_be_named(
    env: dict[str, str], testbed: Any, tmp_path: Path
) -> None:
    words = [PENSTOCK, "run", "--limit", "metadata=3/s", "--"]
    by_itself = {name: value for name, value in env.items() if name != "PENSTOCK_RUN_DETECT"}
    seconds(by_itself, tmp_path, 1000, *words)
    assert seconds(by_itself, testbed.path, 5, *words) >= 1
    seconds(env, tmp_path, 1000, *words, PENSTOCK_RUN_DETECT="zfs:fuse.penstock")
    assert seconds(env, tmp_path, 5, *words, PENSTOCK_RUN_DETECT="penstock:fuse.pen:fuse.penstocks") >= 1
    plan = tmp_path / "job.plan"  # and where penstock-run reads the settings by itself
    assert launching.call(*words[:-1], "--plan-file", plan, env=env).returncode == 0
    seconds(by_itself, tmp_path, 1000, PENSTOCK_RUN, "--", PENSTOCK_PLAN=str(plan))
    assert seconds(by_itself, testbed.path, 5, PENSTOCK_RUN, "--", PENSTOCK_PLAN=str(plan)) >= 1


@pytest.mark.root
def test_an_agent_knows_them_whatever_a_run_names(testbed: Any, tmp_path: Path) -> None:
    """Naming another mount does not let a job out of the site's limits."""
    policy = POLICY.replace("1k/s", "3/s")
    with Site(tmp_path, policy) as site:
        held = {
            "agent.socket": str(site.socket("own")),
            "agent.boards": str(site.boards / "own"),
            "run.detect": "fuse.penstock",
        }
        words = [str(PENSTOCK), "agent", "--json", "--policy", str(site.policy), *settings(held)]
        site.processes.append(Process(words, site.env("own"), tmp_path / "own.log"))
        env = site.env("user") | {"PENSTOCK_AGENT_SOCKET": str(site.socket("own"))}
        run = [PENSTOCK, "run", "--mount", "/opt", "--"]
        seconds(env, tmp_path, 1000, *run)
        assert seconds(env, testbed.path, 6, *run) >= 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--limit", "metadata"], "'metadata' is no limit; write it like metadata=5k/s or data=200MiB/s"),
        (
            ["--plan-file", "x"],
            "--plan-file needs a --limit, or --place or --tune and something to place, to write",
        ),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    env: dict[str, str], words: list[str], sentence: str
) -> None:
    done = launching.call(PENSTOCK, "run", *words, "--", "touch", "never", env=env)
    assert done.returncode == 2
    assert done.stderr.decode().strip() == f"penstock run: {sentence}"


@pytest.mark.parametrize("bytes_", [b"", b"no plan at all" * 9, os.urandom(500)])
def test_a_plan_that_is_none_is_told_and_left_out(env: dict[str, str], tmp_path: Path, bytes_: bytes) -> None:
    plan = tmp_path / "plan"
    plan.write_bytes(bytes_)
    done = launching.call(PENSTOCK_RUN, "--", "echo", "ran", env={**env, "PENSTOCK_PLAN": str(plan)})
    assert (done.returncode, done.stdout) == (0, b"ran\n")
    text = "it is no plan"
    assert done.stderr.decode() == (
        f"penstock-run: the plan {plan} cannot be used ({text}); the program runs without\n"
    )


def test_every_byte_of_a_plan_is_guarded(env: dict[str, str], tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    subprocess.run(
        [PENSTOCK, "run", "--limit", "metadata=3/s", "--plan-file", plan], env=env, check=True, timeout=60
    )
    good = plan.read_bytes()
    for at in (9, 12, 17, 24, 28, 40, len(good) // 2, len(good) - 1):
        plan.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        done = launching.call(PENSTOCK_RUN, "--", "true", env={**env, "PENSTOCK_PLAN": str(plan)})
        assert done.returncode == 0
        assert b"cannot be used" in done.stderr


def test_no_descriptor_of_ours_is_left_in_the_program(env: dict[str, str]) -> None:
    command = [PENSTOCK, "run", "--limit", "metadata=5k/s", "--", sys.executable, "-c"]
    text = "import os, json; print(json.dumps(sorted(map(int, os.listdir('/proc/self/fd')))))"
    done = launching.call(*command, text, env=env)
    assert json.loads(done.stdout) == [0, 1, 2, 3]  # 3: of listdir itself


def nested(env: dict[str, str], folder: Path, n: int, outer: str, inner: str) -> float:
    """How long look-ups take in a run within a run, each with a limit of its own."""
    command = [PENSTOCK, "run", "--limit", inner, "--"]
    return seconds(env, folder, n, PENSTOCK, "run", "--limit", outer, "--", *command)


def test_a_run_within_a_run_is_under_both_limits(env: dict[str, str], tmp_path: Path) -> None:
    """No agent on this node: the outer penstock run is the board's."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    slow, quick = f"metadata=3/s@{tmp_path / 'here'}", "metadata=10k/s"
    assert nested(env, tmp_path / "here", 5, quick, slow) >= 1
    assert nested(env, tmp_path / "here", 5, slow, quick) >= 1
    nested(env, tmp_path / "there", 1000, quick, slow)


def test_an_inner_limit_ends_with_its_run(env: dict[str, str], tmp_path: Path) -> None:
    """Also where that run is killed; and where the outer run has no limit."""
    inner = f"{PENSTOCK} run --limit metadata=1/s --"
    text = f"""{inner} true
{inner} sh -c 'kill -9 $PPID; exec sleep 0' || true
until {sys.executable} -c "$1" {tmp_path} 300; do :; done"""
    command = [PENSTOCK, "run", "--", "bash", "-ec", text, "bash", OPENS]
    done = launching.call(*command, env=env, seconds=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 100  # 300 at 1/s are 300 s
    assert not list(Path(env["PENSTOCK_BOARD_DIR"]).glob("*.limits-*"))


def test_an_inner_limit_that_cannot_hold_is_told_before_anything_starts(env: dict[str, str]) -> None:
    """The outer run, which alone could add it, is stopped meanwhile."""
    inner = f"{PENSTOCK} run --limit metadata=10k/s -- echo ran"
    text = f"kill -STOP $PPID; {inner}; status=$?; kill -CONT $PPID; exit $status"
    done = launching.call(PENSTOCK, "run", "--", "sh", "-c", text, env=env)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.startswith(b"penstock run: --limit cannot hold here: ")
    assert not list(Path(env["PENSTOCK_BOARD_DIR"]).glob("*.limits-*"))


def test_a_run_within_a_run_goes_on_where_the_plan_is_the_outer_one(
    env: dict[str, str], tmp_path: Path
) -> None:
    """A job's plan, in the environment of all that the job starts."""
    plan = tmp_path / "job.plan"
    made = launching.call(PENSTOCK, "run", "--limit", "metadata=5k/s", "--plan-file", plan, env=env)
    inner = [PENSTOCK, "run", "--", "echo", "ran"]
    done = launching.call(PENSTOCK_RUN, *inner, env={**env, "PENSTOCK_PLAN": str(plan)})
    assert (made.returncode, done.returncode, done.stdout) == (0, 0, b"ran\n")


def test_help_shows_an_example() -> None:
    text = subprocess.run(
        [BIN / "penstock", "run", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "--limit metadata=5k/s" in text


def test_a_killed_agent_leaves_the_program_and_its_limits(env: dict[str, str], tmp_path: Path) -> None:
    """Limits by hand hold when nobody is there to change them; the program never notices."""
    command = [PENSTOCK, "run", "--limit", "metadata=100/s", "--", sys.executable, "-u", "-c"]
    text = OPENS.replace("import os, sys, time", "import os, sys, time; print(os.getppid())")
    words = [*command, text, tmp_path, "200"]
    with subprocess.Popen([str(w) for w in words], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        agent = int(process.stdout.readline())
        assert agent == process.pid
        os.kill(agent, signal.SIGKILL)
        took = float(process.stdout.readline())
    assert process.returncode == -signal.SIGKILL
    assert took >= 180 / 100


def limits_of(env: dict[str, str]) -> list[dict[str, object]]:
    done = launching.call(PENSTOCK, "report", "--json", env=env)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)["limits"]
    return found


def test_the_record_says_what_a_limit_cost(env: dict[str, str], tmp_path: Path) -> None:
    words = ["--limit", "metadata=100/s", "--limit", "data=10GiB/s"]
    took = seconds(env, tmp_path, 100, PENSTOCK, "run", *words, "--")
    held, free = limits_of(env)
    assert (held["limit"], held["rate"], held["released"]) == ("metadata by hand", pytest.approx(100), False)
    assert held["asked"] >= 100  # type: ignore[operator]
    assert 80 <= held["delayed"] <= held["asked"]  # type: ignore[operator]
    assert held["waited_s"] >= 0.8  # type: ignore[operator]
    assert 1 / 200 < held["longest_s"] <= held["waited_s"]  # type: ignore[operator]
    assert (free["limit"], free["bytes"], free["delayed"], free["waited_s"]) == ("data by hand", True, 0, 0)
    assert took >= 0.8
    shown = launching.call(PENSTOCK, "report", env=env).stdout.decode()
    assert "limits    metadata by hand (100/s): " in shown
    assert "calls waited" in shown


def test_a_run_without_limits_has_none_in_its_record(env: dict[str, str], tmp_path: Path) -> None:
    seconds(env, tmp_path, 3, PENSTOCK, "run", "--")
    assert limits_of(env) == []
