# SPDX-License-Identifier: Apache-2.0
"""Is a policy right?  Each mistake with file, line and a sentence; nothing is asked of any controller.

penstock policy check site.toml
"""

import argparse

from penstock.cli import _common

HELP = "name each mistake of a policy file"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the policy")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace) -> int:
    import sys
    from pathlib import Path

    from penstock.base.errors import UsageError
    from penstock.base.text import plural
    from penstock.runs import board, limits

    try:
        text = Path(args.file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"the policy {args.file} cannot be read ({why})") from error
    policy, mistakes = limits.parse(text, frozenset(board.operations()))
    if args.json:
        rows = [{"file": args.file, "line": m.line, "text": m.text} for m in mistakes]
        names = [limit.name for limit in policy.limits] if policy else []
        _common.print_json({"schema_version": 1, "mistakes": rows, "limits": names})
    elif policy is not None:
        rules = plural(len(policy.jobs), "rule")
        print(f"{args.file} is right: {plural(len(policy.limits), 'limit')}, {rules} for jobs")
    for m in mistakes if not args.json else ():
        print(f"{args.file}:{m.line}: {m.text}", file=sys.stderr)
    return UsageError.status if mistakes else 0
