# SPDX-License-Identifier: Apache-2.0
"""Draws the rate by stripes for each number of processes, and the rate of each of two writers by targets in common."""

from pathlib import Path
from typing import Any

from experiments import frame
from penstock.report.traces import COLOURS, STYLES, plotter

KINDS = {"own": "one job, a file each", "shared": "one job, a shared file"}


def draw(
    by_stripes: dict[str, dict[str, dict[str, float]]],
    by_overlap: dict[str, float],
    config: dict[str, Any],
    folder: Path,
) -> None:
    pyplot = plotter()
    figure, panels = pyplot.subplots(1, len(KINDS) + 1, figsize=(10, 3.4), layout="constrained")
    for axes, (kind, title) in zip(panels, KINDS.items(), strict=False):
        for i, (processes, rates) in enumerate(by_stripes[kind].items()):
            words = f"{processes} process{'es' * (processes != '1')}"
            values = [rate / 1e6 for rate in rates.values()]
            axes.plot(list(rates), values, STYLES[i], marker="o", markersize=4, color=COLOURS[i], label=words)
        axes.set(title=title, xlabel="stripes", ylabel="MB/s")
        axes.set_ylim(bottom=0)
    right = panels[-1]
    right.bar(list(by_overlap), [rate / 1e6 for rate in by_overlap.values()], 0.6, color=COLOURS[4])
    right.set(title="two writers of 2 stripes", xlabel="targets in common", ylabel="MB/s of each")
    note = (
        f"Emulated file system, {config['oss']} OSS of {config['osts']} OST, {config['ost_bandwidth']} each, "
        f"slowdown by processes {config['contention']}; medians of {config['rounds']} rounds, in turn."
    )
    frame.finish(figure, panels[0], note, folder / "dca-overlap")
