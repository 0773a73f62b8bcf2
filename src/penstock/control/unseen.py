# SPDX-License-Identifier: Apache-2.0
"""Which share of a run's job its file systems' servers counted and no record holds.

Servers count by job, whoever asks, and forget a job minutes after its last request.  So the share is asked for when a
run is reported, and kept with the run.

Invariants:
1. Nothing on a mount is touched, only what the client tells beside it: a server that hangs holds up no report.
2. What cannot be compared is not claimed (policy/bypass.py); a difference that may be chance is none.
"""

import os
import time
from collections.abc import Iterable, Mapping

from penstock.base.settings import Settings
from penstock.policy import bypass
from penstock.runs import merge, record
from penstock.runs.history import History
from penstock.targets.driver import Driver, driver_of
from penstock.targets.mounts import mounts


def counted(settings: Settings, job: str) -> dict[str, int]:
    """What the servers of all parallel file systems here (run.detect, run.mounts) counted for a job; empty: nobody."""
    types, named = settings["run.detect"], settings["run.mounts"]
    drivers: dict[tuple[str, str], Driver] = {}
    for mount in mounts():
        driver = driver_of(mount) if mount.type in types or mount.point in named else None
        if driver is not None:
            # `10.0.0.1@tcp:/scratch/sub` is of scratch, which may be mounted more than once.
            name = mount.source.rpartition(":/")[2].partition("/")[0] or mount.source
            drivers[mount.type, name] = driver
    return of_job((driver.job_counts() for driver in drivers.values()), job)


def of_job(counts: Iterable[Mapping[str, Mapping[str, int]]], job: str) -> dict[str, int]:
    """One job's row, over file systems of which each is in it once."""
    found: dict[str, int] = {}
    for row in (rows.get(job, {}) for rows in counts):
        for name, count in row.items():
            found[name] = found.get(name, 0) + count
    return found


def compare(history: History, job: str, server: Mapping[str, int]) -> tuple[bypass.Gap, bool]:
    """The servers' row of a job (read before) against all of its runs; and have these all ended?"""
    runs = [history.load(summary) for summary in history.summaries if summary.job == job]
    seen: dict[str, int] = {}
    written = 0
    for op in (op for run in runs for node in run.nodes for op in node.ops):
        seen[op.name] = seen.get(op.name, 0) + op.calls
        written += op.bytes if op.name == "write" else 0
    return bypass.compare(server, seen, written), all(run.ended for run in runs)


def fill(history: History, settings: Settings, summary: merge.Summary) -> merge.Run:
    """A run with the share that was not seen of its job, if anybody counted it."""
    job = summary.job if summary.job_source != "made up" else ""
    server = counted(settings, job) if job and summary.ended else {}
    run = history.load(summary)
    if not server:
        return run
    gap, all_ended = compare(history, job, server)
    known = -1.0 if run.unseen_ratio is None else run.unseen_ratio
    if gap.share is None or not all_ended or gap.share <= known:
        return run
    mark = record.Mark(
        node=os.uname().nodename, word=merge.UNSEEN, time_ns=time.time_ns(), unseen_ratio=gap.share
    )
    if history.mine:
        history.mark(summary, mark)
    return merge.Run(run.id, run.begin, run.end, run.nodes, (*run.marks, mark))
