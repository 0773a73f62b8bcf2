# SPDX-License-Identifier: Apache-2.0
"""Change the site's policy while it holds: one limit's rate, or (not) in shadow; audited.

penstock policy set metadata.total 300k/s             the site's limit on all metadata, made if there is none
penstock policy set "all metadata" 250k/s --shadow    from now on it decides and counts, and holds back nobody
penstock policy set "all metadata" --enforce          and now it does
penstock policy set --file site.toml                  a whole new policy
"""

import argparse

from penstock.cli import _common

HELP = "change the policy that holds"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="LIMIT", nargs="?", default="", help="by its name, or CLASS.total")
    parser.add_argument("rate", metavar="RATE", nargs="?", default="", help="like 300k/s or 20GiB/s")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--shadow", action="store_true", help="decide and count, hold back nobody")
    how.add_argument("--enforce", action="store_true", help="no longer in shadow")
    parser.add_argument("--file", metavar="FILE", help="the whole policy from a file")
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.base.errors import UsageError
    from penstock.cli import _policy
    from penstock.control import client

    if bool(args.file) == bool(args.name):
        raise UsageError("name a limit and its rate, or a whole policy with --file")
    address = _common.controller_of(args)
    if args.file:
        _policy.load(args.file)
        with open(args.file, encoding="utf-8") as file:  # noqa: PTH123
            reply = client.ask(address, "SetPolicy", text=file.read(), who=client.who())
    else:
        reply = client.ask(
            address,
            "Change",
            name=args.name,
            rate=args.rate,
            shadow=args.shadow,
            enforce=args.enforce,
            who=client.who(),
        )
    if args.json:
        _common.print_json({"schema_version": 1, "policy": reply.number, "said": reply.said})
    else:
        print(f"policy {reply.number}: {reply.said}")
    return 0
