# SPDX-License-Identifier: Apache-2.0
"""Priority: fixed rates that differ by the job's priority word, whatever it asks for."""

from penstock.policy.sharing.contract import Decision, Law, Observation, Settings, State
from penstock.policy.sharing.static import by_table

NAME = "priority"
LAWS = Law.TOTAL | Law.NAMELESS


def decide(seen: Observation, settings: Settings, state: State) -> tuple[Decision, State]:
    keys = {claim.name: claim.priority for claim in seen.claims}
    return by_table(seen, settings.rates, keys), state
