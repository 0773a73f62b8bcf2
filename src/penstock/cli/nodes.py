# SPDX-License-Identifier: Apache-2.0
"""The nodes that have an agent: their jobs, what they ask for, how quick the file system answers them.

penstock nodes
penstock nodes --json
"""

import argparse

from penstock.cli import _common

HELP = "the nodes of the site and what they ask for"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.control import client
    from penstock.report import site

    document = client.nodes_document(client.ask(_common.controller_of(args), "Nodes"))
    _common.print_json(document) if args.json else print("\n".join(site.nodes(document)))
    return 0
