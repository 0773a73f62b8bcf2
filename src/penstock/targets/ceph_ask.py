# SPDX-License-Identifier: Apache-2.0
"""Asking a Ceph cluster: a conversation with ceph_mon.py, which runs under the system's Python.

Invariants:
1. No question waits longer than its limit: a cluster that is half up does not fail, it blocks.
2. The helper process ends with this object, also when that is forgotten.
"""

import json
import os
import select
import subprocess
import time
import weakref
from pathlib import Path
from typing import Any

from penstock.base.errors import PenstockError, TimeoutError_

SYSTEM_PYTHON = "/usr/bin/python3"
ANSWER_S = 15.0


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()


class Cluster:
    """One cluster, named by its ceph.conf."""

    def __init__(self, conf: str, limit_s: float = ANSWER_S) -> None:
        self.conf = conf
        script = Path(__file__).with_name("ceph_mon.py")
        try:
            self._process = subprocess.Popen(
                [SYSTEM_PYTHON, "-I", str(script), conf],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            )
        except OSError as error:
            raise PenstockError(
                f"{SYSTEM_PYTHON} cannot be started ({error.strerror}); python3-rados needs it"
            ) from error
        self._end = weakref.finalize(self, _end, self._process)
        self._rest = b""
        self._read(limit_s, "connecting")

    def close(self) -> None:
        self._end()

    def ask(self, prefix: str, **words: Any) -> Any:
        """The answer to a command of the monitors."""
        return self._ask({"prefix": prefix, **words}, prefix)

    def tell(self, osds: list[int], prefix: str) -> dict[int, Any]:
        """The answers of OSDs to the same command; those that are silent are left out."""
        said = self._ask({"tell": osds, "prefix": prefix}, prefix)
        return {int(osd): out for osd, out in said.items()}

    def objects(self, pool: str) -> list[str]:
        """The names of all objects in a pool."""
        found: list[str] = self._ask({"list": pool}, f"listing {pool}")
        return found

    def _ask(self, question: dict[str, Any], what: str) -> Any:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise PenstockError(
                f"Ceph cluster of {self.conf}: the connection is gone; is it down?"
            ) from error
        said = self._read(ANSWER_S, what)
        if said["rc"]:
            reason = said["err"] or os.strerror(abs(said["rc"]))
            raise PenstockError(f"Ceph cluster of {self.conf}: {what}: {reason}")
        return said["out"]

    def _read(self, limit_s: float, what: str) -> dict[str, Any]:
        assert self._process.stdout
        end = time.monotonic() + limit_s
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(end - time.monotonic(), 0))
            if not ready:
                self.close()
                raise TimeoutError_(f"Ceph cluster of {self.conf}: {what}: no answer in {limit_s:.0f} s")
            more = os.read(self._process.stdout.fileno(), 1 << 20)
            if not more:
                self.close()
                raise PenstockError(
                    f"Ceph cluster of {self.conf}: {what}: cannot connect; is it up, readable, and is "
                    "python3-rados installed?"
                )
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said
