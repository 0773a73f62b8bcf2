# SPDX-License-Identifier: Apache-2.0
"""A controller, agents and jobs, all real, on this machine: limits hold, are shown, and survive who is killed."""

import contextlib
import json
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import launching
import pytest
from launching import PENSTOCK, log, runs, until
from plane import POLICY, Process, Site, settings
from plane_jobs import asked, held_to, rate, row, start

from penstock.control import agent as agents
from penstock.control import local, wire
from penstock.policy.rules import Job, Limit


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as made:
        made.start_controller()
        yield made


def test_a_job_started_by_penstock_run_is_under_the_sites_limit(site: Site) -> None:
    site.start_agent("n1")
    job = start(site, "n1", "4711", threads=2)
    until(lambda: asked(site, "n1", "4711") > 100, "it runs")
    held_to(site, [("n1", "4711")], 850, 1150)
    shown = until(lambda: site.job("4711"), "penstock jobs shows it")
    held = until(lambda: (r := row(site, "n1", "4711")) and r["why"] and r, "the reason is told")
    screen = site.ask("status", node="n1")
    job.stop()

    assert (shown["held"][0]["limit"], shown["nodes"]) == ("all metadata", 1)
    assert held["delayed"] > 0
    assert "limit all metadata: held back for" in screen
    assert "it has all of all metadata: no other job asks" in screen
    assert log(job.env) == []
    [run] = runs(job.env)
    assert run.nodes


# So many calls, then nothing until its input ends.
COUNTED = """
import os, sys
for _ in range(int(sys.argv[1])):
    os.access("/tmp/penstock-no-such-name", os.F_OK)
print("done", flush=True)
sys.stdin.read()
os._exit(0)  # without the calls of Python's own end
"""


def counted(site: Site, calls: int) -> subprocess.Popen[str]:
    """A run in job 4711 that has made its calls and still lives."""
    env = site.env("home") | {"PENSTOCK_AGENT_SOCKET": str(site.socket("n1")), "SLURM_JOB_ID": "4711"}
    command = [str(PENSTOCK), "run", "--", sys.executable, "-c", COUNTED, str(calls)]
    job = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    assert job.stdout.readline() == "done\n"
    return job


def settled(site: Site) -> dict[str, Any]:
    """What status says once it has seen all that was done."""
    seen: list[Any] = [None]

    def same() -> Any:
        time.sleep(0.05)
        seen.append(row(site, "n1", "4711"))
        return seen[-1] is not None and seen[-1]["asked_in_all"] == (seen[-2] or {}).get("asked_in_all")

    until(same, "the agent has seen all calls")
    return dict(seen[-1])


def reported(site: Site, place: int) -> dict[str, Any]:
    """What the record of a run says of the site's limit; 0: the first of job 4711."""
    env = site.env("home")
    run = launching.runs(env)[place].id.hex()
    done = launching.call(PENSTOCK, "report", run, "--json", env=env)
    assert done.returncode == 0, done.stderr
    [limit] = json.loads(done.stdout)["limits"]
    return dict(limit)


def test_status_and_report_agree_on_what_a_limit_cost(tmp_path: Path) -> None:
    """The board is the job's: a run tells what came while it ran."""
    with Site(tmp_path, POLICY.replace("1k/s", "200/s")) as site:
        site.start_controller()
        site.start_agent("n1")
        first = counted(site, 150)
        alone = settled(site)
        second = counted(site, 50)
        both = settled(site)
        second.communicate(timeout=60)
        first.communicate(timeout=60)
        of_both, of_second = reported(site, 0), reported(site, 1)

    assert alone["delayed"] >= 100
    assert both["delayed"] > alone["delayed"]
    assert (of_both["limit"], of_both["rate"]) == ("all metadata", pytest.approx(200, rel=0.5))
    assert of_both["delayed"] == both["delayed"]
    assert of_both["asked"] >= 200
    assert of_both["waited_s"] == pytest.approx(both["waited_s"], abs=0.01)
    assert of_second["delayed"] == both["delayed"] - alone["delayed"]
    assert of_second["waited_s"] == pytest.approx(both["waited_s"] - alone["waited_s"], abs=0.01)
    assert 50 <= of_second["asked"] < of_both["asked"]


