# SPDX-License-Identifier: Apache-2.0
"""A small site on one machine: the controller, an agent for each job's node, and jobs that replay traces under limits.

All of it is what a site runs: `penstock controller` with a policy, `penstock agent` with certificates of an authority
made for this, penstock-replay under `penstock-run`.  Here only jobs are started, and the controller is asked ten times
a second what it grants.

Invariants:
1. What a figure shows is counted: by the replayer (demanded, served) and by the controller (granted).
2. Processes, boards and folders are gone at the end, also after an error.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock.base.errors import NoControllerError
from penstock.control import client
from penstock.policy import rules, rules_toml
from penstock.runs import board
from penstock.tools import replay

PENSTOCK, PENSTOCK_RUN = (Path(sys.prefix) / "bin" / name for name in ("penstock", "penstock-run"))
PERIOD_S = 0.1  # how often is looked
HOST = "127.0.0.1"


def policy_of(text: str) -> rules.Policy:
    policy, mistakes = rules_toml.parse(text, frozenset(board.operations()))
    if policy is None:
        raise SystemExit("\n".join(f"line {m.line}: {m.text}" for m in mistakes))
    return policy


@dataclass(frozen=True)
class Plan:
    """A job: when it enters, and its schedule (lines of penstock-replay)."""

    name: str
    enter_s: float
    lines: tuple[str, ...]
    interval_s: float = PERIOD_S
    io_bytes: int = 4096


@dataclass
class Cycle:
    """What the controller said at one time: by job, then limit."""

    time_s: float
    granted: dict[str, dict[str, float]]
    asked: dict[str, dict[str, float]]
    waiting: dict[str, dict[str, int]]


@dataclass
class Job:
    """A running job, and what it told."""

    plan: Plan
    process: "subprocess.Popen[str]"
    begin_s: float = 0.0  # of its schedule, on the site's clock
    intervals: list[dict[str, Any]] = field(default_factory=list)
    sum: dict[str, Any] = field(default_factory=dict)
    released: bool = False
    done: bool = False


@dataclass
class Outcome:
    """What happened: on the site's clock, in seconds."""

    name: str
    jobs: dict[str, Job]
    cycles: list[Cycle]

    def end_s(self, job: str) -> float:
        """When a job's last operation was done."""
        found = self.jobs[job]
        return found.begin_s + float(found.sum["elapsed_s"])

    def counts(
        self, job: str, which: int, width_s: float = PERIOD_S, operations: Sequence[str] = ()
    ) -> "np.ndarray[Any, Any]":
        """Operations of a job (these, or all) demanded (0) or served (1), in intervals of the site's clock."""
        found = self.jobs[job]
        last = found.begin_s + (len(found.intervals) + 1) * found.plan.interval_s
        cells = np.zeros(int(last / width_s) + 2)
        for row in found.intervals:
            at = int((found.begin_s + row["start_s"]) / width_s)
            counted = row["operations"]
            cells[at] += sum(counted[name][which] for name in operations or counted)
        return cells

    def total(self, which: int, width_s: float = PERIOD_S) -> "np.ndarray[Any, Any]":
        rows = [self.counts(job, which, width_s) for job in self.jobs]
        cells = np.zeros(max(map(len, rows)))
        for row in rows:
            cells[: len(row)] += row
        return cells


class Services:
    """A controller with a policy and an agent for each node, joined; they end with the stack."""

    def __init__(self, policy: str, nodes: Sequence[str], stack: ExitStack) -> None:
        import trustme

        self.stack = stack
        self.top = Path(tempfile.mkdtemp(prefix="penstock-site.", dir="/dev/shm"))
        stack.callback(shutil.rmtree, self.top, ignore_errors=True)
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(self.top / "ca.pem"))
        path = self.top / "site.toml"
        path.write_text(policy)
        words = [
            "controller",
            "--json",
            "--policy",
            str(path),
            "--listen",
            f"{HOST}:0",
            "--tools",
            f"{HOST}:0",
        ]
        [ports] = self._ready([self._start("controller", words, {}, HOST)])
        state = self.top / "controller" / "controller"
        self.address = client.Address(
            f"{HOST}:{ports['tools']}", str(self.top / "ca.pem"), str(state / "admin.token")
        )
        made = [str(PENSTOCK), "controller", "token", "--uses", str(len(nodes))]
        token = subprocess.run(made, env=self.env("controller"), check=True, capture_output=True).stdout
        (self.top / "token").write_bytes(token)
        agents = []
        for node in nodes:
            self.socket(node).parent.mkdir()
            words = ["agent", "--json", "--node", node, "--token-file", str(self.top / "token")]
            words += ["--controller", f"{HOST}:{ports['agents']}"]
            held = {"agent.boards": str(self.top / f"{node}.boards"), "agent.socket": str(self.socket(node))}
            agents.append(self._start(node, words, held, node))
        self._ready(agents)
        deadline_s = time.monotonic() + 60
        while client.ask(self.address, "Status").nodes < len(nodes):
            if time.monotonic() > deadline_s:
                raise SystemExit("the agents do not find their controller")
            time.sleep(0.05)

    def env(self, name: str) -> dict[str, str]:
        """What is under control is what is recorded: no mount."""
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.top),
            "PENSTOCK_STATE_DIR": str(self.top / name),
            "PENSTOCK_RUN_DETECT": "none",
        }

    def socket(self, node: str) -> Path:
        return self.top / f"s-{node}" / "agent.sock"

    def _start(
        self, name: str, words: list[str], held: dict[str, str], host: str
    ) -> "subprocess.Popen[bytes]":
        certificate = self.authority.issue_cert(name, host)
        chain, key = self.top / f"{name}.pem", self.top / f"{name}.key"
        certificate.private_key_pem.write_to_path(str(key))
        for blob in certificate.cert_chain_pems:
            blob.write_to_path(str(chain), append=True)
        held = {
            **held,
            "tls.certificate": str(chain),
            "tls.key": str(key),
            "tls.ca": str(self.top / "ca.pem"),
        }
        more = [word for pair in held.items() for word in ("--set", "=".join(pair))]
        process = subprocess.Popen(
            [str(PENSTOCK), *words, *more],
            env=self.env(name),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.top / f"{name}.log").open("wb"),
        )
        self.stack.callback(_stop, process)
        return process

    def _ready(self, processes: Sequence["subprocess.Popen[bytes]"]) -> list[dict[str, Any]]:
        """What each says when it can be asked."""
        found = []
        for process in processes:
            assert process.stdout is not None
            text = b""
            while not text.endswith(b"}\n"):
                line = process.stdout.readline()
                if not line:
                    raise SystemExit("\n".join(log.read_text() for log in sorted(self.top.glob("*.log"))))
                text += line
            found.append(json.loads(text))
        return found


