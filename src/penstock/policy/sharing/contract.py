# SPDX-License-Identifier: Apache-2.0
"""What every sharing algorithm takes and gives.

    decide(observation, settings, state) -> (decision, state)

Rates are units a second of a resource ("metadata": operations, "data": bytes); time is the caller's.

Laws, of which each algorithm names those that it holds:
    TOTAL       the grants of a resource never sum above its total
    RESERVED    nobody gets less than min(demand, reservation), as far as all reservations fit the total
    THRIFTY     nobody gets more than its demand while another wants more than it got
    FULL        nothing is left over while somebody wants more
    NAMELESS    names and order change nothing
What nobody asks for is granted too (`headroom`), so that demand may rise without waiting for the next
decision; the total still holds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any

Rates = Mapping[str, float]


class Law(Flag):
    TOTAL = auto()
    RESERVED = auto()
    THRIFTY = auto()
    FULL = auto()
    NAMELESS = auto()


ALL_LAWS = Law.TOTAL | Law.RESERVED | Law.THRIFTY | Law.FULL | Law.NAMELESS


@dataclass(frozen=True)
class Claim:
    """One that asks: a job, or a named group of jobs."""

    name: str
    demand: Rates  # what it would use if nothing held it back
    reservation: Rates = field(default_factory=dict)
    weight: float = 1.0
    priority: str = ""  # a word of the policy
    group: str = ""


@dataclass(frozen=True)
class Observation:
    time_s: float
    total: Rates
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Settings:
    """What the policy file says; each algorithm reads what concerns it."""

    rates: Mapping[str, Rates] = field(default_factory=dict)  # by job's name, priority's word or "default"
    steps: tuple[tuple[float, Mapping[str, Rates]], ...] = ()  # timetable: from when on, which rates
    period_s: float = 0.0  # the timetable begins again; 0: never
    headroom: bool = True


@dataclass(frozen=True)
class Decision:
    grants: Mapping[str, Rates]
    why: Mapping[str, str]


State = Any
Decide = Callable[[Observation, Settings, State], tuple[Decision, State]]


@dataclass(frozen=True)
class Algorithm:
    name: str
    laws: Law
    decide: Decide


def scaled_to(total: float, wishes: Mapping[str, float]) -> dict[str, float]:
    """The wishes, all cut by one factor where they sum above the total."""
    asked = sum(wishes.values())
    factor = 1.0 if asked <= total else total / asked
    return {name: wish * factor for name, wish in wishes.items()}
