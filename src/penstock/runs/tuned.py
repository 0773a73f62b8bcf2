# SPDX-License-Identifier: Apache-2.0
"""Runs as tuning takes them: which layout, how quickly, what kind of run.

A run whose files have several layouts gives a sample of each, with the bytes and the slowest process of those files.

Invariants:
1. A rate is bytes over the time that the slowest process spent in reading, writing and metadata calls of those files.
2. Failed, partial and unfinished runs give samples that do not teach, nor does a layout of which a file lay on a
   degraded target; a file without a known layout gives none.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.policy.tuning.contract import Context, Layout, Sample
from penstock.runs import learned, merge, record

LEAST_SHARE = 0.1  # of a run's bytes: layouts with less say nothing


@dataclass
class _Group:
    """Files of one layout, added up."""

    bytes: int = 0
    degraded: bool = False
    time_ns: Counter[tuple[str, int]] = field(default_factory=Counter)


def context_of(run: merge.Run) -> Context:
    """What kind of run it was: writers, bytes, most of them in shared files or not, the most frequent request."""
    files = learned.files_of(run).files
    shared = sum(f.bytes for f in files if f.writers > 1)
    total = sum(f.bytes for f in files)
    writers: set[tuple[str, int]] = set()
    together = max((f.writers for f in files), default=1)
    requests: Counter[int] = Counter()
    for node in run.nodes:
        for row in node.files:
            if row.bytes_written > 0:
                writers.add((node.node, row.pid))
                for size, count in row.common_sizes:
                    requests[size] += size * count
    usual = requests.most_common(1)[0][0] if requests else 1 << 20
    return Context(
        max(len(writers), together), shared * 2 > total, float(max(total, 1)), float(max(usual, 1))
    )


def samples_of(
    run: merge.Run, summary: merge.Summary, load: float = 0.0, degraded: Collection[int] = ()
) -> list[Sample]:
    """What a run showed of each layout that its files have; `degraded`: targets that were so at its start."""
    groups: dict[Layout, _Group] = {}
    for node in run.nodes:
        for row in node.files:
            lay = row.layout
            if (
                row.kind != record.FileKind.FILE
                or lay is None
                or lay.stripe_count <= 0
                or lay.stripe_bytes <= 0
            ):
                continue
            if row.bytes_written <= 0:
                continue
            group = groups.setdefault(Layout(lay.stripe_count, lay.stripe_bytes), _Group())
            group.degraded |= not set(degraded).isdisjoint(lay.targets)
            group.bytes += row.bytes_written + max(row.bytes_read, 0)
            group.time_ns[(node.node, row.pid)] += max(row.read_ns + row.write_ns + row.meta_ns, 0)
    total = sum(g.bytes for g in groups.values())
    if not total:
        return []
    context, sound = context_of(run), learned.sound(summary)
    found = []
    for layout, group in groups.items():
        slowest_ns = max(group.time_ns.values(), default=0)
        if group.bytes >= LEAST_SHARE * total and slowest_ns > 0:
            rate = group.bytes / (slowest_ns / 1e9)
            found.append(Sample(layout, rate, context, summary.id, load, sound and not group.degraded))
    return found
