# SPDX-License-Identifier: Apache-2.0
"""A made-up trace with the statistics that were published of a large production file system.

Published of it, in samples of a minute over 30 days: a mean of about 200,000 operations a second, hours above
400,000, peaks of 1,000,000, lows of 50,000 and less, very bursty; getattr 95.8, close 43.5, open 29 thousand a second
in the mean; these and rename make 98 %.  What is not published (how long the load stays as it is, how the rest is
divided) is chosen here.

Invariant: the same seed gives the same trace, and every trace says that it is synthetic.
"""

import math
import random
from collections.abc import Iterator

from penstock.tools import traces

MEAN, LEAST, MOST, HIGH = 200_000.0, 20_000.0, 1_000_000.0, 400_000.0
MINUTES_A_DAY = 1440
# Thousands a second; the four large ones as published (rename: what is missing to 98 %), the rest divided.
RATES = {
    "open": 29.0,
    "close": 43.5,
    "getattr": 95.8,
    "rename": 27.7,
    "setattr": 1.4,
    "mkdir": 0.35,
    "mknod": 0.65,
    "rmdir": 0.3,
    "statfs": 0.5,
    "sync": 0.3,
    "unlink": 0.5,
}
# What the load is for a while: level, how long (minutes, from and to), how likely next.
SPELLS = ((45_000.0, 20, 70, 0.25), (140_000.0, 40, 240, 0.5), (470_000.0, 60, 150, 0.25))


def make(days: int, seed: int) -> dict[str, list[int]]:
    """Counts a minute of each operation."""
    chance = random.Random(seed)
    while not _like_published(total := _totals(days * MINUTES_A_DAY, chance)):
        pass
    return _divided(total, chance)


def _totals(minutes: int, chance: random.Random) -> list[float]:
    """Operations a second, minute by minute: spells of load, noise that lasts, bursts and peaks."""
    found: list[float] = []
    noise = 0.0
    while len(found) < minutes:
        (level, low, high, _) = chance.choices(SPELLS, [spell[3] for spell in SPELLS])[0]
        for _ in range(chance.randint(low, high)):
            noise = 0.8 * noise + chance.gauss(0, 0.12)
            burst = chance.uniform(1.4, 2.4) if chance.random() < 0.05 else 1.0
            found.append(level * math.exp(noise) * burst)
    del found[minutes:]
    for _ in range(max(1, minutes // 400)):
        at = chance.randrange(minutes)
        for i in range(at, min(at + chance.randint(1, 3), minutes)):
            found[i] = chance.uniform(0.75, 1.0) * MOST
    for _ in range(30):  # the mean, within the bounds
        factor = MEAN * minutes / sum(found)
        found = [min(MOST, max(LEAST, rate * factor)) for rate in found]
    found[max(range(minutes), key=found.__getitem__)] = MOST
    return found


def _like_published(total: list[float]) -> bool:
    """Whether chance made what is known of the original."""
    ordered = sorted(total)
    return (
        abs(sum(total) / len(total) / MEAN - 1) < 0.02
        and ordered[len(total) // 20] <= 50_000
        and traces.longest_above(total, HIGH, 60) >= 2
    )


def _divided(total: list[float], chance: random.Random) -> dict[str, list[int]]:
    """Each minute divided among the operations: shares drift, their means are as published."""
    whole = sum(RATES.values())
    rows: dict[str, list[float]] = {}
    for name, rate in RATES.items():
        drift, row = 0.0, []
        for _ in total:
            drift = 0.9 * drift + chance.gauss(0, 0.1)
            row.append(rate / whole * math.exp(drift))
        rows[name] = row
    for _ in range(20):  # to the sum of each minute, and to the share of each operation, in turn
        for i, rate in enumerate(total):
            factor = rate / sum(row[i] for row in rows.values())
            for row in rows.values():
                row[i] *= factor
        for name, row in rows.items():
            factor = RATES[name] / whole * sum(total) / sum(row)
            rows[name] = [value * factor for value in row]
    return {name: [round(60 * value) for value in row] for name, row in rows.items()}


def lines(days: int, seed: int) -> Iterator[str]:
    """The trace as a file."""
    columns = make(days, seed)
    yield (
        f"# synthetic: made by penstock replay make --seed {seed} --days {days}, after published statistics; "
        "not a recording\n"
    )
    yield "# interval_s = 60\n"
    yield "time_s," + ",".join(columns) + "\n"
    for minute, counts in enumerate(zip(*columns.values(), strict=True)):
        yield f"{60 * minute}," + ",".join(map(str, counts)) + "\n"
