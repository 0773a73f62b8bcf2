# SPDX-License-Identifier: Apache-2.0
"""Runs as rows: which of them, and how a row looks.  Pure but for the local time zone."""

import re
from datetime import datetime
from typing import Any, NamedTuple

from penstock.base import units
from penstock.base.errors import UsageError
from penstock.base.text import cut, visible
from penstock.runs import merge, reasons, record


class Filter(NamedTuple):
    """What a run must be like to be listed; empty fields do not ask."""

    job: str = ""
    user: str = ""
    program: str = ""
    since_ns: int = 0
    partial: bool = False


def matches(summary: merge.Summary, wanted: Filter) -> bool:
    """Is this run asked for?"""
    return (
        (not wanted.job or wanted.job in (summary.job, f"{summary.job}.{summary.step}"))
        and (not wanted.user or wanted.user in (summary.user, str(summary.uid)))
        and wanted.program.lower() in summary.program.lower()
        and summary.start_ns >= wanted.since_ns
        and (bool(summary.partial) or not wanted.partial)
    )


def since_ns(text: str, now_ns: int) -> int:
    """An instant: how long ago (`7d`), or a date or time as ISO writes them (local if without a zone)."""
    if re.match(r"\d{4}-\d", text, re.ASCII):
        try:
            return int(datetime.fromisoformat(text).astimezone().timestamp() * 10**9)
        except (ValueError, OverflowError, OSError) as error:
            raise UsageError(f"--since {text}: write a date like 2026-11-01 or 2026-11-01T12:00") from error
    return now_ns - units.parse_duration(text)


def instant(time_ns: int) -> str:
    """Local time with its offset, to the second; a dash when it is not known."""
    if time_ns <= 0:
        return "–"
    try:
        return datetime.fromtimestamp(time_ns // 10**9).astimezone().isoformat(" ", "seconds")
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"


def outcome(summary: merge.Summary) -> str:
    """How it ended, in a few characters."""
    if summary.signal:
        return f"signal {summary.signal}"
    if summary.status is not None:
        return "ok" if summary.status == 0 else f"exit {summary.status}"
    return "ended" if summary.ended else "not ended"


def ranks(summary: merge.Summary) -> str:
    """Ranks seen of those expected; processes where there are no ranks."""
    if summary.expected_ranks or summary.ranks:
        whole = max(summary.expected_ranks, summary.ranks)
        return str(whole) if summary.ranks == whole else f"{summary.ranks}/{whole}"
    return "–"


def table(rows: list[merge.Summary]) -> list[str]:
    """The list on the screen; nothing for no rows."""
    if not rows:
        return []
    head = ("run", "began", "job", "program", "ranks", "time", "read", "written", "files", "ended", "")
    lines = [head]
    for s in rows:
        lines.append(
            (
                s.id[:8],
                instant(s.start_ns)[:16],
                visible(s.job) or "–",
                cut(s.program or "–", 24),
                ranks(s),
                units.show_duration(max(s.duration_ns, 0)),
                units.show_size(s.bytes_read),
                units.show_size(s.bytes_written),
                units.show_count(s.files),
                outcome(s),
                "partial" if s.partial else "",
            )
        )
    right = {4, 5, 6, 7, 8}
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return [
        "  ".join(
            f"{c:>{w}}" if i in right else f"{c:<{w}}"
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def as_json(s: merge.Summary) -> dict[str, Any]:
    """A run of the list, for programs."""
    return {
        "run": s.id,
        "job": s.job,
        "job_source": s.job_source,
        "step": s.step,
        "user": s.user,
        "uid": s.uid if s.uid >= 0 else None,
        "program": s.program,
        "nodes": s.nodes,
        "ranks": s.ranks,
        "expected_ranks": s.expected_ranks,
        "processes": s.processes,
        "start_ns": s.start_ns,
        "end_ns": s.end_ns,
        "duration_s": max(s.duration_ns, 0) / 1e9,
        "ended": s.ended,
        "exit_status": s.status,
        "signal": s.signal or None,
        "bytes_read": s.bytes_read,
        "bytes_written": s.bytes_written,
        "files": s.files,
        "opens": s.opens,
        "partial": s.partial,
    }


def partial_as_json(found: list[merge.Partial]) -> list[dict[str, Any]]:
    """The reasons why a record is partial, for programs."""
    return [
        {
            "word": p.word,
            "count": p.count,
            "sentence": reasons.sentence(p.word, p.count),
            "text": p.text,
            "try": p.hint or reasons.known(p.word).hint,
        }
        for p in found
    ]


def whole_as_json(s: merge.Summary, run: merge.Run, found: list[merge.Partial]) -> dict[str, Any]:
    """All about a run but its files: those are `penstock report --json`'s."""
    return {
        **as_json(s),
        "partial": partial_as_json(found),
        "argv": [visible(word) for word in run.begin.argv],
        "cwd": visible(run.begin.cwd),
        "launcher": run.begin.launcher,
        "version": run.begin.writer,
        "overflow": run.overflow,
        "unseen_ratio": run.unseen_ratio,
        "process_rows": [
            {
                "node": node.node,
                "pid": p.pid,
                "ppid": p.ppid,
                "rank": p.rank if p.rank >= 0 else None,
                "exe": visible(p.exe),
                "argv": [visible(word) for word in p.argv],
                "start_ns": p.start_ns,
                "end_ns": p.end_ns,
                "threads": p.threads,
            }
            for node in run.nodes
            for p in node.processes
        ],
    }


def whole_as_text(s: merge.Summary, run: merge.Run, found: list[merge.Partial]) -> list[str]:
    """All about a run but its files, for eyes."""
    rows = [
        ("run", s.id),
        (
            "job",
            f"{visible(s.job) or '–'} ({visible(s.job_source) or 'not known'})"
            + (f", step {visible(s.step)}" if s.step else ""),
        ),
        ("program", s.program or "–"),
        ("command", " ".join(visible(word) for word in run.begin.argv) or "–"),
        ("folder", visible(run.begin.cwd) or "–"),
        ("user", visible(s.user) or "–"),
        ("began", instant(s.start_ns)),
        ("ended", f"{instant(s.end_ns)} ({outcome(s)})" if s.ended else "not yet, or not seen"),
        ("nodes", ", ".join(map(visible, s.nodes)) or "–"),
        ("ranks", ranks(s)),
    ]
    lines = [f"{name:<10}{value}" for name, value in rows]
    for p in found:
        lines += [f"{'partial':<10}{reason}" for reason in reason_lines(p)]
    lines += ["", "    pid  rank  time       node             program and arguments"]
    for node in run.nodes:
        lines += [_process_line(node.node, process) for process in node.processes]
    return lines if any(node.processes for node in run.nodes) else lines[:-2]


def _process_line(node: str, p: record.Process) -> str:
    words = " ".join(visible(word) for word in p.argv) or visible(p.exe)
    time = units.show_duration(p.end_ns - p.start_ns) if p.end_ns and p.end_ns >= p.start_ns else "–"
    rank = str(p.rank) if p.rank >= 0 else "–"
    return f"{p.pid:>7}  {rank:>4}  {time:<9}  {visible(node):<15}  {words}"


def reason_lines(p: merge.Partial) -> list[str]:
    """Why a record is partial, and what to try: two lines at most."""
    text = f" ({visible(p.text)})" if p.text else ""
    hint = p.hint or reasons.known(p.word).hint
    first = f"{reasons.sentence(p.word, p.count)}{text}"
    return [first] + ([f"try: {visible(hint)}"] if hint else [])
