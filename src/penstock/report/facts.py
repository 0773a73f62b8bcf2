# SPDX-License-Identifier: Apache-2.0
"""What a run did with storage: the numbers that every form of the report shows.  Pure.

Invariants:
1. Any record of the schema gives facts, also one with odd values: nothing divides by zero or needs a length.
2. A rate is bytes over the time of the slowest process in such calls, never over the sum of all calls' times.
3. Times are sampled and scaled by the recorder: beside each stands how many calls were timed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import add

from penstock.base import units
from penstock.runs import merge, record

CLASSES = len(record.SIZE_NAMES)
SIZE_LABELS = [f"≤ {units.show_size(bound - 1)}" for bound in record.SIZE_BOUNDS] + ["> 1 GiB"]


def ten(values: list[int]) -> list[int]:
    """Counts of all classes, also where a writer left some out."""
    return (values + [0] * CLASSES)[:CLASSES]


@dataclass
class Side:
    """Reading or writing."""

    calls: int = 0
    bytes: int = 0
    time_ns: int = 0
    sampled: int = 0
    sequential: int = 0
    consecutive: int = 0
    sizes: list[int] = field(default_factory=lambda: [0] * CLASSES)

    def add(self, other: "Side") -> None:
        self.calls += other.calls
        self.bytes += other.bytes
        self.time_ns += other.time_ns
        self.sampled += other.sampled
        self.sequential += other.sequential
        self.consecutive += other.consecutive
        self.sizes = list(map(add, self.sizes, other.sizes))

    def small(self, classes: int) -> int:
        """Requests of the first so many classes."""
        return sum(self.sizes[:classes])


def sides(row: record.File) -> tuple[Side, Side]:
    """Reading and writing of one row."""
    read = Side(
        row.reads,
        row.bytes_read,
        row.read_ns,
        row.read_sampled,
        row.reads_sequential,
        row.reads_consecutive,
        ten(row.read_sizes),
    )
    write = Side(
        row.writes,
        row.bytes_written,
        row.write_ns,
        row.write_sampled,
        row.writes_sequential,
        row.writes_consecutive,
        ten(row.write_sizes),
    )
    return read, write


@dataclass
class Use:
    """Files summed over whatever they are grouped by: one path, one process, or all."""

    path: bytes = b""
    kind: int = 0
    files: int = 0
    opens: int = 0
    metas: int = 0
    meta_ns: int = 0
    meta_sampled: int = 0
    read: Side = field(default_factory=Side)
    write: Side = field(default_factory=Side)
    common: dict[int, int] = field(default_factory=dict)
    first_ns: int = 0
    last_ns: int = 0
    highest_offset: int = 0
    switches: int = 0
    filesystem: str = ""
    layout: record.Layout | None = None
    ranks: set[int] = field(default_factory=set)
    processes: set[tuple[str, int]] = field(default_factory=set)

    @property
    def bytes(self) -> int:
        return self.read.bytes + self.write.bytes

    @property
    def holds_files(self) -> bool:
        """Of a directory: does it stand for files that did not fit?"""
        return bool(self.read.calls or self.write.calls)

    @property
    def calls(self) -> int:
        return self.opens + self.metas + self.read.calls + self.write.calls

    @property
    def time_ns(self) -> int:
        return self.read.time_ns + self.write.time_ns + self.meta_ns

    @property
    def users(self) -> int:
        """How many ranks used it; where there are none, how many processes."""
        return len(self.ranks) or len(self.processes)

    def add(self, other: "Use") -> None:
        """Sum another into this; the path stays."""
        self.kind = other.kind
        self.files = max(self.files, other.files)
        self.opens += other.opens
        self.metas += other.metas
        self.meta_ns += other.meta_ns
        self.meta_sampled += other.meta_sampled
        self.read.add(other.read)
        self.write.add(other.write)
        for size, count in other.common.items():
            self.common[size] = self.common.get(size, 0) + count
        self.first_ns = min(self.first_ns or other.first_ns, other.first_ns or self.first_ns)
        self.last_ns = max(self.last_ns, other.last_ns)
        self.highest_offset = max(self.highest_offset, other.highest_offset)
        self.switches += other.switches
        self.filesystem = self.filesystem or other.filesystem
        self.layout = self.layout or other.layout
        self.ranks |= other.ranks
        self.processes |= other.processes


def use_of(row: record.File, node: str) -> Use:
    """One row by itself."""
    read, write = sides(row)
    return Use(
        path=row.path,
        kind=row.kind,
        files=row.files,
        opens=row.opens,
        metas=row.metas,
        meta_ns=row.meta_ns,
        meta_sampled=row.meta_sampled,
        read=read,
        write=write,
        common=dict(row.common_sizes),
        first_ns=row.first_ns,
        last_ns=row.last_ns,
        highest_offset=row.highest_offset,
        switches=row.switches,
        filesystem=row.filesystem,
        layout=row.layout,
        ranks={row.rank} if row.rank >= 0 else set(),
        processes={(node, row.pid)},
    )


@dataclass
class Worker:
    """One process of the run and its time."""

    node: str
    pid: int
    rank: int
    threads: int
    life_ns: int
    use: Use

    @property
    def name(self) -> str:
        return f"rank {self.rank}" if self.rank >= 0 else f"process {self.pid}"

    def clock_ns(self, time_ns: int) -> float:
        """Time on the wall out of the sum over threads: no more than the process lived."""
        spread = time_ns / max(self.threads, 1)
        return min(spread, self.life_ns) if self.life_ns > 0 else spread


@dataclass
class Operation:
    """One operation over all nodes."""

    name: str
    group: str
    calls: int = 0
    errors: int = 0
    time_ns: int = 0
    sampled: int = 0
    bytes: int = 0


@dataclass
class Target:
    """One storage target: the files on it, and their bytes in equal parts to each of a file's targets."""

    number: int
    files: int = 0
    bytes: float = 0


