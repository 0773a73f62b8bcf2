# SPDX-License-Identifier: Apache-2.0
"""Stripe count and size from experience: policies behind contract.py.

A new policy is a new file and a row here; the table of tests (tests/policy/test_tuning.py) covers it then.
"""

from dataclasses import replace

from penstock.policy.tuning import gauss, peers
from penstock.policy.tuning.contract import Decision, Observation, Policy, State, TuneSettings

POLICIES: dict[str, Policy] = {
    p.name: p for p in (gauss.GAUSS, peers.DCA, peers.DCA_PRINTED, peers.TAPP, peers.FIXED, peers.DEFAULT)
}


def decide_after(name: str, seen: Observation, settings: TuneSettings) -> Decision:
    """The decision after all samples, with the state that deciding before each of them led to."""
    state: State = None
    for count in range(len(seen.samples)):
        _, state = POLICIES[name].decide(replace(seen, samples=seen.samples[:count]), settings, state)
    return POLICIES[name].decide(seen, settings, state)[0]
