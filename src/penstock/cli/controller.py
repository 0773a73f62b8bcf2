# SPDX-License-Identifier: Apache-2.0
"""The controller of a site: shares its limits among all jobs on all nodes.

penstock controller --policy site.toml
penstock controller token --uses 100     lets 100 nodes join; give it to them as agent.token_file

Agents connect to it by certificates of one authority; people ask it with penstock jobs, nodes, top and policy.  SIGHUP
reads the policy again.  With --upstream it speaks for its agents to another controller (an aggregator).
"""

import argparse

from penstock.cli import _common

HELP = "run the site's controller"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        nargs="?",
        choices=("run", "token"),
        default="run",
        help="run it (the default), or make a token",
    )
    parser.add_argument("--policy", default="", metavar="FILE", help="the site's policy")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="for agents (0.0.0.0 and the port of controller.address, else 7411)",
    )
    parser.add_argument(
        "--tools",
        metavar="HOST:PORT",
        help="for people and tools (127.0.0.1 and the port of controller.tools, else 7412)",
    )
    parser.add_argument("--upstream", metavar="HOST:PORT", help="be an aggregator of this controller")
    parser.add_argument("--node", metavar="NAME", help="an aggregator's name, as in its certificate")
    parser.add_argument("--token-file", default="", metavar="FILE", help="an aggregator's token for joining")
    parser.add_argument("--uses", type=int, default=1, metavar="N", help="token: how many nodes may join (1)")
    parser.add_argument("--valid", default="1d", metavar="TIME", help="token: how long (1d)")
    parser.add_argument("--json", action="store_true", help="say where it listens as one JSON document")
    parser.add_argument("-v", "--verbose", action="store_true", help="a longer log")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.control import placing, service
    from penstock.control.controller import Config, Controller
    from penstock.control.tls import Files, read_address

    held = _common.settings_of(args)
    state = held.state_dir / "controller"
    if args.what == "token":
        return token(args, str(state))
    service.log_to_stderr(args.verbose)
    files = Files(held["tls.certificate"], held["tls.key"], held["tls.ca"])
    config = Config(
        _where(args.listen, "0.0.0.0", held["controller.address"], 7411),
        files,
        state,
        args.policy,
        _where(args.tools, "127.0.0.1", held["controller.tools"], 7412),
        placing.central_settings(held),
    )
    from penstock.runs import board

    controller = Controller(config, frozenset(board.operations()))
    if args.upstream:
        from penstock.control.aggregator import Upstream

        controller.upstream = Upstream(
            controller, read_address(args.upstream), args.node or "", _common.first_line(args.token_file)
        )

    def ready(_controller: Controller, agents: int, tools: int) -> None:
        service.notify("READY=1")
        if args.json:
            _common.print_json({"schema_version": 1, "agents": agents, "tools": tools})
            import sys

            sys.stdout.flush()

    service.run(controller.serve(ready))
    return 0


def _where(said: str | None, host: str, named: str, port: int) -> tuple[str, int]:
    """Where to listen: as said, else on the port at which the settings tell everybody to ask."""
    from penstock.control.tls import read_address

    if said:
        return read_address(said)
    return host, read_address(named, port)[1] if named else port


def token(args: argparse.Namespace, state: str) -> int:
    from pathlib import Path

    from penstock.base import units
    from penstock.base.errors import UsageError
    from penstock.control.journal import Journal

    if not 1 <= args.uses <= 1_000_000:
        raise UsageError("--uses is to be between 1 and 1000000")
    journal = Journal(Path(state) / "journal.sqlite")
    made = journal.make_token(args.uses, units.parse_duration(args.valid) / 1e9)
    journal.close()
    _common.print_json({"schema_version": 1, "token": made, "uses": args.uses}) if args.json else print(made)
    return 0
