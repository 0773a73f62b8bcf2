# SPDX-License-Identifier: Apache-2.0
"""Why a job has what it has: which rule, which rate, why, since when.

penstock policy explain --job 4711
"""

import argparse

from penstock.cli import _common

HELP = "why a job has what it has"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--job", required=True, metavar="JOB", help="by its id or name")
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    import time

    from penstock.control import client
    from penstock.report import site

    document = client.jobs_document(client.ask(_common.controller_of(args), "Explain", job=args.job))
    _common.print_json(document) if args.json else print("\n".join(site.explained(document, time.time())))
    return 0
