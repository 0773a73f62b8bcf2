# SPDX-License-Identifier: Apache-2.0
"""Draws figure 5: what each job was served, over time, under each setup."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments import frame
from experiments.site import Outcome
from penstock.report.traces import COLOURS, plotter

HATCHES = ("", "//", "..", "\\\\")
WIDTH_S = 0.5


def draw(outcomes: dict[str, Outcome], config: dict[str, Any], folder: Path) -> None:
    pyplot = plotter()
    minute_s, scale, total = config["minute_s"], config["scale"], config["total"]
    width_s = max(WIDTH_S, minute_s)
    figure, rows = pyplot.subplots(
        len(outcomes),
        1,
        figsize=(8, 2.1 * len(outcomes) + 0.9),
        sharex=True,
        layout="constrained",
        squeeze=False,
    )
    for axes, (setup, outcome) in zip(rows[:, 0], outcomes.items(), strict=True):
        unit = 1 / (width_s * scale * 1000)  # to thousand a second, as published
        length = len(outcome.total(1, width_s))
        minutes = np.arange(length) * width_s / minute_s
        served = []
        for job in outcome.jobs:
            row = np.zeros(length)
            cells = outcome.counts(job, 1, width_s)
            row[: min(length, len(cells))] = cells[:length]
            served.append(row * unit)
        parts = axes.stackplot(
            minutes, served, step="post", colors=COLOURS, labels=list(outcome.jobs), linewidth=0
        )
        for part, hatch in zip(parts, HATCHES, strict=False):
            part.set_hatch(hatch)
            part.set_edgecolor("white")
        demanded = outcome.total(0, width_s)[:length] * unit
        axes.step(
            minutes[: len(demanded)], demanded, where="post", color="black", linewidth=0.7, label="demanded"
        )
        if outcome.cycles:
            times = [cycle.time_s / minute_s for cycle in outcome.cycles]
            granted = [
                sum(sum(r.values()) for r in c.granted.values()) / scale / 1000 for c in outcome.cycles
            ]
            axes.plot(times, granted, color=COLOURS[5], linestyle=":", linewidth=1, label="granted")
        axes.axhline(total / 1000, color="#555555", linestyle="--", linewidth=0.8)
        ends = ", ".join(f"{outcome.end_s(job) / minute_s:.0f}" for job in outcome.jobs)
        axes.set(ylabel="thousand/s", title=f"{setup.capitalize()}: jobs end at minute {ends}")
        axes.set_ylim(0, 1000 if not outcome.cycles else 500)
        axes.margins(x=0)
    rows[-1, 0].set_xlabel("time (minutes)")
    note = (
        f"Synthetic traces on a tmpfs; rates 1/{1 / scale:.0f} of those shown, a minute took {minute_s} s.  "
        f"Dashed: the cap of {total:,}/s."
    )
    frame.finish(figure, rows[-1, 0], note, folder / "padll-fig5.svg")
