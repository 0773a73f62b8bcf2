# SPDX-License-Identifier: Apache-2.0
"""Recorded runs as work for policy/trying.py: what each would have been charged under a policy's limits.

A record holds calls by operation, not by path and not in time.  So a limit on paths is charged its share of the calls
on files and folders whose rows lie below those paths; and a name is taken as looked up once, for each file that the
record names.
"""

import grp
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from penstock.policy import costs, trying
from penstock.policy.rules import Job, Limit, Policy
from penstock.runs import limits, merge, record


@dataclass
class Works:
    """The work of many runs, and what was passed over."""

    pieces: list[trying.Work] = field(default_factory=list)
    not_ended: int = 0
    partial: int = 0
    _jobs: dict[str, Job] = field(default_factory=dict)

    def add(self, summary: merge.Summary, run: merge.Run, policy: Policy) -> None:
        if not run.ended or not run.nodes:
            self.not_ended += 1
            return
        self.partial += bool(summary.partial)
        # One job, one name: that of its first run.
        job = self._jobs.setdefault(
            summary.job or summary.id,
            Job(summary.job or summary.id, summary.program, summary.user, group_of(summary.user)),
        )
        table = costs.with_weights(policy.weights)
        start_s = run.start_ns / 1e9
        for node in run.nodes:
            charged = {
                number: found
                for number, limit in enumerate(policy.limits)
                if (found := units(limit, node, table)) > 0
            }
            ends = [p.end_ns for p in node.processes if p.end_ns]
            end_s = max(ends, default=run.end_ns) / 1e9
            length_s = max(0.0, end_s - start_s)
            self.pieces.append(trying.Work(summary.id, job, node.node, start_s, length_s, charged))


def units(limit: Limit, node: record.Node, table: Mapping[str, costs.Cost]) -> float:
    """What a node's calls cost under a limit: calls of weight one, or bytes."""
    charged = limits.operations_of(limit.calls)
    share = _share_below(limit.paths, node.files) if limit.paths else 1.0
    names = sum(max(row.files, 1) for row in node.files)
    total = 0.0
    for op in node.ops:
        if op.name not in charged:
            continue
        if limit.bytes:
            total += op.bytes
        else:
            cost = table.get(op.name, costs.Cost(0))
            total += op.calls * cost.calls + min(op.calls, names) * cost.lookup
    return total * share


def _share_below(paths: Iterable[str], rows: list[record.File]) -> float:
    """The share of calls on files and folders that lie below some of these paths."""
    below = tuple(path.rstrip("/").encode() for path in paths)
    all_calls = mine = 0
    for row in rows:
        calls = row.opens + row.reads + row.writes + row.metas
        all_calls += calls
        if any(row.path == path or row.path.startswith(path + b"/") for path in below):
            mine += calls
    return mine / all_calls if all_calls else 0.0


@cache
def group_of(user: str) -> str:
    """The user's own group here; empty if this machine does not know him."""
    try:
        return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
    except KeyError:
        return ""
