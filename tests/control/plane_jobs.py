# SPDX-License-Identifier: Apache-2.0
"""Jobs of the control plane's tests: programs under penstock run, and what agents say of them."""

import json
import subprocess
import sys
import time
from typing import Any

from launching import PENSTOCK, until
from plane import Site

from penstock.base.errors import PenstockError
from penstock.control import local
from penstock.runs import limits

# Metadata calls as fast as they go, until told to stop; then how many a second from one second after the start.
BUSY = """
import os, sys, threading, time
stop, counts = sys.argv[1], [0] * int(sys.argv[2])
def work(i):
    while not os.access(stop, os.F_OK):
        for _ in range(20):
            os.access("/tmp/penstock-no-such-name", os.F_OK)
            counts[i] += 1
threads = [threading.Thread(target=work, args=(i,)) for i in range(len(counts))]
[t.start() for t in threads]
[t.join() for t in threads]
print(sum(counts))
"""


class Job:
    """A program under `penstock run` that asks for all it can get, and says how much it had."""

    def __init__(
        self, site: Site, node: str, name: str, *words: str, threads: int = 1, inside: tuple[str, ...] = ()
    ):
        self.site = site
        self.env = site.env(f"home-{name}-{node}") | {
            "PENSTOCK_AGENT_SOCKET": str(site.socket(node)),
            "SLURM_JOB_ID": name,
        }
        self.path = site.folder / f"{name}-{node}-{time.monotonic_ns()}.stop"
        command = [
            str(PENSTOCK),
            "run",
            *words,
            "--",
            sys.executable,
            "-c",
            BUSY,
            str(self.path),
            str(threads),
        ]
        self.popen = subprocess.Popen(
            [*inside, *command], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def stop(self) -> int:
        """Ends it; how many calls it made.  It must end well, and have said nothing."""
        self.path.touch()
        out, err = self.popen.communicate(timeout=60)
        assert (self.popen.returncode, err) == (0, b""), (self.popen.returncode, err)
        return int(out)


def start(site: Site, node: str, name: str, *words: str, **options: Any) -> Job:
    job = Job(site, node, name, *words, **options)
    site.jobs.append(job)
    return job


def row(site: Site, node: str, job: str, limit: str = "all metadata") -> dict[str, Any] | None:
    """What the agent says of a job's limit: what penstock status prints, without a process for it."""
    try:
        found = json.loads(local.ask(str(site.socket(node)), op="status", job=job)["json"])
    except PenstockError:
        return None
    rows = [r for j in found["jobs"] for r in j["rows"] if r["limit"] == limit]
    return rows[0] if rows else None


def asked(site: Site, node: str, job: str) -> int:
    found = row(site, node, job)
    return int(found["asked_in_all"]) if found else 0


def passed(site: Site, node: str, job: str) -> float:
    """The same of the calls that went on, from the board itself: a busy agent is behind it."""
    top = site.boards / node if (site.boards / node).exists() else site.boards / "own"
    boards = [path for path in top.glob(f"*/{job}-*") if (path / "control").exists()]
    with limits.Hold(max(boards, key=lambda path: path.stat().st_ctime_ns)) as hold:
        return sum(held.passed for held in hold.observe() if held.name == "all metadata")


def rate(site: Site, pairs: list[tuple[str, str]], seconds: float = 2.0) -> float:
    """Calls a second that these (node, job) made, measured now."""
    began, before = time.monotonic(), [passed(site, *pair) for pair in pairs]
    time.sleep(seconds)
    after = [passed(site, *pair) for pair in pairs]
    return (sum(after) - sum(before)) / (time.monotonic() - began)


def held_to(site: Site, pairs: list[tuple[str, str]], low: float, high: float) -> float:
    """The rate of some two seconds, never above `high`; below `low` they may be while the machine is busy."""

    def one() -> float | None:
        found = rate(site, pairs)
        assert found < high
        return found if found > low else None

    return float(until(one, f"{pairs} have more than {low}/s", 90))
