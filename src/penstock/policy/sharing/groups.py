# SPDX-License-Identifier: Apache-2.0
"""A named group of jobs as the unit: the total is shared among groups, then each group's part among its jobs.

A job without a group is a group of its own.  Inside a group parts are max-min fair by weight.
"""

from penstock.policy.sharing import maxmin
from penstock.policy.sharing.contract import Claim, Decide, Decision, Observation, Rates, Settings, State


def decide(inner: Decide, seen: Observation, settings: Settings, state: State) -> tuple[Decision, State]:
    """Share by `inner` among groups, then inside each."""
    members: dict[str, list[Claim]] = {}
    for claim in seen.claims:
        members.setdefault(claim.group or claim.name, []).append(claim)
    units = tuple(_unit(name, claims) for name, claims in sorted(members.items()))
    outer, state = inner(Observation(seen.time_s, seen.total, units), settings, state)
    grants: dict[str, Rates] = {}
    why: dict[str, str] = {}
    for name, claims in members.items():
        if len(claims) == 1 and not claims[0].group:
            grants[name], why[name] = outer.grants[name], outer.why[name]
            continue
        part = Observation(seen.time_s, outer.grants[name], tuple(claims))
        inside, _ = maxmin.decide(part, settings, None)
        for claim in claims:
            grants[claim.name] = inside.grants[claim.name]
            why[claim.name] = f"in group {name}: {inside.why[claim.name]}; {outer.why[name]}"
    return Decision(grants, why), state


def _unit(name: str, claims: list[Claim]) -> Claim:
    """The group as one claim: demands summed; reservation, weight and priority of its first job."""
    first = min(claims, key=lambda claim: claim.name)
    if len(claims) == 1 and not first.group:
        return first
    demand: dict[str, float] = {}
    for claim in claims:
        for resource, rate in claim.demand.items():
            demand[resource] = demand.get(resource, 0.0) + rate
    return Claim(name, demand, first.reservation, first.weight, first.priority)
