# SPDX-License-Identifier: Apache-2.0
"""The four jobs' traces: synthetic, hard enough, and the same for every policy.

Published are the shape of the experiment (four jobs, three minutes apart, 45 minutes; together up to 800,000
operations a second and long above 400,000) and how it ended.  A trace that can end so has a mean below the smallest
fair part (75,000) and above what job 1 gets under priority (40,000), is bursty, and quiet towards its end.
"""

import random

from penstock.tools.trace_make import RATES

OPERATIONS = ("open", "close", "getattr", "rename")  # 98 % of the trace that was published
JOBS, MINUTES, APART = 4, 36, 3
MEAN, BURST, QUIET = 62_000.0, (105_000.0, 235_000.0), (8_000.0, 35_000.0)
EVERY, LONG = 7, 3  # minutes between bursts that all four share, and how long each is


def rates(seed: int) -> list[list[float]]:
    """Operations a second of each job, minute by minute."""
    chance = random.Random(seed)
    found = []
    for job in range(JOBS):
        row = [chance.uniform(*QUIET) for _ in range(MINUTES)]
        for at in range(6, MINUTES, EVERY):  # on the site's clock
            for minute in range(at - APART * job, at - APART * job + LONG):
                if 0 <= minute < MINUTES - 8:
                    row[minute] = chance.uniform(*BURST)
        for minute in range(MINUTES - 8, MINUTES):
            row[minute] = chance.uniform(8_000, 30_000)
        factor = (MEAN * MINUTES - sum(row[-8:])) / sum(row[:-8])
        found.append([rate * factor for rate in row[:-8]] + row[-8:])
    return found


def lines(row: list[float], scale: float, minute_s: float) -> list[str]:
    """The schedule of a job whose minutes take `minute_s`."""
    whole = sum(RATES[name] for name in OPERATIONS)
    made = []
    for name in OPERATIONS:
        owed = 0.0
        for minute, rate in enumerate(row):
            owed += rate * scale * minute_s * RATES[name] / whole
            count = int(owed)
            owed -= count
            made.append(f"{name} {round(minute * minute_s * 1e9)} {int(minute_s * 1e9)} {count}\n")
    return made
