# SPDX-License-Identifier: Apache-2.0
"""Dominant resource fairness: max-min over each job's largest share of any resource, for two or more.

A job uses its resources in the proportion in which it asks for them; its dominant share is the largest
part of a total that it has.  All shares grow together (by weight) until a resource is full; who needs
that one stops, the others go on.  Reservations are floors, given first in the same proportion.
"""

from penstock.policy.sharing.contract import Claim, Decision, Law, Observation, Rates, Settings, State

NAME = "drf"
LAWS = Law.TOTAL | Law.RESERVED | Law.THRIFTY | Law.NAMELESS


def decide(seen: Observation, settings: Settings, state: State) -> tuple[Decision, State]:
    parts = fill(seen)
    grants, why = {}, {}
    for claim, part in zip(seen.claims, parts, strict=True):
        grants[claim.name] = {r: claim.demand.get(r, 0.0) * part for r in seen.total}
        why[claim.name] = (
            "it gets all that it asks for"
            if part >= 1 - 1e-9
            else f"its fair share of {dominant(claim, seen.total)}, which it needs most"
        )
    if settings.headroom:
        _give_rest(seen, grants)
    return Decision(grants, why), state


def dominant(claim: Claim, total: Rates) -> str:
    """The resource of which it asks for the largest share."""
    return max(total, key=lambda r: claim.demand.get(r, 0.0) / total[r] if total[r] > 0 else 0.0)


def fill(seen: Observation) -> list[float]:
    """Of each job's demand the part that it gets, 0 to 1."""
    shares = [_largest_share(claim, seen.total) for claim in seen.claims]
    parts = _floors(seen)
    left = {
        r: total - sum(c.demand.get(r, 0.0) * p for c, p in zip(seen.claims, parts, strict=True))
        for r, total in seen.total.items()
    }
    growing = {i for i, share in enumerate(shares) if share > 0 and parts[i] < 1}
    while growing:
        # Those with the least share for their weight grow together up to the next one's level.
        level = {i: shares[i] * parts[i] / max(seen.claims[i].weight, 1e-9) for i in growing}
        lowest = min(level.values())
        lot = [i for i in growing if level[i] <= lowest * (1 + 1e-12) + 1e-15]
        above = [value for i, value in level.items() if i not in lot]
        step = min(above) - lowest if above else float("inf")
        speed = {i: max(seen.claims[i].weight, 1e-9) / shares[i] for i in lot}  # of the part, a unit of level
        for i in lot:
            step = min(step, (1 - parts[i]) / speed[i])
        for r, rest in left.items():
            use = sum(seen.claims[i].demand.get(r, 0.0) * speed[i] for i in lot)
            if use > 0:
                step = min(step, max(0.0, rest) / use)
        for i in lot:
            grown = step * speed[i]
            parts[i] += grown
            for r in left:
                left[r] -= seen.claims[i].demand.get(r, 0.0) * grown
        full = {r for r, rest in left.items() if rest <= seen.total[r] * 1e-12}
        growing = {
            i
            for i in growing
            if parts[i] < 1 - 1e-12 and not any(seen.claims[i].demand.get(r, 0.0) > 0 for r in full)
        }
    return [min(1.0, part) for part in parts]


def _largest_share(claim: Claim, total: Rates) -> float:
    return max((claim.demand.get(r, 0.0) / t for r, t in total.items() if t > 0), default=0.0)


def _floors(seen: Observation) -> list[float]:
    """The part of its demand that covers each job's reservations, cut alike where they do not fit."""
    parts = []
    for claim in seen.claims:
        wishes = [
            min(1.0, reserved / claim.demand[r])
            for r, reserved in claim.reservation.items()
            if r in seen.total and claim.demand.get(r, 0.0) > 0
        ]
        parts.append(max(wishes, default=0.0))
    cut = 1.0
    for r, total in seen.total.items():
        use = sum(c.demand.get(r, 0.0) * p for c, p in zip(seen.claims, parts, strict=True))
        if use > total:
            cut = min(cut, total / use)
    return [part * cut for part in parts]


def _give_rest(seen: Observation, grants: dict[str, dict[str, float]]) -> None:
    """What nobody asked for, by weight."""
    weight = sum(max(claim.weight, 1e-9) for claim in seen.claims)
    for r, total in seen.total.items():
        left = total - sum(grant[r] for grant in grants.values())
        for claim in seen.claims:
            grants[claim.name][r] += max(0.0, left) * max(claim.weight, 1e-9) / weight
