# SPDX-License-Identifier: Apache-2.0
"""Draws the program's time with and without a catalog, by the size of files, and the published overheads."""

import statistics
from pathlib import Path
from typing import Any

from experiments import frame
from penstock.report.traces import COLOURS, plotter

PUBLISHED = {32: 1.1, 1024: 1.04, 4096: 1.002}


def name_of(kib: int) -> str:
    return f"{kib // 1024} MiB" if kib >= 1024 else f"{kib} KiB"


def spread(row: dict[str, Any]) -> tuple[float, float]:
    """How far the middle half of the rounds reaches below and above the median."""
    low, _, high = statistics.quantiles(row["ratios"], n=4, method="inclusive")
    return max(0.0, row["ratio"] - low), max(0.0, high - row["ratio"])


def draw(found: list[dict[str, Any]], folder: Path) -> None:
    pyplot = plotter()
    figure, (times, ratios) = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    places = range(len(found))
    names = [name_of(row["kib"]) for row in found]
    for axes in (times, ratios):
        axes.set_xticks(list(places), names)
        axes.set_xlim(-0.6, len(found) - 0.4)
        axes.set_xlabel("size of a file")
    for i, (key, label) in enumerate((("without_s", "without"), ("with_s", "with a catalog"))):
        each = [row[key] / row["files"] * 1e3 for row in found]
        times.bar([p + 0.4 * i - 0.2 for p in places], each, 0.38, color=COLOURS[i], label=label)
    times.plot([], [], "s--", color=COLOURS[2], label="with a catalog, published")
    times.set_ylabel("the program's time, ms a file")
    ratios.axhline(1, color=COLOURS[0], linewidth=1)
    values, reach = [row["ratio"] for row in found], [spread(row) for row in found]
    ratios.errorbar(
        list(places), values, list(zip(*reach, strict=True)), fmt="o-", color=COLOURS[1], capsize=3
    )
    known = [
        (p, PUBLISHED[row["kib"]]) for p, row in zip(places, found, strict=True) if row["kib"] in PUBLISHED
    ]
    if known:
        ratios.plot(*zip(*known, strict=True), "s--", color=COLOURS[2])
    ratios.set_ylabel("time, in multiples of that without")
    ratios.set_ylim(min(0.9, *ratios.get_ylim()), max(1.15, *ratios.get_ylim()))
    share = ", ".join(f"{row['files']:,} of {name_of(row['kib'])}" for row in found)
    rounds = len(found[0]["ratios"])
    note = (
        f"Emulated Lustre with 1 MDS and 2 OSS. Files: {share} (published: 400,000).\n"
        f"Medians of {rounds} rounds, with and without in turn; bars: the middle half of the rounds."
    )
    frame.finish(figure, times, note, folder / "swiftload-fig11")
