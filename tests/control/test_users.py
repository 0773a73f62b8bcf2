# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH101, PTH104, PTH108, PTH208, PTH211
"""Users of one node who trust neither each other nor the agent: an agent's account without rights, and two users'."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import PENSTOCK_RUN, until
from plane import Process

from penstock.base.errors import DeniedError, PenstockError
from penstock.control import identity, local

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can become other users"),
]
AGENT, ALICE, BOB = 61000, 61001, 61002
POLICY = '[control]\ninterval = "50ms"\n[[limit]]\nname = "all metadata"\nrate = "500/s"\nper = "user"\n'

# The command, as another user who may not read this Python: everything is loaded first.
AS_USER = """
import os, sys, argparse, json, shutil, tomllib, difflib, encodings.idna, encodings.ascii, concurrent.futures.thread
import penstock.control.agent, penstock.control.service, penstock.control.controller, penstock.base.settings
from penstock.cli import agent
parser = argparse.ArgumentParser()
agent.register(parser)
args = parser.parse_args(sys.argv[2:])
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
sys.exit(agent.run(args))
"""


class Node:
    """A node with a site's agent, and folders for its users."""

    def __init__(self) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="penstock-test-", dir="/dev/shm"))
        self.top.chmod(0o755)
        self.home = {}
        for uid in (AGENT, ALICE, BOB):
            self.home[uid] = self.top / str(uid)
            self.home[uid].mkdir(mode=0o755)
            os.chown(self.home[uid], uid, uid)
        self.policy = self.top / "policy.toml"
        self.policy.write_text(POLICY)
        self.socket = self.home[AGENT] / "agent.sock"
        self.boards = self.home[AGENT] / "boards"
        self.jobs: list[subprocess.Popen[bytes]] = []
        self.agent = self.start_agent()

    def start_agent(self) -> Process:
        words = ["--json", "--all-users", "--policy", str(self.policy)]
        words += ["--set", f"agent.socket={self.socket}", "--set", f"agent.boards={self.boards}"]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home[AGENT])}
        env["PENSTOCK_RUN_DETECT"] = "none"  # other tests' mounts are none of ours
        return Process([sys.executable, "-c", AS_USER, str(AGENT), *words], env, self.top / "agent.log")

    def start_job(self, uid: int, name: str) -> Path:
        """A program of this user's that asks for all it can get; its board."""
        home = self.home[uid]
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "PENSTOCK_STATE_DIR": str(home / "state"),
            "PENSTOCK_AGENT_SOCKET": str(self.socket),
            "SLURM_JOB_ID": name,
        }
        words = [str(PENSTOCK_RUN), "sh", "-c", f"while ! test -e {home}/stop; do test -e {home}/no; done"]
        self.jobs.append(subprocess.Popen(words, env=env, user=uid, group=uid, extra_groups=[], cwd=home))
        mine = self.boards / str(uid)

        def found() -> list[Path]:
            boards = mine.iterdir() if mine.exists() else []
            return [p for p in boards if re.fullmatch(rf"{name}-[0-9a-f]+", p.name)]

        [path] = until(found, f"job {name} has a board")
        until(lambda: self.row(name), f"the agent tells of job {name}")
        return path

    def row(self, name: str) -> dict[str, Any]:
        """What root is told of a job's limit; empty: nothing yet."""
        try:
            found = json.loads(local.ask(str(self.socket), op="status", job=name)["json"])
        except PenstockError:
            return {}
        return dict(found["jobs"][0]["rows"][0])

    def goes_on(self, name: str) -> None:
        before = self.row(name)["asked_in_all"]
        until(lambda: self.row(name)["asked_in_all"] > before + 50, f"job {name} goes on")

    def end(self) -> None:
        for uid in (ALICE, BOB):
            (self.home[uid] / "stop").touch()
        for job in self.jobs:
            job.wait(timeout=30)
        if self.agent.popen.poll() is None:
            self.agent.end(signal.SIGKILL)
        shutil.rmtree(self.top, ignore_errors=True)


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    try:
        yield made
    finally:
        made.end()


