# SPDX-License-Identifier: Apache-2.0
"""What a job would use if nothing held it back, from what the board counts: issued, waiting.

A job that waits shows only what it was granted: its demand is not known, only that it is more.  It is then taken for
as much as there is; sharing gives it its fair part, and if it needs less, the next interval shows that.  A job that
does not wait is given a little more than it asks.
"""

import numpy as np

from penstock.policy.segments import Floats

# Above what was asked, so that chance alone makes nobody wait.  What of it is not used is lost to those who want more,
# and the burst that a bucket saves up takes most of chance already: so it is little.  Who grows beyond it waits once.
ROOM = 1.05
FLOOR = 1.0  # units a second: a job that asks for nothing may begin


def estimate(asked: Floats, waiting: Floats, grant: Floats, most: float) -> Floats:
    """Demand a second of each row; `waiting` is the number of callers that wait now or waited in the interval."""
    asked = np.fmin(np.fmax(asked, 0.0), most)  # fmax takes 0 for what is no number
    held = np.fmin(np.fmax(grant, 0.0), most)
    hungry = (waiting > 0) & (asked >= 0.5 * held)
    return np.where(hungry, most, np.minimum(most, asked * ROOM + FLOOR))


FEW = 5.0  # units drawn in one interval: below, one interval says little


def asked(drawn: float, interval_s: float, mean: float) -> float:
    """Units a second that a bucket is asked for: of the last interval, or of the last second where few came.

    A fall is believed at once down to what an interval cannot show; a rise at once.
    """
    last = drawn / interval_s
    return last if drawn >= FEW else max(last, min(mean, FEW / interval_s))
