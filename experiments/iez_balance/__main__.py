# SPDX-License-Identifier: Apache-2.0
"""Runs each job by the file system's own choice, by iez as printed, and by ours; draws who got how much."""

import sys
from pathlib import Path
from typing import Any

from experiments import frame, placed
from experiments.iez_balance import figure

HERE = Path(__file__).parent
METHODS = {"stock": "", "iez": "iez", "ours": "finish"}
LEARNING = 2  # runs before the first that is placed: one shows names, two show what varies in them


def run_case(site: placed.Site, name: str, bytes_a_stripe: int) -> dict[str, Any]:
    """The jobs of a case at once, by each method; what each target and server got."""
    jobs = [placed.job_of(part, bytes_a_stripe) for part in name.split("+")]
    for turn in range(LEARNING):
        for job in jobs:
            site.run(job, site.folder(f"{name}.{job.name}.out{turn}", job.stripes))
    found: dict[str, Any] = {}
    for turn, (method, allocator) in enumerate(METHODS.items(), LEARNING):
        folders = [site.folder(f"{name}.{job.name}.out{turn}", job.stripes) for job in jobs]
        site.run_together(jobs, folders, allocator)
        load = site.load(*folders)
        bytes_by_target = [load[i] for i in sorted(load)]
        found[method] = {
            "targets": bytes_by_target,
            "target_cost": placed.cost(bytes_by_target),
            "server_cost": placed.cost(site.by_server(load)),
        }
    stripes = sum((1 if job.shared else job.processes) * job.stripes for job in jobs)
    floor = placed.floor(stripes, site.shape.targets) if len(jobs) == 1 else 1.0
    return {"methods": found, "stripes": stripes, "floor": floor}


def main() -> int:
    config, output = frame.words(HERE, __doc__ or "")
    cases = {}
    with placed.site(config["oss"], config["osts"], {"model": "off"}) as site:
        order = sorted(site.servers, key=lambda i: (site.servers[i], i))
        for name in config["jobs"]:
            cases[name] = run_case(site, name, config["bytes_a_stripe"])
            costs = ", ".join(f"{m} {r['target_cost']:.3f}" for m, r in cases[name]["methods"].items())
            placed.say(
                f"iez-balance: {name}: fullest target over the mean: {costs}; floor {cases[name]['floor']:.3f}"
            )
    frame.keep(output / "numbers.json", {"config": config, "cases": cases})
    figure.draw(cases, order, config, output)
    print(f"drawn: {output / 'iez-balance.svg'}")
    return 0


sys.exit(main())
