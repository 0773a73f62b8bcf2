# SPDX-License-Identifier: Apache-2.0
"""Who loads the file system now, and who waits: live, until q or Ctrl-C.

penstock top
penstock top --once          one screen, for a script or a mail
"""

import argparse
import contextlib
from typing import TYPE_CHECKING

from penstock.cli import _common

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.control.client import Address

HELP = "live: who loads the file system, who waits"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--every", default="1s", metavar="TIME", help="how often to look (1s)")
    parser.add_argument("--once", action="store_true", help="one screen, then end")
    parser.add_argument("--json", action="store_true", help="a JSON document a line")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    import sys
    import time

    from penstock.base import units
    from penstock.base.errors import NoControllerError, UsageError

    every_s = units.parse_duration(args.every) / 1e9
    if every_s < 0.1:
        raise UsageError(f"--every {args.every}: not more often than each 100ms")
    address = _common.controller_of(args)
    live = sys.stdout.isatty() and not args.json and not args.once
    with _keys() if live else contextlib.nullcontext():
        while True:
            try:
                screen(args, address, live)
            except NoControllerError as error:
                if not live:
                    raise
                print(f"\x1b[H\x1b[2J{error}", flush=True)
            if args.once or (not args.json and not live):
                return 0
            if not live:
                time.sleep(every_s)
            elif _quit_within(every_s):
                return 0


def screen(args: argparse.Namespace, address: "Address", live: bool) -> None:
    import json
    import shutil

    from penstock.control import client
    from penstock.report import site

    document = client.top_document(address)
    if args.json:
        print(json.dumps(document), flush=True)
        return
    size = shutil.get_terminal_size((100, 40))
    text = "\n".join(site.top(document, size.lines - 1, size.columns))
    print(f"\x1b[H\x1b[2J{text}" if live else text, flush=True)


@contextlib.contextmanager
def _keys() -> "Iterator[None]":
    """The terminal gives keys at once, also those typed while a screen is fetched, and is in the end as it was."""
    import sys
    import termios
    import tty

    if not sys.stdin.isatty():
        yield
        return
    held = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin, termios.TCSANOW)  # what was typed before is kept
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, held)


def _quit_within(seconds: float) -> bool:
    """Was q typed, or the input closed?"""
    import os
    import select
    import sys

    ready = select.select([sys.stdin], [], [], seconds)[0]
    if not ready:
        return False
    typed = os.read(sys.stdin.fileno(), 64)
    return not typed or b"q" in typed.lower()
