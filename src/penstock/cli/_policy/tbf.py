# SPDX-License-Identifier: Apache-2.0
"""A policy as rules of Lustre's own limiter (NRS TBF), for what no preloaded library sees.

penstock policy tbf site.toml --cpts 4                 # lines to run on the servers, and what they cannot say
penstock policy tbf site.toml --cpts 4 --servers 2 --json

TBF counts requests on each partition of a server's processors by itself, so rates are divided by their number:
lctl get_param cpu_partition_table on a server lists them.
"""

import argparse
from typing import TYPE_CHECKING

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.policy.rules import Policy

HELP = "the policy as Lustre NRS TBF rules"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the policy")
    parser.add_argument(
        "--cpts", type=int, default=1, metavar="N", help="processor partitions of a server (1)"
    )
    parser.add_argument(
        "--servers",
        type=int,
        default=1,
        metavar="N",
        help="servers that one limit is spread over: metadata servers, or object servers for data (1)",
    )
    parser.add_argument("--request-size", default="4MiB", metavar="SIZE", help="of a data request (4MiB)")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace) -> int:
    from penstock.base import units
    from penstock.base.errors import UsageError
    from penstock.cli import _policy
    from penstock.policy import tbf

    if args.cpts < 1 or args.servers < 1:
        raise UsageError("--cpts and --servers are to be 1 or more")
    policy = _policy.load(args.file)
    shape = tbf.Shape(args.cpts, args.servers, units.parse_size(args.request_size))
    found = tbf.translate(policy, shape, _ids(policy))
    if args.json:
        _common.print_json(tbf.as_json(found))
    else:
        for line in tbf.as_text(found):
            print(line)
    return 0


def _ids(policy: "Policy") -> dict[tuple[str, str], int]:
    """The numbers of the users and groups that the policy names, as far as this machine knows them."""
    import contextlib
    import grp
    import pwd

    found = {}
    for limit in policy.limits:
        for name in limit.match.users:
            with contextlib.suppress(KeyError):
                found["user", name] = int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
        for name in limit.match.groups:
            with contextlib.suppress(KeyError):
                found["group", name] = int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    return found
