# SPDX-License-Identifier: Apache-2.0
"""The controller: takes reports from agents, decides ten times a second, sends grants; keeps policy and audit.

Invariants:
1. It waits for nobody: a cycle uses what was heard, and who does not read its grants is dropped (C01).
2. A policy is whole and right before anything of it holds; a wrong one leaves the old (C15).
3. Killed at any time, it comes back with its policy, and agents bring the rest with their first report.
4. It starts no process (gRPC and fork do not go together, C10).
"""

import asyncio
import logging
import signal
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.base.errors import NothingMatchedError, PenstockError, UsageError
from penstock.control import fleet as fleets
from penstock.control import journal as journals
from penstock.control import planner, tls, wire
from penstock.policy import changing
from penstock.policy.placing import central
from penstock.policy.rules import Policy
from penstock.runs import limits

log = logging.getLogger("penstock.controller")

HELLO_S = 10.0  # to say who one is
SILENT_S = 30.0  # without a word: the connection is dead
UNREAD_BYTES = 1 << 20  # of grants that a member did not take
PLACEMENT = {"targets", "wanted", "promised", "over"}


@dataclass(frozen=True)
class Config:
    """What a controller is started with."""

    agents: tuple[str, int]
    files: tls.Files
    state: Path
    policy: str = ""  # a file
    tools: tuple[str, int] | None = None
    placing: central.CentralSettings = central.DEFAULTS


