# SPDX-License-Identifier: Apache-2.0
"""What a controller knows of its agents, in columns, and one cycle of deciding over it.  No sockets, no clock.

A member is an agent (or an aggregator that speaks for many).  Its rows are (job, limit) pairs; the columns of all
members lie one after the other, and a cycle joins them, decides, and cuts the rates apart again.

Invariants:
1. Numbers from members are hostile: a column of the wrong length or with an absurd number is refused whole, the last
   good one stays and counts until it is older than a lease.
2. After every cycle: all rates finite and at least 0, the sum of each site's limit within it; else the cycle is void
   and the members keep what they have until their leases end.
3. A member that is silent for longer than a lease has no rows: what it had goes to the others.
4. A cycle costs no Python statement a row.
"""

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from penstock.control import wire
from penstock.policy import deciding, matching
from penstock.policy.deciding import Grants, Memory, Rows
from penstock.policy.rules import Job, Policy
from penstock.policy.segments import Bools, Floats, Ints

ABSURD = 1e15  # units a second, or callers: nobody has so many
MAX_ROWS = 100_000  # of one member
MAX_JOBS = 20_000


class Known(NamedTuple):
    """A job as agents tell of it."""

    job: Job
    verified: bool
    bypassing: str
    start_s: float


@dataclass
class Member:
    """One agent and what it said last."""

    node: str
    software: str = ""
    address: str = ""
    aggregator: bool = False
    heard_s: float = 0.0
    epoch: int = 0
    policy: int = 0  # number of the policy that its rows were told in
    jobs: tuple[Known, ...] = ()
    numbers: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # of its jobs, in the site
    job: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # by row: number in the site
    limit: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    asked: bytes = b""
    waiting: bytes = b""
    waited: bytes = b""
    good: tuple[bytes, bytes] = (b"", b"")  # asked and waiting, as they last counted
    grant: bytes = b""
    latency_s: float = 0.0
    released: bool = False
    whys: dict[int, str] = field(default_factory=dict)
    stale: bool = False
    session: Any = None

    @property
    def rows(self) -> int:
        return len(self.job)


class Cycle(NamedTuple):
    """What a cycle found: which bytes go to whom, and what was wrong."""

    grants: list[tuple[Member, bytes]]
    wrong: str  # the invariant that did not hold; then there are no grants
    refused: list[tuple[Member, str]]  # whose columns were absurd


