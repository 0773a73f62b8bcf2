# SPDX-License-Identifier: Apache-2.0
"""Figures as SVG: bars over a scale that starts at nothing.  Pure: numbers in, markup out.

Invariants:
1. Each figure has a title and a description; each value that fits has its label beside it.
2. Colours are classes of the page's style (read, write, meta, rest, both): it alone knows light and dark.
3. All text is escaped here; no text leaves its room: it is cut before.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from penstock.base.text import cut

WIDTH = 760
_CHAR = 6.7  # how wide a character of 12 px is, about
_SCALE_ROOM = 34
Format = Callable[[float], str]


@dataclass(frozen=True)
class Row:
    """A bar: its name, the lengths of its parts (one for each series), and a remark behind it."""

    label: str
    values: Sequence[float]
    note: str = ""


@dataclass(frozen=True)
class Span:
    """From when to when, and of which series."""

    label: str
    start: float
    end: float
    series: int


def ticks(top: float, base: int = 10, count: int = 5, least: float = 0) -> list[float]:
    """Round values from 0 to about `top`: steps of 1, 2, 5 (or, with base 2, of powers of two)."""
    if not top > 0 or not math.isfinite(top):
        return [0.0, 1.0]
    raw = max(top / count, least)
    if base == 2:
        step = 2.0 ** math.ceil(math.log2(raw))
    else:
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    return [step * i for i in range(math.ceil(top / step * 0.999) + 1)]


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    style = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}>{escape(words)}</text>'


def _rect(x: float, y: float, width: float, height: float, *, kind: str, words: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.7):.1f}" height="{height:.1f}" class="{kind}">'
        f"<title>{escape(words)}</title></rect>"
    )


def _figure(height: float, title: str, description: str, parts: list[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" xmlns="http://www.w3.org/2000/svg">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{''.join(parts)}</svg>"
    )


def _legend(series: Sequence[tuple[str, str]], y: float, x: float) -> list[str]:
    parts = []
    for kind, label in series:
        parts += [f'<rect x="{x:.1f}" y="{y - 9:.1f}" width="10" height="10" class="{kind}"/>']
        parts += [_text(x + 14, y, label)]
        x += 14 + len(label) * _CHAR + 18
    return parts


def _room(labels: Sequence[str], widest: float = 280) -> tuple[float, int]:
    """How wide the column of names is, and how many characters fit."""
    width = min(max((len(label) for label in labels), default=0) * _CHAR + 10, widest)
    return max(width, 40), int((max(width, 40) - 10) / _CHAR)


def _scale(
    marks: list[float], x_from: tuple[float, float], y_from: tuple[float, float], show: Format
) -> list[str]:
    """Vertical lines with their values below, the first and the last inside the figure."""
    (left, right), (top, bottom) = x_from, y_from
    parts = []
    for mark in marks:
        x = left + (right - left) * mark / marks[-1]
        parts.append(f'<line x1="{x:.1f}" y1="{top:.1f}" x2="{x:.1f}" y2="{bottom:.1f}" class="grid"/>')
        anchor = "middle" if x + 24 < WIDTH else "end"
        parts.append(_text(x, bottom + 14, show(mark), "scale", anchor))
    return parts


def bars(
    rows: Sequence[Row],
    series: Sequence[tuple[str, str]],
    show: Format,
    title: str,
    axis: str,
    *,
    base: int = 10,
    top: float = 0,
    least: float = 0,
) -> str:
    """Horizontal bars, their parts one behind the other; many rows get thin and share their names."""
    step = min(22.0, max(5.0, 660 / max(len(rows), 1)))
    every = math.ceil(13 / step)
    names, letters = _room([row.label for row in rows[::every]])
    behind = max((len(row.note) for row in rows), default=0) * _CHAR + 8 if step >= 13 else 0
    left, right = names, WIDTH - max(behind, 26)
    head = 24.0
    bottom = head + step * len(rows)
    marks = ticks(max([sum(row.values) for row in rows] + [top]), base, least=least)
    parts = _legend(series, 12, left) + _scale(marks, (left, right), (head - 4, bottom + 2), show)
    for i, row in enumerate(rows):
        y, x = head + i * step, left
        height = step - (1 if step < 13 else 5)
        if i % every == 0:
            parts.append(_text(left - 7, y + height / 2 + 4, cut(row.label, letters), "", "end"))
        for (kind, label), value in zip(series, row.values, strict=True):
            if value > 0:
                width = (right - left) * value / marks[-1]
                parts.append(
                    _rect(x, y, width, height, kind=kind, words=f"{row.label}: {label} {show(value)}")
                )
                x += width
        if row.note and step >= 13:
            parts.append(_text(x + 6, y + height / 2 + 4, row.note, "value"))
    parts.append(_text((left + right) / 2, bottom + 30, axis, "scale", "middle"))
    return _figure(bottom + _SCALE_ROOM, title, f"Bars of {axis} for {len(rows)} rows.", parts)


def columns(
    labels: Sequence[str],
    series: Sequence[tuple[str, str]],
    values: Sequence[Sequence[float]],
    show: Format,
    *,
    title: str,
    axis: str,
) -> str:
    """Columns side by side, one of each series for each label, with the value on top."""
    left, right, head, bottom = 52.0, float(WIDTH), 38.0, 216.0
    marks = ticks(max((v for row in values for v in row), default=0), 10, 4, least=1)
    parts = _legend(series, 12, left)
    for mark in marks:
        y = bottom - (bottom - head) * mark / marks[-1]
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" class="grid"/>')
        parts.append(_text(left - 6, y + 4, show(mark), "scale", "end"))
    room = (right - left) / max(len(labels), 1)
    wide = (room - 10) / max(len(series), 1)
    for i, label in enumerate(labels):
        x = left + i * room + 5
        for j, (kind, name) in enumerate(series):
            value = values[j][i]
            if value > 0:
                height = max((bottom - head) * value / marks[-1], 1)
                at, y = x + j * wide, bottom - height
                words = f"{label}: {name} {show(value)}"
                parts.append(_rect(at, y, wide - 2, height, kind=kind, words=words))
                parts.append(_text(at + wide / 2 - 1, y - 4, show(value), "value", "middle"))
        parts.append(_text(x + (room - 10) / 2, bottom + 15, label, "scale", "middle"))
    parts.append(_text((left + right) / 2, bottom + 32, axis, "scale", "middle"))
    return _figure(bottom + 38, title, f"Columns: {axis}.", parts)


def spans(
    rows: Sequence[Span],
    series: Sequence[tuple[str, str]],
    top: float,
    show: Format,
    *,
    title: str,
    axis: str,
) -> str:
    """A line of time for each row."""
    step, head = 20.0, 24.0
    names, letters = _room([row.label for row in rows], 340)
    left, right = names, WIDTH - 26.0
    bottom = head + step * len(rows)
    marks = ticks(top)
    parts = _legend(series, 12, left) + _scale(marks, (left, right), (head - 4, bottom + 2), show)
    for i, row in enumerate(rows):
        y = head + i * step
        start, end = (max(0.0, min(at, marks[-1])) for at in (row.start, row.end))
        parts.append(_text(left - 7, y + 12, cut(row.label, letters), "", "end"))
        x = left + (right - left) * start / marks[-1]
        width = max((right - left) * (end - start) / marks[-1], 2)
        kind, label = series[row.series]
        words = f"{row.label}: {label} from {show(row.start)} to {show(row.end)}"
        parts.append(_rect(x, y + 2, width, step - 7, kind=kind, words=words))
    parts.append(_text((left + right) / 2, bottom + 30, axis, "scale", "middle"))
    return _figure(bottom + _SCALE_ROOM, title, f"Lines of time for {len(rows)} rows.", parts)
