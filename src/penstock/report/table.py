# SPDX-License-Identifier: Apache-2.0
"""The report for programs: one row a file and process, with stable columns, as CSV or JSON.

Invariants:
1. COLUMNS makes the header, the rows and the table in docs/guide/report.md.
2. Columns are only ever added, at the end; a column keeps its meaning and unit.
3. Empty means "not known" or "does not apply"; it is never 0.
"""

import csv
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TextIO

from penstock.base.text import visible
from penstock.report import limited
from penstock.report.facts import Facts, Operation, Side, Target, Worker, ten
from penstock.report.remarks import remarks
from penstock.runs import query, record

SCHEMA_VERSION = 1
KINDS = {int(kind): kind.name.lower() for kind in record.FileKind}


class Column(NamedTuple):
    """One column: its name, what it means, and how a row of the record gives it."""

    name: str
    doc: str
    value: Callable[[str, record.File], Any] | None = None  # None: the field of this name

    def of(self, node: str, file: record.File) -> Any:
        return getattr(file, self.name) if self.value is None else self.value(node, file)


def _known(value: int) -> int | None:
    return value if value >= 0 else None


def _layout(value: Callable[[record.Layout], Any]) -> Callable[[str, record.File], Any]:
    return lambda node, f: value(f.layout) if f.layout else None


COLUMNS = (
    Column(
        "path",
        "path as the program's last open named it, made absolute; see below",
        lambda n, f: visible(f.path),
    ),
    Column(
        "kind",
        "`file`, `directory` (listing it, calls on files never opened, files that did not fit), `unnamed`",
        lambda n, f: KINDS.get(f.kind, str(f.kind)),
    ),
    Column("files", "how many files the row stands for", lambda n, f: f.files or None),
    Column("node", "name of the node", lambda n, f: visible(n)),
    Column("pid", "process"),
    Column("rank", "MPI rank; empty: none known", lambda n, f: _known(f.rank)),
    Column("opens", "opens that succeeded"),
    Column("reads", "reading calls"),
    Column("writes", "writing calls"),
    Column("metas", "metadata calls, opens not among them"),
    Column("bytes_read", "bytes that were read"),
    Column("bytes_written", "bytes that were written"),
    Column("reads_sequential", "reads that began at or after the end of the one before"),
    Column("writes_sequential", "the same for writes"),
    Column("reads_consecutive", "reads that began exactly at the end of the one before"),
    Column("writes_consecutive", "the same for writes"),
    Column("switches", "changes between reading and writing"),
    Column("read_ns", "time in reading calls, nanoseconds; sampled and scaled, summed over threads"),
    Column("write_ns", "the same for writing calls"),
    Column("meta_ns", "the same for metadata calls"),
    Column("read_sampled", "how many reading calls were timed"),
    Column("write_sampled", "how many writing calls were timed"),
    Column("meta_sampled", "how many metadata calls were timed"),
    Column("highest_offset", "first byte behind the last that was read or written"),
    Column("first_ns", "first use, nanoseconds since 1970 (UTC)", lambda n, f: f.first_ns or None),
    Column("last_ns", "last use, nanoseconds since 1970 (UTC)", lambda n, f: f.last_ns or None),
    Column("filesystem", "type of the file system", lambda n, f: visible(f.filesystem)),
    Column("stripe_count", "over how many targets the file is striped", _layout(lambda y: y.stripe_count)),
    Column("stripe_bytes", "size of a stripe", _layout(lambda y: y.stripe_bytes)),
    Column("targets", "numbers of the targets, with blanks between", _layout(lambda y: y.targets)),
    Column("common_sizes", "up to four commonest request sizes, `bytes:count` with blanks between"),
    Column(
        "read_sizes",
        f"reads by size in ten classes: {', '.join(record.SIZE_NAMES)}",
        lambda n, f: ten(f.read_sizes),
    ),
    Column("write_sizes", "the same for writes", lambda n, f: ten(f.write_sizes)),
    Column("maps", "mmap calls; what is read and written there is not seen"),
    Column(
        "mpi_ranks",
        "opened by MPI_File_open: size of its communicator",
        lambda n, f: f.mpi_ranks or None,
    ),
)