class Fleet:
    """All members of a controller."""

    def __init__(self, policy: Policy, number: int = 1) -> None:
        self.members: dict[str, Member] = {}
        self.memory = Memory()
        self.policy = policy
        self.number = number
        self.names = {number: tuple(limit.name for limit in policy.limits)}
        self.released_all = False
        self.released: set[str] = set()
        self.held_since: dict[tuple[str, str, str], float] = {}  # limit, job, user
        self.named = 0  # how often a number was given to a job
        self._numbers: dict[Job, int] = {}
        self._uses: list[int] = []
        self._known: list[Known] = []
        self._free: list[int] = []
        self._dirty = True
        self._order: list[Member] = []
        self._rows = _no_rows()
        self._cuts: list[int] = [0]
        self._jobs: tuple[Job, ...] = ()
        self.grants = Grants(np.zeros(0), {})

    # ---- what members say ----

    def join(self, member: Member) -> Member | None:
        """A member is there; gives the one of the same name that it replaces."""
        before = self.members.get(member.node)
        if before is not None:
            self._forget_jobs(before)
        self.members[member.node] = member
        self._dirty = True
        return before

    def leave(self, member: Member) -> None:
        """Its connection is gone; its rows stay until they are older than a lease."""
        member.session = None

    def drop(self, member: Member) -> None:
        """Forget it and what it had."""
        if self.members.get(member.node) is member:
            del self.members[member.node]
            self._forget_jobs(member)
            self._dirty = True

    def rows_of(self, member: Member, said: Any) -> None:
        """The member's rows anew."""
        if len(said.jobs) > MAX_JOBS or len(said.job) > 4 * MAX_ROWS or len(said.job) != len(said.limit):
            raise wire.WireError(f"the rows of {member.node} do not fit together")
        names = self.names.get(said.policy)
        if names is None:
            raise wire.WireError(f"{member.node} speaks of policy {said.policy}, which is not known here")
        local = np.frombuffer(said.job, dtype="<u4")
        limit = np.frombuffer(said.limit, dtype="<u4")
        if len(local) and (int(local.max()) >= len(said.jobs) or int(limit.max()) >= len(names)):
            raise wire.WireError(f"the rows of {member.node} name what is not there")
        jobs = tuple(map(_known, said.jobs))
        self._forget_jobs(member)
        member.jobs = jobs
        member.numbers = np.array([self._number(known) for known in jobs], dtype=np.int64)
        member.epoch, member.policy = said.epoch, said.policy
        now = matching.renumbered(names, self.names[self.number])
        keep = np.array([*now, -1], dtype=np.int64)
        member.job = member.numbers[local] if len(local) else np.zeros(0, dtype=np.int64)
        member.limit = keep[limit] if len(limit) else np.zeros(0, dtype=np.int64)
        nothing = bytes(8 * member.rows)
        member.asked = member.waiting = member.waited = member.grant = nothing
        member.good = (nothing, nothing)
        member.whys = {}
        self._dirty = True

    def report_of(self, member: Member, said: Any, now_s: float) -> None:
        """The member's columns of this moment."""
        if said.epoch != member.epoch:
            return  # told before it knew of its own change
        size = 8 * member.rows
        if not len(said.asked) == len(said.waiting) == size or len(said.waited_s) not in (0, size):
            raise wire.WireError(f"the columns of {member.node} are not as long as its rows")
        member.asked, member.waiting = said.asked, said.waiting
        member.waited = said.waited_s or member.waited
        member.latency_s = said.latency_s if 0 < said.latency_s < 3600 else 0.0
        member.released = said.released
        member.heard_s = now_s
        if member.stale:
            member.stale, self._dirty = False, True

    def set_policy(self, policy: Policy, number: int) -> None:
        """Another policy holds from now on; members answer with new rows."""
        self.names[number] = tuple(limit.name for limit in policy.limits)
        for old in sorted(self.names)[:-8]:
            del self.names[old]
        map_ = np.array(
            [*matching.renumbered(self.names[self.number], self.names[number]), -1], dtype=np.int64
        )
        for member in self.members.values():
            member.limit = map_[member.limit]
        before, now = timetables(self.policy), timetables(policy)
        same = {name for name, table in now.items() if before.get(name) == table}
        states = {name: state for name, state in self.memory.algorithms.items() if name in same}
        self.policy, self.number = policy, number
        self.memory = replace(self.memory, algorithms=states, rates={})
        self._dirty = True

    # ---- jobs by number ----

    def _number(self, known: Known) -> int:
        number = self._numbers.get(known.job)
        if number is None:
            number = self._free.pop() if self._free else len(self._uses)
            if number == len(self._uses):
                self._uses.append(0)
                self._known.append(known)
            self._numbers[known.job] = number
            self.named += 1
        self._known[number] = known
        self._uses[number] += 1
        return number

    def _forget_jobs(self, member: Member) -> None:
        for number in member.numbers.tolist():
            self._uses[number] -= 1
            if not self._uses[number]:
                del self._numbers[self._known[number].job]
                self._free.append(number)
        member.numbers = np.zeros(0, dtype=np.int64)

    def key_of(self, pair: tuple[int, int]) -> tuple[str, Job]:
        """What a (limit, job) by number is: numbers are given again when jobs and limits are gone."""
        return self.policy.limits[pair[0]].name, self._known[pair[1]].job

    def pairs_of(self, keys: Iterable[tuple[str, Job]]) -> list[tuple[int, int] | None]:
        """Their numbers now; None: it is gone."""
        limits = {limit.name: number for number, limit in enumerate(self.policy.limits)}
        return [
            (limits[name], self._numbers[job]) if name in limits and job in self._numbers else None
            for name, job in keys
        ]

    # ---- deciding ----

    def _arrange(self) -> None:
        """The rows of all members, one after the other."""
        self._order = [m for m in self.members.values() if m.rows and not m.stale]
        count = [m.rows for m in self._order]
        self._cuts = [0, *np.cumsum(count).tolist()]
        self._jobs = tuple(known.job for known in self._known)
        empty = np.zeros(0, dtype=np.int64)
        self._rows = Rows(
            job=np.concatenate([empty, *(m.job for m in self._order)]),
            node=np.repeat(np.arange(len(count)), count),
            limit=np.concatenate([empty, *(m.limit for m in self._order)]),
            asked=np.zeros(sum(count)),
            waiting=np.zeros(sum(count)),
            grant=np.zeros(sum(count)),
            jobs=self._jobs,
        )
        self._dirty = False

    def _arranged(self) -> Rows:
        """The rows as they stand: a member that told others since has other columns too."""
        if self._dirty:
            self._arrange()
        return self._rows

    def observe(self, now_s: float) -> tuple[Rows, list[tuple[Member, str]]]:
        """The rows of those heard within a lease, with their columns; and whose were absurd."""
        for member in self.members.values():
            if not member.stale and now_s - member.heard_s > self.policy.lease_s:
                member.stale, self._dirty = True, True
        self._arranged()
        asked, waiting, wild = self._columns()
        refused = []
        for number in sorted(set(self._rows.node[np.flatnonzero(wild)].tolist())):
            member = self._order[number]
            member.asked, member.waiting = member.good
            why = f"the report of {member.node} holds absurd numbers; what it said before counts"
            refused.append((member, why))
        if refused:
            asked, waiting, _ = self._columns()
        for member in self._order:
            member.good = (member.asked, member.waiting)
        grant = np.frombuffer(b"".join([m.grant for m in self._order]))
        return replace(self._rows, asked=asked, waiting=waiting, grant=grant), refused

    def _columns(self) -> tuple[Floats, Floats, Bools]:
        """What all rows ask, who waits, and where that is absurd."""
        asked = np.frombuffer(b"".join([m.asked for m in self._order]))
        waiting = np.frombuffer(b"".join([m.waiting for m in self._order]))
        return asked, waiting, ~((asked >= 0) & (asked <= ABSURD) & (waiting >= 0) & (waiting <= ABSURD))

    def cycle(
        self, now_s: float, time_s: float, totals: Mapping[tuple[int, int], float] | None = None
    ) -> Cycle:
        """Collect, decide, cut apart.  `time_s`: what timetables go by; `totals`: from above (aggregator)."""
        rows, refused = self.observe(now_s)
        if totals is None:
            self.grants, self.memory = deciding.decide(time_s, rows, self.policy, self.memory)
        else:
            self.grants = deciding.split(rows, self.policy, totals)
        wrong = deciding.broken(rows, self.grants.rate, self.policy) if totals is None else ""
        if wrong:
            return Cycle([], wrong, refused)
        data = memoryview(np.ascontiguousarray(self.grants.rate, dtype="<f8").tobytes())
        told = []
        for member, begin, end in zip(self._order, self._cuts, self._cuts[1:], strict=False):
            rate = bytes(data[8 * begin : 8 * end])
            member.grant = rate
            if member.policy == self.number:
                told.append((member, rate))
        return Cycle(told, "", refused)

    def guard(self) -> None:
        """Feedback from the servers."""
        self.memory = deciding.guard(self.policy, self.memory, self.latency_s() or None)

    def latency_s(self) -> float:
        """How long calls take: the median of those who told it, for one of them may lie; 0: nobody did."""
        seen = [m.latency_s for m in self.members.values() if m.latency_s > 0 and not m.stale]
        return statistics.median_low(seen) if seen else 0.0

    def note_held(self, time_s: float) -> None:
        """Since when each job is held back; once a second is enough."""
        rows = self._arranged()
        if not len(rows.job):
            self.held_since.clear()
            return
        waiting = np.frombuffer(b"".join([m.waiting for m in self._order]))
        held = np.flatnonzero((waiting > 0) & (rows.limit >= 0))
        pairs = set(zip(rows.limit[held].tolist(), rows.job[held].tolist(), strict=True))
        keys = {(self.policy.limits[x].name, self._jobs[j].id, self._jobs[j].user) for x, j in pairs}
        self.held_since = {key: self.held_since.get(key, time_s) for key in keys}

    def whys_of(self, member: Member) -> Any:
        """A message with the reasons that changed for this member's rows, or None."""
        said = wire.Why(epoch=member.epoch)
        for row, (limit, job) in enumerate(zip(member.limit.tolist(), member.job.tolist(), strict=True)):
            share = self.grants.shares.get((limit, job))
            if share is not None and member.whys.get(row) != share.why:
                member.whys[row] = share.why
                said.row.append(row)
                said.text.append(share.why)
        return said if said.row else None

    # ---- telling people ----

    def known(self) -> dict[int, Known]:
        """The jobs that somebody has, by number."""
        return {n: known for n, known in enumerate(self._known) if self._uses[n]}

    def sums(self) -> list[tuple[int, int, int, float, float, float, float]]:
        """(job, limit, nodes, asked, grant, waiting, waited) for every pair that there is."""
        rows = self._arranged()
        if not len(rows.job):
            return []
        columns = [self._column(name) for name in ("asked", "grant", "waiting", "waited")]
        width = max(1, len(self.policy.limits))
        good = rows.limit >= 0
        key, inverse, count = np.unique(
            rows.job[good] * width + rows.limit[good], return_inverse=True, return_counts=True
        )
        parts = [np.bincount(inverse, weights=column[good], minlength=len(key)) for column in columns]
        return [
            (int(k) // width, int(k) % width, int(n), *(float(part[i]) for part in parts))  # type: ignore[misc]
            for i, (k, n) in enumerate(zip(key.tolist(), count.tolist(), strict=True))
        ]

    def above(self) -> tuple[list[tuple[int, int]], list[Floats]]:
        """For an aggregator: each (limit, job) but of limits of each node, and its sums: asked, waiting, waited."""
        width = max(1, len(self.policy.limits))
        rows = self._arranged()
        of_node = np.array([*(limit.per == "node" for limit in self.policy.limits), True])
        good = ~of_node[rows.limit]
        key, inverse = np.unique(rows.job[good] * width + rows.limit[good], return_inverse=True)
        columns = [
            np.bincount(inverse, weights=self._column(name)[good], minlength=len(key)).astype(np.float64)
            for name in ("asked", "waiting", "waited")
        ]
        return [(int(k) % width, int(k) // width) for k in key.tolist()], columns

    def _column(self, name: str) -> Floats:
        """A column of all rows, what is absurd in it cut."""
        values = np.frombuffer(b"".join([getattr(m, name) for m in self._order]))
        return np.nan_to_num(np.clip(values, 0, ABSURD), nan=0.0)


def timetables(policy: Policy) -> dict[str, str]:
    """The limits that go by a timetable, and what stands in it."""
    return {x.name: repr(policy.timetables[x.name]) for x in policy.limits if x.sharing == "timetable"}


def _known(said: Any) -> Known:
    job = Job(said.id[:200], said.name[:200], said.user[:200], said.group[:200])
    return Known(job, said.verified, said.bypassing[:500], said.start_s)


def _no_rows() -> Rows:
    none, nothing = np.zeros(0, dtype=np.int64), np.zeros(0)
    return Rows(none, none, none, nothing, nothing, nothing, ())


def hear(fleet: Fleet, member: Member, said: Iterable[Any], now_s: float) -> None:
    """Take in what a member said after its greeting."""
    for value in said:
        what = value.WhichOneof("what")
        if what == "rows":
            fleet.rows_of(member, value.rows)
        elif what == "report":
            fleet.report_of(member, value.report, now_s)
        else:
            raise wire.WireError(f"{member.node} said what only comes once")
