# SPDX-License-Identifier: Apache-2.0
"""No placement work while a metadata server is busy, unknown, or only just below its limit."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy.guard import Busy, GuardSettings, Observation, State, decide

CALM = Busy("mds0", 0.2, 0.3, 10.0)


@pytest.mark.parametrize(
    ("servers", "allowed", "said"),
    [
        ((CALM,), True, "below"),
        ((Busy("mds0", 0.70, 0.50, 0.0),), True, "below"),
        ((Busy("mds0", 0.71, 0.1, 0.0),), False, "mds0 uses 71% of its processors"),
        ((Busy("mds0", 0.1, 0.51, 0.0),), False, "mds0 uses 51% of its memory"),
        ((CALM, Busy("mds1", 0.9, 0.1, 0.0)), False, "mds1"),
        ((Busy("mds0", 0.1, 0.1, 181.0),), False, "nothing was heard of mds0 for 181 s"),
        ((Busy("mds0", math.nan, 0.1, 0.0),), False, "mds0"),
        ((), False, "nothing is known"),
    ],
)
def test_cases(servers: tuple[Busy, ...], allowed: bool, said: str) -> None:
    decision, state = decide(Observation(servers))
    assert decision.allowed is allowed
    assert state.allowed is allowed
    assert said in decision.why


def test_no_flapping_at_the_limit() -> None:
    state = State(False)
    for cpu, allowed in (
        (0.69, False),
        (0.66, False),
        (0.64, True),
        (0.69, True),
        (0.71, False),
        (0.69, False),
    ):
        decision, state = decide(Observation((Busy("mds0", cpu, 0.1, 0.0),)), state=state)
        assert decision.allowed is allowed


shares = st.floats(0, 1)
servers = st.builds(Busy, st.just("m"), shares, shares, st.floats(0, 400))


@given(st.lists(servers, max_size=4), st.booleans(), servers)
def test_a_busier_site_is_never_allowed_more(some: list[Busy], before: bool, more: Busy) -> None:
    alone, _ = decide(Observation(tuple(some)), GuardSettings(), State(before))
    joined, _ = decide(Observation((*some, more)), GuardSettings(), State(before))
    if some:
        assert alone.allowed or not joined.allowed
