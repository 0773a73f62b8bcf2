# SPDX-License-Identifier: Apache-2.0
"""Signals to a program whose call waits for servers that do not answer."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGALRM, lambda *rest: None)
signal.setitimer(signal.ITIMER_REAL, 0.05)
print("asks", flush=True)
os.stat(sys.argv[1])
"""
PATIENCE_S = 30


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_waiting_caller_can_be_ended_after_a_signal_that_it_catches(make_testbed: Any, sent: int) -> None:
    bed = make_testbed(settings={"model": "on"})
    (bed.path / "file").write_text("on an OST")
    bed.ask("flush")
    bed.ask("drop")
    bed.ask("fail oss.0")
    bed.ask("fail oss.1")
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, bed.path / "file"], stdout=subprocess.PIPE)
    try:
        assert program.stdout
        assert program.stdout.readline() == b"asks\n"
        status, end = Path(f"/proc/{program.pid}/status"), time.monotonic() + PATIENCE_S
        while not ("ShdPnd:\t0000000000002000" in status.read_text() and state_of(program.pid) == "D"):
            assert time.monotonic() < end, "the alarm does not wait while the call does"
            time.sleep(0.01)
        program.send_signal(sent)
        assert program.wait(PATIENCE_S) == -sent
    finally:
        bed.ask("heal all")
        program.kill()
        program.wait(PATIENCE_S)
        program.stdout.close()
