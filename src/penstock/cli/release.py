# SPDX-License-Identifier: Apache-2.0
"""Get out of the way, now: limits off at once, for every job or one.

penstock release --all          the whole site; this node alone when the controller is down
penstock release 4711
penstock release --all --undo   limits hold again

Programs go on as they are; who waits goes on at once.
"""

import argparse
from typing import Any

from penstock.cli import _common

HELP = "take limits off at once"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", nargs="?", default="", help="one job, by its id")
    parser.add_argument("--all", action="store_true", help="every job")
    parser.add_argument("--undo", action="store_true", help="limits hold again")
    parser.add_argument(
        "--here", action="store_true", help="on this node alone, without asking the controller"
    )
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.base.errors import NoControllerError, UsageError
    from penstock.base.text import plural
    from penstock.control import client

    if bool(args.job) == args.all:
        raise UsageError("name a job, or say --all")
    told: int | None = None
    why = "you asked for this node alone"
    if not args.here:
        try:
            address = _common.controller_of(args)
            reply = client.ask(
                address, "ReleaseJobs", all=args.all, job=args.job, undo=args.undo, who=client.who()
            )
            told = reply.nodes
        except NoControllerError as error:
            why = str(error).partition(";")[0]
    here = None
    if told is None:
        here = _here(args)
    document = {"schema_version": 1, "nodes_told": told, "here": here, "undo": args.undo}
    if args.json:
        _common.print_json(document)
        return 0
    what = f"job {args.job}" if args.job else "every job"
    word = "is under its limits again" if args.undo else "is released"
    if told is not None:
        print(f"{what} {word}: told to {plural(told, 'node')}")
    else:
        print(f"{what} {word} on this node alone")
        _common.note(f"{why}: run it on each of the others too, with --here")
    return 0


def _here(args: argparse.Namespace) -> Any:
    import json

    from penstock.control import local

    held = _common.settings_of(args)
    fields = {"op": "release", "job": args.job, "undo": "1" if args.undo else "0"}
    return json.loads(local.ask(local.find(held["agent.socket"]), **fields)["json"])
