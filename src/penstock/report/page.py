# SPDX-License-Identifier: Apache-2.0
"""The report as one page of HTML that needs nothing else: no network, no script, no other file.

Invariants:
1. The template escapes everything; only figures (which escape their own text) are taken as markup.
2. A table with the same numbers stands under each figure.
3. At most `top` files and MOST_ROWS rows of a figure are drawn; what is left out is said.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from penstock import __version__
from penstock.base import beside, units
from penstock.base.errors import DeniedError, PenstockError
from penstock.base.text import cut, plural, visible
from penstock.report import limited, served, svg
from penstock.report.facts import SIZE_LABELS, Facts, Side, Use, Worker, small_classes
from penstock.report.remarks import remarks
from penstock.report.screen import exact, name_of, overflow, stripes
from penstock.runs import query, record

MOST_ROWS = 128
FIGURE_FILES = 20
TOP = 100
RW = (("read", "read"), ("write", "written"))
RWM = (("read", "reading"), ("write", "writing"), ("meta", "metadata"))


@dataclass(frozen=True)
class Table:
    """Rows under a figure; `right` are the columns of numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Figure:
    """A figure, what it says, and its numbers."""

    title: str
    words: str
    markup: str
    table: Table


def _size(value: float) -> str:
    return units.show_size(value)


def _seconds(value: float) -> str:
    return units.show_duration(value) if value else "0 s"