@dataclass
class Facts:
    """All of it."""

    run: merge.Run
    summary: merge.Summary
    partial: list[merge.Partial]
    total: Use
    files: list[Use]  # most bytes first; FILE rows by path
    folders: list[Use]  # sums over directories and unnamed descriptors
    workers: list[Worker]  # by rank, then node and pid
    operations: list[Operation]  # most calls first
    targets: list[Target]

    @property
    def duration_ns(self) -> int:
        return max(self.summary.duration_ns, 0)

    @property
    def life_ns(self) -> float:
        """The time that there was: each worker's life."""
        return sum(w.life_ns for w in self.workers)

    def spent_ns(self, what: str) -> float:
        """Time on the wall of all workers in "read", "write" or "meta"."""
        return sum(w.clock_ns(_time_of(w.use, what)) for w in self.workers)

    def slowest_ns(self, what: str) -> float:
        """Time of the worker that spent most in it."""
        return max((w.clock_ns(_time_of(w.use, what)) for w in self.workers), default=0)

    def rate(self, side: Side, what: str) -> float | None:
        """Bytes a second while the slowest worker was in such calls; None when nothing was timed."""
        slowest = self.slowest_ns(what)
        return side.bytes / slowest * 1e9 if slowest > 0 and side.bytes > 0 else None

    @property
    def common_sizes(self) -> list[tuple[int, int]]:
        """The commonest request sizes: (bytes, count), most frequent first; rare ones and ends of files not."""
        least = max(0.01 * (self.total.read.calls + self.total.write.calls), 1)
        found = [(size, count) for size, count in self.total.common.items() if size > 0 and count >= least]
        return sorted(found, key=lambda item: (-item[1], item[0]))[:4]

    @property
    def metadata(self) -> list[Operation]:
        return [op for op in self.operations if op.group != "data"]

    @property
    def pattern(self) -> str:
        """How the workers share the files that hold data: a sentence, or "" where there is nothing to say."""
        noun = "ranks" if any(w.rank >= 0 for w in self.workers) else "processes"
        return sharing([f for f in self.files if f.bytes > 0], self.users, noun)

    @property
    def users(self) -> int:
        """Ranks, or where there are none, processes that used files."""
        ranks = {w.rank for w in self.workers if w.rank >= 0}
        return len(ranks) or len(self.workers)


def _time_of(use: Use, what: str) -> int:
    return {"read": use.read.time_ns, "write": use.write.time_ns, "meta": use.meta_ns}[what]


