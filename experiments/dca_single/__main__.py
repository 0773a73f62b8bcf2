# SPDX-License-Identifier: Apache-2.0
"""Runs each kernel again and again with the file system's default layout, TAPP-IO's rules, DCA-IO and Penstock's own
choice, each with a history of its own; draws the rates of the last runs and how they were reached.
"""

import statistics
import sys
from pathlib import Path
from typing import Any

from experiments import frame, placed
from experiments.dca_single import figure
from experiments.dca_single.kernels import job_of

HERE = Path(__file__).parent


def tuned_by(policy: str) -> tuple[str, ...]:
    """Options of `penstock run`; the default needs none."""
    return () if policy == "default" else ("--tune", "--set", f"tune.policy={policy}")


def rates(site: placed.Site, job: placed.Job, runs: dict[str, int]) -> dict[str, list[float]]:
    """Bytes a second of each run, policies in turn."""
    found: dict[str, list[float]] = {policy: [] for policy in runs}
    for turn in range(max(runs.values())):
        for policy in [policy for policy, count in runs.items() if turn < count]:
            folder = site.folder(f"{job.name}.{policy}{turn}", job.stripes)
            took = site.run(job, folder, tuned_by(policy), user=policy)
            found[policy].append(took.bytes / took.write_s)
    return found


def over_default(of_job: dict[str, list[float]], last: int) -> dict[str, float]:
    """By policy the middle rate of the last runs over the default's."""
    usual = statistics.median(of_job["default"])
    return {policy: statistics.median(got[-last:]) / usual for policy, got in of_job.items()}


def main() -> int:
    config, output = frame.words(HERE, __doc__ or "")
    settings = {"ost.bandwidth": config["ost_bandwidth"], "ost.contention": config["contention"]}
    found: dict[str, dict[str, Any]] = {}
    with placed.site(config["oss"], config["osts"], settings) as site:
        for kernel in config["kernels"]:
            found[kernel] = {}
            for processes in config["processes"]:
                job = job_of(kernel, processes, config["bytes_together"])
                of_job = rates(site, job, config["runs"])
                ratio = over_default(of_job, config["last"])
                found[kernel][str(processes)] = {"rates": of_job, "over_default": ratio}
                said = ", ".join(f"{policy} {value:.2f}" for policy, value in ratio.items())
                placed.say(f"dca-single: {kernel}, {processes} processes, times the default: {said}")
    frame.keep(output / "numbers.json", {"config": config, "kernels": found})
    figure.draw(found, config, output)
    print(f"drawn: {output / 'dca-single.svg'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
