# SPDX-License-Identifier: Apache-2.0
"""Draws write and read rates of each job by method."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.iez_balance.figure import COLOUR
from penstock.report.traces import plotter


def draw(cases: dict[str, Any], config: dict[str, Any], folder: Path) -> None:
    pyplot = plotter()
    figure, grid = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
    names = list(cases)
    for axes, side in zip(grid, ("write", "read"), strict=True):
        methods = list(cases[names[0]])
        for i, method in enumerate(methods):
            rates = [cases[name][method][side] / 1e6 for name in names]
            axes.bar(np.arange(len(names)) + (i - 1) * 0.27, rates, 0.27, color=COLOUR[method], label=method)
        axes.set(
            title=side, ylabel="MB/s" if side == "write" else "", xticks=range(len(names)), xticklabels=names
        )
        axes.tick_params(labelsize=8)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    figure.supxlabel(
        f"Emulated file system, {config['oss']} × {config['osts']} targets of {config['ost_bandwidth']}; "
        f"medians of {config['rounds']} rounds, methods in turn.",
        fontsize=7,
    )
    for kind in ("svg", "png"):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(folder / f"iez-performance.{kind}", dpi=120, metadata=metadata)
    pyplot.close(figure)
