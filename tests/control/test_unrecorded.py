# SPDX-License-Identifier: Apache-2.0
"""Runs on the board of a node's agent: whoever is killed and whoever stays longest, all that was counted is kept."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import PENSTOCK, call, log, row, runs, until
from plane import Process, Site, settings

from penstock.control import boards, local

# Writes a byte, and more of them when told to; then ends.
WRITER = """
import os, sys, time
out, stop = sys.argv[1:]
with open(out, "wb", buffering=0) as file:
    file.write(b"x")
    while not os.access(stop, os.F_OK):
        time.sleep(0.02)
    for _ in range(1000):
        file.write(b"x")
"""


class Node:
    """An agent of one user's own, and a run on its board."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site, self.folder = site, folder
        self.socket = site.socket("own")
        self.out, self.stop = folder / "out", folder / "stop"
        held = {"agent.socket": str(self.socket), "agent.boards": str(site.boards / "own")}
        self.words = [str(PENSTOCK), "agent", "--json", "--policy", str(site.policy), *settings(held)]
        self.env = site.env("user") | {"PENSTOCK_AGENT_SOCKET": str(self.socket), "SLURM_JOB_ID": "4711"}
        self.env |= {"PENSTOCK_BOARD_DIR": str(site.boards / "by-hand")}  # not what other tests' runs left
        self.start_agent()

    def start_agent(self) -> None:
        self.agent = Process(self.words, self.site.env("own"), self.folder / "own.log")
        self.site.processes.append(self.agent)

    def run(self, *before: str) -> "subprocess.Popen[bytes]":
        words = [
            str(PENSTOCK),
            "run",
            "--",
            *before,
            sys.executable,
            "-c",
            WRITER,
            str(self.out),
            str(self.stop),
        ]
        process = subprocess.Popen(words, env=self.env)
        until(self.out.exists, "it writes")
        return process

    def jobs(self) -> list[str]:
        return [job["job"] for job in json.loads(local.ask(str(self.socket), op="status")["json"])["jobs"]]

    def unrecorded(self) -> list[dict[str, str]]:
        return list(json.loads(local.ask(str(self.socket), op="unrecorded")["json"]))

    def collect(self) -> list[dict[str, str]]:
        done = call(PENSTOCK, "runs", "collect", "--json", env=self.env)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout)["boards"])

    def bytes(self) -> int:
        [run] = runs(self.env)
        try:
            return row(run, self.out).bytes_written
        except ValueError:
            return 0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Site(tmp_path) as site:
        yield Node(site, tmp_path)


def test_counts_after_a_kill_of_the_recorder_are_kept_until_they_are_collected(node: Node) -> None:
    """kill -9 of penstock run: its program goes on, the job ends, the agent is killed as well; nothing is lost."""
    process = node.run()
    process.send_signal(signal.SIGKILL)
    process.wait()
    node.stop.touch()
    until(lambda: node.out.stat().st_size == 1001, "the program ends")
    until(lambda: node.jobs() == [], "the job is over for the agent", 90)
    node.agent.end(signal.SIGKILL)
    node.start_agent()
    [kept] = node.unrecorded()
    brought = node.collect()

    assert [found["board"] for found in brought] == [kept["board"]]
    assert node.bytes() == 1001
    assert node.unrecorded() == node.collect() == []


def test_a_rank_that_outlives_the_first_is_recorded_to_its_end(node: Node) -> None:
    """The command ends, what it left in the background writes on: a collector sees it out, and tells the agent."""
    process = node.run("sh", "-c", '"$@" & while [ ! -e "$4" ]; do sleep 0.05; done', "sh")
    assert process.wait(timeout=30) == 0
    assert len(node.unrecorded()) == 1
    node.stop.touch()
    until(lambda: node.unrecorded() == [], "its record is written", 60)

    assert node.bytes() == 1001
    assert log(node.env) == []


def test_only_the_newest_are_kept_for_a_day() -> None:
    def board(uid: int, at_s: float, recorded: bool = False, counted: bool = True) -> boards.Board:
        about = boards.About("1", "", "", "", uid, False, 0.0, "", ["a"], recorded=["a"] if recorded else [])
        return boards.Board(Path("/nowhere"), about, None, 0, 0, at_s, counted)

    many = [board(1, float(at)) for at in range(20)]
    other, old = board(2, 0.0), board(3, -boards.KEEP_S)
    kept = boards.still_kept([*many, other, old, board(4, 5.0, True), board(5, 5.0, counted=False)], 20.0)

    assert [b.last_alive_s for b in kept if b.about.uid == 1] == [float(at) for at in range(19, 11, -1)]
    assert [b.about.uid for b in kept if b.about.uid != 1] == [2]


def test_a_run_that_comes_again_is_recorded_again() -> None:
    about = boards.About("1", "", "", "", os.getuid(), False, 0.0, "")
    assert about.join("a")
    assert not about.join("a")
    about.recorded.append("a")
    assert about.unrecorded == []
    assert about.join("a")
    assert about.unrecorded == ["a"]
