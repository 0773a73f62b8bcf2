# SPDX-License-Identifier: Apache-2.0
"""The site's decision: from what every job on every node asks, the rate of every bucket.

Rows are buckets: one job on one node under one limit.  A limit's rate is shared among jobs (by the limit's algorithm,
or per user, group or node), and each job's part among its nodes by max-min; unused parts move with the next decision.

Invariants (each a property test):
1. The rates of a site's limit never sum above it; all are finite and at least 0.
2. The order of rows and the names of jobs and nodes change nothing.
3. Numbers from agents are hostile: what is not finite or absurd is cut, never believed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from penstock.policy import demand, segments
from penstock.policy.rules import Job, Limit, Policy
from penstock.policy.segments import Floats, Ints
from penstock.policy.sharing import ALGORITHMS, groups, maxmin
from penstock.policy.sharing.contract import Claim, Observation, Settings, State


@dataclass(frozen=True)
class Rows:
    """One row a bucket.  `job` and `node` are numbers into `jobs` and of nodes; `limit` into policy.limits."""

    job: Ints
    node: Ints
    limit: Ints
    asked: Floats  # units a second
    waiting: Floats  # callers
    grant: Floats  # what it has now, units a second
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Share:
    """What one job has of one limit, over all its nodes, and why."""

    rate: float
    demand: float
    why: str


@dataclass(frozen=True)
class Grants:
    rate: Floats  # by row
    shares: Mapping[tuple[int, int], Share]  # by (limit, job)


@dataclass
class Memory:
    """What lasts from one decision to the next."""

    algorithms: dict[str, State] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)  # of limits that the guard has lowered


def decide(time_s: float, rows: Rows, policy: Policy, memory: Memory) -> tuple[Grants, Memory]:
    """The rate of every row."""
    rate = np.zeros(len(rows.job))
    shares: dict[tuple[int, int], Share] = {}
    states = dict(memory.algorithms)
    asks = [_ask(number, limit, rows, memory) for number, limit in enumerate(policy.limits)]
    dominant = _dominant(time_s, asks, rows.jobs, policy)
    for number, (limit, total, index, job, wish) in enumerate(asks):
        if not len(index):
            continue
        if limit.per == "node":
            rate[index] = _by_pool(total, rows.node[index], wish)
            continue
        if limit.name in dominant:
            of_job, why = dominant[limit.name]
        else:
            of_job, why = _of_jobs(time_s, limit, total, job, wish, rows.jobs, policy, states)
        part = segments.fill(of_job, job, wish)
        rate[index] = segments.spread(of_job, job, part)
        asked = np.bincount(job, weights=wish, minlength=len(rows.jobs))
        for j in np.flatnonzero(np.bincount(job)).tolist():
            shares[number, j] = Share(float(of_job[j]), float(asked[j]), why.get(j, f"its own {limit.name}"))
    return Grants(rate, shares), Memory(states, dict(memory.rates))


class Ask(NamedTuple):
    """What is asked of one limit."""

    limit: Limit
    total: float
    rows: Ints  # which are its
    job: Ints  # by such a row
    wish: Floats


def _ask(number: int, limit: Limit, rows: Rows, memory: Memory) -> Ask:
    index = np.flatnonzero(rows.limit == number)
    total = min(limit.rate, memory.rates.get(limit.name, limit.rate))
    wish = demand.estimate(rows.asked[index], rows.waiting[index], rows.grant[index], total)
    return Ask(limit, total, index, rows.job[index], wish)


def _dominant(
    time_s: float, asks: list[Ask], jobs: tuple[Job, ...], policy: Policy
) -> dict[str, tuple[Floats, dict[int, str]]]:
    """Of limits shared by dominant resource fairness, by name: what each job has, decided for all of them at once."""
    of = [ask for ask in asks if ask.limit.sharing == "drf" and ask.limit.per == "site" and len(ask.rows)]
    if len(of) < 2:
        return {}
    asked = {a.limit.name: np.bincount(a.job, weights=a.wish, minlength=len(jobs)) for a in of}
    total = {a.limit.name: a.total for a in of}
    claims = []
    for j in sorted({int(j) for ask in of for j in ask.job}):
        rule = policy.rule_of(jobs[j])
        wish = {name: min(float(asked[name][j]), total[name]) for name in total}
        reserve = {name: rate for name, rate in rule.reserve.items() if name in total}
        claims.append(Claim(str(j), wish, reserve, rule.weight, rule.priority, rule.unit))
    seen = Observation(time_s, total, tuple(claims))
    decision, _ = groups.decide(ALGORITHMS["drf"].decide, seen, Settings(), None)
    found = {}
    for name in total:
        of_job = np.zeros(len(jobs))
        for claim in claims:
            of_job[int(claim.name)] = decision.grants[claim.name][name]
        found[name] = of_job, {int(claim.name): decision.why[claim.name] for claim in claims}
    return found


def split(rows: Rows, policy: Policy, totals: Mapping[tuple[int, int], float]) -> Grants:
    """The same where somebody above decided: `totals` says what each job, by (limit, job), has in all that is here."""
    rate = np.zeros(len(rows.job))
    for number, limit in enumerate(policy.limits):
        index = np.flatnonzero(rows.limit == number)
        if not len(index):
            continue
        wish = demand.estimate(rows.asked[index], rows.waiting[index], rows.grant[index], limit.rate)
        if limit.per == "node":
            rate[index] = _by_pool(limit.rate, rows.node[index], wish)
            continue
        job = rows.job[index]
        of_job = np.zeros(len(rows.jobs))
        for j in np.flatnonzero(np.bincount(job)).tolist():
            of_job[j] = totals.get((number, j), 0.0)
        rate[index] = segments.spread(of_job, job, segments.fill(of_job, job, wish))
    return Grants(rate, {})


def broken(rows: Rows, rate: Floats, policy: Policy) -> str:
    """What does not hold of a decision, in a sentence; empty when all does."""
    if not (np.isfinite(rate).all() and (rate >= 0).all()):
        return "a rate is not finite or is below 0"
    for number, limit in enumerate(policy.limits):
        total = float(rate[rows.limit == number].sum())
        if limit.per == "site" and total > limit.rate * (1 + 1e-6):
            return f"the rates of {limit.name!r} sum to {total:.6g}, above {limit.rate:.6g}"
    return ""


def _by_pool(total: float, pool: Ints, wish: Floats) -> Floats:
    """Every pool (node) has the whole rate for itself."""
    totals = np.full(int(pool.max()) + 1, total)
    return segments.spread(totals, pool, segments.fill(totals, pool, wish))


def _of_jobs(
    time_s: float,
    limit: Limit,
    total: float,
    job: Ints,
    wish: Floats,
    jobs: tuple[Job, ...],
    policy: Policy,
    states: dict[str, State],
) -> tuple[Floats, dict[int, str]]:
    """The rate of each job, by its number, and why."""
    of_job = np.zeros(len(jobs))
    present = np.flatnonzero(np.bincount(job)).tolist()
    if limit.per == "job":
        of_job[present] = total
        return of_job, {}
    asked = np.bincount(job, weights=wish, minlength=len(jobs)).astype(float)
    if limit.per in ("user", "group"):
        return _of_owners(limit, total, present, asked, jobs)
    if limit.sharing == "maxmin" and not policy.jobs:
        return _evenly(limit, total, present, asked)
    claims = []
    for j in present:
        rule = policy.rule_of(jobs[j])
        reserve = {limit.name: rule.reserve[limit.name]} if limit.name in rule.reserve else {}
        claims.append(
            Claim(
                str(j),
                {limit.name: min(float(asked[j]), total)},
                reserve,
                rule.weight,
                rule.priority,
                rule.unit,
            )
        )
    seen = Observation(time_s, {limit.name: total}, tuple(claims))
    algorithm = ALGORITHMS[limit.sharing]
    decision, states[limit.name] = groups.decide(
        algorithm.decide, seen, _settings(limit, policy, jobs, present), states.get(limit.name)
    )
    for j in present:
        of_job[j] = decision.grants[str(j)][limit.name]
    why = {j: decision.why[str(j)] for j in present}
    return of_job, _alone(limit, total, present, asked, why)


def _evenly(limit: Limit, total: float, present: list[int], asked: Floats) -> tuple[Floats, dict[int, str]]:
    """Max-min where no rule tells jobs apart: what the algorithm gives, in columns."""
    wish = np.minimum(asked[present], total)
    pool, totals = np.zeros(len(present), dtype=np.int64), np.array([total])
    got = segments.fill(totals, pool, wish)
    of_job = np.zeros(len(asked))
    of_job[present] = segments.spread(totals, pool, got)
    pairs = zip(present, got.tolist(), wish.tolist(), strict=True)
    why = {j: maxmin.reason(limit.name, mine, wanted) for j, mine, wanted in pairs}
    return of_job, _alone(limit, total, present, asked, why)


def _alone(
    limit: Limit, total: float, present: list[int], asked: Floats, why: dict[int, str]
) -> dict[int, str]:
    """A lone job that asks for more than there is has all of it: it is told so."""
    if len(present) == 1 and asked[present[0]] >= total:
        return {present[0]: f"it has all of {limit.name}: no other job asks"}
    return why


def _of_owners(
    limit: Limit, total: float, present: list[int], asked: Floats, jobs: tuple[Job, ...]
) -> tuple[Floats, dict[int, str]]:
    """Every user (or group) has the whole rate, max-min among his jobs."""
    owners = [jobs[j].user if limit.per == "user" else jobs[j].group for j in present]
    numbers = {owner: i for i, owner in enumerate(sorted(set(owners)))}
    pool = np.array([numbers[owner] for owner in owners], dtype=np.int64)
    totals = np.full(len(numbers), total)
    got = segments.spread(totals, pool, segments.fill(totals, pool, np.minimum(asked[present], total)))
    of_job = np.zeros(len(jobs))
    of_job[present] = got
    why = dict.fromkeys(present, f"its part of the {limit.per}'s {limit.name}")
    return of_job, why


def _settings(limit: Limit, policy: Policy, jobs: tuple[Job, ...], present: list[int]) -> Settings:
    """What the algorithm reads: rates by job are said by name or id in the policy, by number here."""

    def by_number(rates: Mapping[str, float]) -> dict[str, Mapping[str, float]]:
        table: dict[str, Mapping[str, float]] = {key: {limit.name: rate} for key, rate in rates.items()}
        for j in present if rates else ():
            key = next((k for k in (jobs[j].id, jobs[j].name) if k in rates), None)
            if key is not None:
                table[str(j)] = {limit.name: rates[key]}
        return table

    period, steps = policy.timetables.get(limit.name, (0.0, ()))
    return Settings(
        rates=by_number(policy.rates.get(limit.name, {})),
        steps=tuple((start, by_number(rates)) for start, rates in steps),
        period_s=period,
    )


def guard(policy: Policy, memory: Memory, latency_s: float | None) -> Memory:
    """Feedback from the servers: a tenth off while they are slow, a fiftieth of the whole back while they are not."""
    if policy.guard is None or latency_s is None:
        return memory
    limit = next(x for x in policy.limits if x.name == policy.guard.limit)
    now = memory.rates.get(limit.name, limit.rate)
    slow = latency_s > policy.guard.latency_s
    rate = max(policy.guard.least, now * 0.9) if slow else min(limit.rate, now + limit.rate / 50)
    return Memory(memory.algorithms, {**memory.rates, limit.name: rate})
