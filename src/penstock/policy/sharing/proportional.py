# SPDX-License-Identifier: Apache-2.0
"""Proportional sharing: everybody who is active has min(demand, reservation); what is left goes to those who
want more in proportion to their reservations, again and again until nobody wants or nothing is left."""

from penstock.policy.sharing import water
from penstock.policy.sharing.contract import ALL_LAWS, Decision, Observation, Settings, State
from penstock.policy.sharing.maxmin import reason

NAME = "proportional"
LAWS = ALL_LAWS
# A job without a reservation takes part in what is left with this share of the smallest reservation.
UNRESERVED = 0.01


def decide(seen: Observation, settings: Settings, state: State) -> tuple[Decision, State]:
    grants: dict[str, dict[str, float]] = {claim.name: {} for claim in seen.claims}
    why: dict[str, str] = {}
    for resource, total in seen.total.items():
        reserved = [max(0.0, claim.reservation.get(resource, 0.0)) for claim in seen.claims]
        least = min((each for each in reserved if each > 0), default=1.0)
        weights = [each or least * UNRESERVED for each in reserved]
        demands = [max(0.0, claim.demand.get(resource, 0.0)) for claim in seen.claims]
        floors = [min(pair) for pair in zip(demands, reserved, strict=True)]
        cut = min(1.0, total / sum(floors)) if sum(floors) > 0 else 1.0
        floors = [floor * cut for floor in floors]
        more = water.fill(
            total - sum(floors),
            [water.Basin(0.0, d - f, w) for d, f, w in zip(demands, floors, weights, strict=True)],
        )
        got = [floor + extra for floor, extra in zip(floors, more, strict=True)]
        room = water.spread(total, got, weights) if settings.headroom else got
        for claim, demand, mine, with_room in zip(seen.claims, demands, got, room, strict=True):
            grants[claim.name][resource] = with_room
            if claim.name not in why or mine < demand:
                why[claim.name] = reason(resource, mine, demand)
    return Decision(grants, why), state