def test_a_limit_by_hand_tightens_and_ends_with_its_run(site: Site) -> None:
    site.start_agent("n1")
    by_hand = start(site, "n1", "1", "--limit", "metadata=100/s")
    until(lambda: asked(site, "n1", "1") > 20, "it runs")
    slow = rate(site, [("n1", "1")])
    by_hand.stop()
    until(lambda: row(site, "n1", "1", "metadata by hand") is None, "the limit by hand is gone")
    plain = start(site, "n1", "1")
    until(lambda: asked(site, "n1", "1") > 400, "the same job's next step runs")
    held_to(site, [("n1", "1")], 700, 1150)
    plain.stop()

    assert slow < 140


@pytest.mark.parametrize("scheduler", [True, False])
def test_a_run_within_a_run_is_under_both_limits(site: Site, scheduler: bool) -> None:
    """The inner one's holds as long as it runs, beside the outer one's and the site's."""
    site.start_agent("n1")
    env = site.env("home") | {"PENSTOCK_AGENT_SOCKET": str(site.socket("n1"))}
    if scheduler:
        env["SLURM_JOB_ID"] = "1"
    inner = [str(PENSTOCK), "run", "--limit", "open=90/s", "--", "sh", "-c", "read line"]
    command = [str(PENSTOCK), "run", "--limit", "metadata=100/s", "--", "sh", "-c", '"$@"; read line', "sh"]
    job = subprocess.Popen([*command, *inner], env=env, stdin=subprocess.PIPE, text=True, bufsize=1)
    assert job.stdin is not None

    def rates() -> dict[str, float]:
        jobs = json.loads(local.ask(str(site.socket("n1")), op="status")["json"])["jobs"]
        assert len(jobs) <= 1
        return {r["limit"]: round(r["rate"]) for j in jobs for r in j["rows"] if "hand" in r["limit"]}

    until(lambda: rates() == {"metadata by hand": 100, "open by hand": 90}, "both hold")
    job.stdin.write("\n")
    until(lambda: rates() == {"metadata by hand": 100}, "the inner one's is gone, the outer one's holds")
    job.communicate("\n", timeout=60)

    assert job.returncode == 0
    assert log(env) == []
    assert len(runs(env)) == 2


def test_release_lets_go_at_once_and_undo_holds_again(site: Site) -> None:
    site.start_agent("n1")
    start(site, "n1", "1")
    until(lambda: asked(site, "n1", "1") > 100, "it runs")
    said = site.ask("release", "1")
    until(lambda: rate(site, [("n1", "1")], 0.3) > 3000, "it is let go")
    site.ask("release", "1", "--undo")
    until(lambda: rate(site, [("n1", "1")], 0.5) < 1600, "it is held again")

    assert said == "job 1 is released: told to 1 node\n"


def test_release_works_with_the_controller_down_and_holds_over_a_restart_of_the_agent(site: Site) -> None:
    agent = site.start_agent("n1")
    job = start(site, "n1", "1")
    until(lambda: asked(site, "n1", "1") > 100, "it runs")
    assert site.controller is not None
    site.controller.end(signal.SIGKILL)
    done = site.ask("release", "--all", node="n1", check=False)
    until(lambda: rate(site, [("n1", "1")], 0.3) > 3000, "it is let go")
    agent.end(signal.SIGKILL)
    agent = site.start_agent("n1")
    until(lambda: rate(site, [("n1", "1")], 0.3) > 3000, "it is still let go")
    job.stop()

    assert done.returncode == 0
    assert done.stdout == "every job is released on this node alone\n"
    assert "does not answer" in done.stderr
    assert agent.ready["adopted"] == 1


def test_status_works_without_the_controller(site: Site) -> None:
    site.start_agent("n1")
    job = start(site, "n1", "1")
    until(lambda: asked(site, "n1", "1") > 100, "it runs")
    assert site.controller is not None
    site.controller.end(signal.SIGKILL)
    screen = until(
        lambda: (
            "its lease is over: its last rate holds" in (text := site.ask("status", "1", node="n1")) and text
        ),
        "the lease's end is told",
    )
    held_to(site, [("n1", "1")], 700, 1300)  # on_lost = hold
    job.stop()

    assert "is not reached; the last grant came" in screen


