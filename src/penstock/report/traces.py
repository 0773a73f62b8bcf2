# SPDX-License-Identifier: Apache-2.0
"""Figures of a trace: its load over time, and which operations it is made of.  Only here matplotlib is imported."""

from pathlib import Path
from typing import Any

from penstock.base import units
from penstock.base.errors import PenstockError
from penstock.tools.traces import Statistics

COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
)  # told apart by the colour-blind too
STYLES = ("-", "--", "-.", ":", "-", "--")


def plotter() -> Any:
    """matplotlib, drawing to files."""
    try:
        import matplotlib
    except ImportError as error:
        raise PenstockError(
            "figures need matplotlib; install it with: pip install 'penstock[figures]'"
        ) from error
    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {"svg.hashsalt": "penstock", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    )
    from matplotlib import pyplot

    return pyplot


def draw(found: Statistics, folder: Path, note: str) -> list[Path]:
    """The two figures, as SVG and PNG each; `note` stands under both (a synthetic trace says so)."""
    pyplot = plotter()
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, one in (("trace-load", _load), ("trace-operations", _operations)):
        figure = one(pyplot, found)
        figure.text(0.01, 0.01, note, fontsize=7, color="#555555")
        for kind in ("svg", "png"):
            path = folder / f"{name}.{kind}"
            figure.savefig(path, dpi=130, metadata={"Date": None} if kind == "svg" else None)
            made.append(path)
        pyplot.close(figure)
    return made


def _hours(found: Statistics) -> list[float]:
    return [time_s / 3600 for time_s in found.times_s]


def _load(pyplot: Any, found: Statistics) -> Any:
    """All operations over time, with the mean."""
    figure, axes = pyplot.subplots(figsize=(8, 3.2), layout="constrained", gridspec_kw={})
    total = [rate / 1000 for rate in found.total]
    axes.fill_between(_hours(found), total, step="post", color=COLOURS[0], alpha=0.25, linewidth=0)
    axes.step(_hours(found), total, where="post", color=COLOURS[0], linewidth=0.8)
    mean = found.mean()
    axes.axhline(mean / 1000, color=COLOURS[5], linestyle="--", linewidth=1)
    axes.annotate(
        f"mean {units.show_count(mean)}/s",
        (0.99, mean / 1000),
        (2, 2),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        color=COLOURS[5],
        ha="right",
        bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
    )
    axes.set(xlabel="time (hours)", ylabel="operations (thousand/s)", title="Metadata operations over time")
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    return _room(figure)


def _operations(pyplot: Any, found: Statistics) -> Any:
    """The largest operations over time, and the mean of each."""
    names = sorted(found.rates, key=found.mean, reverse=True)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3.6), layout="constrained", width_ratios=(2, 1))
    for i, name in enumerate(names[:4]):
        rates = _smooth([rate / 1000 for rate in found.rates[name]], 15)
        left.plot(_hours(found), rates, color=COLOURS[i], linestyle=STYLES[i], linewidth=1, label=name)
    left.set(xlabel="time (hours)", ylabel="operations (thousand/s)", title="Largest, means of 15 samples")
    left.set_ylim(bottom=0)
    left.margins(x=0)
    left.legend(frameon=False, ncols=2)
    means = [found.mean(name) / 1000 for name in names]
    right.barh(names[::-1], means[::-1], color=COLOURS[0])
    for at, mean in enumerate(means[::-1]):
        right.annotate(f" {units.show_count(1000 * mean)}", (mean, at), va="center", fontsize=8)
    right.set(xlabel="mean (thousand/s)", title="By operation")
    right.margins(x=0.25)
    return _room(figure)


def _room(figure: Any) -> Any:
    """Room for the note below."""
    figure.get_layout_engine().set(rect=(0, 0.05, 1, 0.95))
    return figure


def _smooth(values: list[float], width: int) -> list[float]:
    found, total = [], 0.0
    for at, value in enumerate(values):
        total += value - (values[at - width] if at >= width else 0.0)
        found.append(total / min(at + 1, width))
    return found
