# SPDX-License-Identifier: Apache-2.0
"""Draws the runs at scale: rate over TAPP-IO's by nodes, one panel for each kind and surface."""

from pathlib import Path
from typing import Any

from penstock.report.traces import COLOURS, plotter

NAMES = {"tapp": "TAPP-IO", "dca": "DCA-IO as intended", "gauss": "Penstock"}
STYLES = ("-", "--", "-.", ":")


def draw(found: dict[str, dict[str, list[float]]], config: dict[str, Any], folder: Path) -> None:
    pyplot = plotter()
    rows = -(-len(found) // 2)
    figure, grid = pyplot.subplots(
        rows, 2, figsize=(9, 2.6 * rows + 0.8), layout="constrained", squeeze=False
    )
    for axes in grid.flat[len(found) :]:
        axes.set_visible(False)
    for axes, (setup, by_policy) in zip(grid.flat, found.items(), strict=False):
        for i, (policy, values) in enumerate(by_policy.items()):
            axes.plot(
                config["nodes"],
                values,
                STYLES[i % len(STYLES)],
                marker="o",
                markersize=3,
                color=COLOURS[i % len(COLOURS)],
                label=NAMES.get(policy, policy),
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(config["nodes"], [str(n) for n in config["nodes"]])
        axes.set_ylim(bottom=0)
        axes.set_title(setup, fontsize=9)
        axes.set_xlabel("nodes")
        axes.set_ylabel("rate over TAPP-IO's")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    figure.supxlabel(
        f"Simulated: 256 targets, {config['runs']} recurring runs, the last three; mean of {config['draws']} draws.",
        fontsize=7,
    )
    for kind in ("svg", "png"):
        figure.savefig(
            folder / f"dca-scale.{kind}", dpi=120, metadata={"Date": None} if kind == "svg" else None
        )
    pyplot.close(figure)
