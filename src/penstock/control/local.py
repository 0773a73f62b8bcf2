# SPDX-License-Identifier: Apache-2.0
"""Questions to the agent of this node, over a Unix socket: what penstock-run (C) and the commands ask.

A question is lines `key=value`, each ended by NUL, and one NUL more; the answer is the same.  Both are so simple that
C reads and writes them without a library.  `error` in an answer is a sentence, `status` the exit status of it.

Invariants:
1. A question is at most MAX_BYTES and has DEADLINE_S to arrive; else the connection is closed.
2. Whose question it is, the kernel says (SO_PEERCRED), not the question.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base.errors import (
    BusyError,
    DeniedError,
    NoControllerError,
    PenstockError,
    UsageError,
    VersionError,
)

log = logging.getLogger("penstock.agent")

VERSION = "1"
MAX_BYTES = 512 << 10
MAX_ANSWER_BYTES = 16 << 20
DEADLINE_S = 2.0
BACKLOG = 256
NAME_BYTES = 107  # that a socket's address has room for


class Peer(NamedTuple):
    """Who asks, by the kernel's word."""

    pid: int
    uid: int
    gid: int


Answer = dict[str, str]
Handler = Callable[[Peer, dict[str, str]], Awaitable[Answer]]


def pack(fields: dict[str, str]) -> bytes:
    rows = [f"{key}={value}".replace("\0", "?") for key, value in fields.items()]
    return "".join(f"{row}\0" for row in rows).encode("utf-8", "surrogateescape") + b"\0"


def unpack(data: bytes) -> dict[str, str]:
    rows = data.decode("utf-8", "surrogateescape").split("\0")
    return {key: value for key, equals, value in (row.partition("=") for row in rows) if equals}


def peer_of(sock: socket.socket) -> Peer:
    size = struct.calcsize("3i")
    return Peer(*struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)))


class Server:
    """The agent's end.  Holds a lock beside the socket, so that there is one agent."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self.path = path
        self.handler = handler
        if len(os.fsencode(path)) > NAME_BYTES:
            raise UsageError(f"{path} is too long for a socket's name ({NAME_BYTES} bytes); set agent.socket")
        self.server: asyncio.AbstractServer | None = None

    async def start(self, mode: int) -> None:
        folder = self.path.parent
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        about = folder.stat()
        if about.st_uid not in (0, os.geteuid()) or about.st_mode & 0o022:
            raise DeniedError(f"others may write in {folder}; the agent's socket wants a folder of its own")
        self.lock = os.open(folder / f"{self.path.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(f"an agent already listens at {self.path}") from error
        self.path.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        sock.bind(os.fspath(self.path))
        self.path.chmod(mode)
        self.server = await asyncio.start_unix_server(
            self._serve, sock=sock, backlog=BACKLOG, limit=MAX_BYTES
        )

    def stop(self) -> None:
        if self.server is not None:
            self.server.close()
            self.path.unlink(missing_ok=True)
            os.close(self.lock)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            data = await asyncio.wait_for(reader.readuntil(b"\0\0"), DEADLINE_S)
            peer = peer_of(writer.get_extra_info("socket"))
            writer.write(pack(await self._answer(peer, unpack(data))))
            await asyncio.wait_for(writer.drain(), DEADLINE_S)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # who asks wrongly gets no answer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, peer: Peer, asked: dict[str, str]) -> Answer:
        try:
            if asked.get("version") != VERSION:
                raise VersionError(
                    f"this agent answers questions of version {VERSION}, not {asked.get('version', 'none')}; "
                    "install the same Penstock on both sides"
                )
            return await self.handler(peer, asked)
        except PenstockError as error:
            return {"error": str(error), "status": str(error.status)}
        except Exception:
            log.exception("a question could not be answered: %s", asked.get("op"))
            return {"error": "the agent could not answer; its log says why", "status": "1"}


def ask(path: str, deadline_s: float = DEADLINE_S, **fields: str) -> dict[str, str]:
    """Ask the agent that listens there; what it refuses is raised as the error that it is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as sock:
        sock.settimeout(deadline_s)
        data = b""
        try:
            sock.connect(path)
            sock.sendall(pack({"version": VERSION, **fields}))
            while not data.endswith(b"\0\0") and len(data) < MAX_ANSWER_BYTES:
                more = sock.recv(1 << 16)
                if not more:
                    break
                data += more
        except PermissionError as error:
            raise DeniedError(f"you may not ask the agent at {path}") from error
        except OSError as error:
            raise NoControllerError(f"no agent answers at {path} ({error.strerror or 'too late'})") from error
    found = unpack(data)
    if "error" in found:
        raise _error(found)
    return found


def _error(found: dict[str, str]) -> PenstockError:
    kinds: tuple[type[PenstockError], ...] = (UsageError, DeniedError, VersionError, BusyError)
    for kind in kinds:
        if str(kind.status) == found.get("status"):
            return kind(found["error"])
    return PenstockError(found["error"])


def find(chosen: str, env: dict[str, str] | Any = os.environ) -> str:
    """The socket of this node's agent: the chosen one, the site's, or this user's own."""
    from penstock.base import places

    own = f"{places.runtime_dir(env)}/agent.sock"
    return chosen or (own if not Path(SITE_SOCKET).exists() and Path(own).exists() else SITE_SOCKET)


SITE_SOCKET = "/run/penstock/agent.sock"
