# SPDX-License-Identifier: Apache-2.0
"""The command line: one module a verb.  Each has `HELP` (a line), `register(parser)` and `run(args) -> int`.

A verb's module imports nothing heavy at its head: `penstock --help` reads them all.
"""

from __future__ import annotations

import errno
import io
import os
import sys

from penstock import __version__
from penstock.base.errors import PenstockError

TYPE_CHECKING = False  # typing's, without importing it
if TYPE_CHECKING:
    import argparse


def verbs() -> list[str]:
    """The names of all verbs: the modules of this package."""
    import pkgutil

    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def make_parser(only: str | None = None, options: bool = True) -> argparse.ArgumentParser:
    """The whole parser, or (quicker) the one with a single verb filled in, or one that only names the verbs."""
    import argparse
    import importlib

    parser = argparse.ArgumentParser(
        prog="penstock",
        description="An I/O control plane for parallel file systems.",
        epilog="example: penstock run -- python train.py; penstock report",
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    parser.add_argument("--debug", action="store_true", help="show where in the code an error came from")
    rows = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name in [only] if only else verbs():
        module = importlib.import_module(f"{__name__}.{name}")
        sub = rows.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if options:
            module.register(sub)
            sub.set_defaults(run=module.run)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Parse, call the verb, and turn errors into one sentence and an exit status."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["run"]:
        from penstock.cli import run

        run.quickly(words[1:])
    first = next((w for w in words if not w.startswith("-")), None)
    known = first in verbs()
    args = make_parser(first if known else None, options=known).parse_args(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a terminal may know only ASCII
    try:
        status = int(args.run(args) or 0)
        if sys.stdout:
            sys.stdout.flush()  # here, where what goes wrong can be told
        return status
    except PenstockError as error:
        if args.debug:
            raise
        print(f"penstock {args.verb}: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _drop_output()
        return 141
    except OSError as error:
        if args.debug:
            raise
        where = f"{error.filename}: " if error.filename else ""
        what = "the answer cannot be written: " if error.errno == errno.ENOSPC and not where else ""
        print(f"penstock {args.verb}: {what}{where}{error.strerror or error}", file=sys.stderr)
        _drop_output()
        return 1


def _drop_output() -> None:
    """What standard output did not take is not tried again when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
