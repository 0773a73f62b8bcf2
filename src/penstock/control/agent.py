# SPDX-License-Identifier: Apache-2.0
"""The agent of a node: keeps the boards of its jobs, tells the controller what they ask, fills in what it grants.

Without a controller it decides by itself, from a policy of its own; the same code then, with one member.

Invariants:
1. A job that runs is never stopped or slowed by the agent's end: its board and its grants stay until their leases end,
   then `on_lost` holds.  An agent that starts anew adopts what it finds.
2. A new bucket begins small (matching.start_rate), never unlimited, and never blocked (C09).
3. What a user asks for by hand only tightens: it is a bucket more.
4. Grants are in force from their receipt for their lease by this node's own monotonic clock (C02).
5. What goes wrong with one job's board is its affair alone: it is logged, and the others go on.
6. What a user may have here is bounded: limits by hand of a job, and jobs that no scheduler knows.
"""

import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import socket
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.base.errors import BusyError, DeniedError, NothingMatchedError, PenstockError, UsageError
from penstock.control import boards, bypass, fleet, identity, local, planner, plans, scout, tls, wire
from penstock.control.uplink import Uplink
from penstock.policy import demand, matching
from penstock.policy.placing import central
from penstock.policy.rules import MAX_RATE, Job, Limit, Policy
from penstock.runs import board, limits
from penstock.targets import mounts as mounts_of

log = logging.getLogger("penstock.agent")

LOOK_EVERY_S = 1.0
BY_HAND_LEASE_S = 3600.0
BY_HAND_MAX = 16  # of one job: processes that have set limits
UNVERIFIED_MAX = 64  # jobs of one user that no scheduler knows
RETURNED_BYTES = 8 << 30  # that all callers of a job on a node may have drawn at once and give back
FALSE = "its counters went back: somebody wrote into them"
HELD_FOR_S = 2.0  # a row that did not wait for so long is not held back any more


@dataclass(frozen=True)
class Config:
    """What an agent is started with."""

    at: Path  # its socket
    folder: Path  # of the boards
    node: str = field(default_factory=socket.gethostname)
    everybody: bool = False  # boards for all users, else for one's own jobs alone
    controller: tuple[str, int] | None = None
    files: tls.Files | None = None
    token: str = ""
    policy: str = ""  # the text, where there is no controller
    mounts: tuple[str, ...] = ()
    detect: tuple[str, ...] = ()  # types of file systems whose mounts are meant besides
    max_bytes: int = 0
    metrics: tuple[str, int] | None = None
    bypass: Path | None = None  # what the checker of escapes wrote
    placing: central.CentralSettings = central.DEFAULTS
    targets_every_s: float = 60.0


@dataclass
class Row:
    """One limit of one job on this node."""

    number: int  # in the policy; -1: by hand
    limit: Limit
    rate: float
    bucket: limits.Bucket
    until_s: float = 0.0
    why: str = ""
    asked: float = 0.0
    waiting: float = 0.0
    since_s: float = 0.0  # held back since, by the wall clock; 0: it is not
    waited_at_s: float = 0.0  # when it last was, by the monotonic clock
    held: limits.Held | None = None
    seen: float = 0.0  # units that two looks, one after the other, found at least
    is_false: bool = False  # two looks found less
    past: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=16))  # (time, units drawn)

    @property
    def waited_s(self) -> float:
        return self.held.waited_s + self.held.waiting_s if self.held else 0.0


@dataclass
class JobHere:
    """A job with a board on this node."""

    board: boards.Board
    hold: limits.Hold
    job: Job
    rows: list[Row] = field(default_factory=list)
    bypassing: str = ""  # what of it escapes
    is_odd: bool = False  # its board did not take what it was to hold: its rows are to be made anew


def row_of(number: int, limit: Limit, rate: float, until_s: float) -> Row:
    bucket = limits.of(limit, rate)
    return Row(number, limit, rate, replace(bucket, name=limits.bucket_name(limit.name)), until_s)


