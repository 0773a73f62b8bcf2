# SPDX-License-Identifier: Apache-2.0
"""A file's layout as a drawing: a row a target, its bytes where they lie in the file.

Invariants:
1. A drawing shows the true file: a cell of a row is full as far as the target holds the bytes of that cell.
2. Long files are drawn from few sums (bytes_on of prefixes), never by walking over all their stripes.
"""

from html import escape

from penstock.base.text import visible
from penstock.base.units import show_ratio, show_size
from penstock.targets.layouts import Layout, bytes_on

CELLS = 64
_SHADES = " ░▒▓█"
_HUES = 137  # degrees between one target's colour and the next: neighbours look different


def name_of(target: int | None) -> str:
    return "?" if target is None else str(target)


def shares(layout: Layout, size_bytes: int, cells: int = CELLS) -> dict[int | None, list[float]]:
    """For each target and each of the file's `cells` equal ranges: the share of the range that it holds."""
    whole = bytes_on(layout, size_bytes)
    count = max(min(cells, size_bytes), 1)
    bounds = [size_bytes * i // count for i in range(count + 1)]
    sums = [bytes_on(layout, bound) for bound in bounds]
    return {
        target: [
            (after.get(target, 0) - before.get(target, 0)) / max(end - start, 1)
            for before, after, start, end in zip(sums, sums[1:], bounds, bounds[1:], strict=False)
        ]
        for target in sorted(whole, key=lambda t: (t is None, t or 0))
    }


def drawn(layout: Layout, size_bytes: int, colours: bool = False) -> list[str]:
    """Lines for a terminal."""
    if not size_bytes:
        return ["no bytes to show"]
    rows = shares(layout, size_bytes)
    held = bytes_on(layout, size_bytes)
    wide = max(len("target"), *(len(name_of(target)) for target in rows))
    cells = len(next(iter(rows.values())))
    each = show_size(size_bytes / cells)
    lines = [
        f"{'target':>{wide}}  {'0':<{max(cells - len(show_size(size_bytes)), 1)}}{show_size(size_bytes)}"
    ]
    for number, (target, row) in enumerate(rows.items()):
        bar = "".join(_SHADES[min(round(share * 4 + (0.49 if share else 0)), 4)] for share in row)
        if colours:
            bar = f"\x1b[38;5;{20 + number * 37 % 200}m{bar}\x1b[0m"
        said = f"{show_size(held[target])} ({show_ratio(held[target], size_bytes)})"
        lines.append(f"{name_of(target):>{wide}}  {bar}  {said}")
    lines.append(f"one character is {each}")
    if None in rows:
        lines.append(
            "?: not on a target that is known: not written yet, on the metadata server, or spread by hashing"
        )
    return lines


def page(file: str, words: list[str], layout: Layout, size_bytes: int) -> str:
    """The drawing as a page of its own."""
    rows = shares(layout, size_bytes, 256) if size_bytes else {}
    held = bytes_on(layout, size_bytes)
    title = escape(visible(file))
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Layout of {title}</title>',
        "<style>body{font:14px system-ui;margin:2em}td{padding:2px 8px}rect{stroke:none}</style>",
        f"<h1>Layout of {title}</h1><p>{'<br>'.join(escape(word) for word in words)}</p><table>",
    ]
    for number, (target, row) in enumerate(rows.items()):
        hue = number * _HUES % 360
        cells = "".join(
            f'<rect x="{i}" width="1.02" height="10" fill="hsl({hue} 60% 45%)" opacity="{share:.2f}"/>'
            for i, share in enumerate(row)
            if share
        )
        box = f'viewBox="0 0 {len(row)} 10" preserveAspectRatio="none"'
        drawing = f'<svg width="768" height="20" {box}>{cells}</svg>'
        said = f"{show_size(held[target])} ({show_ratio(held[target], size_bytes)})"
        parts.append(f"<tr><td>{name_of(target)}<td>{drawing}<td>{said}")
    parts.append(f"</table><p>0 to {show_size(size_bytes)}, left to right.</p></html>")
    return "\n".join(parts)
