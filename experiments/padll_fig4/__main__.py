# SPDX-License-Identifier: Apache-2.0
"""Runs the setups, draws them as the published figure, and writes down what the claims are judged by."""

import re
import sys
from pathlib import Path
from typing import Any

from experiments import frame
from experiments.padll_fig4 import figure, job
from experiments.site import PERIOD_S, Outcome, Plan, Site, windows

HERE = Path(__file__).parent
IO_BYTES = 4096
MINUTES = {"by-type": 6, "by-class": 6, "data": 1}  # how long a step is in the policy
OPERATIONS = {"by-type": job.METADATA, "by-class": job.METADATA, "data": ("read", "write")}


def panels(setup: str) -> dict[str, tuple[str, ...]]:
    """Each panel's limit, and the operations that it holds."""
    if setup == "by-class":
        return {"metadata": job.METADATA}
    return {name: (name,) for name in OPERATIONS[setup]}


def shortened(policy: str, setup: str, step_s: float) -> str:
    """The policy with the minutes of its timetable as long as they take here."""

    def minute(found: "re.Match[str]") -> str:
        return f'"{round(int(found[1]) / MINUTES[setup] * step_s * 1000)}ms" ='

    return re.sub(r'"(\d+)min" =', minute, policy)


def changes(outcome: Outcome, limit: str) -> list[tuple[float, float, float]]:
    """From when until when a rate was granted."""
    found: list[tuple[float, float, float]] = []
    for cycle in outcome.cycles:
        rate = cycle.granted["job"][limit]
        if found and found[-1][2] == rate:
            found[-1] = (found[-1][0], cycle.time_s, rate)
        else:
            found.append((cycle.time_s, cycle.time_s, rate))
    return found


def steps(outcome: Outcome, setup: str) -> dict[str, list[dict[str, float]]]:
    """By panel and step of its limit: operations a second allowed, demanded, served, and the most served in a second.

    The first two intervals of a step are left out: they may begin in the step before."""
    found = {}
    for limit, operations in panels(setup).items():
        demanded, served = (outcome.counts("job", which, operations=operations) for which in (0, 1))
        unit = IO_BYTES if setup == "data" else 1
        rows = []
        for start_s, end_s, rate in changes(outcome, limit):
            cells = slice(int(start_s / PERIOD_S) + 2, int(end_s / PERIOD_S))
            seconds = (cells.stop - cells.start) * PERIOD_S
            rows.append(
                {
                    "seconds": seconds,
                    "allowed": rate / unit,
                    "demanded": float(demanded[cells].sum()) / seconds,
                    "served": float(served[cells].sum()) / seconds,
                    "most_in_1s": float(windows(served[cells], PERIOD_S).max(initial=0.0)),
                }
            )
        found[limit] = rows
    return found


def main() -> int:
    config, output = frame.words(HERE, __doc__ or "")
    found: dict[str, Any] = {}
    drawn = []
    with frame.place() as place:
        for setup in config["setups"]:
            print(f"padll-fig4: {setup}", file=sys.stderr, flush=True)
            policy = shortened((HERE / f"{setup}.toml").read_text("utf-8"), setup, config["step_s"])
            lines = job.lines(OPERATIONS[setup], config["seed"], config["scale"], config["step_s"])
            outcome = Site(place).run(setup, policy, [Plan("job", 0.0, tuple(lines), io_bytes=IO_BYTES)])
            found[setup] = {
                "steps": steps(outcome, setup),
                "demanded": int(outcome.total(0).sum()),
                "served": int(outcome.total(1).sum()),
            }
            drawn += [(setup, limit, operations, outcome) for limit, operations in panels(setup).items()]
    frame.keep(output / "numbers.json", {"config": config, "setups": found})
    figure.draw(drawn, config, output)
    for setup, row in found.items():
        for limit, of in row["steps"].items():
            shares = ", ".join(f"{step['served'] / step['allowed']:.0%}" for step in of)
            print(f"{setup:<9} {limit:<9} served of what was allowed, by step: {shares}")
    print(f"drawn: {output / 'padll-fig4.svg'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