def row_by_hand(bucket: limits.Bucket, now_s: float) -> Row:
    """A limit that the job's owner set himself."""
    limit = Limit(
        bucket.name, bucket.rate, per="job", calls=tuple(sorted(bucket.operations)), bytes=bucket.bytes
    )
    return Row(-1, limit, bucket.rate, bucket, now_s + BY_HAND_LEASE_S, "its owner's own limit")


def by_hand(about: boards.About) -> list[limits.Bucket]:
    """Of several runs' limits on the same calls the tightest holds."""
    found: dict[str, limits.Bucket] = {}
    for _pid, _ticks, spec in about.by_hand:
        for bucket in limits.read_spec(bytes.fromhex(spec)):
            if bucket.name not in found or bucket.rate < found[bucket.name].rate:
                found[bucket.name] = bucket
    return list(found.values())


class Agent:
    """One of a node, or of one user on a node."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.operations = frozenset(board.operations())
        self.folder = boards.base(config.folder)
        self.server = local.Server(config.at, self.answer)
        self.jobs: dict[tuple[int, str], JobHere] = {}
        self.ended: list[boards.Board] = []  # of jobs that are over: their users have not got them yet
        self.policy, self.number, self.text = Policy(), 0, ""
        self.epoch = random.getrandbits(30) << 1
        self.rows: list[tuple[JobHere, Row]] = []
        self.changed = True
        self.released_all = self.released_here = False
        self.released: set[str] = set()  # by the controller
        self.released_jobs_here: set[str] = set()
        self.latency_s = 0.0
        self._latency_before: dict[Path, tuple[int, int]] = {}
        self.uplink: Uplink | None = None
        self.plans = plans.Plans(
            config.node,
            self._send,
            None if config.controller is not None else planner.Planner(config.placing),
        )
        self.fleet: fleet.Fleet | None = None
        self.begun_s = time.time()
        self.begun_at_s = time.monotonic()
        self.granted_s = 0.0
        self.cycles = 0

    # ---- policy ----

    def set_policy(self, text: str, number: int) -> None:
        policy, mistakes = limits.parse(text, self.operations)
        if policy is None:
            raise wire.WireError(
                f"the policy that came holds a mistake ({mistakes[0].text}); the old one stays"
            )
        changed = policy != self.policy
        self.policy, self.number, self.text = policy, number, text
        self.changed = True
        if changed:
            for here in self.jobs.values():
                self._refit(here)
        self._keep("policy", json.dumps({"number": number, "text": text}))

    def _keep(self, name: str, text: str) -> None:
        """What the next agent of this node is to know."""
        path = self.folder / name
        aside = path.with_suffix(".new")
        aside.write_text(text, "utf-8")
        aside.chmod(0o600)
        aside.rename(path)

    def _kept(self, name: str) -> Any:
        try:
            return json.loads((self.folder / name).read_text("utf-8"))
        except (OSError, ValueError):
            return None

    # ---- jobs ----

    def adopt(self) -> None:
        """Go on where a former agent ended."""
        kept = self._kept("policy")
        if kept and not self.config.policy:
            with contextlib.suppress(wire.WireError):
                self.set_policy(kept["text"], kept["number"])
        kept = self._kept("released")
        self.released_here = bool(kept.get("all")) if isinstance(kept, dict) else bool(kept)
        self.released_jobs_here = set(kept.get("jobs", ())) if isinstance(kept, dict) else set()
        for found in sorted(boards.adopt(self.folder), key=lambda b: b.about.start_s):
            if before := self.jobs.get((found.about.uid, found.about.job)):
                before.hold.close()
                self.ended.append(before.board)
            self._take(found)
            self.plans.adopt(found)
        if self.jobs:
            log.info("adopted %d running jobs", len(self.jobs))

    def _take(self, found: boards.Board) -> JobHere:
        about = found.about
        job = Job(about.job, about.name, about.user, about.group)
        here = JobHere(found, limits.Hold(found.path), job)
        self.jobs[about.uid, about.job] = here
        self._refit(here)
        return here

    def _refit(self, here: JobHere) -> None:
        """The rows of a job anew.  Where its board cannot hold them, the site's alone; else none until it can: what it
        holds goes on to the end of its lease."""
        was_odd, here.is_odd = here.is_odd, False
        for own in (True, False):
            try:
                self._rows_of(here, own)
                return
            except (PenstockError, ValueError, LookupError) as error:
                if not was_odd:
                    log.error("what job %s is under cannot hold (%s)", here.job.id, error)
        here.rows, here.is_odd, self.changed = [], True, True

    def _rows_of(self, here: JobHere, own: bool = True) -> None:
        """Which limits hold for a job, and buckets for them; those that go on keep their rate.  All or nothing."""
        now_s = time.monotonic()
        before = {row.bucket.name: row for row in here.rows}
        found = {held.name: held for held in here.hold.observe()}
        rows = []
        for number in matching.limits_of(here.job, self.policy):
            limit = self.policy.limits[number]
            row = row_of(number, limit, matching.start_rate(limit.rate), now_s + self.policy.lease_s)
            name = row.bucket.name
            if name in before and name in found and before[name].bucket.bytes == row.bucket.bytes:
                row.seen, row.is_false = before[name].seen, before[name].is_false
                row.rate, row.until_s = min(before[name].rate, limit.rate), before[name].until_s
                row.held, row.past, row.why = before[name].held, before[name].past, before[name].why
            elif name in found:  # of a former agent: it goes on as it was
                row.rate = min(found[name].rate, limit.rate)
                row.until_s = now_s + min(found[name].lease_s, self.policy.lease_s)
            rows.append(row)
        rows += [row_by_hand(bucket, now_s) for bucket in by_hand(here.board.about) if own]
        here.hold.apply(
            limits.spec(
                [self._bucket(here, row) for row in rows],
                lease_s=self.policy.lease_s,
                weights=self.policy.weights,
            )
        )
        here.rows = rows
        for row in rows:
            self._grant(here, row, row.rate, max(0.0, row.until_s - now_s))
        self.changed = True

    def _bucket(self, here: JobHere, row: Row) -> limits.Bucket:
        return replace(row.bucket, rate=row.rate, open=self._is_released(here, row))

    def _is_released(self, here: JobHere, row: Row) -> bool:
        jobs = self.released | self.released_jobs_here
        free = self.released_all or self.released_here or here.job.id in jobs
        return free and row.number >= 0

    def _grant(self, here: JobHere, row: Row, rate: float, lease_s: float) -> None:
        row.rate, row.until_s = rate, time.monotonic() + lease_s
        try:
            here.hold.change(self._bucket(here, row), lease_s)
        except (PenstockError, ValueError, LookupError) as error:
            if not here.is_odd:
                log.error("job %s: %s is not granted (%r)", here.job.id, row.limit.name, error)
            here.is_odd = True

    def _all_again(self) -> None:
        """Something changed for all buckets, not their rates (a release)."""
        now_s = time.monotonic()
        for here in self.jobs.values():
            for row in here.rows:
                self._grant(here, row, row.rate, max(0.0, row.until_s - now_s))

    # ---- from the controller ----

    def hear(self, said: Any) -> None:
        what = said.WhichOneof("what")
        if what == "policy":
            self.set_policy(said.policy.text, said.policy.number)
        elif what == "grants":
            self._granted(said.grants)
        elif what == "release":
            self.released_all, self.released = said.release.all, set(said.release.jobs)
            self._all_again()
        elif what == "why" and said.why.epoch == self.epoch:
            for number, text in zip(said.why.row, said.why.text, strict=False):
                if number < len(self.rows):
                    self.rows[number][1].why = text
        elif what == "allotted":
            self.plans.hear(said.allotted)
        elif what == "welcome":
            self.changed = True
            self.plans.welcomed()

    def _granted(self, said: Any) -> None:
        if said.epoch != self.epoch or len(said.rate) != 8 * len(self.rows):
            return
        rates = np.frombuffer(said.rate)
        if not (np.isfinite(rates).all() and (rates >= 0).all() and 0 < said.lease_s <= 3600):
            raise wire.WireError(
                "the controller granted what is no rate; what holds stays until its lease ends"
            )
        self.granted_s = time.monotonic()
        for (here, row), rate in zip(self.rows, rates.tolist(), strict=True):
            if self.jobs.get((here.board.about.uid, here.job.id)) is here:  # else it ended meanwhile
                self._grant(here, row, rate, said.lease_s)

    # ---- each interval ----

    def tick(self) -> None:
        """Look at all boards and report."""
        now_s = time.monotonic()
        self.cycles += 1
        for here in list(self.jobs.values()):
            try:
                self._observe(here, now_s)
            except PenstockError as error:
                log.warning("job %s: %s", here.job.id, error)
            except Exception:
                log.exception("job %s could not be looked at", here.job.id)
        if self.changed:
            self._tell_rows()
        self._report(now_s)

    def _observe(self, here: JobHere, now_s: float) -> None:
        """What a job asks for."""
        here.board.tend()
        held = {row.name: row for row in here.hold.observe()}
        for row in here.rows:
            if row.bucket.name in held:
                note(row, held[row.bucket.name], now_s, time.time())
            if row.number < 0 and row.until_s - now_s < BY_HAND_LEASE_S / 2:
                self._grant(here, row, row.rate, BY_HAND_LEASE_S)

    def _tell_rows(self) -> None:
        self.epoch = (self.epoch + 1) % (1 << 32)
        present = list(self.jobs.values())
        self.rows = [(here, row) for here in present for row in here.rows if row.number >= 0]
        index = {id(here): i for i, here in enumerate(present)}
        said = wire.Rows(
            epoch=self.epoch,
            policy=self.number,
            jobs=[job_message(here) for here in present],
            job=np.array([index[id(here)] for here, _ in self.rows], dtype="<u4").tobytes(),
            limit=np.array([row.number for _, row in self.rows], dtype="<u4").tobytes(),
        )
        self.changed = not self._send(wire.FromAgent(rows=said))

    def _report(self, now_s: float) -> None:
        rows = [row for _, row in self.rows]
        said = wire.Report(
            epoch=self.epoch,
            asked=np.array([row.asked for row in rows], dtype="<f8").tobytes(),
            waiting=np.array([row.waiting for row in rows], dtype="<f8").tobytes(),
            waited_s=np.array([row.waited_s for row in rows], dtype="<f8").tobytes(),
            latency_s=self.latency_s,
            released=self.released_here,
        )
        self._send(wire.FromAgent(report=said))
        if self.fleet is not None:
            found = self.fleet.cycle(now_s, now_s - self.begun_at_s)
            for member, rate in found.grants:
                self._granted(wire.Grants(epoch=member.epoch, lease_s=self.policy.lease_s, rate=rate))

    def _send(self, value: Any) -> bool:
        """To the controller, or to our own deciding."""
        if self.fleet is None:
            return self.uplink is not None and self.uplink.connected and self.uplink.send(value)
        member = self.fleet.members[self.config.node]
        fleet.hear(self.fleet, member, (value,), time.monotonic())
        return True

    async def look(self) -> None:
        """Once a second: who lives, what the dead held, how long calls take."""
        loop = asyncio.get_running_loop()
        now_s = time.monotonic()
        for key, here in list(self.jobs.items()):
            if self.jobs.get(key) is not here:
                continue
            try:
                self._clear_dead(here)
            except Exception:
                log.exception("job %s could not be looked at", here.job.id)
            if not await loop.run_in_executor(None, here.board.look, now_s):
                del self.jobs[key]
                here.hold.close()
                self.plans.over(here.board.path.name)
                self.ended.append(here.board)
                self._latency_before.pop(here.board.path, None)
                if here.job.id in self.released_jobs_here:
                    self.released_jobs_here.discard(here.job.id)
                    self._keep_released()
                self.changed = True
        self._clear_ended(now_s)
        self.plans.look()
        if self.uplink is not None and not self.uplink.connected:
            self.plans.lost()
        self._mark_bypassing()
        if self.policy.guard is not None:
            self._measure_latency()
            if self.fleet is not None:
                self.fleet.guard()

    def _clear_dead(self, here: JobHere) -> None:
        """The tickets of dead waiters, and the limits that dead processes had set."""
        here.hold.give_back()
        about = here.board.about
        alive = [row for row in about.by_hand if identity.start_ticks(row[0]) == row[1]]
        if len(alive) < len(about.by_hand):
            about.by_hand = alive
            self._refit(here)
            here.board.save()
        elif here.is_odd:
            self._refit(here)

    def _clear_ended(self, now_s: float) -> None:
        kept = boards.still_kept(self.ended, now_s)
        for one in self.ended:
            if one in kept:
                one.tend()
            else:
                one.put_away()
        self.ended = kept

    def _mark_bypassing(self) -> None:
        """What the checker of escapes (a process with rights of its own) found of these jobs."""
        found = bypass.known(self.config.bypass) if self.config.bypass else {}
        for here in self.jobs.values():
            said = bypass.sentence(found.get(here.board.path.name, []))
            if any(row.is_false for row in here.rows):
                said = "; ".join(filter(None, (said, FALSE)))
            self.changed = self.changed or said != here.bypassing
            here.bypassing = said

    def _measure_latency(self) -> None:
        """How long a call takes: of each user, and of these the median, for no one alone may slow down a site."""
        time_ns: dict[int, int] = {}
        calls: dict[int, int] = {}
        for (uid, _), here in self.jobs.items():
            now = here.board.latency()
            before = self._latency_before.get(here.board.path, now)
            self._latency_before[here.board.path] = now
            time_ns[uid] = time_ns.get(uid, 0) + max(0, now[0] - before[0])
            calls[uid] = calls.get(uid, 0) + max(0, now[1] - before[1])
        seen = [time_ns[uid] / count / 1e9 for uid, count in calls.items() if count]
        self.latency_s = statistics.median_low(seen) if seen else 0.0

    # ---- questions on this node ----

    async def answer(self, peer: local.Peer, asked: dict[str, str]) -> local.Answer:
        what = asked.get("op", "")
        if what == "board":
            return self._board(peer, asked)
        if what == "status":
            return {"json": json.dumps(self._status(peer, asked.get("job", "")))}
        if what == "unrecorded":
            rows = [
                {"board": str(one.path), "runs": one.about.unrecorded} for one in self._boards_of(peer.uid)
            ]
            return {"json": json.dumps([row for row in rows if row["runs"]])}
        if what == "recorded":
            self._recorded(peer.uid, asked.get("run", ""))
            return {}
        if what == "release":
            return {"json": json.dumps(self._release(peer, asked))}
        if what == "allot":
            return await self.plans.allot(peer.uid, asked)
        if what == "put":
            return self._put(peer.uid, asked)
        if what == "plans":
            mine = [here.board for here in self.jobs.values() if here.board.about.uid == peer.uid]
            going = {str(one.path): one.about.unrecorded for one in mine if one.about.unrecorded}
            return {"json": json.dumps({"plans": self.plans.of_user(peer.uid), "boards": going})}
        raise UsageError(f"the agent knows no question {what!r}")

    def _boards_of(self, uid: int) -> list[boards.Board]:
        every = [*(here.board for here in self.jobs.values()), *self.ended]
        return [one for one in every if one.about.uid == uid]

    def _put(self, uid: int, asked: dict[str, str]) -> local.Answer:
        """A plan that was not ready when its run began."""
        for here in self.jobs.values():
            if here.board.about.uid == uid and str(here.board.path) == asked.get("board", ""):
                self.plans.put(here.board, asked.get("run", ""), _sections(asked))
                return {}
        raise NothingMatchedError("no running job of yours has this board")

    def _recorded(self, uid: int, run: str) -> None:
        for one in self._boards_of(uid):
            self.plans.over(one.path.name, run)
            if run in one.about.unrecorded:
                one.about.recorded.append(run)
                one.save()
        self._clear_ended(time.monotonic())

    def _board(self, peer: local.Peer, asked: dict[str, str]) -> local.Answer:
        """The board of the asking process's job, made if it is the first."""
        if peer.uid != os.geteuid() and not self.config.everybody:
            raise DeniedError(f"this agent serves {identity.user_name(os.geteuid())} alone")
        here = self._job_of(peer, asked)
        about = here.board.about
        spec = asked.get("limits", "")
        if spec:
            self._limit_by_hand(here, peer.pid, spec)
        first = about.join(asked.get("run", ""))
        if first or spec:
            here.board.save()
        self.plans.put(here.board, asked.get("run", ""), _sections(asked))
        here.board.last_alive_s = time.monotonic()
        return {"board": str(here.board.path), "first": "1" if first else "0", "job": about.job}

    def _limit_by_hand(self, here: JobHere, pid: int, spec: str) -> None:
        """A process's limits for its job, in place of those it set before; refused, they change nothing."""
        limits.read_spec(_from_hex(spec))
        ticks, about, before = identity.start_ticks(pid), here.board.about, here.board.about.by_hand
        if not ticks:
            raise DeniedError("the process that sets these limits is gone: they would never end")
        others = [row for row in before if (row[0], row[1]) != (pid, ticks)]
        if len(others) >= BY_HAND_MAX:
            raise BusyError(
                f"{BY_HAND_MAX} processes of job {about.job} have set limits; wait for one to end"
            )
        about.by_hand = [*others, (pid, ticks, spec)]
        try:
            self._rows_of(here)
        except Exception:
            about.by_hand = before
            raise

    def _around(self, peer: local.Peer, within: str, who: identity.Identity) -> JobHere | None:
        """The job whose board a nested run names, where no scheduler says which one it is in."""
        of_user = [here for (uid, _), here in self.jobs.items() if uid == peer.uid and not who.verified]
        return next((here for here in of_user if str(here.board.path) == within), None)

    def _job_of(self, peer: local.Peer, asked: dict[str, str]) -> JobHere:
        verified = {h.job.id: uid for (uid, _), h in self.jobs.items() if h.board.about.verified}
        claimed = asked.get("job", "")
        who = identity.decide(claimed, identity.cgroup_of(peer.pid), peer.uid, verified)
        here = self.jobs.get((peer.uid, who.job)) or self._around(peer, asked.get("within", ""), who)
        if here is not None:
            return here
        if asked.get("within"):
            raise NothingMatchedError("the board of the run around this one is not this agent's")
        of_user = [h for (uid, _), h in self.jobs.items() if uid == peer.uid and not h.board.about.verified]
        if not who.verified and len(of_user) >= UNVERIFIED_MAX:
            raise BusyError(
                f"you have {UNVERIFIED_MAX} jobs on this node that no scheduler knows; wait for one to end"
            )
        run = asked.get("run", "")
        if len(run) != 32 or not all(c in "0123456789abcdef" for c in run):
            raise UsageError("a run's id has 32 hexadecimal digits")
        about = boards.About(
            job=who.job,
            name="".join(c for c in asked.get("name", "") if c.isprintable())[:100],
            user=identity.user_name(peer.uid),
            group=identity.group_name(peer.gid),
            uid=peer.uid,
            verified=who.verified,
            start_s=time.time(),
            boot=boards.boot_id(),
        )
        trusted = {0, os.geteuid()}  # not whoever calls his own FUSE file system a parallel one
        detected = [m.point for m in mounts_of.of_types(self.config.detect) if m.user in trusted]
        known = [*self.config.mounts, *detected]
        mounts = [*known, *(v for k, v in asked.items() if k.startswith("mount"))]
        # Where the site names no mounts its limits hold for all that is recorded: a run must not name them away.
        under = board.Under.RECORD | board.Under.MOUNT if known else board.Under.RECORD
        named = [(path, int(under)) for path in dict.fromkeys(mounts) if path.startswith("/")][:16]
        found = boards.make(
            self.folder,
            about,
            bytes.fromhex(run),
            board.Stages.RECORD | board.Stages.LIMIT,
            [*board.noise(), *named],
            self.config.max_bytes,
        )
        return self._take(found)

    def _status(self, peer: local.Peer, job: str) -> dict[str, Any]:
        """What this node knows of the asker's jobs; of all for root and the agent's own account."""
        everything = peer.uid in (0, os.geteuid())
        shown = [
            describe(self, here)
            for (uid, name), here in sorted(self.jobs.items(), key=lambda pair: pair[1].board.about.start_s)
            if (everything or uid == peer.uid) and job in ("", name, here.job.name)
        ]
        if job and not shown:
            raise NothingMatchedError(f"job {job!r} has nothing on this node, or is not yours")
        up = self.uplink
        return {
            "schema_version": 1,
            "node": self.config.node,
            "controller": None
            if up is None
            else {
                "address": f"{up.address[0]}:{up.address[1]}",
                "connected": up.connected,
                "trouble": up.trouble,
                "granted_ago_s": time.monotonic() - self.granted_s if self.granted_s else None,
            },
            "policy": self.number,
            "released_here": self.released_here,
            "jobs": shown,
        }

    def _keep_released(self) -> None:
        found = {"all": self.released_here, "jobs": sorted(self.released_jobs_here)}
        self._keep("released", json.dumps(found))

    def _release(self, peer: local.Peer, asked: dict[str, str]) -> dict[str, Any]:
        undo, job = asked.get("undo") == "1", asked.get("job", "")
        if peer.uid not in (0, os.geteuid()):
            raise DeniedError("only root and the agent's own account may release jobs from a site's limits")
        if job and undo:
            self.released.discard(job)
            self.released_jobs_here.discard(job)
        elif job:
            self.released_jobs_here.add(job)
        else:
            self.released_here = not undo
        self._keep_released()
        self._all_again()
        log.warning("%s %s released by uid %d", job or "every job", "no more" if undo else "is", peer.uid)
        count = sum(1 for here in self.jobs.values() if not job or here.job.id == job)
        return {"schema_version": 1, "node": self.config.node, "jobs": count, "undo": undo}

    # ---- living ----

    async def serve(self, ready: Callable[["Agent"], None] | None = None) -> None:
        """Until SIGTERM or SIGINT."""
        if self.config.everybody and not identity.sees_others():
            raise DeniedError(
                "processes of other users cannot be seen here (/proc is mounted with hidepid): give the agent's "
                "account the group that may (its option gid=); docs/guide/site.md tells how"
            )
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        # First the socket: it is the lock that says that no other agent keeps these boards.
        await self.server.start(0o666 if self.config.everybody else 0o600)
        if self.config.controller is not None and self.config.files is not None:
            certificates = tls.Certificates(self.config.files, server=False)
            self.uplink = Uplink(
                self.config.controller, certificates, self.config.node, self.hear, self.config.token
            )
        else:
            if self.config.policy:
                self.set_policy(self.config.policy, 1)
            self.fleet = fleet.Fleet(self.policy, self.number)
            self.fleet.join(fleet.Member(self.config.node, heard_s=time.monotonic()))
        self.adopt()
        self._look_at_targets(loop)
        if self.config.metrics is not None:
            from penstock.control import metrics

            metrics.serve(self.config.metrics, lambda: metrics.of_agent(self))
        log.info("listening at %s", self.config.at)
        if ready is not None:
            ready(self)
        jobs = [asyncio.ensure_future(self._ticking(stop)), asyncio.ensure_future(self._looking(stop))]
        if self.uplink is not None:
            jobs.append(asyncio.ensure_future(self.uplink.keep(stop)))
        try:
            await asyncio.gather(*jobs)
        finally:
            self.server.stop()

    def _look_at_targets(self, loop: asyncio.AbstractEventLoop) -> None:
        def tell(name: str, figures: central.Figures) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self.plans.told, name, figures)

        try:
            scout.start(
                self.config.mounts,
                self.config.detect,
                self.config.targets_every_s,
                self.config.placing.target_rate_bytes_per_s,
                tell,
            )
        except (PenstockError, OSError) as error:
            log.warning("nothing is told of targets: %s", error)

    async def _ticking(self, stop: asyncio.Event) -> None:
        """Reports at a fixed pace, from a random moment on."""
        await _pause(stop, random.random() * self.policy.interval_s)
        at = time.monotonic()
        while not stop.is_set():
            try:
                self.tick()
            except Exception:  # one that fails must not be the last
                log.exception("a tick failed")
            at = max(at + self.policy.interval_s, time.monotonic())
            await _pause(stop, at - time.monotonic())

    async def _looking(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self.look()
            except Exception:
                log.exception("a look at the boards failed")
            await _pause(stop, LOOK_EVERY_S)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), max(0.0, seconds))


