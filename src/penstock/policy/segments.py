# SPDX-License-Identifier: Apache-2.0
"""Water filling in many basins of many pools at once, on columns: the rate of each job split among its nodes.

The same law as sharing/water.py, for a hundred thousand rows in milliseconds.  Each round settles, in every pool,
those whose wish lies below the pool's level; a pool needs as many rounds as it has steps, seldom more than five.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def fill(totals: Floats, pool: Ints, wish: Floats, weight: Floats | None = None) -> Floats:
    """What each row gets of its pool's total: at most its wish, max-min by weight; row i is of pool[i]."""
    count = len(totals)
    weights = np.ones(len(pool)) if weight is None else weight
    got = np.zeros(len(pool))
    left = totals.astype(float)
    rows = np.flatnonzero(wish > 0)
    for _ in range(len(pool) + 1):
        if not len(rows):
            break
        mine = pool[rows]
        heavy = np.bincount(mine, weights=weights[rows], minlength=count)
        level = np.divide(left, heavy, out=np.zeros(count), where=heavy > 0)
        offered = level[mine] * weights[rows]
        content = wish[rows] <= offered
        if not content.any():
            got[rows] = offered
            break
        settled = rows[content]
        got[settled] = wish[settled]
        taken = np.bincount(pool[settled], weights=wish[settled], minlength=count)
        left = np.maximum(0.0, left - taken)
        # A pool in which nobody was content is done too: its rows get what was offered.
        done = np.zeros(count, dtype=bool)
        done[mine] = True
        done[pool[settled]] = False
        ended = done[mine]
        got[rows[ended]] = offered[ended]
        rows = rows[~content & ~ended]
    return got


def spread(totals: Floats, pool: Ints, got: Floats) -> Floats:
    """What is left of each pool's total, handed out evenly on top."""
    count = len(totals)
    members = np.bincount(pool, minlength=count)
    left = np.maximum(0.0, totals - np.bincount(pool, weights=got, minlength=count))
    each = np.divide(left, members, out=np.zeros(count), where=members > 0)
    return got + each[pool]
