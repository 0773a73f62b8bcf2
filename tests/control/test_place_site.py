# SPDX-License-Identifier: Apache-2.0
"""One planner for a site: `penstock run --place` on two hosts places through the controller, by one ledger."""

import collections
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import PENSTOCK, until
from plane import Site

from penstock.control import local, wire
from penstock.targets import lov

pytestmark = pytest.mark.root
PYTHON = str(Path(sys.executable).resolve())
MIB = 1 << 20
APP = """
import os, sys
top, run, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.makedirs(f"{top}/{run}", exist_ok=True)
for rank in range(count):
    with open(f"{top}/{run}/part{rank:04d}.dat", "wb") as file:
        file.write(b"x" * 262144)
if len(sys.argv) > 4:
    print("here", flush=True)
    sys.stdin.readline()
    with open(f"{top}/{run}/part{count:04d}.dat", "wb") as file:
        file.write(b"x" * 262144)
"""


class Placed:
    """A testbed, a controller, and two hosts with agents that see the testbed."""

    def __init__(self, site: Site, bed: Any, folder: Path) -> None:
        self.site, self.bed, self.top = site, bed, Path(bed.path)
        self.app = folder / "app.py"
        self.app.write_text(APP)

    def agents(self, *names: str) -> None:
        for name in names:
            held = {"run.mounts": str(self.top), "place.every": "500ms"}
            self.site.start_agent(name, **held)

    def env(self, node: str) -> dict[str, str]:
        return self.site.env("user") | {
            "PENSTOCK_AGENT_SOCKET": str(self.site.socket(node)),
            "PENSTOCK_PLACE_SMALL": "64KiB",
            "PENSTOCK_PLACE_WAIT": "60s",
        }

    def words(self, run: str, *more: str, options: tuple[str, ...] = (), count: int = 6) -> list[str]:
        run_it = [str(PENSTOCK), "run", "--place", "--mount", str(self.top), *options, "--"]
        return [*run_it, PYTHON, str(self.app), str(self.top), run, str(count), *more]

    def run(self, node: str, run: str, job: str = "", **options: Any) -> str:
        """What is said on standard error."""
        env = self.env(node) | ({"SLURM_JOB_ID": job} if job else {}) | options.pop("env", {})
        done = subprocess.run(
            self.words(run, **options), env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    def start(self, node: str, run: str, job: str, **env: str) -> "subprocess.Popen[str]":
        """One that waits for a line when its files are there; then it makes one more."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        made = subprocess.Popen(
            self.words(run, "wait"), env=self.env(node) | {"SLURM_JOB_ID": job} | env, text=True, **pipes
        )
        assert made.stdout is not None and made.stdout.readline() == "here\n", made.communicate()[1]
        return made

    def load(self, *runs: str) -> dict[int, int]:
        """Files by target."""
        found: collections.Counter[int] = collections.Counter()
        for run in runs:
            for path in (self.top / run).iterdir():
                found.update(lov.decode(os.getxattr(path, lov.XATTR)).parts[0].osts)
        return dict(found)

    def show(self, node: str) -> Any:
        done = subprocess.run(
            [str(PENSTOCK), "place", "show", "--json"],
            env=self.env(node),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return json.loads(done.stdout)

    def plans(self, node: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(local.ask(str(self.site.socket(node)), op="plans")["json"])[
            "plans"
        ]
        return found

    def counted(self) -> dict[str, int]:
        done = subprocess.run(
            [str(PENSTOCK), "report", "--json"],
            env=self.env("n1"),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        found: dict[str, int] = json.loads(done.stdout)["placed"]
        return found


@pytest.fixture
def placed(make_testbed: Any, tmp_path: Path) -> Iterator[Placed]:
    bed = make_testbed(oss=3, osts=4)
    with Site(tmp_path) as site:
        site.start_controller()
        yield Placed(site, bed, tmp_path)


def test_two_jobs_on_two_hosts_share_one_ledger(placed: Placed) -> None:
    placed.agents("n1", "n2")
    assert placed.run("n1", "out1", "1") == ""
    placed.run("n1", "out2", "2")
    until(lambda: not placed.plans("n1"), "the promises of runs that are over go")

    first = placed.start("n1", "out3", "3")
    second = placed.start("n2", "out4", "4")
    (one,), (other,) = placed.plans("n1"), placed.plans("n2")
    shown = placed.show("n2")
    for running in (first, second):
        assert running.communicate("\n", timeout=60)[1] == ""

    assert (
        max(placed.load("out3", "out4").values()) <= 2
    )  # twelve targets for twelve files, and two nobody expected
    assert (
        one["promised_bytes"].keys() & other["promised_bytes"].keys() == set()
    )  # six targets each, of twelve
    assert one["file_system"] == other["file_system"] and one["figures_age_s"] < 60
    assert [row["plan_ns"] for row in shown["site_plans"]] == [other["plan_ns"]]
    (going,) = [row for row in shown["runs"] if row["running"]]  # not the first two, which are over
    assert going["counts"]["plan_ns"] == other["plan_ns"]
    until(lambda: not placed.plans("n1") and not placed.plans("n2"), "both are over")
    ended = [row["run"] for row in placed.show("n2")["runs"]]
    assert going["run"] in ended and len(ended) == len(set(ended)) == 4  # by its own id, not its job's
    counts = placed.counted()
    assert (counts["expected"], counts["placed"]) == (7, 7)  # the last by its pattern alone


@pytest.mark.parametrize("answers", [True, False])
def test_a_plan_that_comes_later_goes_onto_the_board_of_the_running_program(
    placed: Placed, answers: bool
) -> None:
    """The start waits for nobody; what it had until then counts."""
    if answers:
        placed.agents("n1")
    placed.run("n1", "out1")
    placed.run("n1", "out2")
    running = placed.start("n1", "out3", "5", PENSTOCK_PLACE_WAIT="0s")

    def has_plan() -> bool:
        rows = [row for row in placed.show("n1")["runs"] if row["running"]]
        return bool(rows) and rows[0]["counts"].get("plan_ns", 0) > 0

    until(has_plan, "the plan is on the board")
    assert running.communicate("\n", timeout=60)[1] == ""
    counts = placed.counted()
    assert counts.get("early", 0) + counts.get("expected", 0) + counts.get("unexpected", 0) == 7
    assert counts["expected"] >= 1 and counts["placed"] >= 1  # the last one found the plan
    until(lambda: placed.show("n1")["promised_bytes"] == {}, "its promise is over with it")


def test_a_controller_killed_while_it_plans(placed: Placed) -> None:
    """The run goes on with two random choices, and who comes back hears what stands promised."""
    placed.agents("n1")
    placed.run("n1", "out1")
    running = placed.start("n1", "out2", "7")
    (standing,) = placed.plans("n1")
    controller = placed.site.controller
    assert controller is not None
    controller.popen.send_signal(signal.SIGSTOP)  # it will not answer ...
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    asking = subprocess.Popen(
        placed.words("out3"), env=placed.env("n1") | {"SLURM_JOB_ID": "8"}, text=True, **pipes
    )
    controller.end(signal.SIGKILL)  # ... ever
    _, said = asking.communicate(timeout=120)
    assert asking.returncode == 0
    assert "two random choices hold" in said
    assert sum(placed.load("out3").values()) == 6

    placed.site.start_controller()

    def connected() -> bool:
        said = json.loads(local.ask(str(placed.site.socket("n1")), op="status")["json"])
        return bool(said["controller"]["connected"])

    until(connected, "the agent is back")
    later = placed.start("n1", "out4", "9")
    (new,) = [row for row in placed.plans("n1") if row["plan_ns"] != standing["plan_ns"]]
    assert new["promised_bytes"] and not new["promised_bytes"].keys() & standing["promised_bytes"].keys()
    for one in (running, later):
        one.communicate("\n", timeout=60)
    until(lambda: not placed.plans("n1"), "both are over")


def test_absurd_numbers_and_foreign_plans_are_refused(placed: Placed) -> None:
    fake = placed.site.fake("n9")
    fake.hear("welcome")
    eight = np.array([1e9], "<f8").tobytes()
    one, two = (np.array([n], "<u4").tobytes() for n in (1, 0))
    byte = b"\1"

    def ask(**more: Any) -> str:
        held = {"size": eight, "count": one, "files": one, "pool": two, "fixed": byte, "file_system": "x:y"}
        fake.send(wire.FromAgent(wanted=wire.Wanted(number=5, **(held | more))))
        found = fake.hear("allotted")
        assert found.number == 5 and not found.target
        return str(found.why)

    assert ask() == "no agent has told of its targets lately"
    targets = {
        "file_system": "x:y",
        "servers": ["oss0"],
        "target": one,
        "server": two,
        "size": eight,
        "free": eight,
        "moved": eight,
        "usable": byte,
    }
    for name, value in (("free", b"\0" * 7), ("size", np.array([float("nan")], "<f8").tobytes())):
        fake.send(wire.FromAgent(targets=wire.Targets(**(targets | {name: value}))))
        assert ask() == "no agent has told of its targets lately"
    fake.send(wire.FromAgent(targets=wire.Targets(**targets)))
    assert ask(size=np.array([1e300], "<f8").tobytes()) == "a file's size is absurd"
    assert ask(count=b"\1") == "what n9 asks for: a column is not as long as its rows"
    assert ask(files=np.array([1 << 30], "<u4").tobytes()) == "it is for no files or for more than 20000"
    assert ask(pool=one) == "it names a pool that it does not have"
    small = np.array([1e6], "<f8").tobytes()
    fake.send(
        wire.FromAgent(
            wanted=wire.Wanted(
                number=6, size=small, count=one, files=one, pool=two, fixed=byte, file_system="x:y"
            )
        )
    )
    found = fake.hear("allotted")
    assert (found.why, list(np.frombuffer(found.target, "<u4"))) == ("", [1])
    mds = {
        "mds": ["mds0"],
        "mds_cpu": np.array([0.9], "<f8").tobytes(),
        "mds_memory": np.array([0.1]).tobytes(),
    }
    fake.send(wire.FromAgent(targets=wire.Targets(**(targets | mds))))
    assert ask(size=small) == "mds0 uses 90% of its processors, the limit is 70%"
