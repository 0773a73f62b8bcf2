# SPDX-License-Identifier: Apache-2.0
"""What the history teaches: a program's runs as prediction and tuning take them.

Invariants:
1. Runs that failed, are partial, or have not ended teach nothing, as long as there are others.
2. A file is what was written under one name by all ranks; what was only read is not expected to be written.
3. Any record of the schema is taken, also one with odd values.
"""

from collections.abc import Sequence

from penstock.base.errors import NothingMatchedError
from penstock.policy.predicting.contract import RunFiles, Seen
from penstock.runs import merge, record
from penstock.runs.history import History

LAST = 4  # runs that are learned from


def runs_of(history: History, program: str, last: int = 0) -> list[merge.Summary]:
    """The runs of a program, newest first; by its whole name, else by a part that only one program's has."""
    name = named(history, program)
    exact = [s for s in history.summaries if name and s.program == name]
    if not exact:
        raise NothingMatchedError(f"no run of {program!r} is recorded; penstock runs lists what there is")
    return exact[:last] if last else exact


def named(history: History, program: str) -> str:
    """A program's whole name, given that or a part that only one has; nothing where no such run is recorded."""
    names = {s.program for s in history.summaries}
    if program in names:
        return program
    found = sorted(name for name in names if program.lower() in name.lower())
    if len(found) > 1:
        some = ", ".join(found[:4])
        raise NothingMatchedError(
            f"{program!r} is a part of {len(found)} programs' names ({some}); type more of it"
        )
    return found[0] if found else ""


def sound(summary: merge.Summary) -> bool:
    """May one learn from this run?"""
    return summary.ended and not summary.signal and not summary.status and not summary.partial


def teachers(found: Sequence[merge.Summary], last: int = LAST) -> list[merge.Summary]:
    """Of a program's runs (newest first) those to learn from, oldest first; unsound ones only where no other is."""
    good = [s for s in found if sound(s) and s.bytes_written > 0] or [s for s in found if s.bytes_written > 0]
    return good[:last][::-1]


def _rank(row: record.File, node: record.Node) -> int:
    if row.rank >= 0:
        return row.rank
    process = node.processes[row.process] if 0 <= row.process < len(node.processes) else None
    return process.rank if process is not None else -1


def _writers(rows: Sequence[tuple[record.File, int]]) -> int:
    """How many wrote a file; a row without a rank that has a communicator stands for all of it."""
    seen = {(row.pid, rank) for row, rank in rows if row.bytes_written > 0}
    whole = max((row.mpi_ranks for row, rank in rows if rank < 0), default=0)
    return max(len(seen), whole, 1)


def files_of(run: merge.Run) -> RunFiles:
    """What a run wrote, by name."""
    held: dict[bytes, list[tuple[record.File, int]]] = {}
    for node in run.nodes:
        for row in node.files:
            if row.kind == record.FileKind.FILE and (row.bytes_written > 0 or row.writes > 0):
                held.setdefault(row.path, []).append((row, _rank(row, node)))
    files = []
    for path, rows in held.items():
        written = sum(max(row.bytes_written, 0) for row, _ in rows)
        highest = max(row.highest_offset for row, _ in rows)
        ranks = sorted({rank for _, rank in rows if rank >= 0})
        files.append(
            Seen(
                path,
                min(written, highest) if highest > 0 else written,
                ranks[0] if ranks else -1,
                _writers(rows),
                max(row.mpi_ranks for row, _ in rows),
                min(row.first_ns for row, _ in rows),
            )
        )
    files.sort(key=lambda f: (f.order, f.name))
    ranks_seen = max(run.expected_ranks, len(run.ranks), 0)
    processes = sum(len(node.processes) for node in run.nodes)
    largest = max((p.mpi_largest for node in run.nodes for p in node.processes), default=0)
    return RunFiles(
        tuple(files), max(ranks_seen, largest) or processes, run.begin.job.encode("utf-8", "surrogateescape")
    )