def rows(facts: Facts) -> Iterator[dict[str, Any]]:
    """A dictionary of all columns for each row of the record."""
    for node in facts.run.nodes:
        for file in node.files:
            yield {column.name: column.of(node.node, file) for column in COLUMNS}


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(":".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in value)
    return value


def write_csv(facts: Facts, out: TextIO) -> None:
    """A header and the rows."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in COLUMNS])
    for row in rows(facts):
        writer.writerow([_cell(value) for value in row.values()])


def _side(facts: Facts, side: Side, what: str) -> dict[str, Any]:
    return {
        "calls": side.calls,
        "bytes": side.bytes,
        "time_s": facts.spent_ns(what) / 1e9 if side.sampled else None,
        "slowest_process_s": facts.slowest_ns(what) / 1e9 if side.sampled else None,
        "sampled": side.sampled,
        "bytes_per_s": facts.rate(side, what),
        "sequential": side.sequential,
        "consecutive": side.consecutive,
        "sizes": side.sizes,
    }


def _worker(worker: Worker) -> dict[str, Any]:
    use = worker.use
    return {
        "node": worker.node,
        "pid": worker.pid,
        "rank": _known(worker.rank),
        "threads": worker.threads,
        "life_s": worker.life_ns / 1e9,
        "bytes_read": use.read.bytes,
        "bytes_written": use.write.bytes,
        "opens": use.opens,
        "metas": use.metas,
        "read_s": worker.clock_ns(use.read.time_ns) / 1e9,
        "write_s": worker.clock_ns(use.write.time_ns) / 1e9,
        "meta_s": worker.clock_ns(use.meta_ns) / 1e9,
    }


def _operation(op: Operation) -> dict[str, Any]:
    return {
        "name": op.name,
        "class": op.group,
        "calls": op.calls,
        "errors": op.errors,
        "time_s": op.time_ns / 1e9 if op.sampled else None,
        "sampled": op.sampled,
        "bytes": op.bytes,
    }


def _target(target: Target) -> dict[str, Any]:
    return {"target": target.number, "files": target.files, "bytes": round(target.bytes)}


def document(facts: Facts, small_bytes: int = 10240) -> dict[str, Any]:
    """The whole report as one JSON document."""
    return {
        "schema_version": SCHEMA_VERSION,
        "run": query.whole_as_json(facts.summary, facts.run, facts.partial),
        "read": _side(facts, facts.total.read, "read"),
        "write": _side(facts, facts.total.write, "write"),
        "metadata": {
            "calls": facts.total.opens + facts.total.metas,
            "time_s": facts.spent_ns("meta") / 1e9 if facts.total.meta_sampled else None,
            "slowest_process_s": facts.slowest_ns("meta") / 1e9 if facts.total.meta_sampled else None,
            "sampled": facts.total.meta_sampled,
        },
        "process_time_s": facts.life_ns / 1e9,
        "common_sizes": [{"bytes": size, "count": count} for size, count in facts.common_sizes],
        "pattern": facts.pattern or None,
        "remarks": remarks(facts, small_bytes),
        "processes": [_worker(worker) for worker in facts.workers],
        "operations": [_operation(op) for op in facts.operations],
        "targets": [_target(target) for target in facts.targets],
        "placed": facts.run.placed or None,
        "served": facts.run.served or None,
        "limits": limited.document(facts.run.limits),
        "files": list(rows(facts)),
    }


def markdown() -> str:
    """The table of columns for the documentation."""
    lines = ["| column | what it holds |", "| --- | --- |"]
    return "\n".join(lines + [f"| `{column.name}` | {column.doc} |" for column in COLUMNS]) + "\n"
