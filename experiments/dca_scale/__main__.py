# SPDX-License-Identifier: Apache-2.0
"""DCA-IO's run at scale, simulated: a shared checkpoint of 1 to 64 nodes on 256 targets, written independently and
collectively, under the default, TAPP-IO, DCA-IO and Penstock.

Simulated on the two surfaces of model/surfaces.py: shapes may be compared with the published ones, rates may not.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments import frame
from experiments.dca_scale import figure
from penstock.model.surfaces import LARGE, Shape
from penstock.policy.tuning.contract import Grid
from penstock.policy.tuning.simulate import Trial, past, play

HERE = Path(__file__).parent
KINDS = ("independent", "collective")
LAST = 3


def shape_of(kind: str, nodes: int, config: dict[str, Any]) -> Shape:
    """Independent: every rank writes pieces of 1 MiB.  Collective: one rank a node writes what was gathered, 16 MiB."""
    ranks = nodes * config["ranks_per_node"]
    size = float(ranks * config["bytes_per_rank"])
    return (
        Shape(ranks, True, float(1 << 20), size)
        if kind == "independent"
        else Shape(nodes, True, float(16 << 20), size)
    )


def rates(kind: str, surface: str, config: dict[str, Any]) -> dict[str, list[float]]:
    """By policy: rate over the default's of the last runs, by nodes."""
    machine = (
        LARGE if kind == "independent" else replace(LARGE, per_node=1)
    )  # one writer has its node for itself
    trial = Trial(machine, surface, config["draws"], config["runs"], seed=config["seed"])
    history = past(trial, Grid(machine.targets))
    found: dict[str, list[float]] = {policy: [] for policy in config["policies"]}
    for nodes in config["nodes"]:
        own = replace(trial, shapes=(shape_of(kind, nodes, config),))
        for policy in config["policies"]:
            outcome = play(own, policy, history)
            found[policy].append(float(np.exp(np.log(outcome.ratio[:, -LAST:]).mean())))
    return found


def over_rule(by_policy: dict[str, list[float]]) -> dict[str, list[float]]:
    """Over TAPP-IO's rates, as published; the default, which gives one target to all, is far below."""
    rule = by_policy["tapp"]
    return {
        p: [v / r for v, r in zip(values, rule, strict=True)]
        for p, values in by_policy.items()
        if p != "default"
    }


def main() -> int:
    config, output = frame.words(HERE, __doc__ or "")
    found: dict[str, Any] = {}
    for surface in config["surfaces"]:
        for kind in KINDS:
            print(f"dca-scale: {kind}, surface {surface}", file=sys.stderr, flush=True)
            found[f"{kind}, {surface}"] = rates(kind, surface, config)
    over = {setup: over_rule(by_policy) for setup, by_policy in found.items()}
    kept = {"simulated": True, "config": config, "over_default": found, "over_tapp": over}
    frame.keep(output / "numbers.json", kept)
    figure.draw(over, config, output)
    for setup, by_policy in over.items():
        for policy, values in by_policy.items():
            print(f"{setup:<22} {policy:<8} " + "  ".join(f"{value:6.2f}" for value in values))
    print(f"simulated; drawn: {output / 'dca-scale.svg'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
