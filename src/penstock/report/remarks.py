# SPDX-License-Identifier: Apache-2.0
"""What stands out in a run: sentences on what most often makes storage slow.  Pure.

Invariant: a remark states a number of the record and what it may mean; a run with little I/O gets none.
"""

from penstock.base import units
from penstock.base.text import cut, visible
from penstock.report import limited
from penstock.report.facts import Facts, small_classes
from penstock.runs import record

MANY_CALLS = 1000
NOTABLE_SHARE = 0.05  # of the processes' time, below which nothing is worth a remark


def remarks(facts: Facts, small_bytes: int) -> list[str]:
    """At most one sentence of each kind, the weightiest first."""
    found = [
        _limits(facts),
        _metadata(facts),
        _imbalance(facts),
        _one_target(facts),
        _small(facts, small_bytes),
    ]
    return [sentence for sentence in (*found, _failed(facts), _reopened(facts)) if sentence]


def _limits(facts: Facts) -> str:
    waited = limited.waited_ns(facts.run.limits)
    whole = sum(w.life_ns * max(w.threads, 1) for w in facts.workers)
    if not whole or waited < NOTABLE_SHARE * whole:
        return ""
    share = units.show_ratio(min(waited, whole), whole)
    return f"limits held calls back for {units.show_duration(waited)}, {share} of the time of all threads"


def _metadata(facts: Facts) -> str:
    meta, data = facts.spent_ns("meta"), facts.spent_ns("read") + facts.spent_ns("write")
    if meta <= data or meta < NOTABLE_SHARE * facts.life_ns:
        return ""
    share = units.show_ratio(meta, facts.life_ns)
    return f"metadata took {share} of the time, more than reading and writing together"


def _imbalance(facts: Facts) -> str:
    if len(facts.workers) < 2:
        return ""
    spent = [(w.clock_ns(w.use.time_ns), w) for w in facts.workers]
    mean = sum(t for t, _ in spent) / len(spent)
    most, worker = max(spent, key=lambda item: item[0])
    if mean <= 0 or most < 2 * mean or most < NOTABLE_SHARE * facts.duration_ns:
        return ""
    return (
        f"{worker.name} spent {units.show_duration(most)} in calls on files, {most / mean:.1f} times the mean: "
        "others may have waited for it"
    )


def _one_target(facts: Facts) -> str:
    for use in facts.files:
        if use.layout and use.layout.stripe_count == 1 and use.users >= 8 and use.bytes >= 2**30:
            return (
                f"{cut(visible(use.path), 60)} is shared by {use.users:,} and lies on one target: "
                "more stripes would spread its load"
            )
    return ""


def _small(facts: Facts, small_bytes: int) -> str:
    classes = small_classes(small_bytes)
    for side, noun in ((facts.total.write, "writes"), (facts.total.read, "reads")):
        small = side.small(classes)
        if classes and side.calls >= MANY_CALLS and small > side.calls / 2:
            limit = units.show_size(record.SIZE_BOUNDS[classes - 1] - 1)
            return f"{units.show_ratio(small, side.calls)} of {side.calls:,} {noun} are of at most {limit}"
    return ""


def _failed(facts: Facts) -> str:
    for op in facts.metadata:
        if op.calls >= MANY_CALLS and op.errors > op.calls / 2:
            share = units.show_ratio(op.errors, op.calls)
            return f"{share} of {op.calls:,} {visible(op.name)} calls failed: something looks for files in many places"
    return ""


def _reopened(facts: Facts) -> str:
    worst = max(facts.files, key=lambda use: use.opens / max(use.users, 1), default=None)
    if worst is None or worst.opens < MANY_CALLS * max(worst.users, 1):
        return ""
    return f"{cut(visible(worst.path), 60)} was opened {worst.opens:,} times"
