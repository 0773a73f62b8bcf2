# SPDX-License-Identifier: Apache-2.0
"""What agent and controller have in common as services: the log, and telling systemd how they are."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Coroutine
from typing import Any


def log_to_stderr(verbose: bool) -> None:
    """Lines for people, with the time where no journal adds it."""
    stamp = "" if os.environ.get("JOURNAL_STREAM") else "%(asctime)s "
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if verbose else logging.INFO,
        format=f"{stamp}%(levelname)s %(message)s",
    )
    logging.getLogger("asyncio").setLevel(logging.ERROR)


def notify(state: str) -> None:
    """One word to systemd, where it started us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect("\0" + address[1:] if address.startswith("@") else address)
        sock.sendall(state.encode())


def run(main: Coroutine[Any, Any, None]) -> None:
    """A service until it ends; told to systemd."""
    try:
        asyncio.run(_watched(main))
    finally:
        notify("STOPPING=1")


async def _watched(main: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(main)
    every_s = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6 / 3
    while every_s and not task.done():
        notify("WATCHDOG=1")
        await asyncio.wait([task], timeout=every_s)
    await task
