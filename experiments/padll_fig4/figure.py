# SPDX-License-Identifier: Apache-2.0
"""Draws figure 4: demanded, granted and served of each limit, over time."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments import frame
from experiments.padll_fig4 import job
from experiments.site import Outcome
from penstock.report.traces import COLOURS, plotter

IO_BYTES = 4096


def draw(
    drawn: list[tuple[str, str, tuple[str, ...], Outcome]], config: dict[str, Any], folder: Path
) -> None:
    pyplot = plotter()
    rows = -(-len(drawn) // 2)
    figure, grid = pyplot.subplots(
        rows, 2, figsize=(9, 2.2 * rows + 0.8), layout="constrained", squeeze=False
    )
    for axes in grid.flat[len(drawn) :]:
        axes.set_visible(False)
    for axes, (setup, limit, operations, outcome) in zip(grid.flat, drawn, strict=False):
        _panel(axes, setup, limit, operations, outcome, config)
    note = (
        f"Synthetic trace on a tmpfs; rates 1/{1 / config['scale']:.0f} of those shown, a step of a limit took "
        f"{config['step_s']} s."
    )
    frame.finish(figure, grid.flat[0], note, folder / "padll-fig4.svg")


def _panel(
    axes: Any, setup: str, limit: str, operations: tuple[str, ...], outcome: Outcome, config: dict[str, Any]
) -> None:
    width_s = config["step_s"] / job.PARTS
    data = setup == "data"
    # To what was published: thousands of operations, or MiB, a second.
    unit = IO_BYTES / 2**20 / config["scale"] if data else 1 / config["scale"] / 1000
    minute = config["step_s"] if data else config["step_s"] / 6
    begin_s = outcome.cycles[0].time_s  # the timetable's beginning
    demanded, served = (outcome.counts("job", which, width_s, operations) for which in (0, 1))
    times = (np.arange(len(served)) * width_s - begin_s) / minute
    axes.fill_between(
        times, served * unit / width_s, step="post", color=COLOURS[0], alpha=0.35, label="served"
    )
    axes.step(times, demanded * unit / width_s, where="post", color="black", linewidth=0.9, label="demanded")
    granted = np.array([cycle.granted["job"][limit] for cycle in outcome.cycles])
    scale = unit / IO_BYTES if data else unit
    when = [(cycle.time_s - begin_s) / minute for cycle in outcome.cycles]
    axes.step(
        when, granted * scale, where="post", color=COLOURS[5], linestyle="--", linewidth=1.2, label="granted"
    )
    end = (outcome.end_s("job") - begin_s) / minute
    top = 1.15 * max(served.max(), demanded.max()) * unit / width_s
    axes.set(xlim=(0, max(end, job.STEPS * (1 if data else 6))), ylim=(0, top))
    title = f"class {limit}: four threads" if setup == "by-class" else limit
    axes.set(title=title, xlabel="time (minutes)", ylabel="MiB/s" if data else "thousand/s")
