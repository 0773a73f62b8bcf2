# SPDX-License-Identifier: Apache-2.0
"""Draws each case: bytes on every target by method, and how far the fullest is above the mean."""

from pathlib import Path
from typing import Any

import numpy as np

from penstock.report.traces import COLOURS, plotter

COLOUR = {"stock": COLOURS[7 % len(COLOURS)], "iez": COLOURS[5], "ours": COLOURS[0]}


def draw(cases: dict[str, Any], order: list[int], config: dict[str, Any], folder: Path) -> None:
    pyplot = plotter()
    columns = min(3, len(cases))
    rows = -(-len(cases) // columns)
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(11, 1.9 * rows + 0.9), layout="constrained", squeeze=False
    )
    for axes in grid.flat[len(cases) :]:
        axes.set_visible(False)
    for axes, (name, case) in zip(grid.flat, cases.items(), strict=False):
        _panel(axes, name, case, order, config)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    figure.supxlabel(
        "Target, by server; lines are a server's mean.  In brackets: the fullest target over the mean, the fullest "
        "server over the mean.  Emulated file system, sizes scaled.",
        fontsize=7,
    )
    for kind in ("svg", "png"):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(folder / f"iez-balance.{kind}", dpi=120, metadata=metadata)
    pyplot.close(figure)


def _panel(axes: Any, name: str, case: dict[str, Any], order: list[int], config: dict[str, Any]) -> None:
    """`order`: targets, those of a server together."""
    targets = config["oss"] * config["osts"]
    width = 0.8 / len(case["methods"])
    for i, (method, row) in enumerate(case["methods"].items()):
        mib = np.array(row["targets"])[order] / 2**20
        axes.bar(np.arange(targets) + (i - 1) * width, mib, width, color=COLOUR[method], label=method)
        of_servers = mib.reshape(config["oss"], config["osts"]).mean(1)
        begins = np.arange(config["oss"]) * config["osts"] - 0.45
        axes.hlines(of_servers, begins, begins + config["osts"] - 0.1, color=COLOUR[method], linewidth=1.5)
    mean = sum(case["methods"]["ours"]["targets"]) / targets / 2**20
    axes.axhline(mean, color="black", linewidth=0.7, linestyle=":", label="mean")
    for server in range(1, config["oss"]):
        axes.axvline(server * config["osts"] - 0.5, color="0.8", linewidth=0.7)
    rows = case["methods"].items()
    costs = "  ".join(
        f"{method} [{row['target_cost']:.2f}, {row['server_cost']:.2f}]" for method, row in rows
    )
    axes.set_title(f"{name}\n{costs}", fontsize=7)
    axes.set(ylabel="MiB", xlim=(-0.7, targets - 0.3), xticks=range(targets), xticklabels=order)
    axes.tick_params(labelsize=6)
