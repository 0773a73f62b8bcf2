# SPDX-License-Identifier: Apache-2.0
"""A small site on one machine: jobs that replay traces under limits, and a loop that decides as the controller does.

Each job is a penstock-replay of its own under libpenstock.so, with a board of its own.  Every period the loop collects
what all boards counted, asks penstock.policy.deciding, and writes the rates to the boards: lower ones first, so that
the sum never stands above the total.

Invariants:
1. What a figure shows is counted: by the replayer (demanded, served) and by the loop (granted).
2. Processes, boards and folders are gone at the end, also after an error.
"""

import json
import os
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

from penstock.policy import deciding, rules, rules_toml
from penstock.runs import board, limits
from penstock.tools import replay

LIBRARY = Path(sys.prefix) / "lib" / "penstock" / "libpenstock.so"
PERIOD_S = 0.1
LEASE_S = 5.0


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
    """One decision: by job, then limit."""

    time_s: float
    granted: dict[str, dict[str, float]]
    asked: dict[str, dict[str, float]]
    waiting: dict[str, dict[str, int]]


@dataclass
class Job:
    """A running job, and what it told."""

    plan: Plan
    folder: Path
    hold: limits.Hold
    process: "subprocess.Popen[str]"
    begin_s: float = 0.0  # of its schedule, on the site's clock
    rates: dict[str, float] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    intervals: list[dict[str, Any]] = field(default_factory=list)
    sum: dict[str, Any] = field(default_factory=dict)
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


class Site:
    """Runs jobs under a policy."""

    def __init__(self, place: Path, period_s: float = PERIOD_S, speed: float = 60.0) -> None:
        self.place, self.period_s, self.speed = place, period_s, speed

    def run(self, name: str, policy: rules.Policy, plans: Sequence[Plan]) -> Outcome:
        """All jobs to their ends.  The policy's times are those of the trace: `speed` times the clock's."""
        waiting = sorted(plans, key=lambda plan: plan.enter_s)
        jobs: dict[str, Job] = {}
        cycles: list[Cycle] = []
        memory = deciding.Memory()
        with ExitStack() as stack:
            boards = Path(tempfile.mkdtemp(prefix="penstock-site.", dir="/dev/shm"))
            stack.callback(shutil.rmtree, boards, ignore_errors=True)
            start_s = time.monotonic()
            turn = 0
            while waiting or any(not job.done for job in jobs.values()):
                now_s = time.monotonic() - start_s
                while waiting and waiting[0].enter_s <= now_s:
                    plan = waiting.pop(0)
                    jobs[plan.name] = self._start(plan, policy, boards, start_s, stack)
                living = {key: job for key, job in jobs.items() if not job.done}
                if policy.limits and living:
                    cycle, memory = self._decide(now_s, policy, living, memory)
                    cycles.append(cycle)
                for job in jobs.values():
                    self._lift(job)
                turn += 1
                time.sleep(max(0.0, start_s + turn * self.period_s - time.monotonic()))
                turn = max(turn, int((time.monotonic() - start_s) / self.period_s))
        return Outcome(name, jobs, cycles)

    def _start(self, plan: Plan, policy: rules.Policy, boards: Path, start_s: float, stack: ExitStack) -> Job:
        folder = boards / plan.name
        board.create(folder, os.urandom(16), board.Stages.PASS, board.Under.RECORD, board.noise())
        hold = stack.enter_context(limits.Hold(folder))
        # At first a job has little: the loop gives it what it may have within a period.
        buckets = [limits.of(limit, limit.rate / 100) for limit in policy.limits]
        hold.apply(limits.spec(buckets, lease_s=LEASE_S, under=board.Under.RECORD, weights=policy.weights))
        how = replay.How(
            self.place, files=16, io_bytes=plan.io_bytes, file_bytes=1 << 20, interval_s=plan.interval_s
        )
        process = subprocess.Popen(
            replay.command(how),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_PRELOAD": str(LIBRARY), "PENSTOCK_BOARD": str(folder)},
        )
        stack.callback(_stop, process)
        assert process.stdin is not None
        process.stdin.writelines(plan.lines)
        process.stdin.close()
        job = Job(plan, folder, hold, process)
        job.rates = {bucket.name: bucket.rate for bucket in buckets}
        threading.Thread(target=_listen, args=(job, start_s), daemon=True).start()
        return job

    def _decide(
        self, now_s: float, policy: rules.Policy, jobs: dict[str, Job], memory: deciding.Memory
    ) -> tuple[Cycle, deciding.Memory]:
        names = list(jobs)
        rows, seen = [], []
        for number, job in enumerate(jobs.values()):
            held = {row.name: row for row in job.hold.observe()}
            for which, limit in enumerate(policy.limits):
                row = held[limit.name]
                asked = (row.asked - job.asked.get(limit.name, 0.0)) / self.period_s
                job.asked[limit.name] = row.asked
                rows.append((number, which, asked, row.waiting, job.rates[limit.name]))
                seen.append((names[number], limit.name, asked, row.waiting))
        of_rows = deciding.Rows(
            job=np.array([row[0] for row in rows]),
            node=np.array([row[0] for row in rows]),
            limit=np.array([row[1] for row in rows]),
            asked=np.array([row[2] for row in rows], dtype=float),
            waiting=np.array([row[3] for row in rows], dtype=float),
            grant=np.array([row[4] for row in rows], dtype=float),
            jobs=tuple(rules.Job(name, name) for name in names),
        )
        grants, memory = deciding.decide(now_s * self.speed, of_rows, policy, memory)
        cycle = Cycle(now_s, *({name: {} for name in names} for _ in range(3)))
        changes = []
        for (job, limit, asked, waiting), rate in zip(seen, grants.rate.tolist(), strict=True):
            cycle.granted[job][limit], cycle.asked[job][limit], cycle.waiting[job][limit] = (
                rate,
                asked,
                waiting,
            )
            changes.append((rate - jobs[job].rates[limit], job, limit, rate))
        by_name = {limit.name: limit for limit in policy.limits}
        for _, name, limit, rate in sorted(changes):  # what goes down goes first
            jobs[name].rates[limit] = rate
            jobs[name].hold.change(limits.of(by_name[limit], rate), LEASE_S)
        return cycle, memory

    def _lift(self, job: Job) -> None:
        """Cleaning up is nobody's load: no limit on it."""
        if job.sum and not job.done:
            job.hold.apply(limits.spec([], lease_s=LEASE_S))
            job.done = job.process.wait(60) is not None
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


def _stop(process: "subprocess.Popen[str]") -> None:
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
