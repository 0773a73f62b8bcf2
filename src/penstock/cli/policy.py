# SPDX-License-Identifier: Apache-2.0
"""Policies of a site: what they would have done, and what they are elsewhere.

penstock policy try site.toml --since 7d
penstock policy tbf site.toml --cpts 4
"""

import argparse
import importlib
import pkgutil

from penstock.cli import _policy

HELP = "policies: check, try, translate"


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
