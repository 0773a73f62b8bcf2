# SPDX-License-Identifier: Apache-2.0
"""What a policy would have done to recorded work: who would have been held back, by what, for how long.

A piece of work is what one run did on one node.  Its record says how much and from when until when, not how it was
spread, so it is taken as even.  Work that gets less than it asks goes on more slowly and ends later; whatever else
would then have begun later begins when it did.  Rates are decided by `deciding.decide`, as on the site.

Invariants:
1. Without a limit that matches, work ends when it ended.
2. Every piece is done in the end, or named as never done (a rate of 0).
3. Limits in shadow hold back nobody, here as there.
4. Each step moves the clock or ends a piece, whatever the clock counts from.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from penstock.policy import deciding
from penstock.policy.rules import Job, Policy
from penstock.policy.segments import Floats

SETTLE = 3  # decisions until a change of who is there has settled: on the site a fraction of a second
TIMETABLE_S = 60.0  # with a timetable it is looked again so often
NEVER_S = 30 * 86400.0  # who is not done so long after the last record never is
LEAST_S = 0.001
DONE_S = 1e-6  # who has less to go is done: times since 1970 are only good to a quarter of it
LEAST_RATE = 1e-9  # less a second is nothing


@dataclass(frozen=True)
class Work:
    """What one run did on one node: units of each limit by its number."""

    run: str
    job: Job
    node: str
    start_s: float
    length_s: float
    units: Mapping[int, float]


@dataclass(frozen=True)
class Fate:
    """What would have become of a run."""

    run: str
    start_s: float
    length_s: float  # as recorded
    delay_s: float  # inf: never done
    held_s: float  # how long some of it was held back
    limit: int  # that held it longest; -1: none


@dataclass
class Series:
    """Units a second of one limit, each from its time on."""

    times_s: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    @property
    def most(self) -> float:
        return max(self.rates, default=0.0)


@dataclass(frozen=True)
class Trial:
    fates: Mapping[str, Fate]
    asked: Mapping[int, Series]  # by limit: as it was recorded
    served: Mapping[int, Series]  # as it would have been


@dataclass
class _Active:
    """A piece of work on its way: `left` goes from 1 to 0."""

    work: Work
    left: float = 1.0
    speed: float = 1.0
    held: int = -1  # the limit that holds it most now
    held_by: dict[int, float] = field(default_factory=dict)
    held_s: float = 0.0
    end_s: float = 0.0


def simulate(policy: Policy, works: list[Work], tell: Callable[[float], None] = lambda _: None) -> Trial:
    """All work from the first to the last; `tell` gets the share that is done."""
    waiting = sorted(works, key=lambda w: (w.start_s, w.run, w.node))
    active: list[_Active] = []
    done: list[_Active] = []
    served = {number: Series() for number, limit in enumerate(policy.limits) if not limit.shadow}
    memory = deciding.Memory()
    step_s = TIMETABLE_S if policy.timetables else float("inf")
    now_s = waiting[0].start_s if waiting else 0.0
    last_s = max((w.start_s + w.length_s for w in works), default=0.0) + NEVER_S
    position = 0
    while position < len(waiting) or active:
        while position < len(waiting) and waiting[position].start_s <= now_s:
            active.append(_Active(waiting[position]))
            position += 1
        memory = _decide(now_s, policy, active, memory, served)
        next_s = min(
            waiting[position].start_s if position < len(waiting) else last_s,
            now_s + step_s,
            *(now_s + _to_go_s(one) for one in active if one.speed > 0),
        )
        stuck = next_s >= last_s
        for one in active:
            _go_on(one, 0.0 if stuck else next_s - now_s)
        if stuck:
            break
        now_s = next_s
        done += [one for one in active if _to_go_s(one) <= DONE_S]
        for one in active:
            one.end_s = now_s
        active = [one for one in active if _to_go_s(one) > DONE_S]
        tell(len(done) / len(works))
    for one in active:
        one.end_s = float("inf")
    return Trial(
        _fates([*done, *active]), {number: recorded(policy, works, number) for number in served}, served
    )


def recorded(policy: Policy, works: list[Work], number: int) -> Series:
    """What a limit's jobs asked for, as it was."""
    changes: dict[float, float] = {}
    for work in works:
        rate = work.units.get(number, 0.0) / _length(work)
        if rate > LEAST_RATE and policy.limits[number].match(work.job):
            changes[work.start_s] = changes.get(work.start_s, 0.0) + rate
            end_s = work.start_s + _length(work)
            changes[end_s] = changes.get(end_s, 0.0) - rate
    found, rate = Series(), 0.0
    for time_s in sorted(changes):
        rate = max(0.0, rate + changes[time_s])
        found.times_s.append(time_s)
        found.rates.append(rate)
    return found


