# SPDX-License-Identifier: Apache-2.0
"""Run a program and record what it does with storage.

penstock run -- python train.py
penstock run --mount /scratch -- mpirun -n 8 ./app
penstock run --place --mount /scratch -- mpirun -n 16 ./app
penstock run --auto --mount /scratch -- ./app
penstock run --limit metadata=5k/s --limit data=200MiB/s@/scratch/big -- ./app

Exit status, signals, streams and terminal are the program's own.  On several nodes, start the program itself through
penstock-run: srun penstock-run ./app.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing's, without importing it
if TYPE_CHECKING:
    import argparse

    from penstock.base.settings import Settings

HELP = "run a program and record what it does with storage"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mount",
        action="append",
        default=[],
        metavar="PATH",
        help="a file system under control, besides what is recorded anyway",
    )
    parser.add_argument(
        "--stages", metavar="A:B", help="what is done to calls: record, pass (the default is record)"
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="CALLS=RATE[@PATH]",
        help="no more than so many calls or bytes a second, of all processes on a node together: metadata=5k/s, "
        "open=100/s, data=200MiB/s@/scratch/big (calls: a class, or an operation)",
    )
    parser.add_argument(
        "--place",
        action="store_true",
        help="put new files on targets with room and bandwidth, as the program's last runs let expect them",
    )
    parser.add_argument(
        "--tune",
        action="store_true",
        help="give new files the stripe count and size that earlier runs let expect the most of",
    )
    parser.add_argument("--auto", action="store_true", help="record, tune and place")
    parser.add_argument(
        "--plan-file",
        metavar="FILE",
        help="write the limits and placement there and start nothing: for PENSTOCK_PLAN=FILE srun penstock-run ./app",
    )
    parser.add_argument(
        "--catalog",
        metavar="FILE",
        help="keep this catalog of the tree that it lies in (or of catalog.root) as files are written",
    )
    parser.add_argument(
        "--serve",
        metavar="CATALOG",
        help="answer what the program asks about files and folders from this catalog, where they are unchanged",
    )
    parser.add_argument("--no-record", action="store_true", help="record nothing")
    parser.add_argument("-v", "--verbose", action="store_true", help="say at the end where the record is")
    from penstock.cli import _common

    _common.add_settings(parser)
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="the program; put -- before it")
    parser.add_argument("arguments", nargs="...", metavar="ARGUMENT", help="what it is called with")


def quickly(words: list[str]) -> None:
    """Start the program at once where nothing but the command was said, here, in a file, or by a variable: each
    module that is loaded costs look-ups on what is often a busy file system.  Else return."""
    from penstock.base import places

    said = {name for name in os.environ if name.startswith("PENSTOCK_")} - launch_variables()
    if words[:1] != ["--"] or len(words) < 2 or said:
        return
    tuned = f"{places.state_dir(os.environ, os.environ.get('PENSTOCK_STATE_DIR', ''))}/tune.json"
    if any(map(os.path.exists, (places.SITE_CONFIG, places.user_config(os.environ), tuned))):
        return
    from penstock.control import launch

    launch.run({}, words[1:])


def launch_variables() -> set[str]:
    """Variables that need no checking here: paths, words, and what a run sets for the programs in it."""
    return {
        "PENSTOCK_" + name
        for name in ("STATE_DIR", "HISTORY_DIR", "RUN", "BOARD", "LOG", "DISABLE", "RUN_DETECT")
    }


def limits_of(words: list[str]) -> list[tuple[int, int, bytes]]:
    """The plan of limits by hand; nothing for none."""
    if not words:
        return []
    from penstock.policy import rules
    from penstock.runs import board, limits

    policy = rules.parse_words(words, frozenset(board.operations()))
    data = limits.spec([limits.of(limit) for limit in policy.limits], lease_s=10)
    return [(limits.SECTION, limits.VERSION, data)]


def tuned_anyway(held: Settings) -> bool:
    """Is `apply` the mode of tuning, for all programs or (tune.json) for some?  The tuner is
    asked only then: it is heavy."""
    said = held.state_dir / "tune.json"
    if held["tune.mode"] != "apply" and not said.exists():
        return False
    from penstock.control import tuner

    return tuner.applies_anyway(held)


def placed_by(args: argparse.Namespace, command: list[str]) -> tuple[list[tuple[int, int, bytes]], int]:
    """The plan of placement and tuning, and where it is waited for if it comes later; what there is to be said of it is
    said before the program starts."""
    place, tune = args.place or args.auto, args.tune or args.auto
    from pathlib import Path

    from penstock.cli import _common

    if not place and not tune and not tuned_anyway(_common.settings_of(args)):
        return [], -1
    from penstock.control import placing

    held = _common.settings_of(args)
    if args.plan_file is not None:
        placing.close_plans_of(Path(args.plan_file), held.state_dir)
    made = placing.prepare(held, command, args.mount, args.plan_file is not None, place, tune)
    for note in made.notes:
        _common.note(note)
    return made.parts(), made.waits


def served_by(args: argparse.Namespace) -> list[tuple[int, int, bytes]]:
    """What programs are answered from; a catalog that cannot be used is no reason not to start them."""
    if args.serve is None:
        return []
    from pathlib import Path

    from penstock.base.errors import PenstockError, UsageError
    from penstock.catalog import serving
    from penstock.cli import _common

    if args.plan_file is not None:
        raise UsageError("--serve holds for this node alone; leave --plan-file out")
    held = _common.settings_of(args)
    try:
        made = serving.prepare(args.serve, -(-held["catalog.max_age"] // 1_000_000_000))
    except PenstockError as error:
        text = f"nothing is answered from the catalog: {error}"
        serving.say_in_log(Path(os.environ.get("PENSTOCK_LOG") or f"{held['state_dir']}/penstock.log"), text)
        _common.note(text)
        return []
    if args.verbose or made.fresh < made.folders:
        _common.note(f"{made.fresh} of {made.folders} folders of {args.serve} are answered from it")
    return [made.part()]


def kept_root(held: Settings) -> str:
    """The root of the catalog that is to be kept.  One that cannot be is an error before the program starts: who names
    it wants it."""
    from pathlib import Path

    from penstock.catalog import capture

    return os.fsdecode(capture.root_of(Path(held["catalog.file"]), os.fsencode(held["catalog.root"])))


def run(args: argparse.Namespace) -> int:
    from penstock.base import settings
    from penstock.base.errors import UsageError
    from penstock.cli import _common
    from penstock.control import launch

    if args.command is None and not (
        args.plan_file is not None and args.limit and not (args.place or args.tune or args.auto)
    ):
        raise UsageError("which command? penstock run -- ./app")
    command = [args.command, *args.arguments]
    served = served_by(args)
    placed, waits = placed_by(args, command)
    parts = [*limits_of(args.limit), *placed, *served]
    plan = b""
    if parts:
        from penstock.runs import limits

        plan = limits.plan_file(*parts)
    if args.plan_file is not None:
        from pathlib import Path

        if not plan:
            raise UsageError(
                "--plan-file needs a --limit, or --place or --tune and something to place, to write"
            )
        _common.write_beside(Path(args.plan_file), plan)
        return 0
    if args.stages is not None:
        args.set.append(f"run.stages={args.stages}")
    if args.catalog is not None:
        args.set.append(f"catalog.file={args.catalog}")
    held = dict(_common.settings_of(args))
    if args.catalog is not None:
        held["catalog.root"] = kept_root(_common.settings_of(args))
    if args.no_record:
        held["run.stages"] = tuple(stage for stage in held["run.stages"] if stage != "record")
    if served:
        held["run.stages"] = ("serve", *held["run.stages"])
    if args.mount:
        named = settings.BY_NAME["run.mounts"].type.read(":".join(args.mount))
        held["run.mounts"] = (*held["run.mounts"], *named)
    launch.run(held, command, args.verbose, plan, waits)
