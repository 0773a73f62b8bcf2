# SPDX-License-Identifier: Apache-2.0
"""May placement work be done now?  Not while a metadata server is busy: helping must not hurt it.

Invariants:
1. A server above a limit, or one of whom nothing recent is known, means no.
2. Once it was no, it stays no until every server is below the limits by the margin: no flapping.
3. The answer says why, in a sentence that names the server.
"""

from dataclasses import dataclass

NAME = "guard"


@dataclass(frozen=True)
class Busy:
    """What is known of a metadata server; shares between 0 and 1."""

    name: str
    cpu: float
    memory: float
    age_s: float


@dataclass(frozen=True)
class Observation:
    servers: tuple[Busy, ...] = ()


@dataclass(frozen=True)
class GuardSettings:
    cpu_limit: float = 0.70
    memory_limit: float = 0.50
    margin: float = 0.05
    stale_after_s: float = 180.0


DEFAULTS = GuardSettings()


@dataclass(frozen=True)
class Decision:
    allowed: bool
    why: str


@dataclass(frozen=True)
class State:
    allowed: bool = True


def _objection(server: Busy, settings: GuardSettings, allowed_before: bool) -> str:
    margin = 0.0 if allowed_before else settings.margin
    # Written so that a share that is no number objects too.
    if not server.age_s <= settings.stale_after_s:
        return f"nothing was heard of {server.name} for {server.age_s:.0f} s"
    if not server.cpu <= settings.cpu_limit - margin:
        return f"{server.name} uses {server.cpu:.0%} of its processors, the limit is {settings.cpu_limit:.0%}"
    if not server.memory <= settings.memory_limit - margin:
        return (
            f"{server.name} uses {server.memory:.0%} of its memory, the limit is {settings.memory_limit:.0%}"
        )
    return ""


def decide(
    observation: Observation, settings: GuardSettings = GuardSettings(), state: State = State()
) -> tuple[Decision, State]:
    """May allocation work be done?"""
    if not observation.servers:
        return Decision(False, "nothing is known of any metadata server"), State(False)
    for server in observation.servers:
        why = _objection(server, settings, state.allowed)
        if why:
            return Decision(False, why), State(False)
    return Decision(True, "all metadata servers are below their limits"), State(True)
