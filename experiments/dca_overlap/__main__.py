# SPDX-License-Identifier: Apache-2.0
"""Writes with more and more stripes, then by two writers on fewer and fewer targets; draws the rates.  Penstock has no
part in it: this is what layouts are worth on the emulated file system.
"""

import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments import frame, placed
from experiments.dca_overlap import figure

HERE = Path(__file__).parent
WIDTH = 2  # stripes of each of the two


def turns_of(rounds: int, what: list[Any]) -> Iterator[Any]:
    """All in turn, there and back."""
    for turn in range(rounds):
        yield from what if turn % 2 == 0 else what[::-1]


def alone(site: placed.Site, kind: str, config: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Bytes a second of one job that writes files of its processes or a shared one, by processes and stripes."""
    found: dict[tuple[int, int], list[float]] = {}
    cells = [(processes, stripes) for processes in config["processes"] for stripes in config["stripes"]]
    for number, (processes, stripes) in enumerate(turns_of(config["rounds"], cells)):
        size = config["bytes_together"] // processes
        job = placed.Job(kind, processes, stripes, size, kind, reads=False)
        took = site.took(site.start_bare(job, site.folder(f"{kind}{number}", stripes)))
        found.setdefault((processes, stripes), []).append(took.bytes / took.write_s)
    return {
        str(processes): {str(s): statistics.median(found[processes, s]) for s in config["stripes"]}
        for processes in config["processes"]
    }


def beside(site: placed.Site, config: dict[str, Any]) -> dict[str, float]:
    """Bytes a second of two writers, the mean of both, by targets in common."""
    found: dict[int, list[float]] = {}
    job = placed.Job("beside", 1, WIDTH, config["bytes_each"], reads=False)
    for number, common in enumerate(turns_of(config["rounds"], config["overlaps"])):
        first = list(range(WIDTH))
        second = [i + WIDTH - common for i in first]
        running = [
            site.start_bare(job, site.folder(f"beside{number}.{i}", WIDTH, targets))
            for i, targets in enumerate((first, second))
        ]
        rates = [took.bytes / took.write_s for took in map(site.took, running)]
        found.setdefault(common, []).append(statistics.fmean(rates))
    return {str(common): statistics.median(rates) for common, rates in found.items()}


def main() -> int:
    config, output = frame.words(HERE, __doc__ or "")
    settings = {"ost.bandwidth": config["ost_bandwidth"], "ost.contention": config["contention"]}
    with placed.site(config["oss"], config["osts"], settings) as site:
        placed.say("dca-overlap: one job, by stripes and processes")
        by_stripes = {kind: alone(site, kind, config) for kind in figure.KINDS}
        placed.say("dca-overlap: two writers side by side")
        by_overlap = beside(site, config)
    frame.keep(output / "numbers.json", {"config": config, "stripes": by_stripes, "overlap": by_overlap})
    figure.draw(by_stripes, by_overlap, config, output)
    for kind, by_processes in by_stripes.items():
        for processes, rates in by_processes.items():
            row = "  ".join(f"{stripes}: {rate / 1e6:.1f}" for stripes, rate in rates.items())
            print(f"{figure.KINDS[kind]}, {processes} processes, MB/s by stripes: {row}")
    row = "  ".join(f"{common}: {rate / 1e6:.1f}" for common, rate in by_overlap.items())
    print(f"each of two writers, MB/s by targets in common: {row}")
    print(f"drawn: {output / 'dca-overlap.svg'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
