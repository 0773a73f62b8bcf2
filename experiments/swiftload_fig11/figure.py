# SPDX-License-Identifier: Apache-2.0
"""Draws the program's time with and without a catalog, by the size of files, and the published overheads."""

from pathlib import Path
from typing import Any

from experiments import frame
from penstock.report.traces import COLOURS, plotter

PUBLISHED = {32: 1.1, 1024: 1.04, 4096: 1.002}


def name_of(kib: int) -> str:
    return f"{kib // 1024} MiB" if kib >= 1024 else f"{kib} KiB"


def draw(found: list[dict[str, Any]], folder: Path) -> None:
    pyplot = plotter()
    figure, (times, ratios) = pyplot.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    places = range(len(found))
    names = [name_of(row["kib"]) for row in found]
    for axes in (times, ratios):
        axes.set_xticks(list(places), names)
        axes.set_xlabel("size of a file")
    for i, (key, label) in enumerate((("without_s", "without"), ("with_s", "with a catalog"))):
        each = [row[key] / row["files"] * 1e3 for row in found]
        times.bar([p + 0.4 * i - 0.2 for p in places], each, 0.38, color=COLOURS[i], label=label)
    times.set_ylabel("the program's time, ms a file")
    ratios.plot(
        list(places), [row["ratio"] for row in found], "o-", color=COLOURS[1], label="here (emulated)"
    )
    known = [
        (p, PUBLISHED[row["kib"]]) for p, row in zip(places, found, strict=True) if row["kib"] in PUBLISHED
    ]
    if known:
        ratios.plot(*zip(*known, strict=True), "s--", color=COLOURS[2], label="published")
    ratios.axhline(1, color="0.7", linewidth=1)
    ratios.set_ylabel("time with a catalog over without")
    ratios.legend(frameon=False)
    files = ", ".join(f"{row['files']} of {name_of(row['kib'])}" for row in found)
    note = f"Emulated Lustre, 1 MDS, 2 OSS. Files: {files} (published: 400,000)."
    frame.finish(figure, times, note, folder / "swiftload-fig11")
