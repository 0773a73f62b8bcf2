# SPDX-License-Identifier: Apache-2.0
"""What would be, on a model: my targets and my jobs under each way of placing or tuning.

penstock simulate place whatif.toml
penstock simulate tune whatif.toml --json

Nothing is measured here: figures compare ways with each other, they promise nothing about a file system.
"""

from __future__ import annotations

import argparse
from typing import Any

from penstock.cli import _common

HELP = "what-if, on a model: placing and tuning"


def register(parser: argparse.ArgumentParser) -> None:
    rows = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, text in (
        ("place", "jobs that write files on targets, under each allocator"),
        ("tune", "recurring jobs that choose layouts, under each policy"),
    ):
        sub = rows.add_parser(name, help=text)
        sub.add_argument("file", metavar="FILE.toml", help="the system, the jobs, and how to simulate")
        sub.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace) -> int:
    return _place(args) if args.what == "place" else _tune(args)


def _place(args: argparse.Namespace) -> int:
    from pathlib import Path

    from penstock.policy.placing.simulate import mean, play
    from penstock.tools import whatif

    asked = whatif.place(Path(args.file))
    rows: list[dict[str, Any]] = []
    for name in asked.allocators:
        scores = play(asked.what, name)
        balance, balance_95 = mean(scores, lambda s: s.ostcost)
        time, time_95 = mean(scores, lambda s: s.makespan)
        rows.append(
            {
                "allocator": name,
                "ostcost": balance,
                "ostcost_p95": balance_95,
                "server_ratio": mean(scores, lambda s: s.server)[0],
                "makespan_ratio": time,
                "makespan_ratio_p95": time_95,
                "overfull_targets": mean(scores, lambda s: float(s.full))[0],
            }
        )
    if args.json:
        _common.print_json(
            {"schema_version": 1, "simulated": True, "draws": asked.what.draws, "allocators": rows}
        )
        return 0
    print(f"{'ALLOCATOR':<16}{'OSTCOST (P95)':>18}{'SERVERS':>10}{'TIME (P95)':>18}{'OVERFULL':>10}")
    for r in rows:
        loads = f"{r['ostcost']:.3f} ({r['ostcost_p95']:.3f})"
        times = f"{r['makespan_ratio']:.3f} ({r['makespan_ratio_p95']:.3f})"
        print(
            f"{r['allocator']:<16}{loads:>18}{r['server_ratio']:>10.3f}{times:>18}{r['overfull_targets']:>10.1f}"
        )
    print(
        f"simulated, {asked.what.draws} draws: largest load of a target over the mean, of a server over the mean, "
        "time over the ideal, targets beyond their room"
    )
    return 0


def _tune(args: argparse.Namespace) -> int:
    from pathlib import Path

    from penstock.policy.tuning.contract import Grid
    from penstock.policy.tuning.simulate import past, play
    from penstock.tools import whatif

    asked = whatif.tune(Path(args.file))
    trial = asked.trial
    history = past(trial, Grid(trial.machine.targets))
    early = min(6, trial.runs)
    rows: list[dict[str, Any]] = []
    for name in asked.policies:
        o = play(trial, name, history)
        rows.append(
            {
                "policy": name,
                "regret": o.total,
                "gain_ratio": float(o.ratio[:, -1].mean()),
                "within_10_percent_early": o.within(0.1, early),
                "within_10_percent_end": o.within(0.1, trial.runs),
                "below_0_9_ratio": o.bad,
            }
        )
    if args.json:
        _common.print_json(
            {"schema_version": 1, "simulated": True, "surface": trial.surface, "policies": rows}
        )
        return 0
    good = f"{f'GOOD, RUN {early}':>13}{f'GOOD, RUN {trial.runs}':>14}"
    print(f"{'POLICY':<14}{'REGRET':>8}{'GAIN':>8}{good}{'BAD RUNS':>10}")
    for r in rows:
        print(
            f"{r['policy']:<14}{r['regret']:>8.2f}{r['gain_ratio']:>8.2f}{r['within_10_percent_early']:>13.0%}"
            f"{r['within_10_percent_end']:>14.0%}{r['below_0_9_ratio']:>10.1%}"
        )
    print(
        f"simulated on the surface `{trial.surface}`, {trial.jobs} jobs of {trial.runs} runs: regret over all runs, "
        "rate over the default's at the end, recommendations within 10 % of the best, runs below 0.9 of the default"
    )
    return 0
