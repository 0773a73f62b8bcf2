# SPDX-License-Identifier: Apache-2.0
"""Water filling: the one piece of arithmetic under the fair algorithms.

`fill` finds the level at which clamp(level · weight, low, high) of all together is the total: weighted
max-min with floors.  Exact, by bisecting the points where somebody starts or stops growing.
"""

from collections.abc import Sequence
from math import fsum
from typing import NamedTuple


class Basin(NamedTuple):
    """One that is filled: from `low`, growing with `weight`, up to `high`."""

    low: float
    high: float
    weight: float


def fill(total: float, basins: Sequence[Basin]) -> list[float]:
    """What each gets, low to high; if the lows alone are above the total, they are cut alike."""
    lows = sum(basin.low for basin in basins)
    if lows >= total:
        factor = total / lows if lows > 0 else 0.0
        return [basin.low * factor for basin in basins]
    if sum(basin.high for basin in basins) <= total:
        return [basin.high for basin in basins]
    level = _level(total, basins)
    return [_at(level, basin) for basin in basins]


def _level(total: float, basins: Sequence[Basin]) -> float:
    """Where the sum meets the total: between two points it is a straight line through those that grow there.

    The points are bisected and each sum is made anew: adding and taking off weights that differ by many
    powers of ten would leave nothing of the small ones.
    """
    growing = [basin for basin in basins if basin.weight > 0 and basin.high > basin.low]
    points = sorted({edge / basin.weight for basin in growing for edge in (basin.low, basin.high)})
    first, last = 0, len(points) - 1
    while last - first > 1:
        middle = (first + last) // 2
        if fsum(_at(points[middle], basin) for basin in basins) <= total:
            first = middle
        else:
            last = middle
    below = points[first]
    between = [basin for basin in growing if _grows(below, basin)]
    if not between:
        return below
    fixed = fsum(_at(below, basin) for basin in basins if not _grows(below, basin))
    return (total - fixed) / fsum(basin.weight for basin in between)


def _grows(level: float, basin: Basin) -> bool:
    """Does it get more when the level rises from here?"""
    return basin.weight > 0 and basin.low / basin.weight <= level < basin.high / basin.weight


def _at(level: float, basin: Basin) -> float:
    return min(max(basin.low, level * basin.weight), basin.high)


def spread(total: float, got: Sequence[float], weights: Sequence[float]) -> list[float]:
    """What is left of the total, handed out by weight on top of what each got."""
    left = total - sum(got)
    weight = sum(weights)
    if left <= 0 or weight <= 0:
        return list(got)
    return [each + left * mine / weight for each, mine in zip(got, weights, strict=True)]
