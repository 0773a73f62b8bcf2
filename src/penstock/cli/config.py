# SPDX-License-Identifier: Apache-2.0
"""Settings: what holds, where it comes from, whether a file is right.

penstock config show --origin
penstock config check ~/.config/penstock/penstock.toml
penstock config template > ~/.config/penstock/penstock.toml
"""

import argparse

from penstock.cli import _common

HELP = "show and check settings"


def register(parser: argparse.ArgumentParser) -> None:
    rows = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    show = rows.add_parser("show", help="every setting and its value")
    show.add_argument("name", nargs="*", metavar="NAME", help="only these")
    show.add_argument("--origin", action="store_true", help="also where each value comes from")
    show.add_argument("--json", action="store_true", help="as one JSON document")
    _common.add_settings(show)
    check = rows.add_parser("check", help="is this file of settings right?")
    check.add_argument("file", metavar="FILE")
    rows.add_parser("template", help="a file with every setting, commented out")


def run(args: argparse.Namespace) -> int:
    from penstock.base import settings

    if args.what == "template":
        print(settings.template(), end="")
    elif args.what == "check":
        found = settings.read_file(args.file, required=True)
        print(f"{args.file}: {len(found)} setting{'s' * (len(found) != 1)}, all right")
    else:
        show(args)
    return 0


def show(args: argparse.Namespace) -> None:
    """Print the settings asked for."""
    from penstock.base import settings
    from penstock.base.errors import UsageError

    held = _common.settings_of(args)
    for name in args.name:
        if name not in held:
            raise UsageError(f"there is no setting {name!r}{settings.nearest(name, list(held))}")
    for sentence in settings.stray_variables(held.env):
        _common.note(sentence)
    values = [held.values_by_name[name] for name in (args.name or held)]
    if args.json:
        rows = [
            {"name": v.setting.name, "value": v.value, "text": v.text, "origin": v.origin} for v in values
        ]
        _common.print_json({"schema_version": 1, "settings": rows})
        return
    width = max(len(v.setting.name) for v in values)
    shown = max(len(v.text) for v in values)
    for v in values:
        line = f"{v.setting.name:<{width}} = {v.text:<{shown}}"
        print(f"{line}  # {v.origin}" if args.origin else line.rstrip())
