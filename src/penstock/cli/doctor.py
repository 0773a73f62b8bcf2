# SPDX-License-Identifier: Apache-2.0
"""Is this installation right, and what of a program is seen, what is not, why, and what to do?

penstock doctor                    the installation and this machine
penstock doctor -- ./app input     the program too, with a trial run of it
penstock doctor --no-run -- ./app  the program without running it
"""

import argparse
from typing import TYPE_CHECKING

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.control.seen import Finding

HELP = "what is seen of a program, what is not, and why"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-run", action="store_true", help="look at the program's files without running it"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(parser)
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="the program")


def run(args: argparse.Namespace) -> int:
    from penstock.control import doctor, seen

    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    settings = _common.settings_of(args)
    found = doctor.installation(settings)
    if words:
        found += doctor.program(words)
        if not args.no_run and not any(f.level == seen.FAIL for f in found):
            found += doctor.trial(words, settings)
    if args.json:
        rows = [{"level": f.level, "what": f.what, "text": f.text, "do": f.do} for f in found]
        _common.print_json({"schema_version": 1, "findings": rows})
    else:
        print("\n".join(lines(found)))
    return 1 if any(f.level == seen.FAIL for f in found) else 0


def lines(found: "list[Finding]") -> list[str]:
    """One line a finding, and what to do below it."""
    width = max((len(f.what) for f in found), default=0)
    shown = []
    for f in found:
        shown.append(f"{f.level:<4}  {f.what:<{width}}  {f.text}")
        if f.do:
            shown.append(f"{'':<4}  {'':<{width}}  → {f.do}")
    return shown
