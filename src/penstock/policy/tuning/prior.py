# SPDX-License-Identifier: Apache-2.0
"""What is believed of layouts before a program has tried them: a rule of thumb, other programs like it, a fleet.

All are logarithms of the rate over that of the default layout, by layout of the grid.
"""

import math
from collections.abc import Sequence

import numpy as np

from penstock.policy.placing.contract import Floats
from penstock.policy.tuning.contract import MIB, SIZES, Context, Fleet, Grid, Observation, Other, TuneSettings

RIDGE = 3.0
CONTEXT_SCALE = np.array([2.0, 3.0, 2.0, 0.3])  # doublings of processes, bytes, request; shared or not
LAYOUT_SCALE = np.array([1.0, 1.5])
ALONE = 0.42  # how far layouts differ from a prior that no fleet has taught
FEW = 1.0  # so much weight has the rule against what neighbours showed


def rule(context: Context, targets: int) -> tuple[float, float]:
    """What an administrator would say: count and size.  Own files: a target for each 256 MB as long as there are enough
    for all; a shared file: the root of its size in 128 MiB, no more than writers; size: the request's."""
    size = min(max(context.request_bytes, SIZES[0]), SIZES[-1])
    if context.shared:
        count = min(math.sqrt(context.bytes / (128 * MIB)) + 1, max(context.processes, 2))
    else:
        each = context.bytes / max(context.processes, 1)
        count = min(targets / max(context.processes, 1), each / 256e6 + 1)
    return min(max(count, 1.0), float(targets)), size


def by_rule(context: Context, grid: Grid) -> Floats:
    """A cone round the rule: less, the further away."""
    count, size = rule(context, grid.targets)
    away = np.abs(grid.x - [math.log2(count), math.log2(size / MIB)])
    cone: Floats = -0.05 * away[:, 0] - 0.04 * away[:, 1]
    moved: Floats = cone - cone[grid.default_index]
    return moved


def features(context: Context, grid: Grid) -> Floats:
    """What the fleet's regression looks at: count and size, with what the run is like; again for own files."""
    lc, ls = grid.x[:, 0], grid.x[:, 1]
    own = 0.0 if context.shared else 1.0
    lp, lb, lr, _ = context.place
    lb, lr = lb - 30, lr - 20
    count, size = rule(context, grid.targets)
    base = [
        lc,
        lc**2,
        ls,
        ls**2,
        lc * lp,
        lc * lb,
        ls * lr,
        lc * ls,
        np.abs(lc - math.log2(count)),
        np.abs(ls - math.log2(size / MIB)),
        np.maximum(0, lp - lc),
        np.minimum(lc, max(0.0, math.log2(max(grid.targets, 1)) - own * lp)),
    ]
    return np.stack(base + [b * own for b in base], 1)


def fit(rows: Sequence[tuple[Context, Grid, int, float]], jobs: int) -> Fleet | None:
    """Ridge regression over (context, grid, layout's index, log of its rate over the default's)."""
    good = [row for row in rows if math.isfinite(row[3])]
    if not good:
        return None
    x = np.empty((len(good), 24))
    known: dict[tuple[int, int], Floats] = {}
    for i, (context, grid, index, _) in enumerate(good):
        key = (id(context), id(grid))
        if key not in known:
            known[key] = features(context, grid)
        x[i] = known[key][index] - known[key][grid.default_index]
    z = np.clip(np.array([row[3] for row in good]), -10.0, 10.0)
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ z)
    return Fleet(tuple(weights.tolist()), jobs)


def by_fleet(context: Context, grid: Grid, fleet: Fleet) -> Floats:
    f = features(context, grid)
    prior: Floats = (f - f[grid.default_index]) @ np.array(fleet.weights)
    return np.clip(prior, -6.0, 6.0)


def alike(a: Context, b: Context) -> float:
    """How much a run of one kind says of another: 1 for the same, by kernel, not by equal numbers."""
    away = (np.array(a.place) - np.array(b.place)) / CONTEXT_SCALE
    return float(np.exp(-0.5 * (away**2).sum()))


def by_neighbours(
    start: Floats, context: Context, grid: Grid, others: Sequence[Other]
) -> tuple[Floats, float]:
    """The prior moved towards what runs of other programs showed, the nearer the more; and their weight together."""
    total, weight, together = start * FEW, np.full(len(start), FEW), 0.0
    for other in others:
        near = alike(context, other.context)
        if near < 0.01 or other.log_ratio is None or not math.isfinite(other.log_ratio):
            continue
        at = [math.log2(max(other.layout.count, 1)), math.log2(max(other.layout.size_bytes, 1) / MIB)]
        w = near * np.exp(-0.5 * (((grid.x - at) / LAYOUT_SCALE) ** 2).sum(1))
        total = total + w * np.clip(other.log_ratio, -3.0, 3.0)
        weight = weight + w
        together += near
    moved: Floats = total / weight
    return moved - moved[grid.default_index], together


def prior_of(seen: Observation, settings: TuneSettings) -> tuple[Floats, float, str]:
    """The prior, how far layouts may differ from it, and where it comes from."""
    if seen.fleet is not None and seen.fleet.jobs >= settings.fleet_from:
        return by_fleet(seen.context, seen.grid, seen.fleet), 0.25, f"{seen.fleet.jobs} tuned programs"
    start = by_rule(seen.context, seen.grid)
    if not seen.others:
        return start, ALONE, "a rule of thumb"
    moved, weight = by_neighbours(start, seen.context, seen.grid, seen.others)
    if weight < 0.5:
        return start, ALONE, "a rule of thumb"
    return moved, ALONE, f"a rule of thumb and {weight:.1f} runs of programs like it"
