# SPDX-License-Identifier: Apache-2.0
"""penstock catalog follow: what penstock-run starts beside a program whose files go into a catalog."""

import argparse
from typing import Any


def register(rows: Any) -> None:
    it = rows.add_parser(
        "follow",
        help="keep a catalog while a run goes on (penstock run --catalog starts this)",
        epilog="example: penstock run --catalog /scratch/set.cat -- ./simulation",
    )
    it.add_argument("file", metavar="FILE")
    it.add_argument("--root", required=True, metavar="DIR", help="the folder that the catalog is of")
    it.add_argument("--board", required=True, metavar="FOLDER", help="the run's board")
    it.add_argument(
        "--ring", required=True, type=int, metavar="FD", help="an open descriptor of the board's ring"
    )
    it.set_defaults(act=follow)


def follow(args: argparse.Namespace) -> int:
    """What it says goes to the log: penstock-run has seen to that."""
    import os
    from pathlib import Path

    from penstock.catalog import capture
    from penstock.cli import _common

    done = capture.follow(Path(args.file), os.fsencode(args.root), args.ring, args.board, alive=0)
    _common.note(f"the catalog {args.file} was kept: {done.looked} names were looked at")
    return 0