def note(row: Row, held: limits.Held, now_s: float, time_s: float) -> None:
    """What a row asks for, from its counters now and before."""
    units, before = held.asked, row.held
    audit(row, units)
    if before is None or not row.past or units < row.past[-1][1]:
        row.past.clear()
        row.past.append((now_s, units))
    last_s, last = row.past[-1]
    first_s, first = row.past[0]
    if now_s > last_s:
        mean = (units - first) / (now_s - first_s)
        row.asked = min(
            demand.asked(units - last, now_s - last_s, mean), MAX_RATE
        )  # a user writes these counters
        row.past.append((now_s, units))
        while now_s - row.past[0][0] > 1.2 and len(row.past) > 2:
            row.past.popleft()
    delayed = held.delayed - before.delayed if before is not None else 0
    row.waiting = float(held.waiting) or float(delayed > 0)
    row.held = held
    if row.waiting:
        row.waited_at_s = now_s
        row.since_s = row.since_s or time_s
    elif now_s - row.waited_at_s > HELD_FOR_S:
        row.since_s = 0.0


def audit(row: Row, units: float) -> None:
    """Whether a bucket's counters went back: they only grow, but for bytes that were drawn and not moved.

    One look alone may find a call half counted: what two find, one after the other, is so."""
    if row.held is None:
        row.seen = 0.0
        return
    last = row.held.asked
    row.is_false = row.is_false or max(last, units) < row.seen - (RETURNED_BYTES if row.bucket.bytes else 1.0)
    row.seen = max(row.seen, min(last, units))


