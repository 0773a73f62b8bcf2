# SPDX-License-Identifier: Apache-2.0
"""Plans of placement on a node with an agent: asks the site's planner for runs, puts plans on boards, keeps promises.

A run asks with columns of numbers and is answered with targets (planner.py); it makes its plan from them and hands it
in as the section that a board holds (place_section.py).  A plan's number joins the three: question, section, promise.

Invariants:
1. A section is its user's word about his own programs: it goes on his job's board alone, whole or not at all.
2. A question is answered within ANSWER_S or refused; when the controller is lost, at once.
3. A promise that no board took within UNBOUND_S is over; one on a board is over when its run or its job is.
"""

import asyncio
import logging
import time
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import NoControllerError, PenstockError, UsageError
from penstock.control import boards, wire
from penstock.control.planner import Planner, message_of, packed, promises_of
from penstock.policy.placing import central
from penstock.runs import board, place_section

log = logging.getLogger("penstock.agent")

ANSWER_S = 5.0
UNBOUND_S = 60.0
PROMISE_S = 3600.0
PENDING_MAX = 64  # questions at once, of all users; a quarter of them of one user
SECTIONS_MAX = 4
COLUMNS = ("size", "count", "files", "pool", "fixed")
ANSWERS = ("width", "target", "spare", "promised", "amount")


@dataclass
class Standing:
    """One promise."""

    number: int
    uid: int
    file_system: str
    amounts: dict[int, float]
    until_s: float  # wall clock: it outlives agents
    age_s: float = 0.0  # of the figures that its plan was decided by
    board: str = ""  # the folder's name; "": no board has the plan yet
    run: str = ""


