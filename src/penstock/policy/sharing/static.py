# SPDX-License-Identifier: Apache-2.0
"""Static: every job has the rate that the policy gives it by name, or the default, whatever it asks for."""

from collections.abc import Mapping

from penstock.policy.sharing.contract import Decision, Law, Observation, Rates, Settings, State, scaled_to

NAME = "static"
LAWS = Law.TOTAL | Law.NAMELESS


def decide(seen: Observation, settings: Settings, state: State) -> tuple[Decision, State]:
    keys = {claim.name: claim.name for claim in seen.claims}
    return by_table(seen, settings.rates, keys), state


def by_table(seen: Observation, rates: Mapping[str, Rates], keys: Mapping[str, str]) -> Decision:
    """Each job's rate by its key in a table, else "default"; cut alike where they sum above the total."""
    grants: dict[str, dict[str, float]] = {name: {} for name in keys}
    why = {}
    default = rates.get("default", {})
    for name, key in keys.items():
        why[name] = f"the rate of {key!r}" if key in rates else "the default rate"
    for resource, total in seen.total.items():
        wishes = {}
        for name, key in keys.items():
            row = rates.get(key, default)
            wishes[name] = row.get(resource, default.get(resource, total))
        for name, rate in scaled_to(total, wishes).items():
            grants[name][resource] = rate
            if rate < wishes[name]:
                why[name] += f", cut since all rates together are above the {resource} total"
    return Decision(grants, why)
