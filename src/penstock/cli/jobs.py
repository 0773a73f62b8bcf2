# SPDX-License-Identifier: Apache-2.0
"""The jobs of the site: what each asks for, what it may, who waits.

penstock jobs
penstock jobs --json
"""

import argparse

from penstock.cli import _common

HELP = "what the site's jobs ask for and may"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.control import client
    from penstock.report import site

    document = client.jobs_document(client.ask(_common.controller_of(args), "Jobs"))
    _common.print_json(document) if args.json else print("\n".join(site.jobs(document)))
    return 0
