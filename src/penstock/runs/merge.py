# SPDX-License-Identifier: Apache-2.0
"""A run out of its frames.  Pure.

Invariants:
1. A run is the set of its frames: neither their order nor seeing one twice changes anything.
2. Of the node frames of one node the one with the highest `seq` holds; of two with the same, the later one.
3. The earliest begin leads; the worst end holds, at the time of the last one.
4. What is partial is said once a word: counts of different nodes add up.
"""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from penstock.base.text import visible
from penstock.runs import record

FORGOTTEN = "forgotten"  # the word of a mark that hides a run
UNSEEN = "unseen"  # of one that tells what of its job was not seen: not of the run, which may be whole


@dataclass(frozen=True)
class Run:
    """All that is known of one run."""

    id: bytes
    begin: record.Begin
    end: record.End | None
    nodes: tuple[record.Node, ...]
    marks: tuple[record.Mark, ...]

    @property
    def ended(self) -> bool:
        return self.end is not None or (bool(self.nodes) and all(node.final for node in self.nodes))

    @property
    def forgotten(self) -> bool:
        return any(mark.word == FORGOTTEN for mark in self.marks)

    @property
    def node_names(self) -> list[str]:
        return [node.node for node in self.nodes] or [n for n in [self.begin.node] if n]

    @property
    def ranks(self) -> set[int]:
        found = {p.rank for node in self.nodes for p in node.processes}
        return {r for r in found | {f.rank for node in self.nodes for f in node.files} if r >= 0}

    @property
    def expected_ranks(self) -> int:
        sizes = (p.size for node in self.nodes for p in node.processes)
        return max(self.begin.expected_ranks, *sizes, 0)

    @property
    def start_ns(self) -> int:
        starts = [p.start_ns for node in self.nodes for p in node.processes if p.start_ns > 0]
        return (
            self.begin.start_ns or min(starts, default=0) or min((n.time_ns for n in self.nodes), default=0)
        )

    @property
    def end_ns(self) -> int:
        """When it ended, or when it was last seen."""
        ends = [p.end_ns for node in self.nodes for p in node.processes if p.end_ns]
        if self.end is not None and self.end.end_ns:
            return max(self.end.end_ns, self.start_ns)
        if not (self.ended and ends):
            ends += [node.time_ns for node in self.nodes]
        return max([*ends, self.start_ns])

    @property
    def overflow(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for node in self.nodes:
            for name, count in node.overflow.items():
                total[name] = total.get(name, 0) + count
        return {name: count for name, count in sorted(total.items()) if count}

    @property
    def placed(self) -> dict[str, int]:
        """What became of the plan of placement, over all nodes; empty: there was none."""
        total: dict[str, int] = {}
        for node in self.nodes:
            for name, count in node.placed.items():
                most = name in ("plan_ns", "left_out", "why_none")  # the same on every node
                total[name] = max(total.get(name, 0), count) if most else total.get(name, 0) + count
        return total

    @property
    def served(self) -> dict[str, int]:
        """What was answered from a catalog, over all nodes; empty: nothing was to be."""
        total: dict[str, int] = {}
        for node in self.nodes:
            for name, count in node.served.items():
                total[name] = total.get(name, 0) + count
        return total

    @property
    def limits(self) -> list[record.Limit]:
        """What each limit cost over all nodes; its rate is that of all of them."""
        total: dict[tuple[str, bool, bool], record.Limit] = {}
        for limit in (row for node in self.nodes for row in node.limits):
            key = (limit.name, limit.bytes, limit.shadow)
            total[key] = _both(total[key], limit) if key in total else limit
        return sorted(total.values(), key=lambda row: (-row.waited_ns, row.name, row.bytes, row.shadow))

    @property
    def unseen_ratio(self) -> float | None:
        """The largest share that file systems counted for its job and Penstock did not see."""
        told = [node.unseen_ratio for node in self.nodes] + [mark.unseen_ratio for mark in self.marks]
        return max((ratio for ratio in told if ratio is not None), default=None)


def _both(a: record.Limit, b: record.Limit) -> record.Limit:
    return record.Limit(
        name=a.name,
        bytes=a.bytes,
        shadow=a.shadow,
        released=a.released and b.released,
        rate_milli=a.rate_milli + b.rate_milli,
        units=a.units + b.units,
        delayed=a.delayed + b.delayed,
        waited_ns=a.waited_ns + b.waited_ns,
        longest_ns=max(a.longest_ns, b.longest_ns),
    )


class Partial(msgspec.Struct, frozen=True):
    """A reason why a run's record is partial, with what its writers added."""

    word: str
    count: int = 0
    text: str = ""
    hint: str = ""


class Summary(msgspec.Struct, frozen=True):
    """A row of the list of runs."""

    id: str
    job: str = ""
    job_source: str = ""
    step: str = ""
    user: str = ""
    uid: int = -1
    program: str = ""  # safe to show as it is
    nodes: list[str] = []
    ranks: int = 0
    expected_ranks: int = 0
    processes: int = 0
    start_ns: int = 0
    end_ns: int = 0
    ended: bool = False
    status: int | None = None
    signal: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    files: int = 0
    opens: int = 0
    partial: list[str] = []
    forgotten: bool = False

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def _node_order(node: record.Node) -> tuple[int, int, bytes]:
    return node.seq, node.time_ns, record.encode(node)


def merge(run: bytes, payloads: Iterable[record.Payload]) -> Run:
    """The run that these frames make."""
    begins: list[record.Begin] = []
    ends: list[record.End] = []
    marks: dict[bytes, record.Mark] = {}
    nodes: dict[str, record.Node] = {}
    for payload in payloads:
        if isinstance(payload, record.Begin):
            begins.append(payload)
        elif isinstance(payload, record.End):
            ends.append(payload)
        elif isinstance(payload, record.Mark):
            marks[record.encode(payload)] = payload
        elif payload.node not in nodes or _node_order(nodes[payload.node]) < _node_order(payload):
            nodes[payload.node] = payload
    return Run(
        id=run,
        begin=_one_begin(begins),
        end=_one_end(ends),
        nodes=tuple(nodes[name] for name in sorted(nodes)),
        marks=tuple(marks[key] for key in sorted(marks)),
    )


def _one_begin(begins: list[record.Begin]) -> record.Begin:
    if not begins:
        return record.Begin(uid=-1)
    first = min(begins, key=lambda b: (b.start_ns or 2**63, record.encode(b)))
    return msgspec.structs.replace(first, expected_ranks=max(b.expected_ranks for b in begins))


def _one_end(ends: list[record.End]) -> record.End | None:
    if not ends:
        return None
    worst = max(ends, key=lambda e: (e.signal, -1 if e.status is None else e.status, record.encode(e)))
    return msgspec.structs.replace(worst, end_ns=max(e.end_ns for e in ends))


def partial(run: Run) -> list[Partial]:
    """Why the record of this run is partial, in the order of words; empty when it is whole."""
    found: dict[str, Partial] = {}

    def add(word: str, count: int, text: str = "", hint: str = "") -> None:
        have = found.get(word, Partial(word))
        texts = [t for t in (have.text, text) if t]
        found[word] = Partial(word, have.count + count, "; ".join(dict.fromkeys(texts)), have.hint or hint)

    for node in run.nodes:
        for reason in node.partial:
            add(reason.word, reason.count, reason.text)
    for mark in run.marks:
        if mark.word not in (FORGOTTEN, UNSEEN):
            add(mark.word, 0, mark.text, mark.hint)
    missing = run.expected_ranks - len(run.ranks)
    if run.ranks and missing <= 0:
        found.pop("ranks_missing", None)  # a node did not see them, but others did
    if run.nodes and missing > 0 and not found.get("ranks_missing", Partial("")).count:
        add("ranks_missing", missing)
    if not run.nodes:
        add("no_counts", 0)
    elif waiting := sum(not node.final for node in run.nodes):
        add("not_ended", waiting)
    return [found[word] for word in sorted(found)]


# What starts programs but is never the program itself.
_STARTERS = re.compile(
    r"(mpirun|mpiexec|mpiexec\..*|orterun|prterun|prun|orted|prted|hydra_.*|srun|sbatch|slurmstepd|jsrun|aprun|flux"
    r"|env|time|timeout|nice|nohup|stdbuf|numactl|taskset|xargs|make|gmake|ninja|sudo|su|penstock|penstock-run"
    r"|torchrun|busybox)"
)
_SHELLS = re.compile(r"(r?bash|sh|dash|zsh|ksh|fish|t?csh)")
_INTERPRETERS = re.compile(r"(python|perl|ruby|julia|node|Rscript|R|lua|php|tclsh)[\d.]*t?")
_TAKES_A_WORD = {b"-W", b"-X", b"-I", b"-o"}


def program_name(exe: bytes, argv: list[bytes]) -> tuple[int, str]:
    """How sure this is no mere starter (0: sure), and the name: for an interpreter, that of its script."""
    base = visible(posixpath.basename(exe or (argv[0] if argv else b"")).removesuffix(b" (deleted)"))
    if _STARTERS.fullmatch(base):
        return 3, base
    shell = bool(_SHELLS.fullmatch(base))
    if not shell and not _INTERPRETERS.fullmatch(base):
        return 0 if base else 4, base
    words = iter(argv[1:])
    for word in words:
        if word in (b"-c", b"-e"):
            return (3 if shell else 0), f"{base} {word.decode()}"
        if word == b"-m":
            return 0, visible(next(words, b"")) or base
        if word in _TAKES_A_WORD:
            next(words, None)
        elif not word.startswith(b"-"):
            return (1 if shell else 0), visible(posixpath.basename(word))
    return (3 if shell else 2), base


def program(run: Run) -> str:
    """The program: the ranks' executable or script, else that of the process with most calls on files."""
    best: tuple[bool, int, int, int, int, str] | None = None
    for node in run.nodes:
        calls = [0] * len(node.processes)
        for row in node.files:
            if 0 <= row.process < len(calls):
                calls[row.process] += row.opens + row.reads + row.writes + row.metas
        for process, count in zip(node.processes, calls, strict=True):
            doubt, name = program_name(process.exe, process.argv)
            order = (process.rank < 0, doubt, -count, process.start_ns, process.pid, name)
            if name and (best is None or order < best):
                best = order
    if best is not None and best[1] < 3:
        return best[5]
    doubt, name = program_name(b"", run.begin.argv)
    return name if doubt < 3 else ""


def _total(counts: Iterable[int]) -> int:
    """A sum that an index can hold, whatever a stray write made of a counter."""
    return min(max(sum(counts), 0), 2**63 - 1)


def summarize(run: Run) -> Summary:
    """The row of the list."""
    files = [row for node in run.nodes for row in node.files]
    named = {row.path for row in files if row.kind == record.FileKind.FILE}
    folders = [r for r in files if r.kind == record.FileKind.DIRECTORY and (r.reads or r.writes)]
    return Summary(
        id=run.id.hex(),
        job=run.begin.job,
        job_source=run.begin.job_source,
        step=run.begin.step,
        user=run.begin.user,
        uid=run.begin.uid,
        program=program(run),
        nodes=run.node_names,
        ranks=len(run.ranks),
        expected_ranks=run.expected_ranks,
        processes=sum(len(node.processes) for node in run.nodes),
        start_ns=run.start_ns,
        end_ns=run.end_ns,
        ended=run.ended,
        status=run.end.status if run.end else None,
        signal=run.end.signal if run.end else 0,
        bytes_read=_total(row.bytes_read for row in files),
        bytes_written=_total(row.bytes_written for row in files),
        files=_total([len(named), *(row.files for row in folders)]),
        opens=_total(row.opens for row in files),
        partial=[p.word for p in partial(run)],
        forgotten=run.forgotten,
    )
