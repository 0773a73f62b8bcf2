# SPDX-License-Identifier: Apache-2.0
"""The report on one screen of text.  Pure: facts in, lines out."""

from penstock.base import units
from penstock.base.text import cut, plural, visible
from penstock.report import limited, placed, served
from penstock.report.facts import Facts, Side, Use, small_classes
from penstock.report.remarks import remarks
from penstock.runs import query, reasons, record

_BAR = 24
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, width: int = _BAR) -> str:
    """A share of the whole as blocks; a little something is never nothing."""
    eighths = round(min(max(share, 0), 1) * width * 8)
    if share > 0 and not eighths:
        eighths = 1
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def exact(size_bytes: int) -> str:
    """A size to the byte: `1 MiB`, `4097 B`."""
    number = units.exact_size(size_bytes)
    return f"{number} B" if number.isdigit() else f"{number[:-3]} {number[-3:]}"


def screen(facts: Facts, top: int, small_bytes: int, width: int = 80) -> list[str]:
    """All lines of the report."""
    width = max(width, 60)
    parts = [
        _head(facts, width),
        _partial(facts),
        _time(facts),
        _data(facts, small_bytes),
        _metadata(facts),
        _files(facts, top, width),
        _targets(facts, width),
        [f"{'placed' if i == 0 else '':<10}{line}" for i, line in enumerate(placed.lines(facts.run.placed))],
        [f"{'served' if i == 0 else '':<10}{line}" for i, line in enumerate(served.lines(facts.run.served))],
        [f"{'limits' if i == 0 else '':<10}{line}" for i, line in enumerate(limited.lines(facts.run.limits))],
        [f"! {sentence}" for sentence in remarks(facts, small_bytes)],
    ]
    lines: list[str] = []
    for part in parts:
        lines += [*([""] if lines and part else []), *part]
    return [line.rstrip() for line in lines]


def _head(facts: Facts, width: int) -> list[str]:
    s, run = facts.summary, facts.run
    job = f"job {visible(s.job)}" if s.job else "no job"
    nodes = cut(", ".join(map(visible, s.nodes)), 40)
    who = f"{visible(s.user) or 'somebody'} on {nodes or 'an unknown node'}"
    shape = [plural(len(s.nodes), "node"), plural(s.processes, "process")]
    if s.ranks or s.expected_ranks:
        shape.insert(0, f"{query.ranks(s)} ranks")
    command = " ".join(visible(word) for word in run.begin.argv)
    took = f"{units.show_duration(facts.duration_ns)}, {query.outcome(s)}"
    lines = [
        f"run {s.id[:8]} · {job} · {s.program or 'unknown program'}",
        cut(f"  {command}", width) if command else "",
        f"  {query.instant(s.start_ns)} · {took}",
        f"  {who} · {', '.join(shape)}",
    ]
    return [line for line in lines if line]


def _partial(facts: Facts) -> list[str]:
    lines = []
    for reason in facts.partial:
        first, *hints = query.reason_lines(reason)
        lines += [f"PARTIAL: {first}", *(f"  {hint}" for hint in hints)]
    if facts.run.unseen_ratio:
        share = units.show_ratio(facts.run.unseen_ratio, 1)
        lines.append(f"NOT SEEN: {share} of the requests that the file system counted for its job")
    if over := overflow(facts):
        lines.append(f"NOT IN FULL: {over}")
    return lines


def overflow(facts: Facts) -> str:
    """What the recorder's tables could not hold in full."""
    return ", ".join(reasons.overflow(name, count) for name, count in facts.run.overflow.items())


def _time(facts: Facts) -> list[str]:
    whole = facts.life_ns
    if not facts.run.nodes:
        return []
    if not facts.workers:
        return ["No process used a file that is recorded (system folders and site-packages are not)."]
    use = facts.total
    rows = [
        ("reading", facts.spent_ns("read"), use.read.sampled, use.read.calls),
        ("writing", facts.spent_ns("write"), use.write.sampled, use.write.calls),
        ("metadata", facts.spent_ns("meta"), use.meta_sampled, use.opens + use.metas),
    ]
    lines = [f"time of {plural(len(facts.workers), 'process')}, sampled and scaled"]
    for name, time_ns, sampled, calls in rows:
        if not calls:
            lines.append(f"  {name:<10}{'none':>10}")
        elif not sampled and not time_ns:
            lines.append(f"  {name:<10}{'not timed':>10}")
        else:
            share = units.show_ratio(time_ns, whole)
            lines.append(
                f"  {name:<10}{units.show_duration(time_ns):>10} {share:>8}  {bar(time_ns / (whole or 1))}"
            )
    rest = max(whole - sum(row[1] for row in rows), 0)
    lines.append(
        f"  {'the rest':<10}{units.show_duration(rest):>10} {units.show_ratio(rest, whole):>8}  "
        f"{bar(rest / (whole or 1))}"
    )
    return lines


