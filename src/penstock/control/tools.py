# SPDX-License-Identifier: Apache-2.0
"""What people and tools ask a controller: the gRPC service Tools, with health and reflection.

Who may: the bearer of a token.  `reader.token` may look, `admin.token` may also change; both are made in the
controller's state folder at its first start, readable by its account alone.

Invariant: an error is a status with one sentence; nothing a caller sends stops the controller.
"""

import hmac
import logging
import secrets
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from penstock import __version__
from penstock.base import beside
from penstock.base.errors import NothingMatchedError, PenstockError, UsageError
from penstock.control import tls, wire
from penstock.control.fleet import Fleet, Known
from penstock.control.journal import ALL

if TYPE_CHECKING:
    from penstock.control.controller import Controller

log = logging.getLogger("penstock.controller")

LOOKING = ("Status", "Jobs", "Nodes", "Explain", "GetPolicy", "Audit")


def methods() -> dict[str, tuple[Any, Any]]:
    """Each method's classes of request and answer, as wire.proto says."""
    service = wire.FILE.services_by_name["Tools"]
    return {
        m.name: (wire.message(m.input_type.name), wire.message(m.output_type.name)) for m in service.methods
    }


def tokens(state: Path) -> dict[str, str]:
    """The tokens by role, made where there are none yet."""
    found = {}
    for role in ("reader", "admin"):
        path = state / f"{role}.token"
        found[role] = path.read_text("utf-8").strip() if path.exists() else ""
        if not found[role]:
            found[role] = secrets.token_urlsafe(24)
            beside.write(path, f"{found[role]}\n".encode(), 0o600)
    return found


def may(said: str, needed: list[str]) -> bool:
    """Whether somebody who says this word has one of the tokens; no word is none of them."""
    return bool(said) and any(hmac.compare_digest(said.encode(), token.encode()) for token in needed if token)


class Service:
    """Answers; each method takes a request and gives an answer, or raises a PenstockError."""

    def __init__(self, controller: "Controller") -> None:
        self.controller = controller

    @property
    def fleet(self) -> Fleet:
        return self.controller.fleet

    def status(self, _request: Any, reply: Any) -> Any:
        fleet, now_s = self.fleet, time.time()
        return reply(
            controller=__version__,
            up_s=now_s - self.controller.begun_s,
            policy=fleet.number,
            nodes=sum(1 for m in fleet.members.values() if m.session is not None),
            jobs=len(fleet.known()),
            rows=sum(m.rows for m in fleet.members.values()),
            cycle_s=self.controller.cycle_s,
            released=sorted(fleet.released) + [ALL] * fleet.released_all,
        )

    def jobs(self, _request: Any, reply: Any) -> Any:
        return reply(jobs=self._rows())

    def explain(self, request: Any, reply: Any) -> Any:
        rows = [row for row in self._rows() if request.job in (row.job.id, row.job.name)]
        if not rows:
            raise NothingMatchedError(f"no node has a job {request.job!r} now; penstock jobs lists them")
        return reply(jobs=rows)

    def _rows(self) -> list[Any]:
        """Every job with what holds for it."""
        fleet = self.fleet
        known = fleet.known()
        rows: dict[int, Any] = {}
        nodes: dict[int, int] = {}
        for member in fleet.members.values():
            for number in member.numbers.tolist() if not member.stale else ():
                nodes[number] = nodes.get(number, 0) + 1
        row_of = wire.message("JobRow")
        for number, count in sorted(nodes.items(), key=lambda pair: known[pair[0]].job.id):
            rows[number] = row_of(job=job_message(known[number]), nodes=count)
        for job, limit, _nodes, asked, grant, waiting, waited in fleet.sums():
            if job not in rows:
                continue
            rule, share = fleet.policy.limits[limit], fleet.grants.shares.get((limit, job))
            about = known[job].job
            rows[job].held.add(
                limit=rule.name,
                asked=asked,
                grant=grant,
                waiting=waiting,
                waited_s=waited,
                shadow=rule.shadow,
                why=share.why if share else f"{rule.name} of each node",
                since_s=fleet.held_since.get((rule.name, about.id, about.user), 0.0),
                bytes=rule.bytes,
                total=rule.rate,
                released=fleet.released_all or about.id in fleet.released,
            )
        return list(rows.values())

    def nodes(self, _request: Any, reply: Any) -> Any:
        now_s = time.monotonic()
        row_of = wire.message("NodeRow")
        rows = []
        for name in sorted(self.fleet.members):
            member = self.fleet.members[name]
            calls = [i for i, limit in enumerate(member.limit.tolist()) if self._counts_calls(limit)]
            rows.append(
                row_of(
                    node=name,
                    here=member.session is not None and not member.stale,
                    age_s=now_s - member.heard_s,
                    jobs=len(member.jobs),
                    asked=_sum(member.asked, calls),
                    grant=_sum(member.grant, calls),
                    waiting=_sum(member.waiting, calls),
                    latency_s=member.latency_s,
                    released=member.released or self.fleet.released_all,
                    software=member.software,
                    address=member.address,
                )
            )
        return reply(nodes=rows)

    def _counts_calls(self, limit: int) -> bool:
        return limit >= 0 and not self.fleet.policy.limits[limit].bytes

    def getpolicy(self, _request: Any, reply: Any) -> Any:
        return reply(number=self.fleet.number, text=self.controller.text)

    def setpolicy(self, request: Any, reply: Any) -> Any:
        held = self.controller.set_policy(request.text, request.who, "a whole new policy")
        return reply(number=held.number, text=held.text, said=held.said)

    def change(self, request: Any, reply: Any) -> Any:
        shadow = True if request.shadow else False if request.enforce else None
        held = self.controller.change(request.name, request.rate, shadow, request.who)
        return reply(number=held.number, text=held.text, said=held.said)

    def releasejobs(self, request: Any, reply: Any) -> Any:
        if not request.all and not request.job:
            raise UsageError("name a job, or all")
        return reply(
            nodes=self.controller.release(ALL if request.all else request.job, request.undo, request.who)
        )

    def audit(self, request: Any, reply: Any) -> Any:
        rows = self.controller.journal.audit(min(request.last or 100, 10_000))
        row_of = wire.message("AuditRow")
        return reply(rows=[row_of(time_s=t, who=who, what=what) for t, who, what in rows])


