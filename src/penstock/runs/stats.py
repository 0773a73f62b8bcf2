# SPDX-License-Identifier: Apache-2.0
"""All runs of a history together: stripe counts and sizes, programs, and what layouts could gain.

Two counts stand side by side: the distinct targets that a run's files touched (what published statistics call the
stripe count), and the widest layout among its files.

Invariants:
1. Each run counts once, by its last frames; runs that were forgotten do not count.
2. A run without a known layout is counted, as such, and in no class.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.policy.tuning.contract import Layout
from penstock.runs import merge, record, segments

CLASSES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2000)  # upper ends
BLOCK_BYTES = 32 << 20
LARGE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Facts:
    """What one run adds."""

    program: str
    targets: int  # distinct ones
    widest: int  # stripes of the widest layout
    stripe_bytes: int  # of the widest layout
    processes: int
    bytes: int
    time_ns: int  # of the slowest process
    shared: bool
    layout: Layout | None  # where all files with data have one


def facts_of(program: str, nodes: Iterable[record.Node]) -> Facts:
    """Of the nodes of one run."""
    touched: set[int] = set()
    widest = (0, 0)
    layouts: set[tuple[int, int]] = set()
    times: Counter[tuple[str, int]] = Counter()
    size = processes = shared_bytes = 0
    for node in nodes:
        processes += max(len({p.pid for p in node.processes}), *(p.mpi_largest for p in node.processes), 0)
        for row in node.files:
            size += max(row.bytes_read + row.bytes_written, 0)
            times[(node.node, row.pid)] += max(row.read_ns + row.write_ns + row.meta_ns, 0)
            shared_bytes += row.bytes_written if row.mpi_ranks > 1 else 0
            if row.layout is not None and row.layout.stripe_count > 0:
                touched.update(row.layout.targets)
                widest = max(widest, (row.layout.stripe_count, row.layout.stripe_bytes))
                layouts.add((row.layout.stripe_count, row.layout.stripe_bytes))
    only = Layout(*next(iter(layouts))) if len(layouts) == 1 else None
    slowest = max(times.values(), default=0)
    return Facts(program, len(touched), *widest, processes, size, slowest, shared_bytes * 2 > size, only)


def walk(folder: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> Iterator[Facts]:
    """Of every run of a history, in no order."""
    paths = sorted(segments.segments(folder))
    total = sum(path.stat().st_size for path in paths)
    nodes: dict[tuple[bytes, str], tuple[int, int, Facts]] = {}
    begins: dict[bytes, str] = {}
    forgotten: set[bytes] = set()
    done = 0
    for path in paths:
        offset = 0
        while True:
            found = segments.read_some(path, offset, BLOCK_BYTES)
            for frame in found.frames:
                _take(frame, nodes, begins, forgotten)
            if found.next_offset <= offset:
                break
            done += found.next_offset - offset
            offset = found.next_offset
            progress(done, total)
    by_run: dict[bytes, list[Facts]] = {}
    for (run, _), (_, _, facts) in nodes.items():
        by_run.setdefault(run, []).append(facts)
    for run, parts in by_run.items():
        if run not in forgotten:
            yield _joined(parts) if len(parts) > 1 else parts[0]


def _take(
    frame: segments.Frame,
    nodes: dict[tuple[bytes, str], tuple[int, int, Facts]],
    begins: dict[bytes, str],
    forgotten: set[bytes],
) -> None:
    if frame.kind not in (record.Kind.NODE, record.Kind.MARK):
        return
    try:
        payload = frame.decode()
    except ValueError:
        return
    if isinstance(payload, record.Mark) and payload.word == merge.FORGOTTEN:
        forgotten.add(frame.run)
    elif isinstance(payload, record.Node):
        key = (frame.run, payload.node)
        order = (payload.seq, payload.time_ns)
        if key not in nodes or nodes[key][:2] <= order:
            run = merge.Run(frame.run, record.Begin(), None, (payload,), ())
            nodes[key] = (*order, facts_of(merge.program(run), [payload]))


def _joined(parts: Sequence[Facts]) -> Facts:
    """Of several nodes: distinct targets are at least those of the node with most."""
    first = max(parts, key=lambda p: p.bytes)
    widest = max((p.widest, p.stripe_bytes) for p in parts)
    return Facts(
        first.program,
        max(p.targets for p in parts),
        *widest,
        sum(p.processes for p in parts),
        sum(p.bytes for p in parts),
        max(p.time_ns for p in parts),
        first.shared,
        first.layout if len({p.layout for p in parts}) == 1 else None,
    )


@dataclass(frozen=True)
class Stats:
    """All runs together."""

    runs: int
    programs: int
    without_layout: int
    by_targets: Mapping[int, int]  # class by its upper end: runs
    by_widest: Mapping[int, int]
    by_size: Mapping[int, int]  # stripe size: runs
    single: int  # runs of more than 1 GiB and several processes whose files have one stripe each
    single_bytes: int
    single_shared: int
    tuned: int  # programs that ran with more than one layout
    gain: float | None  # middle of their best layout's rate over that of their most usual


def class_of(count: int) -> int:
    """The upper end of a count's class."""
    return next((end for end in CLASSES if count <= end), count)


def stats(found: Iterable[Facts]) -> Stats:
    runs = without = single = single_bytes = single_shared = 0
    by_targets: Counter[int] = Counter()
    by_widest: Counter[int] = Counter()
    by_size: Counter[int] = Counter()
    programs: dict[str, dict[Layout, list[float]]] = {}
    for f in found:
        runs += 1
        rates = programs.setdefault(f.program, {})
        if f.layout is not None and f.time_ns > 0 and f.bytes > 0:
            rates.setdefault(f.layout, []).append(f.bytes / (f.time_ns / 1e9))
        if not f.widest:
            without += 1
            continue
        by_targets[class_of(max(f.targets, 1))] += 1
        by_widest[class_of(f.widest)] += 1
        by_size[f.stripe_bytes] += 1
        if f.widest == 1 and f.bytes >= LARGE_BYTES and f.processes > 1:
            single += 1
            single_bytes += f.bytes
            single_shared += f.shared
    tried = [rates for rates in programs.values() if len(rates) > 1]
    gains = sorted(map(_gain, tried))
    return Stats(
        runs,
        len(programs),
        without,
        dict(sorted(by_targets.items())),
        dict(sorted(by_widest.items())),
        dict(sorted(by_size.items())),
        single,
        single_bytes,
        single_shared,
        len(tried),
        gains[len(gains) // 2] if gains else None,
    )


def _gain(rates: dict[Layout, list[float]]) -> float:
    """The best layout's middle rate over the most usual one's."""
    middle = {layout: sorted(own)[len(own) // 2] for layout, own in rates.items()}
    usual = max(rates, key=lambda layout: (len(rates[layout]), -layout.count))
    return max(middle.values()) / middle[usual]