def as_user(uid: int, action: Callable[[], Any]) -> str:
    """What an action came to as this user, in a process of its own: "done", or the error's name."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            action()
            os.write(theirs, b"done")
        except BaseException as error:
            os.write(theirs, type(error).__name__.encode())
        os._exit(0)
    os.close(theirs)
    said = os.read(ours, 100).decode()
    os.close(ours)
    os.waitpid(pid, 0)
    return said


def test_two_users_cannot_touch_each_others_boards_nor_the_agents(node: Node) -> None:
    alices, bobs = node.start_job(ALICE, "1"), node.start_job(BOB, "2")
    tries: dict[str, Callable[[], Any]] = {
        "list all boards": lambda: os.listdir(node.boards),
        "list hers": lambda: os.listdir(alices),
        "list her folder": lambda: os.listdir(alices.parent),
        "read her control": lambda: os.open(alices / "control", os.O_RDONLY),
        "read her usage": lambda: os.open(alices / "usage", os.O_RDONLY),
        "write her usage": lambda: os.open(alices / "usage", os.O_RDWR),
        "truncate her usage": lambda: os.truncate(alices / "usage", 0),
        "enlarge her usage": lambda: os.truncate(alices / "usage", 1 << 40),
        "delete hers": lambda: os.unlink(alices / "usage"),
        "rename hers": lambda: os.rename(alices, node.home[BOB] / "mine"),
        "link hers": lambda: os.link(alices / "usage", node.home[BOB] / "hers"),
        "open hers to all": lambda: os.chmod(alices / "usage", 0o666),
        "read whose it is": lambda: os.open(alices.with_name(alices.name + ".about"), os.O_RDONLY),
        "raise his own limit": lambda: os.open(bobs / "control", os.O_RDWR),
        "delete his own control": lambda: os.unlink(bobs / "control"),
        "put a control of his own": lambda: os.rename(node.home[BOB] / "x", bobs / "control"),
        "C16: plant a link": lambda: os.symlink("/etc/passwd", bobs / "ring"),
        "C16: plant one beside": lambda: os.symlink("/etc/passwd", bobs.parent / "x.about"),
        "write the agent's policy": lambda: os.open(node.boards / "policy", os.O_RDWR),
        "take the agent's name": lambda: os.unlink(node.socket),
    }
    (node.home[BOB] / "x").touch()

    got = {what: as_user(BOB, action) for what, action in tries.items()}

    assert got == dict.fromkeys(tries, "PermissionError")
    assert as_user(BOB, lambda: os.open(bobs / "usage", os.O_RDWR)) == "done"  # it is his to write
    assert as_user(BOB, lambda: os.open(bobs / "control", os.O_RDONLY)) == "done"
    node.goes_on("1")
    node.goes_on("2")


HIDDEN = ("unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh")


def test_an_agent_that_cannot_see_others_does_not_start(tmp_path: Path) -> None:
    """It would take every job for ended."""
    words = ["--json", "--all-users", "--policy", str(tmp_path / "policy.toml")]
    words += ["--set", f"agent.socket={tmp_path}/s/agent.sock", "--set", f"agent.boards={tmp_path}/boards"]
    (tmp_path / "policy.toml").write_text(POLICY)
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    os.chown(tmp_path, AGENT, AGENT)
    done = subprocess.run(
        [*HIDDEN, sys.executable, "-c", AS_USER, str(AGENT), *words],
        env={"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode != 0
    assert "processes of other users cannot be seen here" in done.stderr


def test_each_user_has_his_own_limit_and_sees_his_own_jobs(node: Node) -> None:
    node.start_job(ALICE, "1")
    node.start_job(BOB, "2")
    until(lambda: all(node.row(n)["rate"] > 450 for n in "12"), "both have 500/s")

    assert as_user(BOB, lambda: local.ask(str(node.socket), op="status", job="2")) == "done"
    assert as_user(BOB, lambda: local.ask(str(node.socket), op="status", job="1")) == "PenstockError"
    assert as_user(BOB, lambda: local.ask(str(node.socket), op="release", job="2")) == "DeniedError"
    assert as_user(BOB, lambda: local.ask(str(node.socket), op="release")) == "DeniedError"
    assert node.row("1")["released"] is False


def test_the_same_id_of_another_user_is_another_job(node: Node) -> None:
    """A job cannot pass for another: an id is only its own user's."""
    hers, his = node.start_job(ALICE, "7"), node.start_job(BOB, "7")

    assert hers.parent.name == str(ALICE)
    assert his.parent.name == str(BOB)