def _rate(value: float | None) -> str:
    return f"{units.show_size(value)}/s" if value else "–"


def _data(facts: Facts, small_bytes: int) -> list[str]:
    read, write = facts.total.read, facts.total.write
    if not read.calls + write.calls:
        return []
    classes = small_classes(small_bytes)
    limit = units.show_size(record.SIZE_BOUNDS[classes - 1] - 1) if classes else ""
    over = facts.duration_ns / 1e9

    def row(name: str, one: str, other: str) -> str:
        return f"  {name:<34}{one:>16}{other:>16}"

    def share(part: int, side: Side) -> str:
        return units.show_ratio(part, side.calls) if side.calls else "–"

    lines = [
        f"{'data':<36}{'read':>16}{'written':>16}",
        row("bytes", units.show_size(read.bytes), units.show_size(write.bytes)),
        row("requests", f"{read.calls:,}", f"{write.calls:,}"),
        row(
            "rate in calls, slowest process",
            _rate(facts.rate(read, "read")),
            _rate(facts.rate(write, "write")),
        ),
        row("rate over the whole run", *(_rate(s.bytes / over if over else None) for s in (read, write))),
    ]
    if classes:
        lines.append(
            row(
                f"small requests (≤ {limit})",
                share(read.small(classes), read),
                share(write.small(classes), write),
            )
        )
    lines.append(row("sequential requests", share(read.sequential, read), share(write.sequential, write)))
    total = read.calls + write.calls
    common = [f"{exact(size)} ({units.show_ratio(count, total)})" for size, count in facts.common_sizes]
    if common:
        lines.append(f"  commonest sizes: {', '.join(common)}")
    return lines


def _metadata(facts: Facts) -> list[str]:
    ops = facts.metadata
    calls = sum(op.calls for op in ops) or facts.total.opens + facts.total.metas
    if not calls:
        return []
    most = ", ".join(f"{visible(op.name)} {op.calls:,}" for op in ops[:5] if op.calls)
    errors = sum(op.errors for op in ops)
    line = f"metadata: {calls:,} calls" + (f", {errors:,} failed" if errors else "")
    return [line + (f": {most}" if most else "")]


def stripes(use: Use) -> str:
    return str(use.layout.stripe_count) if use.layout else "–"


def name_of(use: Use) -> str:
    """A row's name: the path, or what a sum stands for."""
    if use.kind == record.FileKind.UNNAMED:
        return "(descriptors without a known path)"
    if use.kind == record.FileKind.DIRECTORY:
        folder = visible(use.path).rstrip("/") + "/"
        return f"{folder} ({use.files:,} files that did not fit)" if use.holds_files else folder
    return visible(use.path)


def _files(facts: Facts, top: int, width: int) -> list[str]:
    rows = facts.files + facts.folders
    if not rows:
        return []
    shown = sorted(rows, key=lambda u: (-u.bytes, -u.calls, u.path))[:top]
    what = plural(facts.total.files, "file")
    lines = [f"{what}{': ' + facts.pattern if facts.pattern else ''}"]
    if shown:
        who = "ranks" if any(u.ranks for u in shown) else "procs"
        lines.append(f"  {'read':>9} {'written':>9} {'opens':>6} {'meta':>6} {who:>5} {'strp':>4}  path")
    for use in shown:
        lines.append(
            f"  {units.show_size(use.read.bytes):>9} {units.show_size(use.write.bytes):>9} "
            f"{units.show_count(use.opens):>6} {units.show_count(use.metas):>6} {use.users:>5} "
            f"{stripes(use):>4}  {cut(name_of(use), max(width - 49, 20))}"
        )
    hidden = len(rows) - len(shown)
    if hidden > 0:
        lines.append(
            f"  and {hidden:,} more files and folders: penstock report {facts.summary.id[:8]} --files"
        )
    return lines


def _targets(facts: Facts, width: int) -> list[str]:
    if not facts.targets:
        return []
    total = sum(t.bytes for t in facts.targets) or 1
    by_load = sorted(facts.targets, key=lambda t: (-t.bytes, t.number))
    most = ", ".join(f"{t.number} ({units.show_ratio(t.bytes, total)})" for t in by_load[:4])
    return [cut(f"{plural(len(facts.targets), 'target')}, most bytes on {most}", width)]
