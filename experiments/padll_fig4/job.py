# SPDX-License-Identifier: Apache-2.0
"""The job's trace: five steps of a limit long, at the published mean of each operation, with bursts."""

import random

from penstock.tools.trace_make import RATES

STEPS, PARTS = 5, 6  # a sample is a sixth of a step: a minute, where a step is six
DATA = {"read": 60_000.0, "write": 60_000.0}  # requests of 4 KiB a second, before scaling
METADATA = ("open", "close", "getattr", "rename")


def lines(operations: tuple[str, ...], seed: int, scale: float, step_s: float) -> list[str]:
    """Calmer at the end, so that what was held back is done when the trace is over."""
    chance = random.Random(seed)
    width_s = step_s / PARTS
    made = []
    for name in operations:
        mean = DATA[name] if name in DATA else 1000 * RATES[name]
        row = [chance.uniform(0.75, 1.25) for _ in range((STEPS - 1) * PARTS)]
        row += [chance.uniform(0.4, 0.7) for _ in range(PARTS)]
        for at in range(2, len(row) - PARTS, 9):
            row[at] *= 1.4
        for sample, part in enumerate(row):
            count = round(mean * part * scale * width_s)
            made.append(f"{name} {round(sample * width_s * 1e9)} {int(width_s * 1e9)} {count}\n")
    return made
