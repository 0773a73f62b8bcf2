# SPDX-License-Identifier: Apache-2.0
"""Draws each kernel's rate by method, a panel for each width of the other job."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments import frame
from penstock.report.traces import COLOURS, plotter

METHODS = {
    "default": "default layout",
    "striped": "more stripes, targets by the file system",
    "placed": "as many stripes, targets by load",
}


def draw(found: dict[str, dict[str, dict[str, float]]], config: dict[str, Any], folder: Path) -> None:
    pyplot = plotter()
    widths = config["beside"]
    figure, grid = pyplot.subplots(
        1, len(widths), figsize=(3.4 * len(widths) + 1, 3.4), layout="constrained", sharey=True, squeeze=False
    )
    for axes, width in zip(grid[0], widths, strict=True):
        for i, (method, words) in enumerate(METHODS.items()):
            rates = [by_width[str(width)][method] / 1e6 for by_width in found.values()]
            axes.bar(np.arange(len(rates)) + (i - 1) * 0.27, rates, 0.27, color=COLOURS[i], label=words)
        axes.set(title=f"beside a writer of {width} stripe{'s' * (width > 1)}", xticks=range(len(found)))
        axes.set_xticklabels(list(found), fontsize=7)
    grid[0][0].set_ylabel("MB/s")
    note = (
        f"Emulated file system, {config['oss']} OSS of {config['osts']} OST, {config['ost_bandwidth']} each, "
        f"slowdown by processes {config['contention']}; {config['processes']} processes, {config['stripes']} stripes, "
        f"mean of {config['rounds']} runs."
    )
    frame.finish(figure, grid[0][0], note, folder / "dca-together")
