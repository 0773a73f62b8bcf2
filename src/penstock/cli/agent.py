# SPDX-License-Identifier: Apache-2.0
"""The agent of a node: keeps the boards of its jobs and fills in their limits.

penstock agent --all-users                       the site's, from a service; settings name the controller
penstock agent --controller head:7411            one user's own
penstock agent --policy mine.toml                without a controller: this node alone, by this policy

Jobs started by penstock run or penstock-run on the node then use its boards.
"""

import argparse

from penstock.cli import _common

HELP = "run a node's agent"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--controller", metavar="HOST:PORT", help="the site's controller")
    parser.add_argument(
        "--policy", default="", metavar="FILE", help="decide here by this policy, without a controller"
    )
    parser.add_argument(
        "--node", metavar="NAME", help="this node's name, as in its certificate (the host's name)"
    )
    parser.add_argument("--all-users", action="store_true", help="keep boards for every user of the node")
    parser.add_argument("--token-file", default="", metavar="FILE", help="the token for joining")
    parser.add_argument("--json", action="store_true", help="say where it listens as one JSON document")
    parser.add_argument("-v", "--verbose", action="store_true", help="a longer log")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    import os
    import socket
    import sys
    from pathlib import Path

    from penstock.base import places
    from penstock.base.errors import UsageError
    from penstock.control import local, placing, service
    from penstock.control.agent import Agent, Config
    from penstock.control.controller import read_policy
    from penstock.control.tls import Files, read_address
    from penstock.runs import board

    held = _common.settings_of(args)
    service.log_to_stderr(args.verbose)
    own = places.runtime_dir(os.environ)
    at = held["agent.socket"] or (local.SITE_SOCKET if args.all_users else f"{own}/agent.sock")
    address = args.controller or held["controller.address"]
    if bool(address) == bool(args.policy):
        raise UsageError("an agent has either a controller (--controller) or a policy of its own (--policy)")
    operations = frozenset(board.operations())
    token_file = args.token_file or held["agent.token_file"]
    config = Config(
        at=Path(at),
        folder=Path(
            held["agent.boards"] or (f"{Path(at).parent}/boards" if args.all_users else _own_boards())
        ),
        node=args.node or os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        everybody=args.all_users,
        controller=read_address(address, 7411) if address else None,
        files=Files(held["tls.certificate"], held["tls.key"], held["tls.ca"]) if address else None,
        token=_common.first_line(token_file),
        policy=read_policy(args.policy, operations) if args.policy else "",
        mounts=held["run.mounts"],
        detect=held["run.detect"],
        max_bytes=held["board.max_size"],
        placing=placing.central_settings(held),
        targets_every_s=held["place.every"] / 1e9,
        bypass=Path(held["agent.bypass"]) if held["agent.bypass"] else None,
        metrics=read_address(held["agent.metrics"]) if held["agent.metrics"] else None,
    )
    places.make_private(str(config.at.parent)) if not args.all_users else None

    def ready(agent: Agent) -> None:
        service.notify("READY=1")
        if args.json:
            _common.print_json({"schema_version": 1, "socket": str(config.at), "adopted": len(agent.jobs)})
            sys.stdout.flush()

    service.run(Agent(config).serve(ready))
    return 0


def _own_boards() -> str:
    """One user's own: shared memory, not his runtime folder, which his logout may empty."""
    import os

    return f"/dev/shm/penstock-{os.getuid()}-agent"