def test_a_user_who_wrecks_his_own_board_hurts_himself_alone(node: Node) -> None:
    """Truncated under the agent's eyes, made huge, filled with nonsense: the agent and the others go on."""
    node.start_job(ALICE, "1")
    bobs = node.start_job(BOB, "2")
    size = (bobs / "usage").stat().st_size

    assert as_user(BOB, lambda: os.truncate(bobs / "usage", 1 << 40)) == "done"
    until(lambda: (bobs / "usage").stat().st_size < 1 << 32, "it is cut back")
    noise = os.urandom(1 << 16)

    def scribble() -> None:
        fd = os.open(bobs / "usage", os.O_WRONLY)
        for at in range(0, min(size, 4 << 20), len(noise)):
            os.pwrite(fd, noise, at)

    assert as_user(BOB, scribble) == "done"
    node.goes_on("1")
    assert as_user(BOB, lambda: os.truncate(bobs / "usage", 0)) == "done"
    time.sleep(1.2)  # several looks of the agent's at it
    node.goes_on("1")
    assert node.agent.popen.poll() is None
    assert "Traceback" not in node.agent.said()
    node.agent.end(signal.SIGKILL)
    node.agent = node.start_agent()
    node.goes_on("1")


def test_c14_many_ask_at_once_and_nonsense_is_no_matter(node: Node) -> None:
    node.start_job(ALICE, "1")
    idle = [socket.socket(socket.AF_UNIX) for _ in range(64)]
    for sock in idle:
        sock.connect(str(node.socket))
    for number, data in enumerate(
        (b"\0\0", b"x" * 100_000, b"version=1\0op=board\0\0", b"\xff\xfe\0\0", b"op=x\0\0")
    ):
        try:
            idle[number].sendall(data)
        except BrokenPipeError:
            continue
    asked = [as_user(BOB, lambda: local.ask(str(node.socket), op="status")) for _ in range(8)]

    assert asked == ["done"] * 8
    assert (node.socket.stat().st_mode & 0o777, node.socket.parent.stat().st_mode & 0o777) == (0o666, 0o755)
    with pytest.raises(PenstockError, match="1 to 120 printable characters and no slash"):
        local.ask(str(node.socket), op="board", job="a/b", run="0" * 32)
    with pytest.raises(PenstockError, match="answers questions of version 1, not 9"):
        local.ask(str(node.socket), op="status", version="9")
    for sock in idle:
        sock.close()
    node.goes_on("1")


CGROUPS = [
    ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", "4711"),
    ("5:memory:/slurm/uid_1000/job_4711_3/step_batch\n0::/\n", "4711_3"),
    ("0::/pbs_jobs.service/jobid/123.server\n", "123.server"),
    ("4:cpuset:/lsf/cluster1/job.812.5.99/x\n", "812"),
    ("0::/user.slice/user-0.slice/session-job_x.scope\n", ""),
    ("0::/home/job_12evil\n", ""),
    ("0::/user.slice/user-1000.slice/user@1000.service/job_4711/x\n", ""),
    ("0::/user.slice/user-1000.slice/user@1000.service/system.slice/slurmstepd.scope/job_4711/x\n", ""),
    ("0::/x/job_4711/step_0\n", ""),
    ("0::/system.slice/n1_slurmstepd.scope/job_4711/step_0\n", "4711"),
    ("", ""),
]


@pytest.mark.parametrize("text, job", CGROUPS)
def test_the_schedulers_cgroup_names_the_job(text: str, job: str) -> None:
    assert identity.job_of_cgroup(text) == job


def test_who_cannot_be_looked_at_is_in_no_job_at_all() -> None:
    """A process that connected and ended, while its child goes on asking over the same socket."""
    child = subprocess.Popen(["true"])
    child.wait()

    with pytest.raises(DeniedError, match=f"process {child.pid} asks and cannot be looked at"):
        identity.cgroup_of(child.pid)


def test_what_a_process_claims_is_believed_only_where_nothing_else_is_known() -> None:
    sure = {"4711": ALICE}

    assert identity.decide("99", "4711", ALICE, sure) == ("4711", True)
    assert identity.decide("99", "", BOB, sure) == ("99", False)
    with pytest.raises(DeniedError, match="job 4711 is another user's: the scheduler's cgroup says so"):
        identity.decide("4711", "", BOB, sure)
    with pytest.raises(DeniedError, match="yours, but this process is not in it"):
        identity.decide("4711", "", ALICE, sure)
