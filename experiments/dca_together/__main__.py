# SPDX-License-Identifier: Apache-2.0
"""Runs each kernel beside a writer of 1, 2 or 4 targets: with the default layout, with more stripes on targets that the
file system chooses, and with as many on those that Penstock chooses by load; draws the rates.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments import frame, placed
from experiments.dca_single.kernels import job_of
from experiments.dca_together import figure

HERE = Path(__file__).parent
LEARNING = 2
LOOK_S = 1.2  # between two looks at the targets' statistics, which are a second apart at least
FOREVER = 1_000_000  # rounds: it is stopped


@contextlib.contextmanager
def beside(site: placed.Site, targets: int, bytes_each: int) -> Iterator[None]:
    """Another job writes on the first so many targets, and goes on as long as this lasts."""
    folder = site.folder(f"beside{time.monotonic_ns()}", targets, range(targets))
    job = placed.Job("beside", 1, targets, bytes_each * targets, rounds=FOREVER, reads=False)
    running = site.start_bare(job, folder)
    try:
        yield
    finally:
        site.stop(running)


def rate(site: placed.Site, job: placed.Job, method: str, targets: int, config: dict[str, Any]) -> float:
    """Bytes a second of one run beside another job."""
    stripes = 0 if method == "default" else config["stripes"]
    folder = site.folder(f"{job.name}.out{time.monotonic_ns()}", stripes)
    with beside(site, targets, config["bytes_together"] // 4):
        # A look now and one when the run starts tell who is busy; so that the other job is as far on, always.
        time.sleep(0.3)
        look = site.command("place", "plan", "--job", f"{job.name}.py", "--mount", site.top, "--json")
        subprocess.run(look, env=site.env_of("user"), stdout=subprocess.DEVNULL, check=True, timeout=120)
        time.sleep(LOOK_S)
        options = ("--place", "--set", f"place.target_rate={config['ost_bandwidth'].removesuffix('/s')}")
        took = site.run(job, folder, options if method == "placed" else ())
    return took.bytes / took.write_s


def main() -> int:
    config, output = frame.words(HERE, __doc__ or "")
    settings = {
        "ost.bandwidth": config["ost_bandwidth"],
        "ost.contention": config["contention"],
        "stats.period": "250ms",
    }
    found: dict[str, dict[str, dict[str, float]]] = {}
    with placed.site(config["oss"], config["osts"], settings) as site:
        for kernel in config["kernels"]:
            job = job_of(kernel, config["processes"], config["bytes_together"])
            for turn in range(LEARNING):
                site.run(job, site.folder(f"{job.name}.out{turn}", 0))
            found[kernel] = {}
            for targets in config["beside"]:
                rates: dict[str, list[float]] = {method: [] for method in figure.METHODS}
                for _ in range(config["rounds"]):
                    for method in figure.METHODS:
                        rates[method].append(rate(site, job, method, targets, config))
                # Where files come to lie by chance, the mean time of many runs is what counts.
                mean = {m: len(got) / sum(1 / r for r in got) for m, got in rates.items()}
                found[kernel][str(targets)] = mean
                said = ", ".join(f"{m} {r / 1e6:.1f}" for m, r in mean.items())
                placed.say(f"dca-together: {kernel} beside a writer of {targets} stripes, MB/s: {said}")
    frame.keep(output / "numbers.json", {"config": config, "kernels": found})
    figure.draw(found, config, output)
    print(f"drawn: {output / 'dca-together.svg'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
