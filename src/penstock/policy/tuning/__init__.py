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


def _state_after(name: str, seen: Observation, settings: TuneSettings) -> State:
    """The state that deciding before each run led to; several samples of one run are one decision."""
    state: State = None
    for count, sample in enumerate(seen.samples):
        if not count or not sample.run or sample.run != seen.samples[count - 1].run:
            _, state = POLICIES[name].decide(replace(seen, samples=seen.samples[:count]), settings, state)
    return state


def decide_after(name: str, seen: Observation, settings: TuneSettings) -> Decision:
    """The decision after all samples."""
    return POLICIES[name].decide(seen, settings, _state_after(name, seen, settings))[0]


def several_after(name: str, seen: Observation, settings: TuneSettings, groups: int) -> list[Decision]:
    """Decisions for groups of files of one run, at least one; with policies that try one layout a run, just that."""
    state = _state_after(name, seen, settings)
    if name == gauss.GAUSS.name and groups > 1:
        return gauss.decide_several(seen, settings, state, groups)[0]
    return [POLICIES[name].decide(seen, settings, state)[0]]