def job_message(here: JobHere) -> Any:
    about = here.board.about
    return wire.Job(
        id=about.job,
        name=about.name,
        user=about.user,
        group=about.group,
        verified=about.verified,
        start_s=about.start_s,
        bypassing=here.bypassing,
    )


def describe(agent: Agent, here: JobHere) -> dict[str, Any]:
    """A job of this node, for its owner."""
    about, now_s = here.board.about, time.monotonic()
    rows = []
    for row in here.rows:
        held = row.held
        left_s = row.until_s - now_s
        rows.append(
            {
                "limit": row.limit.name,
                "by_hand": row.number < 0,
                "calls": list(row.limit.calls),
                "bytes": row.limit.bytes,
                "per": row.limit.per,
                "limit_rate": row.limit.rate,
                "rate": row.rate,
                "asked": row.asked,
                "waiting": held.waiting if held else 0,
                "since_s": row.since_s,
                "delayed": held.delayed if held else 0,
                "asked_in_all": held.asked if held else 0.0,
                "waited_s": row.waited_s,
                "shadow": row.limit.shadow,
                "released": agent._is_released(here, row),
                "lease_left_s": left_s,
                "on_lost": row.limit.on_lost,
                "lost_rate": row.limit.lost_rate,
                "why": row.why,
            }
        )
    return {
        "job": about.job,
        "name": about.name,
        "user": about.user,
        "verified": about.verified,
        "start_s": about.start_s,
        "bypassing": here.bypassing,
        "processes": here.board.living,
        "rows": rows,
    }


def _sections(asked: dict[str, str]) -> list[str]:
    return [value for key, value in asked.items() if key.startswith("place")]


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise UsageError("limits by hand come as hexadecimal digits") from error
