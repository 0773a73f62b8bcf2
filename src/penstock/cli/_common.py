# SPDX-License-Identifier: Apache-2.0
"""Options that several verbs share.  Loaded by `penstock --help`: nothing heavy at the head."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing's, without importing it
if TYPE_CHECKING:
    import argparse
    from pathlib import Path
    from typing import Any

    from penstock.base.settings import Settings
    from penstock.control.client import Address


def count(word: str) -> int:
    """An argument that is a number of things."""
    if not word.isdecimal():
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"{word!r} is not a whole number of at least 0")
    return int(word)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """--config and --set."""
    group = parser.add_argument_group("settings")
    group.add_argument("--config", metavar="FILE", help="read this file of settings too, over the user's own")
    group.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="one setting, over all files"
    )


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that hold for this command."""
    from penstock.base import settings

    return settings.load(args.set, args.config)


def write_beside(path: Path, data: bytes) -> None:
    """A whole file or none: written beside, then renamed."""
    from penstock.base import beside
    from penstock.base.errors import PenstockError

    try:
        beside.write(path, data)
    except OSError as error:
        raise PenstockError(f"{path} cannot be written: {error.strerror}") from error


def intermix(parser: argparse.ArgumentParser) -> None:
    """Lets options stand between the words of a verb that takes any number of them: ls FILE -l PATH."""
    plain = parser.parse_known_args

    def parse(args: Any = None, namespace: Any = None) -> Any:
        parser.parse_known_args = plain  # type: ignore[method-assign]
        try:
            found, rest = parser.parse_known_intermixed_args(args, namespace)
            unknown = [word for word in rest if word.startswith("-")]
            if unknown:
                parser.error(f"no such option: {' '.join(unknown)}")
            return found, rest
        finally:
            parser.parse_known_args = parse  # type: ignore[method-assign]

    parser.parse_known_args = parse  # type: ignore[method-assign]


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    import json

    json.dump(value, sys.stdout, indent=1, ensure_ascii=True)
    sys.stdout.write("\n")


def note(text: str) -> None:
    """A remark that is not the answer."""
    print(f"penstock: {text}", file=sys.stderr)


def first_line(path: str) -> str:
    """A secret that a file holds; "" for no file."""
    from pathlib import Path

    from penstock.base.errors import UsageError

    if not path:
        return ""
    try:
        return Path(path).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({getattr(error, 'strerror', None) or error})") from error


def controller_of(args: argparse.Namespace) -> Address:
    """Which controller the settings name."""
    from penstock.control.client import Address

    held = settings_of(args)
    return Address(held["controller.tools"], held["tls.ca"], held["controller.token_file"])
