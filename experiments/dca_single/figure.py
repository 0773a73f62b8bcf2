# SPDX-License-Identifier: Apache-2.0
"""Draws for each kernel the rate over the default's by processes, and below by run."""

import statistics
from pathlib import Path
from typing import Any

import numpy as np

from experiments import frame
from penstock.report.traces import COLOURS, STYLES, plotter

NAMES = {"default": "default", "tapp": "TAPP-IO", "dca": "DCA-IO", "gauss": "Penstock"}


def draw(found: dict[str, dict[str, Any]], config: dict[str, Any], folder: Path) -> None:
    pyplot = plotter()
    figure, grid = pyplot.subplots(
        2, len(found), figsize=(2.4 * len(found) + 1, 4.8), layout="constrained", sharey=True, squeeze=False
    )
    for (kernel, by_processes), above, below in zip(found.items(), grid[0], grid[1], strict=True):
        _last(above, kernel, by_processes)
        _by_run(below, by_processes)
    for axes in (grid[0][0], grid[1][0]):
        axes.set_ylabel("times the default")
    note = (
        f"Emulated file system, {config['oss']} OSS of {config['osts']} OST, {config['ost_bandwidth']} each, "
        f"slowdown by processes {config['contention']}; above: median of the last {config['last']} runs, "
        "below: mean of all numbers of processes."
    )
    frame.finish(figure, grid[0][0], note, folder / "dca-single")


def _last(axes: Any, kernel: str, by_processes: dict[str, Any]) -> None:
    policies = list(next(iter(by_processes.values()))["over_default"])
    width = 0.8 / len(policies)
    for i, policy in enumerate(policies):
        values = [row["over_default"][policy] for row in by_processes.values()]
        at = np.arange(len(values)) + (i - (len(policies) - 1) / 2) * width
        axes.bar(at, values, width, color=COLOURS[i], label=NAMES[policy])
    axes.set(
        title=kernel, xlabel="processes", xticks=range(len(by_processes)), xticklabels=list(by_processes)
    )


def _by_run(axes: Any, by_processes: dict[str, Any]) -> None:
    rows = [(row["rates"], statistics.median(row["rates"]["default"])) for row in by_processes.values()]
    for i, policy in enumerate(rows[0][0]):
        over = [[rate / usual for rate in rates[policy]] for rates, usual in rows]
        means = [statistics.fmean(turn) for turn in zip(*over, strict=True)]
        axes.plot(range(1, len(means) + 1), means, STYLES[i], color=COLOURS[i], marker="o", markersize=3)
    axes.set(xlabel="run")
    axes.set_ylim(bottom=0)
