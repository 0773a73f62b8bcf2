# SPDX-License-Identifier: Apache-2.0
"""Frames and histories made by hand, for tests of what reads them."""

import types
import typing
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from penstock.runs import record, segments

T0 = 1_790_000_000 * 10**9
S = 10**9
MIB = 2**20


def run_of(number: int = 1) -> bytes:
    return record.run_id(str(4700 + number), "0", f"token{number}")


def begin(number: int = 1, **fields: Any) -> record.Begin:
    given: dict[str, Any] = {
        "job": str(4700 + number),
        "job_source": "SLURM_JOB_ID",
        "node": "n1",
        "uid": 0,
        "user": "ann",
        "argv": [b"mpirun", b"-n", b"8", b"./ior", b"-a", b"POSIX"],
        "cwd": b"/scratch/ann",
        "start_ns": T0 + number * 100 * S,
        "expected_ranks": 8,
        "launcher": "penstock run",
        "writer": "0.1.0",
    }
    return record.Begin(**given | fields)


def process(rank: int, start: int, **fields: Any) -> record.Process:
    given: dict[str, Any] = {
        "pid": 100 + rank,
        "ppid": 99,
        "start_ns": start,
        "end_ns": start + 10 * S,
        "rank": rank,
        "size": 8,
        "exe": b"/opt/ior/bin/ior",
        "argv": [b"./ior", b"-a", b"POSIX"],
    }
    return record.Process(**given | fields)


def file(path: bytes, index: int, rank: int, start: int, **fields: Any) -> record.File:
    given: dict[str, Any] = {
        "path": path,
        "process": index,
        "pid": 100 + rank,
        "rank": rank,
        "opens": 2,
        "reads": 64,
        "writes": 128,
        "metas": 3,
        "bytes_read": 64 * MIB,
        "bytes_written": 128 * MIB,
        "common_sizes": [(MIB, 180), (4096, 12)],
        "read_sizes": [0, 0, 4, 0, 60, 0, 0, 0, 0, 0],
        "write_sizes": [0, 0, 8, 0, 120, 0, 0, 0, 0, 0],
        "reads_sequential": 63,
        "writes_sequential": 127,
        "reads_consecutive": 63,
        "writes_consecutive": 127,
        "switches": 1,
        "first_ns": start + S,
        "last_ns": start + 9 * S,
        "read_ns": S,
        "write_ns": 3 * S,
        "meta_ns": S // 10,
        "read_sampled": 8,
        "write_sampled": 16,
        "meta_sampled": 5,
        "highest_offset": 128 * MIB,
        "filesystem": "lustre",
    }
    return record.File(**given | fields)


def node(name: str, ranks: list[int], number: int = 1, seq: int = 1, shared: bool = True) -> record.Node:
    """A node whose ranks write one shared file, or one each."""
    start = T0 + number * 100 * S
    layout = record.Layout(xattr="lustre.lov", stripe_count=4, stripe_bytes=MIB, targets=[0, 1, 2, 3])
    files = [
        file(
            b"/scratch/ann/out.dat" if shared else b"/scratch/ann/out.%04d" % rank,
            i,
            rank,
            start,
            layout=layout,
        )
        for i, rank in enumerate(ranks)
    ]
    return record.Node(
        node=name,
        seq=seq,
        time_ns=start + 11 * S,
        final=True,
        processes=[process(rank, start) for rank in ranks],
        ops=[
            record.Op("open", "metadata", 2 * len(ranks), 0, S // 10, 5),
            record.Op("stat", "metadata", 30 * len(ranks), 3, S // 10, 5),
            record.Op("write", "data", 128 * len(ranks), 0, 3 * S, 16, 128 * MIB * len(ranks)),
        ],
        files=files,
    )


def end(number: int = 1, **fields: Any) -> record.End:
    return record.End(**{"node": "n1", "status": 0, "end_ns": T0 + number * 100 * S + 11 * S} | fields)


def payloads(number: int = 1, shared: bool = True) -> list[record.Payload]:
    """A whole run on two nodes."""
    return [
        begin(number),
        node("n1", [0, 1, 2, 3], number, shared=shared),
        node("n2", [4, 5, 6, 7], number, shared=shared),
        end(number),
    ]


def put(history: Path, number: int, found: list[record.Payload]) -> None:
    """Append each payload to its node's segment."""
    for payload in found:
        segments.append(history, payload.node or "n1", [segments.pack(run_of(number), payload)])


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type of the schema, odd ones too."""
    args = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if kind is int:
        return st.one_of(st.integers(-2, 9), st.integers(-(2**63), 2**64 - 1))
    if kind is str:
        return st.text(max_size=6)
    if kind is bytes:
        return st.binary(max_size=8)
    if kind is float:
        return st.floats(allow_nan=False)
    if origin is list:
        return st.lists(anything(args[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(anything(args[0]), anything(args[1]), max_size=2)
    if origin is tuple:
        return st.tuples(*map(anything, args))
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(anything, args))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {f.name: anything(f.type) for f in msgspec.structs.fields(kind)}
        return st.builds(kind, **fields)
    return st.from_type(kind)


# Frames of a run on few nodes, so that some replace others.
NODES = st.sampled_from(["n1", "n2", "n3"])
PAYLOADS = st.one_of(*map(anything, record.TYPES.values())).flatmap(
    lambda payload: st.builds(msgspec.structs.replace, st.just(payload), node=NODES)
)
