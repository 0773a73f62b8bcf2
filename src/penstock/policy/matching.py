# SPDX-License-Identifier: Apache-2.0
"""Which limits a job is under, and how a policy that was read again answers to the old one."""

from penstock.policy.rules import Job, Policy


def limits_of(job: Job, policy: Policy) -> tuple[int, ...]:
    """The numbers of the policy's limits that mean this job."""
    return tuple(number for number, limit in enumerate(policy.limits) if limit.match(job))


def renumbered(old: tuple[str, ...], new: tuple[str, ...]) -> list[int]:
    """For each limit of an old policy, by name, its number in a new one; -1: it is gone."""
    numbers = {name: number for number, name in enumerate(new)}
    return [numbers.get(name, -1) for name in old]


def start_rate(rate: float) -> float:
    """What a new bucket has until the first grant: enough to begin with, too little to matter to the rest."""
    return min(rate, max(rate / 100, 10.0))
