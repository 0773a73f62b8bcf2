# SPDX-License-Identifier: Apache-2.0
"""What the control plane costs and how soon it acts: a cycle of 100,000 rows, and who is killed.

Agents are emulated (a connection each, over TLS on loopback, in other processes); the controller and its aggregators
are the deployed ones, and CPU time is theirs.  They decide twice a second here instead of ten times, so that emulated
agents and controller fit on two cores; a cycle's cost does not depend on its pace.  Kills are of real agents and
controllers with a real job; times include starting Python again.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame import TOP, Row, at_most, cpu_s_of, interleave, seen
from penstock.control import fleet as fleets
from penstock.control import local, wire
from penstock.policy.demand import asked as asked_of
from penstock.policy.rules import Limit, Policy

sys.path.insert(0, str(TOP / "tests/control"))
from plane import Process, Site
from plane_jobs import asked, row, start

TITLE = "control: a cycle of 100,000 rows, idle shares, kills"
EVERY_S = 0.5
WINDOW_S = 3.0
SLOW = '[control]\ninterval = "500ms"\nlease = "10s"\n[[limit]]\nname = "m"\nrate = "300k/s"\n'
DIRECT = (1000, 100)  # agents, rows of each
SPLIT = (2500, 40)
AGGREGATORS = 5
JOBS = 1000


# ---- the decision alone ----


def deciding() -> Callable[[], float]:
    """CPU ms of one cycle: reports read, the decision, grants made; no socket."""
    fleet = fleets.Fleet(Policy(limits=(Limit("m", 300e3),)))
    reports = []
    agents, width = DIRECT
    for number in range(agents):
        chance = np.random.default_rng(number)
        member = fleets.Member(f"n{number}")
        fleet.join(member)
        said = wire.Rows(
            epoch=1,
            policy=1,
            jobs=[wire.Job(id=str(i), user=f"u{i % 50}") for i in chance.choice(JOBS, width, replace=False)],
            job=np.arange(width, dtype="<u4").tobytes(),
            limit=np.zeros(width, dtype="<u4").tobytes(),
        )
        fleets.hear(fleet, member, (wire.FromAgent(rows=said),), 0.0)
        columns = {"asked": chance.exponential(50, width), "waiting": (chance.random(width) < 0.3) * 3.0}
        packed = {key: column.tobytes() for key, column in columns.items()}
        reports.append((member, wire.frame(wire.FromAgent(report=wire.Report(epoch=1, **packed)))))

    def cycle() -> float:
        began = time.process_time()
        for member, data in reports:
            fleets.hear(fleet, member, wire.Frames(wire.FromAgent).feed(data), 0.1)
        for member, rate in fleet.cycle(0.1, 0.1).grants:
            wire.frame(wire.ToAgent(grants=wire.Grants(epoch=member.epoch, lease_s=2.0, rate=rate)))
        return (time.process_time() - began) * 1000

    cycle()
    return cycle


# ---- as deployed ----


class Crowd:
    """Emulated agents in a process of their own."""

    def __init__(self, site: Site, port: int, first: int, count: int, rows: int) -> None:
        words = [site.host, port, site.folder, first, count, JOBS, rows, EVERY_S, site.token(count)]
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._agents", *map(str, words)],
            cwd=TOP,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.line()

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline()

    def grants(self) -> int:
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()
        return int(self.line())

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()


def per_cycle(process: Process, crowd: Crowd) -> float:
    """CPU ms that a process took for each cycle, in a window."""
    cpu_s, count = cpu_s_of(process.popen), crowd.grants()
    time.sleep(WINDOW_S)
    cpu_s, count = cpu_s_of(process.popen) - cpu_s, crowd.grants() - count
    return cpu_s / max(1, count) * 1000


def direct(site: Site, crowds: list[Crowd]) -> Callable[[], float]:
    site.certificate("fleet", "*.fleet")
    controller = site.start_controller()
    crowds.append(Crowd(site, site.ports[0], 0, *DIRECT))
    return lambda: per_cycle(controller, crowds[-1])


def aggregated(site: Site, crowds: list[Crowd]) -> tuple[Callable[[], float], Callable[[], float]]:
    """CPU of the controller at the top, and of one aggregator."""
    site.certificate("fleet", "*.fleet")
    top = site.start_controller()
    below: list[tuple[Process, Crowd]] = []
    for number in range(AGGREGATORS):
        process, port = site.start_aggregator(f"agg{number}")
        each = SPLIT[0] // AGGREGATORS
        crowds.append(Crowd(_at(site, f"agg{number}"), port, number * each, each, SPLIT[1]))
        below.append((process, crowds[-1]))
    return lambda: per_cycle(top, below[0][1]), lambda: per_cycle(*below[0])


class _At:
    """A site as agents of one aggregator see it: tokens are the aggregator's."""

    def __init__(self, site: Site, name: str) -> None:
        self.host, self.folder = site.host, site.folder
        self.token = lambda uses: site.token(uses, name)


def _at(site: Site, name: str) -> Any:
    return _At(site, name)