def sharing(files: list[Use], users: int, noun: str) -> str:
    """Shared file, file per process, or both, weighed by bytes."""
    total = sum(f.bytes for f in files)
    if users < 2 or not total:
        return ""
    shared = [f for f in files if f.users > 1]
    in_shared = sum(f.bytes for f in shared)
    own = [f for f in files if f.users <= 1]
    if in_shared >= 0.9 * total:
        everybody = all(f.users >= users for f in shared)
        count = "one shared file," if len(shared) == 1 else f"{len(shared):,} shared files, each"
        return f"{count} used by {'all' if everybody else 'several of the'} {users:,} {noun}"
    if in_shared <= 0.1 * total:
        if len(own) == users:
            return f"a file per {'rank' if noun == 'ranks' else 'process'}"
        return f"each used by one of {users:,} {noun}"
    return (
        f"{units.show_ratio(in_shared, total)} of the bytes in {len(shared):,} shared "
        f"file{'s' * (len(shared) != 1)}, the rest in {len(own):,} used by one of {users:,} {noun} each"
    )


def gather(run: merge.Run) -> Facts:
    """The facts of a run."""
    total = Use()
    by_path: dict[tuple[int, bytes], Use] = {}
    by_worker: dict[tuple[str, int, int], Use] = {}
    for node in run.nodes:
        for row in node.files:
            use = use_of(row, node.node)
            by_worker.setdefault((node.node, row.pid, row.rank), Use()).add(use)
            key = (row.kind, row.path)
            if key in by_path:
                by_path[key].add(use)
            else:
                by_path[key] = use
    for use in by_worker.values():
        total.add(use)
    rows = sorted(by_path.values(), key=lambda u: (-u.bytes, -u.calls, u.path))
    files = [u for u in rows if u.kind == record.FileKind.FILE]
    folders = [u for u in rows if u.kind == record.FileKind.DIRECTORY and u.holds_files]
    total.files = len(files) + sum(u.files for u in folders)
    return Facts(
        run=run,
        summary=merge.summarize(run),
        partial=merge.partial(run),
        total=total,
        files=files,
        folders=[u for u in rows if u.kind != record.FileKind.FILE],
        workers=_workers(run, by_worker),
        operations=_operations(run.nodes),
        targets=_targets(files),
    )


def _workers(run: merge.Run, uses: dict[tuple[str, int, int], Use]) -> list[Worker]:
    """The processes that used files, and all ranks."""
    lives: dict[tuple[str, int], record.Process] = {}
    for node in run.nodes:
        for process in node.processes:
            lives[node.node, process.pid] = process
            if process.rank >= 0:
                uses.setdefault((node.node, process.pid, process.rank), Use())
    found = []
    for (node_name, pid, rank), use in uses.items():
        known = lives.get((node_name, pid))
        start = known.start_ns if known and known.start_ns > 0 else run.start_ns
        end = known.end_ns if known and known.end_ns else run.end_ns
        threads = max(known.threads if known else 1, 1)
        found.append(Worker(node_name, pid, rank, threads, max(end - start, 0), use))
    return sorted(found, key=lambda w: (w.rank < 0, w.rank, w.node, w.pid))


def _operations(nodes: Iterable[record.Node]) -> list[Operation]:
    found: dict[tuple[str, str], Operation] = {}
    for node in nodes:
        for op in node.ops:
            one = found.setdefault((op.group, op.name), Operation(op.name, op.group))
            one.calls += op.calls
            one.errors += op.errors
            one.time_ns += op.time_ns
            one.sampled += op.sampled
            one.bytes += op.bytes
    return sorted(found.values(), key=lambda op: (-op.calls, op.group, op.name))


def _targets(files: list[Use]) -> list[Target]:
    found: dict[int, Target] = {}
    for use in files:
        numbers = use.layout.targets if use.layout else []
        for number in dict.fromkeys(numbers):
            target = found.setdefault(number, Target(number))
            target.files += 1
            target.bytes += use.bytes / len(set(numbers))
    return [found[number] for number in sorted(found)]


def small_classes(limit_bytes: int) -> int:
    """How many of the first classes hold nothing above a limit."""
    return sum(bound - 1 <= limit_bytes for bound in record.SIZE_BOUNDS)
