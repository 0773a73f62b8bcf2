# SPDX-License-Identifier: Apache-2.0
"""Weighted max-min: nobody can get more without taking from somebody who has less for its weight.

Reservations are floors below which nobody who asks for it is kept.
"""

from penstock.policy.sharing import water
from penstock.policy.sharing.contract import ALL_LAWS, Decision, Observation, Settings, State

NAME = "maxmin"
LAWS = ALL_LAWS


def decide(seen: Observation, settings: Settings, state: State) -> tuple[Decision, State]:
    grants: dict[str, dict[str, float]] = {claim.name: {} for claim in seen.claims}
    why: dict[str, str] = {}
    weights = [max(claim.weight, 1e-9) for claim in seen.claims]
    for resource, total in seen.total.items():
        basins = []
        for claim, weight in zip(seen.claims, weights, strict=True):
            demand = max(0.0, claim.demand.get(resource, 0.0))
            basins.append(water.Basin(min(demand, claim.reservation.get(resource, 0.0)), demand, weight))
        got = water.fill(total, basins)
        room = water.spread(total, got, weights) if settings.headroom else got
        for claim, basin, mine, with_room in zip(seen.claims, basins, got, room, strict=True):
            grants[claim.name][resource] = with_room
            why.setdefault(claim.name, reason(resource, mine, basin.high))
            if mine < basin.high:
                why[claim.name] = reason(resource, mine, basin.high)
    return Decision(grants, why), state


def reason(resource: str, got: float, demand: float) -> str:
    """Why a job has what it has."""
    if got >= demand * (1 - 1e-9):
        return "it gets all that it asks for"
    return f"its fair share of {resource}: it asks for {demand:.0f}/s"
