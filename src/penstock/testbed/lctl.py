# SPDX-License-Identifier: Apache-2.0
"""lctl for the testbed: get_param, set_param, list_param, in the words of Lustre's.

lctl get_param -n osc.*.kbytesavail
lctl set_param obdfilter.*-OST0003.degraded=1
"""

import argparse
import os
import sys
from pathlib import Path

from penstock.base.errors import PenstockError
from penstock.targets.params import Params
from penstock.testbed.commands import FOLDER_VARIABLE
from penstock.testbed.emulated import ask

MISSING = 2


def _params(folder: str) -> Params:
    return Params([Path(folder, "state", "sys", "fs", "lustre")])


def _fresh(folder: str, name: str, path: Path) -> str:
    """The text of a parameter: from the server if we may ask it, else as last written to the tree."""
    try:
        return ask(folder, f"param {name}")
    except PenstockError:
        return path.read_text(errors="replace")


def shown(name: str, text: str, bare: bool) -> str:
    """`name=value`, or the name and the lines below it."""
    body = text if text.endswith("\n") else text + "\n"
    if bare:
        return body
    return f"{name}={body}" if body.count("\n") == 1 else f"{name}=\n{body}"


def get_param(folder: str, args: argparse.Namespace) -> int:
    status = 0
    for pattern in args.names:
        found = _find(folder, pattern)
        if not found:
            print(_not_there("get_param", pattern), file=sys.stderr)
            status = MISSING
        for name, path in found.items():
            if args.only_names:
                print(name)
            else:
                sys.stdout.write(shown(name, _fresh(folder, name, path), args.bare))
    return status


def _find(folder: str, pattern: str) -> dict[str, Path]:
    try:
        return {name: path for name, path in _params(folder).files(pattern).items() if path.is_file()}
    except ValueError:
        return {}


def _not_there(command: str, name: str) -> str:
    return f"error: {command}: param_path '{name.replace('.', '/')}': No such file or directory"


def list_param(folder: str, args: argparse.Namespace) -> int:
    status = 0
    for pattern in args.names:
        try:
            names = _params(folder).names(pattern)
        except ValueError:
            names = []
        for name in names:
            print(name)
        if not names:
            print(_not_there("list_param", pattern), file=sys.stderr)
            status = MISSING
    return status


def set_param(folder: str, args: argparse.Namespace) -> int:
    status = 0
    for word in _pairs(args.names):
        pattern, equals, value = word.partition("=")
        found = _find(folder, pattern) if equals else {}
        if not found:
            print(_not_there("set_param", pattern), file=sys.stderr)
            status = MISSING
        for name in found:
            try:
                ask(folder, f"write {name} {value}")
            except PenstockError as error:
                said = f"error: set_param: setting {name.replace('.', '/')}={value}: {error}"
                print(said, file=sys.stderr)
                status = 1
                continue
            if not args.bare:
                print(f"{name}={value}")
    return status


def _pairs(words: list[str]) -> list[str]:
    """`name value` is an old way to write `name=value`."""
    if len(words) == 2 and not any("=" in word for word in words):
        return [f"{words[0]}={words[1]}"]
    return words


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lctl", description=__doc__)
    rows = parser.add_subparsers(dest="what", required=True)
    for what, run in (("get_param", get_param), ("list_param", list_param), ("set_param", set_param)):
        row = rows.add_parser(what)
        row.add_argument("-n", dest="bare", action="store_true", help="without the name")
        row.add_argument("-N", dest="only_names", action="store_true", help="only the names")
        row.add_argument("-F", dest="kinds", action="store_true", help=argparse.SUPPRESS)
        row.add_argument("names", nargs="+")
        row.set_defaults(run=run)
    args = parser.parse_args(argv)
    folder = os.environ.get(FOLDER_VARIABLE, "")
    if not folder:
        print(
            f"lctl: {FOLDER_VARIABLE} is not set; call it as bin/lctl of a testbed's folder", file=sys.stderr
        )
        return 1
    return int(args.run(folder, args))


if __name__ == "__main__":
    sys.exit(main())