# ---- how soon ----


def idle_share() -> float:
    """Seconds from the moment a neighbour stops until a greedy job has 95 % of all, at ten decisions a second.

    The agents' estimate of demand, the controller's cycle and their unequal phases; without sockets.
    """
    fleet = fleets.Fleet(Policy(limits=(Limit("m", 10e3),)))
    members = [fleets.Member(name) for name in ("greedy", "other")]
    for member in members:
        fleet.join(member)
        said = wire.Rows(epoch=1, policy=1, jobs=[wire.Job(id=member.node)], job=bytes(4), limit=bytes(4))
        fleets.hear(fleet, member, (wire.FromAgent(rows=said),), 0.0)
    stops_s, step_s = 2.0, 0.001
    rates = {"greedy": 5000.0, "other": 5000.0}
    drawn = {"greedy": 0.0, "other": 0.0}
    phases = dict(zip(("greedy", "other", "cycle"), np.random.default_rng().random(3) * 0.1, strict=True))
    for step in range(4000):
        now_s = step * step_s
        for name in drawn:
            drawn[name] += rates[name] * step_s * (name == "greedy" or now_s < stops_s)
        for member in members:
            if (step + round(phases[member.node] * 1000)) % 100 == 0:
                busy = member.node == "greedy" or now_s < stops_s
                rate = asked_of(drawn[member.node], 0.1, 5000.0)
                drawn[member.node] = 0.0
                packed = {"asked": np.array([rate]).tobytes(), "waiting": np.array([4.0 * busy]).tobytes()}
                report = wire.FromAgent(report=wire.Report(epoch=1, **packed))
                fleets.hear(fleet, member, (report,), now_s)
        if (step + round(phases["cycle"] * 1000)) % 100 == 0:
            for member, rate_ in fleet.cycle(now_s, now_s).grants:
                rates[member.node] = float(np.frombuffer(rate_)[0])
        if now_s > stops_s and rates["greedy"] >= 9500:
            return now_s - stops_s
    return float("inf")


def killed(site: Site, job: Any, which: str, agents: list[Process]) -> float:
    """Seconds from kill -9 until the job has a grant of the new one."""
    if which == "controller":
        assert site.controller is not None
        site.controller.popen.send_signal(signal.SIGKILL)
        began = time.monotonic()
        site.controller.popen.wait()
        site.start_controller()
    else:
        agents[-1].popen.send_signal(signal.SIGKILL)
        began = time.monotonic()
        agents[-1].popen.wait()
        agents.append(site.start_agent("n1"))
    while True:
        found = local.ask(str(site.socket("n1")), op="status")
        import json

        about = json.loads(found["json"])["controller"]
        ago = about["granted_ago_s"]
        if about["connected"] and ago is not None and ago < time.monotonic() - began - 0.001:
            held = row(site, "n1", "1", "all metadata")
            if held and held["lease_left_s"] > 0:
                return time.monotonic() - began
        time.sleep(0.01)


def rows(rounds: int) -> list[Row]:
    crowds: list[Crowd] = []
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place, name) for name in ("direct", "split", "kills")]
        for folder in folders:
            folder.mkdir()
        try:
            with Site(folders[0], SLOW) as one, Site(folders[1], SLOW) as many, Site(folders[2]) as site:
                top, aggregator = aggregated(many, crowds)
                cells = {
                    "alone": deciding(),
                    "direct": direct(one, crowds),
                    "top": top,
                    "aggregator": aggregator,
                    "idle": idle_share,
                }
                got = interleave(cells, rounds, "control")
                for crowd in crowds:
                    crowd.end()
                site.start_controller()
                agents = [site.start_agent("n1")]
                job = start(site, "n1", "1")
                while asked(site, "n1", "1") < 100:
                    time.sleep(0.05)
                kills = interleave(
                    {
                        which: lambda which=which: killed(site, job, which, agents)
                        for which in ("controller", "agent")
                    },
                    rounds,
                    "kills",
                )
                errors = 0.0
                try:
                    job.stop()
                except AssertionError:
                    errors = 1.0
        finally:
            for crowd in crowds:
                crowd.end()
    return [
        at_most("decision and framing alone, 1,000 agents × 100 rows", got["alone"], "ms CPU", 25),
        at_most("cycle over TLS, 1,000 × 100, controller", got["direct"], "ms CPU", 100, emulated=True),
        at_most(
            "cycle over TLS, 2,500 × 40 by 5 aggregators, controller",
            got["top"],
            "ms CPU",
            100,
            emulated=True,
        ),
        at_most("the same, each aggregator", got["aggregator"], "ms CPU", 100, emulated=True),
        at_most("idle reservation, 95 % with others", got["idle"], "s", 0.3, emulated=True),
        at_most("controller killed: granted again", kills["controller"], "s", 2),
        at_most("agent killed: granted again", kills["agent"], "s", 2),
        at_most("errors in the program over all kills", [errors], "errors", 0),
        seen("kills", [float(2 * rounds)], "kills"),
    ]
