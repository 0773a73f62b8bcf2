# SPDX-License-Identifier: Apache-2.0
"""A user's own boards on this node, where no agent is: what `penstock status` says of limits by hand.

Looks and changes nothing; the document is of the same form as an agent's.
"""

import os
import re
import socket
from pathlib import Path
from typing import Any

from penstock.base.errors import NothingMatchedError, PenstockError
from penstock.base.text import plural
from penstock.runs import board, limits

_BOARD = re.compile(r"([0-9a-f]{32})-[0-9a-f]{16}")


def folders(chosen: str) -> list[Path]:
    """Where this user's boards lie, as native/launch/boards.c chooses."""
    places = (
        [Path(chosen)]
        if chosen
        else [Path(place, f"penstock-{os.getuid()}") for place in ("/dev/shm", "/tmp")]
    )
    found = [p for place in places if place.is_dir() for p in sorted(place.iterdir())]
    return [p for p in found if _BOARD.fullmatch(p.name) and p.is_dir() and p.stat().st_uid == os.geteuid()]


def status(chosen: str, job: str) -> dict[str, Any]:
    """Each board as a job, named by its run."""
    shown = []
    for path in folders(chosen):
        run = path.name[:32]
        if not run.startswith(job):
            continue
        try:
            with limits.Hold(path) as hold:
                rows = [_row(held) for held in hold.observe()]
            living = sum(
                1 for p in board.read(path).processes if not p.end_ns and Path(f"/proc/{p.pid}").exists()
            )
        except PenstockError:
            continue  # it went, or is of another version
        shown.append(
            {
                "job": run[:12],
                "name": "",
                "user": "",
                "verified": False,
                "start_s": 0.0,
                "processes": living,
                "bypassing": "",
                "rows": rows,
            }
        )
    if job and not shown:
        raise NothingMatchedError(f"no agent is here, and no run of yours on this node is called {job!r}")
    return {
        "schema_version": 1,
        "node": socket.gethostname(),
        "controller": None,
        "policy": 0,
        "released_here": False,
        "jobs": shown,
    }


def _row(held: limits.Held) -> dict[str, Any]:
    return {
        "limit": held.name,
        "by_hand": True,
        "calls": [],
        "bytes": held.name.split()[0] in ("data", "read", "write"),
        "per": "job",
        "limit_rate": held.rate,
        "rate": held.rate,
        "asked": 0.0,
        "waiting": held.waiting,
        "since_s": 0.0,
        "delayed": held.delayed,
        "asked_in_all": held.asked,
        "waited_s": held.waited_s + held.waiting_s,
        "shadow": held.shadow,
        "released": held.open,
        "lease_left_s": held.lease_s,
        "on_lost": held.on_lost,
        "lost_rate": held.lost_rate,
        "why": f"calls of {plural(held.waiting, 'thread')} wait now" if held.waiting else "",
    }