def test_the_killed_controller_is_back_within_two_seconds(site: Site) -> None:
    """kill -9 at any time: programs see nothing, limits hold, and the new controller has everything again."""
    site.start_agent("n1")
    job = start(site, "n1", "1", threads=2)
    until(lambda: asked(site, "n1", "1") > 100, "it runs")
    for _ in range(3):
        assert site.controller is not None
        site.controller.end(signal.SIGKILL)
        site.start_controller()
        # benchmarks/control.py has the figure
        until(lambda: site.job("1") and site.job("1")["held"][0]["grant"] > 900, "it is granted again")
    held_to(site, [("n1", "1")], 850, 1150)
    job.stop()


def test_the_killed_agent_is_back_and_adopts_its_jobs(site: Site) -> None:
    agent = site.start_agent("n1")
    job = start(site, "n1", "1", threads=2)
    until(lambda: asked(site, "n1", "1") > 100, "it runs")
    for _ in range(3):
        agent.end(signal.SIGKILL)
        agent = site.start_agent("n1")
        assert agent.ready["adopted"] == 1
    until(lambda: (found := site.job("1")) and found["held"][0]["grant"] > 900, "it is granted again")
    held_to(site, [("n1", "1")], 850, 1150)
    job.stop()
    until(lambda: site.job("1") is None, "the ended job's board is put away", 60)


@pytest.mark.parametrize("word", ["open", "50/s"])
def test_on_lost_says_what_holds_after_the_lease(tmp_path: Path, word: str) -> None:
    policy = (
        '[control]\ninterval = "50ms"\nlease = "500ms"\n[[limit]]\nname = "all metadata"\nrate = "1k/s"\n'
    )
    with Site(tmp_path, policy + f'on_lost = "{word}"\n') as site:
        site.start_controller()
        site.start_agent("n1")
        job = start(site, "n1", "1")
        until(lambda: asked(site, "n1", "1") > 100, "it runs")
        assert site.controller is not None
        site.controller.end(signal.SIGKILL)
        good = (lambda r: r > 3000) if word == "open" else (lambda r: r < 150)
        until(lambda: good(rate(site, [("n1", "1")], 0.5)), f"{word} holds")
        site.start_controller()
        until(lambda: 500 < rate(site, [("n1", "1")], 0.5) < 1500, "the limit is back")
        job.stop()


def test_shadow_counts_and_holds_back_nobody(site: Site) -> None:
    site.start_agent("n1")
    job = start(site, "n1", "1")
    until(lambda: asked(site, "n1", "1") > 100, "it runs")
    site.ask("policy", "set", "all metadata", "--shadow")
    until(lambda: rate(site, [("n1", "1")], 0.3) > 3000, "it goes on freely")
    found = until(lambda: (r := row(site, "n1", "1")) and r["shadow"] and r, "it is in shadow")
    before = found["delayed"]
    until(lambda: row(site, "n1", "1")["delayed"] > before, "who would wait is counted")  # type: ignore[index]
    site.ask("policy", "set", "all metadata", "--enforce")
    until(lambda: rate(site, [("n1", "1")], 0.5) < 1600, "it holds again")
    job.stop()


def test_two_jobs_share_and_the_unused_moves(site: Site) -> None:
    site.start_agent("n1")
    first, second = start(site, "n1", "1"), start(site, "n1", "2")
    pairs = [("n1", "1"), ("n1", "2")]
    until(lambda: all(asked(site, *pair) > 100 for pair in pairs), "both run")
    for pair in pairs:
        held_to(site, [pair], 350, 650)
    second.stop()
    until(lambda: rate(site, [pairs[0]], 1.0) > 850, "the first has what the second left")
    first.stop()


def test_an_agent_without_a_controller_decides_by_its_own_policy(tmp_path: Path) -> None:
    """One user, no rights, no certificates."""
    with Site(tmp_path) as site:
        held = {"agent.socket": str(site.socket("n1")), "agent.boards": str(site.boards / "own")}
        words = [str(PENSTOCK), "agent", "--json", "--policy", str(site.policy), *settings(held)]
        agent = Process(words, site.env("own"), tmp_path / "own.log")
        site.processes.append(agent)
        job = start(site, "n1", "1")
        until(lambda: asked(site, "n1", "1") > 100, "it runs")
        held_to(site, [("n1", "1")], 850, 1150)
        job.stop()
        again = subprocess.run(
            words, env=site.env("own"), capture_output=True, text=True, timeout=60, check=False
        )

        assert again.returncode == 11
        assert "an agent already listens at" in again.stderr


