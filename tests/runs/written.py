# SPDX-License-Identifier: Apache-2.0
"""Histories of programs that write files, for tests of what learns from them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.model import writers
from penstock.runs import record, segments

T0 = 1_790_000_000 * 10**9
S = 10**9


def put(
    history: Path,
    program: str,
    number: int,
    rows: Sequence[tuple[bytes, int, int]],
    ranks: int = 0,
    status: int = 0,
    job: str = "",
    seconds: float = 10.0,
    layout: record.Layout | None = None,
    request: int = 1 << 20,
    **begin: Any,
) -> bytes:
    """One run on one node: rows of (name, bytes, rank), all of it written in `seconds` by the slowest rank."""
    job = job or str(writers.job_of(number))
    run = record.run_id(job, program, str(number))
    start = T0 + number * 3600 * S
    last = max((rank for _, _, rank in rows), default=0)
    ranked = ranks > 0
    processes = [
        record.Process(
            pid=100 + r,
            ppid=99,
            start_ns=start,
            end_ns=start + 20 * S,
            rank=r if ranked else -1,
            size=ranks,
            exe=f"/opt/bin/{program}".encode(),
            argv=[program.encode()],
        )
        for r in range(max(ranks, last + 1))
    ]
    total: dict[int, int] = {}
    for _, size, rank in rows:
        total[rank] = total.get(rank, 0) + size
    most = max([*total.values(), 1])
    files = [
        record.File(
            path=name,
            process=rank,
            pid=100 + rank,
            rank=rank if ranked else -1,
            opens=1,
            writes=max(size // request, 1),
            bytes_written=size,
            highest_offset=size,
            common_sizes=[(request, max(size // request, 1))],
            first_ns=start + S + i,
            last_ns=start + 9 * S,
            write_ns=int(seconds * S * size / most),
            write_sampled=4,
            filesystem="lustre",
            layout=layout,
        )
        for i, (name, size, rank) in enumerate(rows)
    ]
    node = record.Node("n1", 1, start + 21 * S, True, processes, [], files)
    head = {"job": job, "job_source": "SLURM_JOB_ID", "node": "n1", "user": "ann", "start_ns": start}
    payloads: list[record.Payload] = [
        record.Begin(**{**head, "argv": [program.encode()], "expected_ranks": ranks} | begin),  # type: ignore[arg-type]
        node,
        record.End("n1", status, 0, start + 21 * S),
    ]
    segments.append(history, "n1", [segments.pack(run, payload) for payload in payloads])
    return run
