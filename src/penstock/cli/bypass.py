# SPDX-License-Identifier: Apache-2.0
"""What escapes: processes of this node's jobs that no limit and no record reaches, and why.

penstock bypass                          # this user's jobs; all jobs with CAP_SYS_PTRACE
penstock bypass 4711 --mount /pfs        # a job that has ended: its record against the servers' own counts
penstock bypass --every 30s --write /run/penstock-bypass/bypass.json
"""

import argparse
from typing import TYPE_CHECKING, Any

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.policy.bypass import Gap, Reason

HELP = "what escapes limits and records, and why"


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", metavar="JOB", help="only this job")
    parser.add_argument(
        "--mount", metavar="DIR", help="compare the job's record with what this file system counted for it"
    )
    parser.add_argument("--every", metavar="TIME", help="look again and again")
    parser.add_argument(
        "--write", metavar="FILE", help="put what is found there, for agent and penstock jobs"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, a document a look")
    _common.add_settings(parser)


def run(args: argparse.Namespace) -> int:
    from penstock.base.errors import UsageError

    if args.mount:
        if not args.job:
            raise UsageError("name the job whose record is to be compared: penstock bypass JOB --mount DIR")
        return _compare(args)
    return _look(args)


def _look(args: argparse.Namespace) -> int:
    import time
    from pathlib import Path

    from penstock.base import units
    from penstock.control import bypass

    every_s = units.parse_duration(args.every) / 1e9 if args.every else 0.0
    while True:
        jobs = [job for job in bypass.check() if args.job in (None, job.id)]
        if args.write:
            bypass.write(Path(args.write), jobs)
        if args.json:
            rows = [
                {
                    "job": job.id,
                    "bypassing": job.bypassing,
                    "processes": job.processes,
                    "unseen": job.unseen,
                    "reasons": _reasons(job.reasons),
                }
                for job in jobs
            ]
            _common.print_json({"schema_version": 1, "jobs": rows})
        elif not args.write:
            _print(jobs)
        if not every_s:
            return 0
        time.sleep(every_s)


def _print(jobs: "list[Any]") -> None:
    for job in jobs:
        state = "bypassing" if job.bypassing else "seen"
        print(f"{job.id}  {state}  {job.processes - job.unseen} of {job.processes} processes seen")
        for reason in job.reasons:
            doubt = "" if reason.certain else "perhaps: "
            times = f" ({reason.count} processes)" if reason.count > 1 else ""
            print(f"    {reason.word:<10}  {doubt}{reason.text}{times}")
    if not jobs:
        _common.note("no process under Penstock was found on this node")


def _reasons(found: "list[Reason]") -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [asdict(reason) for reason in found]


def _compare(args: argparse.Namespace) -> int:
    """A job that has ended: all of its runs against the servers."""
    from penstock.policy import bypass

    gap = _gap(args)
    found = bypass.reasons(gap)
    if args.json:
        row = {"job": args.job, "bypassing": bool(found), "reasons": _reasons(found)}
        counts = {"counted": gap.counted, "unseen": gap.unseen, "unseen_ratio": gap.ratio, "by": gap.by}
        of_bytes = {"written_bytes": gap.written_bytes, "unseen_bytes": gap.unseen_bytes}
        _common.print_json({"schema_version": 1, **row, **counts, **of_bytes})
        return 0
    print(f"{args.job}  {'bypassing' if found else 'seen'}")
    for reason in found:
        print(f"    {reason.word:<10}  {reason.text}")
    if not found:
        print(
            f"    of {gap.counted:,} changes that the servers counted {gap.counted - gap.unseen:,} were seen"
        )
    return 0


def _gap(args: argparse.Namespace) -> "Gap":
    from penstock.base.errors import NothingMatchedError
    from penstock.control import unseen
    from penstock.runs.history import History
    from penstock.targets.driver import driver_for

    server = driver_for(args.mount).job_counts()  # before the record is read: what comes in between is no gap
    if args.job not in server:
        raise NothingMatchedError(
            f"{args.mount} has counted nothing for a job {args.job!r}; its job ids come from jobid_var, and are "
            "kept for ten minutes after the last request"
        )
    history = History(_common.settings_of(args), _common.note)
    gap, all_ended = unseen.compare(history, args.job, server[args.job])
    if not all_ended:
        _common.note(f"job {args.job} has not ended: what it did last is not in its record yet")
    return gap