def _length(work: Work) -> float:
    return max(work.length_s, LEAST_S)


def _to_go_s(one: _Active) -> float:
    """How long until it is done if it goes on as now."""
    return max(0.0, one.left) * _length(one.work) / one.speed if one.speed > 0 else float("inf")


def _go_on(one: _Active, seconds: float) -> None:
    one.left -= one.speed * seconds / _length(one.work)
    if one.held >= 0:
        one.held_s += seconds
        one.held_by[one.held] = one.held_by.get(one.held, 0.0) + seconds


def _decide(
    now_s: float,
    policy: Policy,
    active: list[_Active],
    memory: deciding.Memory,
    served: Mapping[int, Series],
) -> deciding.Memory:
    """Sets the speed of all that is active."""
    rows = [
        (at, limit, units / _length(one.work))
        for at, one in enumerate(active)
        for limit, units in one.work.units.items()
        if units / _length(one.work) > LEAST_RATE
        and limit in served
        and policy.limits[limit].match(one.work.job)
    ]
    for one in active:
        one.speed, one.held = 1.0, -1
    for found in served.values():
        found.times_s.append(now_s)
        found.rates.append(0.0)
    if not rows:
        return memory
    asked = np.array([row[2] for row in rows])
    granted = np.full(len(rows), np.inf)
    limits = np.array([row[1] for row in rows])
    jobs = sorted({one.work.job for one in active}, key=lambda job: (job.id, job.name, job.user, job.group))
    nodes = sorted({one.work.node for one in active})
    job_at = np.array([jobs.index(active[row[0]].work.job) for row in rows])
    node_at = np.array([nodes.index(active[row[0]].work.node) for row in rows])
    for _ in range(SETTLE):
        used = np.minimum(asked, granted)
        held = (granted < asked).astype(float)
        grant = np.where(np.isfinite(granted), granted, asked)
        seen = deciding.Rows(job_at, node_at, limits, used, held, grant, tuple(jobs))
        grants, memory = deciding.decide(now_s, seen, policy, memory)
        granted = grants.rate
    _set_speeds(active, rows, granted, served)
    return memory


def _set_speeds(
    active: list[_Active],
    rows: list[tuple[int, int, float]],
    granted: Floats,
    served: Mapping[int, Series],
) -> None:
    for (at, limit, asked), rate in zip(rows, granted.tolist(), strict=True):
        if rate / asked < active[at].speed:
            active[at].speed, active[at].held = rate / asked, limit
    for at, limit, asked in rows:
        served[limit].rates[-1] += asked * active[at].speed


def _fates(pieces: list[_Active]) -> dict[str, Fate]:
    """By run: it ends when the last of its pieces does."""
    by_run: dict[str, list[_Active]] = {}
    for one in pieces:
        by_run.setdefault(one.work.run, []).append(one)
    found = {}
    for run, some in by_run.items():
        start_s = min(one.work.start_s for one in some)
        recorded_s = max(one.work.start_s + _length(one.work) for one in some)
        delay_s = max(one.end_s for one in some) - recorded_s
        held: dict[int, float] = {}
        for one in some:
            for limit, seconds in one.held_by.items():
                held[limit] = held.get(limit, 0.0) + seconds
        found[run] = Fate(
            run=run,
            start_s=start_s,
            length_s=recorded_s - start_s,
            delay_s=delay_s if delay_s > 1e-3 else 0.0,
            held_s=max(one.held_s for one in some),
            limit=max(held, key=lambda limit: held[limit]) if held else -1,
        )
    return found
