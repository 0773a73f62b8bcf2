# SPDX-License-Identifier: Apache-2.0
"""Writes and reads each job with files placed by the file system, by iez as printed, and by ours; draws the rates."""

import statistics
import sys
from pathlib import Path
from typing import Any

from experiments import frame, placed
from experiments.iez_performance import figure

HERE = Path(__file__).parent
METHODS = {"stock": "", "iez": "iez", "ours": "finish"}
LEARNING = 2


def run_case(site: placed.Site, name: str, config: dict[str, Any]) -> dict[str, Any]:
    """Rates of each method, all methods in turn in each round."""
    job = placed.job_of(name, config["bytes_a_stripe"])
    turns = iter(range(1000))

    def folder() -> Path:
        return site.folder(f"{name}.out{next(turns)}", job.stripes)

    for _ in range(LEARNING):
        site.run(job, folder())
    rates: dict[str, dict[str, list[float]]] = {m: {"write": [], "read": [], "cost": []} for m in METHODS}
    for turn in range(config["rounds"]):
        for method in list(METHODS) if turn % 2 == 0 else list(METHODS)[::-1]:
            where = folder()
            took = site.run(job, where, placed.by(METHODS[method]))
            rates[method]["write"].append(took.bytes / took.write_s)
            rates[method]["read"].append(took.bytes / took.read_s)
            rates[method]["cost"].append(placed.cost(list(site.load(where).values())))
    return {m: {k: statistics.median(v) for k, v in row.items()} for m, row in rates.items()}


def main() -> int:
    config, output = frame.words(HERE, __doc__ or "")
    settings = {
        "ost.bandwidth": config["ost_bandwidth"],
        "oss.bandwidth": config["oss_bandwidth"],
        "client.cache": "0",
        "stats.period": "250ms",
        **{f"ost.{i}.slowdown": "2" for i in config["slow_targets"]},
    }
    cases = {}
    with placed.site(config["oss"], config["osts"], settings) as site:
        for name in config["jobs"]:
            cases[name] = run_case(site, name, config)
            said = ", ".join(
                f"{m} {r['write'] / 1e6:.1f}/{r['read'] / 1e6:.1f}" for m, r in cases[name].items()
            )
            placed.say(f"iez-performance: {name}: MB/s written/read: {said}")
    frame.keep(output / "numbers.json", {"config": config, "cases": cases})
    figure.draw(cases, config, output)
    print(f"drawn: {output / 'iez-performance.svg'}")
    return 0


sys.exit(main())
