# SPDX-License-Identifier: Apache-2.0
"""A site's policy: what its file may say, as values (rules_toml.py reads it).

    [[limit]]                       every limit that matches a job holds; a call passes all of them
    name = "all metadata"           its name in explanations (made up if absent)
    rate = "300k/s"                 or "20GiB/s" with calls = "data"
    per = "site"                    site | user | group | job | node: of whom the rate is the sum
    calls = "metadata"              a class, an operation, or a list of them
    paths = ["/pfs/scratch"]        only calls on paths below these
    users, groups, jobs = [...]     only these (shell patterns; of jobs: names or ids)
    sharing = "proportional"        how several jobs share it (maxmin); all limits with "drf" are shared together
    burst = "100ms"                 idle time counts up to this
    on_lost = "hold"                hold | open | a rate: when controller or agent are gone past the lease
    ceiling = "30s"                 no single call waits longer
    shadow = true                   decides and counts, holds back nobody

    [[job]]                         the first that matches a job says what it may count on
    jobs, users, groups = [...]
    reserve = {"all metadata" = "40k/s"}
    weight = 2
    priority = "high"
    unit = "team"                   jobs of one unit share as one

    [weights]                       what an operation costs, in calls: what reaches the servers
    rename = 3

    [rates."all metadata"]          of sharing = static (by job), priority (by word), timetable
    default = "75k/s"
    high = "120k/s"

    [timetable."all metadata"]
    period = "45min"
    "6min" = {default = "40k/s"}    from then on

    [guard]                         feedback from the servers: lower a limit while they are slow
    limit = "all metadata"
    latency = "20ms"
    least = "50k/s"

    [control]
    interval = "100ms"
    lease = "2s"

Invariants:
1. Values only: whatever decides by a policy can be replayed, tried on old runs, and explained.
2. A text gives a Policy without a mistake, or mistakes and no Policy: nothing is half applied.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from penstock.base import units
from penstock.base.errors import UsageError
from penstock.base.text import did_you_mean

SHARINGS = ("maxmin", "proportional", "static", "timetable", "priority", "drf")
SCOPES = ("site", "user", "group", "job", "node")
CLASSES = ("metadata", "data", "directory", "xattr", "lock")
MAX_LIMITS, MAX_JOBS = 64, 1000
MAX_RATE = 1e12


@dataclass(frozen=True)
class Match:
    """Which jobs a rule means; nothing said means all."""

    jobs: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    def __call__(self, job: "Job") -> bool:
        return (
            _any(self.jobs, job.id, job.name) and _any(self.users, job.user) and _any(self.groups, job.group)
        )


def _any(patterns: tuple[str, ...], *words: str) -> bool:
    return not patterns or any(fnmatchcase(word, pattern) for pattern in patterns for word in words)


@dataclass(frozen=True)
class Job:
    """A job as rules see it."""

    id: str
    name: str = ""
    user: str = ""
    group: str = ""


@dataclass(frozen=True)
class Limit:
    name: str
    rate: float  # calls or bytes a second
    per: str = "site"
    calls: tuple[str, ...] = ("metadata",)
    bytes: bool = False
    paths: tuple[str, ...] = ()
    match: Match = Match()
    sharing: str = "maxmin"
    burst_s: float = 0.1
    on_lost: str = "hold"  # or "open", or "rate" with lost_rate
    lost_rate: float = 0.0
    ceiling_s: float = 0.0
    shadow: bool = False
    line: int = 0


@dataclass(frozen=True)
class JobRule:
    match: Match
    reserve: Mapping[str, float] = field(default_factory=dict)  # by limit's name
    weight: float = 1.0
    priority: str = ""
    unit: str = ""
    line: int = 0


ANY = JobRule(Match())  # of a job that no rule means


@dataclass(frozen=True)
class Guard:
    limit: str
    latency_s: float
    least: float


@dataclass(frozen=True)
class Policy:
    limits: tuple[Limit, ...] = ()
    jobs: tuple[JobRule, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    timetables: Mapping[str, tuple[float, tuple[tuple[float, Mapping[str, float]], ...]]] = field(
        default_factory=dict
    )
    guard: Guard | None = None
    interval_s: float = 0.1
    lease_s: float = 2.0

    def rule_of(self, job: Job) -> JobRule:
        """The first [[job]] that matches; else one that asks for nothing."""
        return next((rule for rule in self.jobs if rule.match(job)), ANY)


@dataclass(frozen=True)
class Mistake:
    line: int  # 0: not known
    text: str


def parse_words(words: list[str], operations: frozenset[str]) -> Policy:
    """Limits by hand: `metadata=5k/s`, `open=100/s`, `data=200MiB/s@/scratch/big`; each for the job itself."""
    limits: list[Limit] = []
    for word in words:
        what, equals, rate = word.partition("=")
        rate, at, path = rate.partition("@")
        known = operations | set(CLASSES)
        if equals and what not in known:
            like = did_you_mean(what, known)
            raise UsageError(f"{word!r}: there is no operation or class {what!r}{like}")
        if not equals:
            raise UsageError(f"{word!r} is no limit; write it like metadata=5k/s or data=200MiB/s")
        if at and not plain_path(path):
            raise UsageError(f"{word!r}: what follows @ is to be a plain absolute path")
        as_bytes = what in ("data", "read", "write")
        name = f"{what} by hand" + (f" under {path}" if path else "")
        if any(limit.name == name for limit in limits):
            raise UsageError(f"{what} is limited twice; say it once")
        limits.append(
            Limit(
                name=name,
                rate=read_rate(rate, as_bytes),
                per="job",
                calls=(what,),
                bytes=as_bytes,
                paths=(path.rstrip("/"),) if path else (),
                on_lost="hold",
            )
        )
    return Policy(limits=tuple(limits))


def plain_path(path: str) -> bool:
    """Absolute, without empty, `.` or `..` components."""
    return path.startswith("/") and "//" not in path and not {".", ".."} & set(path.split("/"))


def read_rate(value: Any, as_bytes: bool) -> float:
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is not a rate; write it like {'200MiB/s' if as_bytes else '300k/s'}")
    rate = units.parse_byte_rate(value) if as_bytes else units.parse_rate(value)
    if rate > MAX_RATE:
        raise UsageError(f"{value!r} is above {MAX_RATE:.0e} a second")
    return rate
