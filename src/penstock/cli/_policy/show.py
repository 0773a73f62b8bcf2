# SPDX-License-Identifier: Apache-2.0
"""The policy that holds now, or who changed what.

penstock policy show
penstock policy show --audit
"""

import argparse

from penstock.cli import _common

HELP = "the policy that holds, and who changed it"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--audit", action="store_true", help="who did what, the newest last")
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    import time

    from penstock.control import client

    address = _common.controller_of(args)
    if args.audit:
        rows = client.ask(address, "Audit", last=1000).rows
        found = [{"time_s": row.time_s, "who": row.who, "what": row.what} for row in rows]
        if args.json:
            _common.print_json({"schema_version": 1, "audit": found})
        for row in found if not args.json else ():
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(row["time_s"]))
            print(f"{stamp}  {row['who']}  {row['what']}")
        return 0
    reply = client.ask(address, "GetPolicy")
    document = {"schema_version": 1, "policy": reply.number, "text": reply.text}
    _common.print_json(document) if args.json else print(reply.text, end="")
    return 0