def grouped(workers: list[Worker]) -> list[tuple[str, list[Worker]]]:
    """Workers in at most MOST_ROWS rows: alone, or neighbours together."""
    each = -(-len(workers) // MOST_ROWS) or 1
    rows = [workers[i : i + each] for i in range(0, len(workers), each)]
    return [(r[0].name if len(r) == 1 else f"{r[0].name} – {r[-1].name.split()[-1]}", r) for r in rows]


def _mean(rows: list[Worker], value: float) -> float:
    return value / len(rows)


def time_figure(facts: Facts) -> Figure | None:
    """Where each process spent its time."""
    if not facts.workers or not facts.life_ns:
        return None
    rows, lines = [], []
    for label, group in grouped(facts.workers):
        parts = [
            _mean(group, sum(w.clock_ns(t) for w, t in zip(group, times, strict=True)))
            for times in zip(
                *((w.use.read.time_ns, w.use.write.time_ns, w.use.meta_ns) for w in group), strict=True
            )
        ]
        life = _mean(group, sum(w.life_ns for w in group))
        share = units.show_ratio(sum(parts), life)
        rows.append(svg.Row(label, parts, share))
        lines.append([label, group[0].node, *map(_seconds, parts), _seconds(life), share])
    longest = max(w.life_ns for w in facts.workers)
    total = sum(facts.spent_ns(what) for what in ("read", "write", "meta"))
    mean = (
        f" Each row is the mean of up to {len(grouped(facts.workers)[0][1])}."
        if len(rows) < len(facts.workers)
        else ""
    )
    return Figure(
        "Where the time went",
        f"{units.show_ratio(total, facts.life_ns)} of the time of {plural(len(facts.workers), 'process')} "
        f"was spent in calls on files; the scale ends with the longest life.{mean} "
        "Times are sampled and scaled.",
        svg.bars(rows, RWM, _seconds, "Time in calls on files", "time in calls on files", top=longest),
        Table(
            ["process", "node", "reading", "writing", "metadata", "lived", "in calls"],
            lines,
            frozenset(range(2, 7)),
        ),
    )


def data_figure(facts: Facts) -> Figure | None:
    """How many bytes each process moved."""
    if not facts.total.bytes or len(facts.workers) < 2:
        return None
    rows, lines = [], []
    for label, group in grouped(facts.workers):
        read = _mean(group, sum(w.use.read.bytes for w in group))
        written = _mean(group, sum(w.use.write.bytes for w in group))
        rows.append(svg.Row(label, [read, written], _size(read + written)))
        opens = sum(w.use.opens for w in group)
        lines.append([label, group[0].node, _size(read), _size(written), f"{opens:,}"])
    sums = [w.use.bytes for w in facts.workers]
    most = max(facts.workers, key=lambda w: w.use.bytes)
    return Figure(
        "Bytes of each process",
        f"{most.name.capitalize()} moved most: {_size(most.use.bytes)}, "
        f"{units.show_ratio(most.use.bytes, sum(sums))} of all; "
        f"the mean is {_size(sum(sums) / len(sums))}.",
        svg.bars(rows, RW, _size, "Bytes of each process", "bytes", base=2),
        Table(["process", "node", "read", "written", "opens"], lines, frozenset({2, 3, 4})),
    )


def sizes_figure(facts: Facts, small_bytes: int) -> Figure | None:
    """How large requests were."""
    read, write = facts.total.read, facts.total.write
    if not sum(read.sizes) + sum(write.sizes):
        return None
    words = []
    if classes := small_classes(small_bytes):
        limit = units.show_size(record.SIZE_BOUNDS[classes - 1] - 1)
        for side, name in ((read, "reads"), (write, "writes")):
            if side.calls:
                words.append(f"{units.show_ratio(side.small(classes), side.calls)} of {name}")
        words = [f"{' and '.join(words)} are small (≤ {limit})."] if words else []
    total = read.calls + write.calls
    common = [f"{exact(s)} ({units.show_ratio(n, total)})" for s, n in facts.common_sizes]
    if common:
        words.append(f"Commonest: {', '.join(common)}.")
    lines = [
        [label, f"{r:,}", f"{w:,}"] for label, r, w in zip(SIZE_LABELS, read.sizes, write.sizes, strict=True)
    ]
    return Figure(
        "Size of requests",
        " ".join(words),
        svg.columns(
            SIZE_LABELS,
            (("read", "reads"), ("write", "writes")),
            [read.sizes, write.sizes],
            units.show_count,
            title="Size of requests",
            axis="size of a request (each class begins above the one before)",
        ),
        Table(["size", "reads", "writes"], lines, frozenset({1, 2})),
    )


def _file_table(facts: Facts, uses: list[Use]) -> Table:
    who = "ranks" if any(u.ranks for u in uses) else "procs"
    head = ["path", "read", "written", "reads", "writes", "opens", "metadata", who, "stripes", "targets"]
    lines = []
    for use in uses:
        targets = " ".join(map(str, use.layout.targets)) if use.layout else "–"
        lines.append(
            [
                name_of(use),
                _size(use.read.bytes),
                _size(use.write.bytes),
                f"{use.read.calls:,}",
                f"{use.write.calls:,}",
                f"{use.opens:,}",
                f"{use.metas:,}",
                str(use.users),
                stripes(use),
                cut(targets, 24),
            ]
        )
    return Table(head, lines, frozenset(range(1, 9)))


def _most_used(facts: Facts, top: int) -> list[Use]:
    return sorted(facts.files + facts.folders, key=lambda u: (-u.bytes, -u.calls, u.path))[:top]


def files_figure(facts: Facts, top: int) -> Figure | None:
    """The files with most bytes."""
    uses = _most_used(facts, top)
    if not uses:
        return None
    drawn = uses[:FIGURE_FILES]
    rows = [svg.Row(name_of(u), [u.read.bytes, u.write.bytes], _size(u.bytes)) for u in drawn]
    rest = len(facts.files) + len(facts.folders) - len(uses)
    words = f"{plural(facts.total.files, 'file')}{': ' + facts.pattern if facts.pattern else ''}."
    if rest > 0:
        words += f" The {len(uses)} most used are listed; {rest:,} more with --files."
    return Figure(
        "Files used most",
        words,
        svg.bars(rows, RW, _size, "Bytes of the files used most", "bytes", base=2),
        _file_table(facts, uses),
    )


def _span_series(use: Use) -> int:
    if use.read.calls and use.write.calls:
        return 2
    return 0 if use.read.calls else 1 if use.write.calls else 3


def when_figure(facts: Facts) -> Figure | None:
    """When files were used."""
    uses = [u for u in _most_used(facts, 10**6) if u.first_ns > 0 and u.last_ns >= u.first_ns][:FIGURE_FILES]
    if not uses:
        return None
    start = min([facts.summary.start_ns or uses[0].first_ns, *(u.first_ns for u in uses)])
    end = max([facts.summary.end_ns, *(u.last_ns for u in uses)])
    uses.sort(key=lambda u: (u.first_ns, u.path))
    rows = [svg.Span(name_of(u), u.first_ns - start, u.last_ns - start, _span_series(u)) for u in uses]
    series = (("read", "read"), ("write", "written"), ("both", "both"), ("meta", "metadata alone"))
    lines = [[r.label, _seconds(r.start), _seconds(r.end), series[r.series][1]] for r in rows]
    return Figure(
        "When files were used",
        "From the first use of a file to its last, since the run began.",
        svg.spans(
            rows, series, end - start, _seconds, title="When files were used", axis="time since the run began"
        ),
        Table(["path", "first use", "last use", "how"], lines, frozenset({1, 2})),
    )


def operations_figure(facts: Facts) -> Figure | None:
    """What the program asked for beside data."""
    ops = [op for op in facts.metadata if op.calls]
    if not ops:
        return None
    rows = [
        svg.Row(
            visible(op.name), [op.calls], f"{op.calls:,}" + (f", {op.errors:,} failed" if op.errors else "")
        )
        for op in ops[:FIGURE_FILES]
    ]
    lines = [
        [
            visible(op.name),
            visible(op.group),
            f"{op.calls:,}",
            f"{op.errors:,}",
            _seconds(op.time_ns) if op.sampled else "not timed",
            f"{op.sampled:,}",
        ]
        for op in ops
    ]
    calls, errors = sum(op.calls for op in ops), sum(op.errors for op in ops)
    return Figure(
        "Metadata operations",
        f"{calls:,} calls" + (f", {errors:,} of them failed." if errors else ", none failed."),
        svg.bars(rows, (("meta", "calls"),), units.show_count, "Metadata operations", "calls", least=1),
        Table(
            ["operation", "class", "calls", "failed", "time, scaled", "timed"], lines, frozenset(range(2, 6))
        ),
    )


def targets_figure(facts: Facts) -> Figure | None:
    """On which storage targets the bytes lie."""
    if not facts.targets:
        return None
    total = sum(t.bytes for t in facts.targets)
    rows = [svg.Row(f"target {t.number}", [t.bytes], _size(t.bytes)) for t in facts.targets[:MOST_ROWS]]
    lines = [
        [str(t.number), str(t.files), _size(t.bytes), units.show_ratio(t.bytes, total)] for t in facts.targets
    ]
    return Figure(
        "Storage targets",
        "The bytes of each file in equal parts on its targets: an estimate from layouts, not a measurement.",
        svg.bars(rows, (("both", "bytes read and written"),), _size, "Bytes by target", "bytes", base=2),
        Table(["target", "files", "bytes", "share"], lines, frozenset({0, 1, 2, 3})),
    )


def limits_figure(facts: Facts) -> Figure | None:
    """What limits cost."""
    limits = facts.run.limits
    if not limits:
        return None
    rows = [
        svg.Row(limited.name_of(row), [max(row.waited_ns, 0)], _seconds(row.waited_ns))
        for row in limits[:MOST_ROWS]
    ]
    lines = [
        [
            limited.name_of(row),
            limited.rate(row),
            limited.asked(row),
            f"{row.delayed:,}",
            _seconds(row.waited_ns),
            _seconds(row.longest_ns),
            "counted only (shadow)" if row.shadow else "held",
        ]
        for row in limits
    ]
    return Figure(
        "What limits cost",
        "Time that calls waited for each limit, all threads together; in shadow, how late they would have been.",
        svg.bars(rows, (("meta", "waited"),), _seconds, "Time waited for limits", "time waited"),
        Table(
            ["limit", "rate", "asked for", "calls that waited", "waited", "longest", "how"],
            lines,
            frozenset(range(1, 6)),
        ),
    )


def _rate(facts: Facts, side: Side, what: str) -> str:
    rate = facts.rate(side, what)
    return f"{_size(rate)}/s in calls of the slowest process" if rate else ""


def cards(facts: Facts) -> list[tuple[str, str, str]]:
    """The numbers at the head: name, value, remark."""
    s, total = facts.summary, facts.total
    in_calls = sum(facts.spent_ns(what) for what in ("read", "write", "meta"))
    share = units.show_ratio(in_calls, facts.life_ns)
    metadata = sum(op.calls for op in facts.metadata) or total.opens + total.metas
    shape = plural(len(s.nodes), "node")
    answered = served.answered(facts.run.served)
    extra = (
        [("from a catalog", f"{answered:,}", "calls that no server was asked")] if facts.run.served else []
    )
    return [
        (
            "time",
            _seconds(facts.duration_ns),
            query.outcome(s) + (f"; {share} in calls on files, sampled" if facts.life_ns else ""),
        ),
        (
            "ranks" if s.ranks else "processes",
            query.ranks(s) if s.ranks else f"{s.processes:,}",
            f"on {shape}",
        ),
        ("read", _size(total.read.bytes), _rate(facts, total.read, "read")),
        ("written", _size(total.write.bytes), _rate(facts, total.write, "write")),
        ("files", f"{total.files:,}", facts.pattern),
        (
            "metadata calls",
            f"{metadata:,}",
            ", ".join(visible(op.name) for op in facts.metadata[:3]),
        ),
        *extra,
    ]


def head(facts: Facts) -> list[tuple[str, str]]:
    """The lines under the title."""
    s, begin = facts.summary, facts.run.begin
    rows = [
        ("run", s.id),
        ("job", f"{visible(s.job) or '–'}{f' ({visible(s.job_source)})' if s.job_source else ''}"),
        ("command", " ".join(map(visible, begin.argv))),
        ("folder", visible(begin.cwd)),
        ("user", visible(s.user)),
        ("nodes", ", ".join(map(visible, s.nodes))),
        ("began", query.instant(s.start_ns)),
        ("ended", query.instant(s.end_ns) if s.ended else "not yet, or not seen"),
    ]
    return [row for row in rows if row[1]]


def page(facts: Facts, top: int = TOP, small_bytes: int = 10240) -> str:
    """The whole page."""
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise PenstockError("a page needs jinja2; install it with: pip install 'penstock[report]'") from error
    figures = [
        time_figure(facts),
        data_figure(facts),
        sizes_figure(facts, small_bytes),
        files_figure(facts, top),
        when_figure(facts),
        operations_figure(facts),
        targets_figure(facts),
        limits_figure(facts),
    ]
    job = f"job {visible(facts.summary.job)}" if facts.summary.job else f"run {facts.summary.id[:8]}"
    text = resources.files("penstock.report").joinpath("page.html").read_text(encoding="utf-8")
    template = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    ).from_string(text)
    return template.render(
        title=f"{facts.summary.program or 'unknown program'}, {job}",
        cards=cards(facts),
        head=head(facts),
        partial=[query.reason_lines(p) for p in facts.partial],
        unseen=units.show_ratio(facts.run.unseen_ratio, 1) if facts.run.unseen_ratio else "",
        overflow=overflow(facts),
        figures=[(f, Markup(f.markup)) for f in figures if f is not None],
        remarks=remarks(facts, small_bytes),
        nothing_used=bool(facts.run.nodes) and not facts.workers,
        version=__version__,
    )


def write(path: Path, text: str) -> None:
    """The whole page or none."""
    try:
        beside.write(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise DeniedError(
            f"the page {path} cannot be written ({error.strerror}); name another place"
        ) from error
