# SPDX-License-Identifier: Apache-2.0
"""Am I being limited, by which rule, since when, and what did it cost me?

penstock status           my jobs on this node
penstock status 4711

It asks this node's agent alone, and so works while the controller is down.  Where no agent is, it looks at your own
runs and their limits by hand.
"""

import argparse

from penstock.cli import _common

HELP = "is my job being limited, and why?"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", nargs="?", default="", help="one job, by its id or name")
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    import json
    import time

    from penstock.base.errors import NoControllerError
    from penstock.control import local, own
    from penstock.report import site

    held = _common.settings_of(args)
    try:
        document = json.loads(local.ask(local.find(held["agent.socket"]), op="status", job=args.job)["json"])
    except NoControllerError:
        document = own.status(held["board.dir"], args.job)
    _common.print_json(document) if args.json else print("\n".join(site.status(document, time.time())))
    return 0