class Plans:
    """Of one agent."""

    def __init__(self, node: str, send: Callable[[Any], bool], own: Planner | None) -> None:
        self.node = node
        self.send = send
        self.own = own  # without a controller the agent plans for its node itself
        self.figures: dict[str, central.Figures] = {}
        self.standing: dict[int, Standing] = {}
        self.pending: dict[int, tuple[int, asyncio.Future[Any]]] = {}  # with whose it is
        self.begin = zlib.crc32(node.encode("utf-8", "surrogateescape"))

    # ---- with the controller ----

    def told(self, file_system: str, figures: central.Figures) -> None:
        """The scout has looked."""
        self.figures[file_system] = figures
        self._say(wire.FromAgent(targets=message_of(file_system, figures, time.monotonic())))

    def _say(self, value: Any) -> Any:
        """To the controller, or to our own planner; what that answers."""
        if self.own is not None:
            return self.own.hear(self.node, value, time.monotonic())
        if not self.send(value):
            return None
        return True

    def welcomed(self) -> None:
        """A controller that may know nothing of us."""
        for name, figures in self.figures.items():
            self._say(wire.FromAgent(targets=message_of(name, figures, time.monotonic())))
        now_s = time.time()
        for one in self.standing.values():
            said = wire.Promised(
                number=one.number,
                file_system=one.file_system,
                target=packed(list(one.amounts)),
                amount=packed(list(one.amounts.values()), "<f8"),
                left_s=max(one.until_s - now_s, 0.0),
            )
            self._say(wire.FromAgent(promised=said))

    def hear(self, said: Any) -> None:
        """An answer."""
        _, waits = self.pending.get(said.number, (0, None))
        if waits is not None and not waits.done():
            waits.set_result(said)

    def lost(self) -> None:
        """The controller is not there: nobody waits for it."""
        for _, waits in self.pending.values():
            if not waits.done():
                waits.set_exception(NoControllerError("the controller was lost while it planned"))

    async def allot(self, uid: int, asked: dict[str, str]) -> dict[str, str]:
        """Ask for a run's files."""
        if (
            len(self.pending) >= PENDING_MAX
            or sum(u == uid for u, _ in self.pending.values()) >= PENDING_MAX // 4
        ):
            raise PenstockError("too many plans are asked for at once on this node")
        number = max(time.time_ns(), max([*self.standing, *self.pending], default=0) + 1)
        try:
            columns = {name: bytes.fromhex(asked.get(name, "")) for name in COLUMNS}
        except ValueError as error:
            raise UsageError("columns come as hexadecimal digits") from error
        pools = [name for name in _plain(asked.get("pools", "")).split("/") if name]
        name = _plain(asked.get("file_system", ""))
        wanted = wire.Wanted(number=number, file_system=name, pools=pools, **columns)
        waits: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.pending[number] = (uid, waits)
        try:
            answer = self._say(wire.FromAgent(wanted=wanted))
            if answer is None:
                raise NoControllerError("the agent has lost its controller")
            if answer is not True:
                waits.set_result(answer.allotted)
            found = await asyncio.wait_for(waits, ANSWER_S)
        except TimeoutError as error:
            raise NoControllerError(f"the controller did not answer in {ANSWER_S:g} s") from error
        finally:
            del self.pending[number]
        if found.file_system != name:
            raise PenstockError(
                f"the controller answered with a plan for {found.file_system[:100]!r}, not {name!r}"
            )
        if not found.why:
            amounts = promises_of(found.promised, found.amount, "the controller's plan")
            self.standing[number] = Standing(number, uid, name, amounts, time.time() + PROMISE_S, found.age_s)
        said = {key: getattr(found, key).hex() for key in ANSWERS}
        return {"number": str(number), "why": found.why, "age_s": repr(found.age_s), **said}

    # ---- on boards ----

    def put(self, here: boards.Board, run: str, sections: Iterable[str]) -> None:
        """Plans onto a job's board; of a section that does not go, the log tells."""
        for text in list(sections)[:SECTIONS_MAX]:
            try:
                data = bytes.fromhex(text)
                head = place_section.head_of(data)
                if head is None:
                    raise PenstockError("a plan came that is of another version")
                board.put_plan(here.path, data, self.begin)
            except (ValueError, PenstockError) as error:
                log.warning("job %s: %s", here.about.job, error)
                continue
            one = self.standing.get(head.made_ns)
            if one is not None and one.uid == here.about.uid:
                one.board, one.run = here.path.name, run
                here.about.plans = [*here.about.plans[-63:], _kept(one)]
                here.save()

    def adopt(self, here: boards.Board) -> None:
        """Promises of a former agent's plans."""
        for row in here.about.plans:
            number, name, until_s, age_s, run, targets, amounts = row
            self.standing[number] = Standing(
                number,
                here.about.uid,
                name,
                dict(zip(targets, amounts, strict=False)),
                until_s,
                age_s,
                here.path.name,
                run,
            )

    def over(self, board_name: str, run: str = "") -> None:
        """A run is over, or a job with all of its runs."""
        self._close(one for one in self.standing.values() if one.board == board_name and run in ("", one.run))

    def look(self) -> None:
        """Once a second: promises whose time is over, or that nobody took."""
        now_s = time.time()
        self._close(
            one
            for one in self.standing.values()
            if now_s > one.until_s or (not one.board and now_s > one.until_s - PROMISE_S + UNBOUND_S)
        )

    def _close(self, which: Iterable[Standing]) -> None:
        for one in list(which):
            del self.standing[one.number]
            self._say(wire.FromAgent(over=wire.Over(file_system=one.file_system, number=[one.number])))

    def of_user(self, uid: int) -> list[dict[str, Any]]:
        """What `penstock place show` tells of a user's plans here."""
        return [
            {
                "plan_ns": one.number,
                "board": one.board,
                "file_system": one.file_system,
                "figures_age_s": one.age_s,
                "promised_bytes": {str(t): b for t, b in sorted(one.amounts.items())},
            }
            for one in self.standing.values()
            if one.uid == uid
        ]


def _plain(text: str) -> str:
    """As the wire format takes it."""
    return text.encode("utf-8", "replace").decode()


def _kept(one: Standing) -> list[Any]:
    return [
        one.number,
        one.file_system,
        one.until_s,
        one.age_s,
        one.run,
        list(one.amounts),
        list(one.amounts.values()),
    ]
