# SPDX-License-Identifier: Apache-2.0
"""Policies of a site: checked, tried on the history, shown, changed while they hold, explained, translated.

penstock policy check site.toml
penstock policy try site.toml --since 7d
penstock policy set "all metadata" 250k/s
penstock policy explain --job 4711
penstock policy tbf site.toml --cpts 4
"""

import argparse
import importlib
import pkgutil

from penstock.cli import _policy

HELP = "policies: check, try, show, set, explain, translate"


def register(parser: argparse.ArgumentParser) -> None:
    rows = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for found in sorted(pkgutil.iter_modules(_policy.__path__), key=lambda m: m.name):
        module = importlib.import_module(f"{_policy.__name__}.{found.name}")
        row = rows.add_parser(
            found.name.rstrip("_"),  # try is a word of Python's
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.register(row)
        row.set_defaults(run_what=module.run)


def run(args: argparse.Namespace) -> int:
    return int(args.run_what(args) or 0)
