# SPDX-License-Identifier: Apache-2.0
"""The guard with real boards: an emulated metadata server gets slow, the limit falls; it recovers, it rises."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launching import PENSTOCK, until
from plane import Process, Site, settings

from penstock.control import local

pytestmark = pytest.mark.root

POLICY = """
[control]
interval = "50ms"
lease = "5s"

[[limit]]
name = "all metadata"
rate = "1k/s"

[guard]
limit = "all metadata"
latency = "100ms"
least = "100/s"
"""

# As fast as it may until a file is there; each call is a request to the server, whatever a client keeps.
PROGRAM = """
import os, sys, threading
from contextlib import suppress
def work(name):
    while not os.path.exists(sys.argv[2]):
        {calls}
for i in range(16):
    threading.Thread(target=work, args=(f"{{sys.argv[1]}}/file-{{i}}",)).start()
"""
CALLS = {
    "files made and removed": "os.close(os.open(name, os.O_CREAT | os.O_WRONLY)); os.unlink(name)",
    "names that are not there": """
        with suppress(FileNotFoundError):
            os.stat(name)""",
    "folders": "os.mkdir(name); os.rmdir(name)",
}


@pytest.mark.parametrize("calls", CALLS)
def test_the_total_falls_while_the_servers_are_slow_and_rises_again(
    make_testbed: Any, tmp_path: Path, calls: str
) -> None:
    """Nobody tells the agent: it sees on the boards how long calls take, also when hardly one a second is answered."""
    bed, stop = make_testbed(oss=1, settings={}), tmp_path / "stop"
    slow, well = (lambda: bed.ask("set mds.slowdown=100")), (lambda: bed.ask("set mds.slowdown=1"))
    with Site(tmp_path, POLICY) as site:
        socket = str(site.socket("own"))
        held = {"agent.socket": socket, "agent.boards": str(site.boards / "own")}
        words = [str(PENSTOCK), "agent", "--json", "--policy", str(site.policy), *settings(held)]
        site.processes.append(Process(words, site.env("own"), tmp_path / "own.log"))
        program = PROGRAM.format(calls=CALLS[calls])
        command = [str(PENSTOCK), "run", "--", sys.executable, "-c", program, str(bed.path), str(stop)]
        job = subprocess.Popen(command, env=site.env("user") | {"PENSTOCK_AGENT_SOCKET": socket})

        def total() -> float:
            jobs = json.loads(local.ask(socket, op="status")["json"])["jobs"]
            return float(jobs[0]["rows"][0]["rate"]) if jobs else 0.0

        try:
            until(lambda: total() > 500.0, "the job has its rate", 120)
            slow()
            until(lambda: 0 < total() < 800.0, "the total comes down by tenths", 120)
            low = total()
            well()
            until(lambda: total() > low + 15.0, "it rises by fiftieths of the whole", 120)
        finally:
            well()
            stop.touch()
            assert job.wait(timeout=120) == 0
