# SPDX-License-Identifier: Apache-2.0
"""Timetable: static rates that change at given times, once or over and over."""

from bisect import bisect_right

from penstock.policy.sharing.contract import Decision, Law, Observation, Settings, State
from penstock.policy.sharing.static import by_table

NAME = "timetable"
LAWS = Law.TOTAL | Law.NAMELESS


def decide(seen: Observation, settings: Settings, state: State) -> tuple[Decision, State]:
    """`state` is when the timetable began: the first time it was asked."""
    began = seen.time_s if state is None else state
    at = max(0.0, seen.time_s - began)
    if settings.period_s > 0:
        at %= settings.period_s
    index = bisect_right([start for start, _ in settings.steps], at) - 1
    rates = settings.steps[index][1] if index >= 0 else settings.rates
    keys = {claim.name: claim.name for claim in seen.claims}
    return by_table(seen, rates, keys), began
