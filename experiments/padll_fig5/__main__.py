# SPDX-License-Identifier: Apache-2.0
"""Runs the setups, draws them as the published figure, and writes down what the claims are judged by."""

import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from experiments import frame
from experiments.padll_fig5 import figure, jobs
from experiments.site import PERIOD_S, Outcome, Plan, Site, policy_of, windows

HERE = Path(__file__).parent
LIMIT = "all metadata"


def plans(config: dict[str, Any]) -> list[Plan]:
    minute_s = config["minute_s"]
    return [
        Plan(f"job{i + 1}", i * jobs.APART * minute_s, tuple(jobs.lines(row, config["scale"], minute_s)))
        for i, row in enumerate(jobs.rates(config["seed"]))
    ]


def returns(outcome: Outcome, reserved: dict[str, float]) -> list[int]:
    """How many periods each return of an idle reservation took: those that began while somebody waited and the job
    had less than its reservation."""
    found = []
    for job, reservation in reserved.items():
        short = 0
        for before, now in pairwise(outcome.cycles):
            if job not in before.granted or job not in now.granted:
                continue
            if now.waiting[job][LIMIT] and before.granted[job][LIMIT] < reservation * (1 - 1e-6):
                short += 1
            elif short:
                found.append(short)
                short = 0
    return found


def numbers(outcome: Outcome, config: dict[str, Any], reserved: dict[str, float]) -> dict[str, Any]:
    """What a setup is judged by; rates are scaled back to the published ones."""
    scale, minute_s = config["scale"], config["minute_s"]
    served = outcome.total(1)
    last_s = jobs.JOBS * jobs.APART - jobs.APART + jobs.MINUTES
    in_time = served[: round(last_s * minute_s / PERIOD_S)]
    granted = [sum(row[LIMIT] for row in cycle.granted.values()) for cycle in outcome.cycles]
    return {
        "ends_minutes": {job: outcome.end_s(job) / minute_s for job in outcome.jobs},
        "most_in_1s": float(windows(served, PERIOD_S).max()) / scale,
        "most_granted": max(granted, default=0.0) / scale,
        "mean_per_s": float(in_time.sum()) / (len(in_time) * PERIOD_S) / scale,
        "demanded": int(outcome.total(0).sum()),
        "served": int(served.sum()),
        "returns_periods": returns(outcome, reserved),
    }


def main() -> int:
    config, output = frame.words(HERE, __doc__ or "")
    outcomes, found = {}, {}
    with frame.place() as place:
        site = Site(place)
        for setup in config["setups"]:
            print(f"padll-fig5: {setup}", file=sys.stderr, flush=True)
            text = (HERE / f"{setup}.toml").read_text("utf-8")
            outcomes[setup] = site.run(setup, text, plans(config))
            rows = policy_of(text).jobs
            reserved = {rule.match.jobs[0]: rule.reserve[LIMIT] for rule in rows if rule.reserve}
            found[setup] = numbers(outcomes[setup], config, reserved)
    frame.keep(output / "numbers.json", {"config": config, "setups": found})
    figure.draw(outcomes, config, output)
    for setup, row in found.items():
        ends = ", ".join(f"{end:.1f}" for end in row["ends_minutes"].values())
        print(f"{setup:<13} jobs end at minute {ends}; most in 1 s {row['most_in_1s']:,.0f}/s")
    print(f"drawn: {output / 'padll-fig5.svg'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
