# SPDX-License-Identifier: Apache-2.0
"""A figure of a policy's trial: what was asked of each limit over time, and what would have been served."""

from datetime import datetime
from pathlib import Path
from typing import Any

from penstock.base.errors import UsageError
from penstock.policy.rules import Policy
from penstock.policy.trying import Series, Trial
from penstock.report.traces import COLOURS, plotter


def draw(policy: Policy, trial: Trial, path: Path) -> None:
    if path.suffix not in (".svg", ".png"):
        raise UsageError(f"{path}: a figure is an .svg or a .png")
    pyplot = plotter()
    numbers = [number for number, series in trial.asked.items() if series.most > 0]
    figure, rows = pyplot.subplots(
        max(1, len(numbers)),
        1,
        figsize=(8, 2.4 * max(1, len(numbers)) + 0.5),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for axes, number in zip(rows[:, 0], numbers, strict=False):
        _panel(axes, policy, trial, number)
    if not numbers:
        rows[0, 0].set_title("no run asked for what this policy limits")
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)


def _panel(axes: Any, policy: Policy, trial: Trial, number: int) -> None:
    limit = policy.limits[number]
    unit = 2**20 if limit.bytes else 1
    asked, served = trial.asked[number], trial.served[number]
    axes.fill_between(
        *_points(served, unit),
        step="post",
        color=COLOURS[0],
        alpha=0.35,
        linewidth=0,
        label="under this policy",
    )
    axes.step(*_points(asked, unit), where="post", color="black", linewidth=0.8, label="recorded")
    if limit.per == "site":
        axes.axhline(limit.rate / unit, color=COLOURS[5], linestyle="--", linewidth=1, label="the limit")
    axes.set(title=limit.name, ylabel="MiB/s" if limit.bytes else "calls/s")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    axes.tick_params(axis="x", rotation=20)


def _points(series: Series, unit: float) -> tuple[list[datetime], list[float]]:
    times = [datetime.fromtimestamp(time_s).astimezone() for time_s in series.times_s]
    return times, [rate / unit for rate in series.rates]
