# SPDX-License-Identifier: Apache-2.0
"""Asking a controller from the command line."""

import getpass
import socket
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base.errors import (
    DeniedError,
    NoControllerError,
    NothingMatchedError,
    PenstockError,
    UsageError,
)

DEADLINE_S = 5.0


class Address(NamedTuple):
    """Where to ask, whom to believe, and by what right."""

    tools: str
    ca: str
    token_file: str


def who() -> str:
    """How the audit names us."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "?"
    return f"{name}@{socket.gethostname()}"


def ask(address: Address, method: str, **fields: Any) -> Any:
    """One question with one deadline; errors are sentences."""
    if not address.tools:
        raise NoControllerError("no controller is named; set controller.tools to its HOST:PORT")
    try:
        ca = Path(address.ca).read_bytes()
        token = Path(address.token_file).read_text("utf-8").strip() if address.token_file else ""
    except PermissionError as error:
        raise DeniedError(f"{error.filename} may not be read by you") from error
    except OSError as error:
        raise UsageError(f"{error.filename or 'tls.ca'} cannot be read ({error.strerror})") from error
    import grpc

    from penstock.control import tools, wire

    request, reply = tools.methods()[method]
    with grpc.secure_channel(address.tools, grpc.ssl_channel_credentials(ca)) as channel:
        call = channel.unary_unary(
            f"/{wire.SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=reply.FromString,
        )
        try:
            return call(
                request(**fields), timeout=DEADLINE_S, metadata=(("authorization", f"Bearer {token}"),)
            )
        except grpc.RpcError as error:
            raise _translated(error, address.tools) from error


def _translated(error: Any, where: str) -> PenstockError:
    import grpc

    code, text = error.code(), error.details() or ""
    if code == grpc.StatusCode.PERMISSION_DENIED:
        return DeniedError(text)
    if code == grpc.StatusCode.NOT_FOUND:
        return NothingMatchedError(text)
    if code == grpc.StatusCode.INVALID_ARGUMENT:
        return UsageError(text)
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        return NoControllerError(
            f"the controller at {where} does not answer; penstock status knows this node without it"
        )
    return PenstockError(f"the controller at {where} failed: {text}")


# ---- answers as documents: what --json prints ----


def _fields(message: Any) -> dict[str, Any]:
    """A flat message's fields by name, zeros too."""
    return {f.name: getattr(message, f.name) for f in message.DESCRIPTOR.fields}


def jobs_document(reply: Any) -> dict[str, Any]:
    rows = [
        {**_fields(row.job), "nodes": row.nodes, "held": [_fields(held) for held in row.held]}
        for row in reply.jobs
    ]
    return {"schema_version": 1, "jobs": rows}


def nodes_document(reply: Any) -> dict[str, Any]:
    return {"schema_version": 1, "nodes": [_fields(row) for row in reply.nodes]}


def top_document(address: Address) -> dict[str, Any]:
    """Jobs and what the controller says of itself."""
    about = _fields(ask(address, "Status"))
    about["released"] = list(about["released"])
    return {**jobs_document(ask(address, "Jobs")), "status": about}
