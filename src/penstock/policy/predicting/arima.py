# SPDX-License-Identifier: Apache-2.0
"""ARIMA over the sizes of files in the order of their creation: the published way (iez), to compare with.

The published grid takes p, d and q each from 0 to 5, 216 fits, and the smallest error on the very data fitted.  Here
the grid is walked from its simplest orders on until a budget of time is spent, and the error is that on the last
quarter, which is not fitted.  It does not know names: where kinds of files are mixed, or ranks race, it loses against
templates.

Invariants:
1. It ends soon after `budget_s` by the given clock, with the best order so far; no order yet: the last value.
2. A constant series needs no fit.  Forecasts are finite and at least 0.
3. It takes a clock and gives values: nothing else of the outside world.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.policy.placing.contract import Floats

BUDGET_S = 2.0
POINTS_MAX = 256
SCALE = 1e6  # bytes as they are converge badly
Order = tuple[int, int, int]
GRID: tuple[Order, ...] = tuple(
    sorted(((p, d, q) for p in range(6) for d in range(6) for q in range(6)), key=lambda o: (sum(o), o))
)


@dataclass(frozen=True)
class Series:
    """What comes next in a series, with the order that was chosen and how many were tried."""

    values: Floats
    order: Order | None
    tried: int
    error: float


def forecast(
    series: Sequence[float], count: int, clock: Callable[[], float], budget_s: float = BUDGET_S
) -> Series:
    """The next `count` values.  ImportError where statsmodels is not installed."""
    y = np.array(series, dtype=float)[-POINTS_MAX:] / SCALE
    y = y[np.isfinite(y) & (y >= 0)]
    if not len(y):
        return Series(np.zeros(count), None, 0, 1.0)
    if len(y) < 4 or float(np.ptp(y)) <= 1e-9 * float(y.max()):
        return Series(np.full(count, y[-1] * SCALE), None, 0, 0.0 if len(y) > 1 else 0.5)
    held = max(len(y) // 4, 1)
    end_s = clock() + budget_s
    best: tuple[float, Order] | None = None
    tried = 0
    longest_s = 0.0
    for order in GRID:
        began_s = clock()
        # A fit cannot be interrupted: none is begun that might not end in time (half the budget is for the last).
        if began_s + 2 * longest_s > end_s - budget_s / 4:
            break
        tried += 1
        guess = _fit(y[:-held], order, held)
        longest_s = max(longest_s, clock() - began_s)
        if guess is None:
            continue
        rmse = float(np.sqrt(np.mean((guess - y[-held:]) ** 2)))
        if best is None or rmse < best[0]:
            best = (rmse, order)
    if best is None:
        return Series(np.full(count, y[-1] * SCALE), None, tried, 1.0)
    guess = _fit(y, best[1], count)
    if guess is None:
        guess = np.full(count, y[-1])
    return Series(guess * SCALE, best[1], tried, min(best[0] / max(float(y.mean()), 1e-9), 1.0))


def _fit(y: Floats, order: Order, count: int) -> Floats | None:
    """The forecast of one order; None where it cannot be fitted or makes no sense."""
    from statsmodels.tsa.arima.model import ARIMA

    p, d, q = order
    if len(y) <= p + d + q + 1:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = ARIMA(y, order=order).fit(method_kwargs={"maxiter": 30})
            guess: Floats = np.array(found.forecast(count), dtype=np.float64)
    except (ValueError, np.linalg.LinAlgError, IndexError):
        return None
    if not np.isfinite(guess).all() or float(np.abs(guess).max()) > 1e3 * float(y.max()):
        return None
    above: Floats = np.maximum(guess, 0.0)
    return above