def test_top_is_live_in_a_terminal_and_ends_at_q(site: Site) -> None:
    import os
    import pty

    site.start_agent("n1")
    start(site, "n1", "4711")
    until(lambda: site.job("4711"), "the controller knows it")
    held = {
        "controller.tools": f"{site.host}:{site.ports[1]}",
        "controller.token_file": str(site.state / "reader.token"),
        "tls.ca": str(site.folder / "ca.pem"),
    }
    words = [str(PENSTOCK), "top", "--every", "200ms", *settings(held)]
    env = {**site.env("user"), "TERM": "xterm", "COLUMNS": "100", "LINES": "20"}

    def watched(screens: int) -> tuple[int, bytes]:
        """Exit status and all that was shown, where q is typed after so many screens."""
        ours, theirs = pty.openpty()
        shown = b""
        with subprocess.Popen(words, env=env, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            try:
                while shown.count(b"4711") < screens:
                    shown += os.read(ours, 4096)
                os.write(ours, b"q")
                with contextlib.suppress(
                    OSError
                ):  # EIO: it has ended; until then it must not wait for us to read
                    while more := os.read(ours, 4096):
                        shown += more
                return process.wait(timeout=30), shown
            finally:
                process.kill()
                os.close(ours)

    assert watched(0)[0] == 0  # a key typed while the first screen is fetched is not lost
    status, shown = watched(3)
    assert status == 0
    assert b"\x1b[H\x1b[2J" in shown
    assert b"asked" in shown
    assert "4711" in site.ask("top")
    assert site.ask("top", "--once", "--json")["jobs"][0]["id"] == "4711"


def test_status_without_an_agent_tells_of_limits_by_hand(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        job = start(site, "nowhere", "1", "--limit", "metadata=50/s")
        command = [str(PENSTOCK), "status"]
        env = {**job.env, "PENSTOCK_BOARD_DIR": str(site.boards / "own")}
        (site.boards / "own").mkdir(mode=0o700)
        job.stop()
        job = start(
            site, "nowhere", "1", "--limit", "metadata=50/s", "--set", f"board.dir={site.boards / 'own'}"
        )

        def screen() -> str:
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
            return done.stdout

        text = until(lambda: "calls waited" in (t := screen()) and t, "its cost is told")
        job.stop()
        unknown = subprocess.run(
            [*command, "nope"], env=env, capture_output=True, text=True, timeout=60, check=False
        )

        assert "your own limit metadata by hand" in text
        assert "has 50/s on this node" in text
        assert unknown.returncode == 4
        assert "no agent is here, and no run of yours" in unknown.stderr


def test_a_grant_to_a_job_that_has_just_ended_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Closed:
        def change(self, *_: Any) -> None:
            raise ValueError("these limits are no longer held")

    agent = agents.Agent(agents.Config(tmp_path / "agent.sock", tmp_path / "boards"))
    board: Any = SimpleNamespace(about=SimpleNamespace(uid=1, job="1"))
    here = agents.JobHere(board, Closed(), Job("1", "", "ann"))  # type: ignore[arg-type]
    agent.rows = [(here, agents.row_of(0, Limit("all", 100.0), 10.0, 0.0))]
    grants = wire.Grants(epoch=agent.epoch, lease_s=1.0, rate=struct.pack("<d", 50.0))
    agent._granted(grants)
    ended = list(caplog.records)
    agent.jobs[1, "1"] = here
    agent._granted(grants)

    assert ended == []
    assert "all is not granted" in caplog.text  # of a job that is here it is one


def test_c09_a_new_job_is_neither_free_nor_blocked_while_nobody_decides(site: Site) -> None:
    agent = site.start_agent("n1")
    assert site.controller is not None
    until(lambda: "connected" in agent.said(), "it has the policy")
    kept = site.boards / "n1/policy"
    until(lambda: kept.exists() and '"number": 1' in kept.read_text(), "it keeps it")
    site.controller.end(signal.SIGKILL)
    job = start(site, "n1", "1")
    until(lambda: asked(site, "n1", "1") > 5, "it is not blocked")
    measured = rate(site, [("n1", "1")])
    job.stop()

    assert measured < 60  # a hundredth of the limit, until somebody decides