def job_message(known: Known) -> Any:
    job = known.job
    return wire.Job(
        id=job.id,
        name=job.name,
        user=job.user,
        group=job.group,
        verified=known.verified,
        bypassing=known.bypassing,
        start_s=known.start_s,
    )


def _sum(column: bytes, rows: list[int]) -> float:
    import numpy as np

    values = np.frombuffer(column)
    return float(np.nan_to_num(values[rows]).sum()) if rows else 0.0


def _handler(
    name: str, answer: Callable[[Any, Any], Any], reply: Any, roles: dict[str, str]
) -> Callable[[Any, Any], Any]:
    """One method as gRPC calls it: who asks, then the answer, then errors as a status with their sentence."""
    needed = [roles["admin"]] + ([roles["reader"]] if name in LOOKING else [])

    async def handle(request: Any, context: Any) -> Any:
        said = dict(context.invocation_metadata() or ()).get("authorization", "").removeprefix("Bearer ")
        if not may(said, needed):
            what, file = ("look", "reader") if name in LOOKING else ("change anything", "admin")
            why = f"this token may not {what}" if said else f"without a token you may not {what}"
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"{why}; set controller.token_file to a copy of the controller's {file}.token",
            )
        try:
            return answer(request, reply)
        except NothingMatchedError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except PenstockError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

    return handle


def _credentials(files: tls.Files) -> Any:
    """The certificate as it is now, and as it will be when it was renewed: gRPC asks at each connection."""
    times: list[tuple[int, ...]] = [()]

    def fetch() -> Any:
        try:
            now = files.times()
            if now == times[0]:
                return None
            pair = files.pair()
        except (OSError, ssl.SSLError):
            return None  # half renewed: the old one goes on
        times[0] = now
        return grpc.ssl_server_certificate_configuration([pair])

    return grpc.dynamic_ssl_server_credentials(fetch(), fetch)


async def start(controller: "Controller", address: tuple[str, int]) -> tuple[Any, int]:
    """The running server and its port."""
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection

    server = grpc.aio.server()
    service, roles = Service(controller), tokens(controller.config.state)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            _handler(name, getattr(service, name.lower()), reply, roles),
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        for name, (request, reply) in methods().items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(wire.SERVICE, handlers),))
    watched = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(watched, server)
    await watched.set("", health_pb2.HealthCheckResponse.SERVING)
    await watched.set(wire.SERVICE, health_pb2.HealthCheckResponse.SERVING)
    reflection.enable_server_reflection((wire.SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    host, port = address
    try:
        bound = server.add_secure_port(f"{host}:{port}", _credentials(controller.config.files))
    except RuntimeError as error:
        raise PenstockError(f"{host}:{port} cannot be listened at for people and tools") from error
    await server.start()
    return server, bound