def read_policy(path: str, operations: frozenset[str]) -> str:
    """The text of a policy file that holds no mistake."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"the policy {path} cannot be read ({why})") from error
    checked(text, operations, path)
    return text


def checked(text: str, operations: frozenset[str], origin: str) -> Policy:
    """The policy of a text, or all its mistakes in one error; lines are told of a file that is named."""
    policy, mistakes = limits.parse(text, operations)
    if policy is None:
        raise UsageError("\n".join(f"{origin}:{m.line}: {m.text}" if origin else m.text for m in mistakes))
    return policy


class Session(asyncio.Protocol):
    """One connection of an agent."""

    def __init__(self, controller: "Controller") -> None:
        self.controller = controller
        self.frames = wire.Frames(wire.FromAgent, wire.UNKNOWN_FRAME_BYTES)
        self.member: fleets.Member | None = None
        self.transport: Any = None
        self.heard_s = time.monotonic()
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        tls.watch(transport)
        self.address = str((transport.get_extra_info("peername") or ("?",))[0])
        self.controller.sessions.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.controller.sessions.discard(self)
        if self.member is not None and self.member.session is self:
            self.controller.fleet.leave(self.member)

    def data_received(self, data: bytes) -> None:
        self.heard_s = time.monotonic()
        try:
            for said in self.frames.feed(data):
                if self.member is None:
                    self.greet(said)
                elif said.WhichOneof("what") in PLACEMENT:
                    self.plan(self.member.node, said)
                else:
                    fleets.hear(self.controller.fleet, self.member, (said,), self.heard_s)
        except wire.WireError as error:
            self.refuse(str(error))

    def plan(self, node: str, said: Any) -> None:
        """What concerns placement; a foreign or absurd message is refused and ends nothing else."""
        try:
            answer = self.controller.planner.hear(node, said, self.heard_s)
        except wire.WireError as error:
            log.warning("refused %s: %s", self.address, error)
            answer = None
            if said.WhichOneof("what") == "wanted":
                asked = said.wanted
                refused = central.Allotted(why=str(error))
                answer = wire.ToAgent(
                    allotted=planner.allotted_message(asked.number, asked.file_system, refused)
                )
        if answer is not None:
            self.send(answer)

    def greet(self, said: Any) -> None:
        if said.WhichOneof("what") != "hello":
            raise wire.WireError("an agent says who it is first")
        hello = said.hello
        if not wire.OLDEST <= hello.version <= wire.VERSION:
            raise wire.WireError(
                f"{hello.node} speaks version {hello.version} of the protocol, this controller {wire.OLDEST} to "
                f"{wire.VERSION}; install the same Penstock on both ({hello.software or 'unknown'}, {__version__})"
            )
        found = tls.names(self.transport.get_extra_info("peercert"))
        if not tls.may_be(hello.node, found):
            raise wire.WireError(
                f"{hello.node!r} is not in the certificate of {self.address}, which is for "
                f"{', '.join(found) or 'nobody'}"
            )
        why = self.controller.journal.admit(hello.node, hello.token)
        if why:
            raise wire.WireError(why)
        self.frames.most = wire.MAX_FRAME_BYTES
        self.member = fleets.Member(
            hello.node, hello.software[:100], self.address, hello.aggregator, self.heard_s, session=self
        )
        before = self.controller.fleet.join(self.member)
        if before is not None and before.session is not None:
            before.session.close()
        self.send(wire.ToAgent(welcome=wire.Welcome(version=wire.VERSION, controller=__version__)))
        self.send(self.controller.policy_message())
        self.send(self.controller.release_message())

    def send(self, value: Any) -> None:
        if self.transport.get_write_buffer_size() > UNREAD_BYTES:
            log.warning("%s does not read what it is sent; dropped", self.member.node if self.member else "?")
            self.transport.abort()
            return
        self.transport.write(wire.frame(value))

    def refuse(self, why: str) -> None:
        """One sentence to both sides, and the end of this connection."""
        self.controller.refusals += 1
        log.warning("refused %s: %s", self.address, why)
        self.transport.write(wire.frame(wire.ToAgent(refusal=wire.Refusal(why=why))))
        self.transport.close()

    def close(self) -> None:
        self.transport.close()


class Controller:
    """One of a site; with `upstream` (aggregator.py) one of a part of it."""

    def __init__(self, config: Config, operations: frozenset[str]) -> None:
        self.config = config
        self.operations = operations
        self.journal = journals.Journal(config.state / "journal.sqlite")
        self.base, self.text = "", ""
        self.begun: dict[str, tuple[str, float]] | None = None  # as the journal has it
        self.fleet = fleets.Fleet(Policy())
        self.planner = planner.Planner(config.placing)
        self.certificates = tls.Certificates(config.files, server=True)
        self.sessions: set[Session] = set()
        self.begun_s = time.time()
        self.cycle_s = 0.0
        self.refusals = 0
        self.trouble = ""
        self.upstream: Any = None
        self._start_policy()

    # ---- policy ----

    def _start_policy(self) -> None:
        """The journal's policy goes on if it was made from the same file; else the file's begins."""
        held = self.journal.policy()
        text = read_policy(self.config.policy, self.operations) if self.config.policy else None
        if held is None or (text is not None and text != held.base):
            said = f"policy from {self.config.policy or 'nothing'}"
            if held is not None and held.text != held.base:
                said += (
                    f", which has changed; what was set since it was last read is gone (policy {held.number})"
                )
                log.warning("%s", said)
            held = self.journal.set_policy(text or "", text or "", "start", said)
        self._hold(held)
        released = self.journal.released()
        self.released(journals.ALL in released, released - {journals.ALL})

    def _hold(self, held: journals.Set) -> None:
        policy = checked(held.text, self.operations, f"policy {held.number}")
        self.base, self.text = held.base, held.text
        self.fleet.set_policy(policy, held.number)
        tables = fleets.timetables(policy)
        for name, (what, time_s) in self.journal.begun().items():
            if tables.get(name) == what:
                self.fleet.memory.algorithms.setdefault(name, time_s)
        self.tell(self.policy_message())

    def _note_begun(self) -> None:
        """A controller that comes back goes on in its timetables."""
        tables, states = fleets.timetables(self.fleet.policy), self.fleet.memory.algorithms
        found = {name: (tables[name], states[name]) for name in tables if name in states}
        if found != self.begun:
            self.journal.begin(found)
            self.begun = found

    def set_policy(self, text: str, who: str, said: str, base: str | None = None) -> journals.Set:
        """Checked whole, written down, then told; `base` where it is the policy file's text."""
        checked(text, self.operations, "")
        held = self.journal.set_policy(self.base if base is None else base, text, who, said)
        self._hold(held)
        log.info("policy %d: %s (%s)", held.number, said, who)
        return held

    def hold_foreign(self, text: str, number: int) -> None:
        """The upstream's policy (aggregator): it is in force under the upstream's number."""
        policy = checked(text, self.operations, f"policy {number}")
        self.base = self.text = text
        self.fleet.set_policy(policy, number)
        self.tell(self.policy_message())

    def released(self, everything: bool, jobs: set[str]) -> int:
        """These jobs pass; to how many nodes it was told."""
        self.fleet.released_all, self.fleet.released = everything, jobs
        return self.tell(self.release_message())

    def change(self, name: str, rate: str, shadow: bool | None, who: str) -> journals.Set:
        """One limit of the policy changed; the rest of its text stays as it was written."""
        text, said = changing.change(self.text, self.fleet.policy, name, rate, shadow)
        return self.set_policy(text, who, said)

    def read_again(self) -> None:
        """The policy file was changed (SIGHUP)."""
        try:
            text = read_policy(self.config.policy, self.operations) if self.config.policy else self.text
            self.set_policy(text, "SIGHUP", f"policy from {self.config.policy} again", text)
        except PenstockError as error:
            log.error("the old policy stays: %s", error)

    def policy_message(self) -> Any:
        return wire.ToAgent(policy=wire.Policy(number=self.fleet.number, text=self.text))

    def release(self, job: str, undo: bool, who: str) -> int:
        """Let jobs pass, or no more; to how many nodes it was told."""
        known = {journals.ALL, *self.journal.released(), *(one.job.id for one in self.fleet.known().values())}
        if job not in known:
            raise NothingMatchedError(f"no node has a job {job!r} now; penstock jobs lists them")
        self.journal.release(job, undo, who)
        released = self.journal.released()
        return self.released(journals.ALL in released, released - {journals.ALL})

    def release_message(self) -> Any:
        said = wire.Release(all=self.fleet.released_all, jobs=sorted(self.fleet.released))
        return wire.ToAgent(release=said)

    def tell(self, value: Any) -> int:
        """To every member."""
        told = [m.session for m in list(self.fleet.members.values()) if m.session is not None]
        for session in told:
            session.send(value)
        return len(told)

    # ---- the loop ----

    def cycle(self) -> None:
        began = time.monotonic()
        upstream, lease_s = self.upstream, self.fleet.policy.lease_s
        totals = None
        if upstream is not None:
            totals, lease_s = upstream.totals(self.fleet), min(lease_s, upstream.lease_s())
        found = self.fleet.cycle(began, time.time(), totals)
        for member, why in found.refused:
            if member.session is not None:
                member.session.refuse(why)
        if upstream is not None:
            upstream.report(self.fleet)
        if found.wrong:
            self._note(f"this cycle is void: {found.wrong}")
            return
        for member, rate in found.grants if lease_s > 0 else ():
            if member.session is not None:
                grants = wire.Grants(epoch=member.epoch, lease_s=lease_s, rate=rate)
                member.session.send(wire.ToAgent(grants=grants))
        self.cycle_s = time.monotonic() - began

    def each_second(self) -> None:
        """What need not be done at every cycle."""
        now_s = time.monotonic()
        self.fleet.guard()
        self.fleet.note_held(time.time())
        self._note_begun()
        for member in list(self.fleet.members.values()):
            if member.session is not None and not member.stale and member.rows <= 10_000:
                whys = self.fleet.whys_of(member)
                if whys is not None:
                    member.session.send(wire.ToAgent(why=whys))
            if member.session is None and now_s - member.heard_s > 600:
                self.fleet.drop(member)
        for session in list(self.sessions):
            silent = now_s - session.heard_s
            if silent > (HELLO_S if session.member is None else SILENT_S):
                session.transport.abort()
        self._note(self.certificates.refresh())

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            log.error("%s", trouble)
        self.trouble = trouble

    async def loop(self, stop: asyncio.Event) -> None:
        """Cycles at a fixed pace; one that is late is not made up for."""
        clock = asyncio.get_running_loop().time
        at = second = clock()
        while not stop.is_set():
            try:
                self.cycle()
                if at >= second:
                    second = at + 1.0
                    self.each_second()
            except Exception:  # one cycle that fails must not be the last
                log.exception("a cycle failed")
            at = max(at + self.fleet.policy.interval_s, clock())
            try:
                await asyncio.wait_for(stop.wait(), at - clock())
            except TimeoutError:
                continue

    async def serve(self, ready: Callable[["Controller", int, int], None] | None = None) -> None:
        """Until SIGTERM or SIGINT."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, self.read_again)
        loop.set_exception_handler(_quiet)
        host, port = self.config.agents
        try:
            server = await loop.create_server(
                lambda: Session(self),
                host,
                port,
                ssl=self.certificates.context,
                backlog=1024,
                ssl_handshake_timeout=HELLO_S,
            )
        except OSError as error:
            raise PenstockError(f"{host}:{port} cannot be listened at ({error.strerror})") from error
        tools, tools_port = None, 0
        if self.config.tools is not None:
            from penstock.control import tools as serving

            tools, tools_port = await serving.start(self, self.config.tools)
        log.info("listening for agents at %s:%d", host, server.sockets[0].getsockname()[1])
        if self.config.tools is not None:
            log.info("listening for people and tools at %s:%d", self.config.tools[0], tools_port)
        if ready is not None:
            ready(self, server.sockets[0].getsockname()[1], tools_port)
        jobs = [asyncio.ensure_future(self.loop(stop))]
        if self.upstream is not None:
            jobs.append(asyncio.ensure_future(self.upstream.keep(stop)))
        try:
            await asyncio.gather(*jobs)
        finally:
            server.close()
            for session in list(self.sessions):
                session.close()
            if tools is not None:
                await tools.stop(0.2)
            self.journal.close()


def _quiet(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A handshake that failed is the other side's affair, and one line."""
    error = context.get("exception")
    if isinstance(error, ssl.SSLError | OSError):
        log.warning("a connection did not come about: %s", error)
        return
    loop.default_exception_handler(context)