class Site:
    """Runs jobs under a policy."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def run(self, name: str, policy: str, plans: Sequence[Plan]) -> Outcome:
        """All jobs to their ends, each on a node of its own."""
        waiting = sorted(plans, key=lambda plan: plan.enter_s)
        jobs: dict[str, Job] = {}
        cycles: list[Cycle] = []
        with ExitStack() as stack:
            services = Services(policy, [plan.name for plan in plans], stack)
            start_s = time.monotonic()
            turn = 0
            while waiting or any(not job.done for job in jobs.values()):
                while waiting and waiting[0].enter_s <= time.monotonic() - start_s:
                    plan = waiting.pop(0)
                    jobs[plan.name] = self._start(plan, services, start_s)
                cycle = _look(services, [key for key, job in jobs.items() if not job.sum], start_s)
                if cycle.granted:
                    cycles.append(cycle)
                for job in jobs.values():
                    _end(services, job)
                turn += 1
                time.sleep(max(0.0, start_s + turn * PERIOD_S - time.monotonic()))
                turn = max(turn, int((time.monotonic() - start_s) / PERIOD_S))
        return Outcome(name, jobs, cycles)

    def _start(self, plan: Plan, services: Services, start_s: float) -> Job:
        how = replay.How(
            self.place, files=16, io_bytes=plan.io_bytes, file_bytes=1 << 20, interval_s=plan.interval_s
        )
        identity = {"PENSTOCK_AGENT_SOCKET": str(services.socket(plan.name)), "SLURM_JOB_ID": plan.name}
        process = subprocess.Popen(
            [str(PENSTOCK_RUN), "--", *replay.command(how)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=services.env(f"home-{plan.name}") | identity,
        )
        services.stack.callback(_stop, process)
        assert process.stdin is not None
        process.stdin.writelines(plan.lines)
        process.stdin.close()
        job = Job(plan, process)
        threading.Thread(target=_listen, args=(job, start_s), daemon=True).start()
        return job


def _look(services: Services, names: Sequence[str], start_s: float) -> Cycle:
    """What the controller grants these jobs now; nothing of one that it has not decided on yet."""
    cycle = Cycle(time.monotonic() - start_s, {}, {}, {})
    try:
        rows = client.ask(services.address, "Jobs").jobs
    except NoControllerError:  # a busy machine: it is asked again
        return cycle
    for row in rows:
        if row.job.id in names and row.held and all(held.grant > 0 for held in row.held):
            cycle.granted[row.job.id] = {held.limit: round(held.grant, 9) for held in row.held}
            cycle.asked[row.job.id] = {held.limit: held.asked for held in row.held}
            cycle.waiting[row.job.id] = {held.limit: round(held.waiting) for held in row.held}
    return cycle


def _end(services: Services, job: Job) -> None:
    """Cleaning up is nobody's load: no limit on it."""
    if job.sum and not job.released:
        client.ask(services.address, "ReleaseJobs", job=job.plan.name, who="experiment")
        job.released = True
    if job.released and not job.done and job.process.poll() is not None:
        job.done = True
        if job.process.returncode:
            raise SystemExit(f"{job.plan.name} ended with status {job.process.returncode}")


def _listen(job: Job, start_s: float) -> None:
    assert job.process.stdout is not None
    for line in job.process.stdout:
        row = json.loads(line)
        if "begin_monotonic_ns" in row:
            job.begin_s = row["begin_monotonic_ns"] / 1e9 - start_s
        elif "interval" in row:
            job.intervals.append(row)
        else:
            job.sum = row


def _stop(process: "subprocess.Popen[Any]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def windows(cells: "np.ndarray[Any, Any]", width_s: float, window_s: float = 1.0) -> "np.ndarray[Any, Any]":
    """Sums over all windows of so long that lie within."""
    count = round(window_s / width_s)
    return np.convolve(cells, np.ones(count), mode="valid") if len(cells) >= count else np.zeros(0)
