# SPDX-License-Identifier: Apache-2.0
"""The schema of the record: what frames of the history hold.  The collector in C writes the same keys.

Invariants:
1. A payload is a MessagePack map with short string keys.  Unknown keys are ignored and absent ones have a
   default, so old readers read new writers and the other way round.  A key never changes its meaning or
   its type.
2. Text that came from a program or the kernel (paths, arguments) is `bin`, lossless; what Penstock or the
   scheduler named (node, job, operation) is `str`.
3. Times are nanoseconds: an instant is CLOCK_REALTIME since 1970, a duration is a plain count.  Integers
   are >= 0, except ranks, where -1 means "none known".
4. Time spent is sampled and scaled: beside each sum stands how many calls were timed.
5. A node frame says all that the node saw: of several of one run and node the one with the highest `seq`
   holds.
"""

from enum import IntEnum

import msgspec

VERSION = 1

# Upper bounds (exclusive) of the first nine classes of request sizes; the tenth holds the rest.  Darshan's.
SIZE_BOUNDS = (
    101,
    1 * 1024 + 1,
    10 * 1024 + 1,
    100 * 1024 + 1,
    1 * 1024**2 + 1,
    4 * 1024**2 + 1,
    10 * 1024**2 + 1,
    100 * 1024**2 + 1,
    1024**3 + 1,
)
SIZE_NAMES = ("0-100", "-1K", "-10K", "-100K", "-1M", "-4M", "-10M", "-100M", "-1G", "1G+")


class Kind(IntEnum):
    """What a frame is."""

    BEGIN = 1
    NODE = 2
    END = 3
    MARK = 4


class FileKind(IntEnum):
    """What a row of `files` stands for."""

    FILE = 0
    DIRECTORY = 1  # a directory: listing it, metadata calls on files never opened, files that did not fit
    UNNAMED = 2  # descriptors whose path is not known


class Begin(msgspec.Struct, frozen=True):
    """A run began on a node (every node may write one; the earliest leads)."""

    job: str = ""
    job_source: str = msgspec.field(name="jsrc", default="")  # "SLURM_JOB_ID" ... or "made up"
    step: str = ""
    node: str = ""
    uid: int = 0
    user: str = ""
    argv: list[bytes] = []
    cwd: bytes = b""
    start_ns: int = msgspec.field(name="t0", default=0)
    expected_ranks: int = msgspec.field(name="ranks", default=0)  # 0: not known
    launcher: str = msgspec.field(name="by", default="")  # "penstock run", "penstock-run", "collect"
    writer: str = msgspec.field(name="ver", default="")  # Penstock's version


class Process(msgspec.Struct, frozen=True):
    """One process as its node saw it; exec keeps the process and changes `exe`."""

    pid: int = 0
    ppid: int = 0
    start_ns: int = msgspec.field(name="t0", default=0)
    end_ns: int | None = msgspec.field(name="t1", default=None)  # None: not seen to end
    rank: int = -1
    size: int = 0  # of the rank's world; 0: not known
    exe: bytes = b""
    argv: list[bytes] = []
    threads: int = msgspec.field(name="thr", default=1)
    mpi_files: int = msgspec.field(name="mpif", default=0)  # MPI_File_open calls
    mpi_largest: int = msgspec.field(name="mpic", default=0)  # the largest communicator of one


class Op(msgspec.Struct, frozen=True):
    """One operation (a name of calls.def), summed over the node's processes."""

    name: str = msgspec.field(name="op", default="")
    group: str = msgspec.field(name="cls", default="")  # "metadata", "data", "directory", "xattr", "lock"
    calls: int = msgspec.field(name="n", default=0)
    errors: int = msgspec.field(name="err", default=0)
    time_ns: int = msgspec.field(name="ns", default=0)  # scaled from the sampled calls
    sampled: int = msgspec.field(name="k", default=0)  # calls that were timed
    bytes: int = msgspec.field(name="by", default=0)


class Layout(msgspec.Struct, frozen=True):
    """Where a file lies, as the collector read it afterwards."""

    xattr: str = msgspec.field(name="x", default="")
    value: bytes = msgspec.field(name="v", default=b"")
    stripe_count: int = msgspec.field(name="n", default=0)
    stripe_bytes: int = msgspec.field(name="sz", default=0)
    targets: list[int] = msgspec.field(name="tgt", default_factory=list)


class File(msgspec.Struct, frozen=True):
    """One file as one process used it; a directory with data stands for files that did not fit."""

    path: bytes = msgspec.field(name="p", default=b"")
    kind: int = msgspec.field(name="kind", default=0)  # FileKind
    files: int = msgspec.field(name="nf", default=1)  # how many files a sum stands for; 0: not known
    process: int = msgspec.field(name="proc", default=-1)  # index into the frame's `procs`
    pid: int = 0
    rank: int = -1
    threads: int = msgspec.field(name="thr", default=1)
    opens: int = msgspec.field(name="o", default=0)
    reads: int = msgspec.field(name="r", default=0)
    writes: int = msgspec.field(name="w", default=0)
    metas: int = msgspec.field(name="m", default=0)  # metadata calls, opens not among them
    bytes_read: int = msgspec.field(name="br", default=0)
    bytes_written: int = msgspec.field(name="bw", default=0)
    common_sizes: list[tuple[int, int]] = msgspec.field(
        name="cs", default_factory=list
    )  # (size, count), <= 4
    read_sizes: list[int] = msgspec.field(name="hr", default_factory=list)  # ten classes, SIZE_BOUNDS
    write_sizes: list[int] = msgspec.field(name="hw", default_factory=list)
    reads_sequential: int = msgspec.field(name="rs", default=0)  # began at or after the end of the one before
    writes_sequential: int = msgspec.field(name="ws", default=0)
    reads_consecutive: int = msgspec.field(name="rc", default=0)  # began exactly there
    writes_consecutive: int = msgspec.field(name="wc", default=0)
    switches: int = msgspec.field(name="swi", default=0)  # between reading and writing
    first_ns: int = msgspec.field(name="t0", default=0)
    last_ns: int = msgspec.field(name="t1", default=0)
    read_ns: int = msgspec.field(name="nr", default=0)
    write_ns: int = msgspec.field(name="nw", default=0)
    meta_ns: int = msgspec.field(name="nm", default=0)
    read_sampled: int = msgspec.field(name="kr", default=0)
    write_sampled: int = msgspec.field(name="kw", default=0)
    meta_sampled: int = msgspec.field(name="km", default=0)
    highest_offset: int = msgspec.field(name="hi", default=0)
    maps: int = msgspec.field(name="mm", default=0)  # mmap calls: what is read or written there is not seen
    mpi_ranks: int = msgspec.field(name="cz", default=0)  # opened by MPI_File_open: its communicator's size
    filesystem: str = msgspec.field(name="fs", default="")  # type of the mount: "lustre", "ext4"
    layout: Layout | None = msgspec.field(name="lay", default=None)


class Reason(msgspec.Struct, frozen=True):
    """Why something is partial: a stable word, and how much."""

    word: str = msgspec.field(name="why", default="")  # see docs/guide/report.md
    count: int = msgspec.field(name="n", default=0)
    text: str = msgspec.field(name="txt", default="")


class Limit(msgspec.Struct, frozen=True):
    """What one limit cost the programs of a node."""

    name: str = msgspec.field(name="b", default="")  # as the limit is called; "": it was lifted meanwhile
    bytes: bool = msgspec.field(name="by", default=False)  # it counts bytes, else calls by weight
    shadow: bool = msgspec.field(name="sh", default=False)  # it delayed nobody: what follows would have been
    released: bool = msgspec.field(name="open", default=False)  # everything passed when this was written
    rate_milli: int = msgspec.field(
        name="rate", default=0
    )  # calls or bytes in 1,000 seconds; as it stood then
    units: int = msgspec.field(name="u", default=0)  # asked for: bytes, or 1/1024 of a call of weight one
    delayed: int = msgspec.field(name="n", default=0)  # calls that waited for this one longest
    waited_ns: int = msgspec.field(name="ns", default=0)  # how long, all together
    longest_ns: int = msgspec.field(name="max", default=0)


class Node(msgspec.Struct, frozen=True):
    """All that one node saw of a run."""

    node: str = ""
    seq: int = 0
    time_ns: int = msgspec.field(name="t", default=0)  # when this was harvested
    final: bool = msgspec.field(name="fin", default=False)  # every process had ended
    processes: list[Process] = msgspec.field(name="procs", default_factory=list)
    ops: list[Op] = msgspec.field(name="ops", default_factory=list)
    files: list[File] = msgspec.field(name="files", default_factory=list)
    # Share of the file system's own count that Penstock did not see; None: the file system does not count.
    unseen_ratio: float | None = msgspec.field(name="uns", default=None)
    partial: list[Reason] = msgspec.field(name="part", default_factory=list)
    overflow: dict[str, int] = msgspec.field(
        name="over", default_factory=dict
    )  # table or limit -> what did not fit
    # Of a plan of placement, by board.PLACED; also `plan_ns` (which plan), `left_out`, `checked`, `as_planned`,
    # and `why_none`: 1 + enum penstock_place_why, where there was to be a plan and is none.
    placed: dict[str, int] = msgspec.field(name="plc", default_factory=dict)
    limits: list[Limit] = msgspec.field(name="lim", default_factory=list)
    # Answered from a catalog: by native/board/serve.h's names; `ended`: 1 when answers ended before the run did.
    served: dict[str, int] = msgspec.field(name="srv", default_factory=dict)


class End(msgspec.Struct, frozen=True):
    """The run's command ended, as whoever started it saw it."""

    node: str = ""
    status: int | None = msgspec.field(name="st", default=None)  # exit status; None with a signal or unknown
    signal: int = msgspec.field(name="sig", default=0)
    end_ns: int = msgspec.field(name="t1", default=0)


class Mark(msgspec.Struct, frozen=True):
    """A remark on the whole run: it is partial, why, and the command that would have seen all; or its unseen share."""

    node: str = ""
    word: str = msgspec.field(name="why", default="")
    text: str = msgspec.field(name="txt", default="")
    hint: str = msgspec.field(name="try", default="")
    time_ns: int = msgspec.field(name="t", default=0)
    # Of its job, the share that file systems counted and no record holds; None: this mark is about something else.
    unseen_ratio: float | None = msgspec.field(name="uns", default=None)


Payload = Begin | Node | End | Mark
TYPES: dict[Kind, type[Payload]] = {Kind.BEGIN: Begin, Kind.NODE: Node, Kind.END: End, Kind.MARK: Mark}
KINDS = {payload: kind for kind, payload in TYPES.items()}
_DECODERS = {kind: msgspec.msgpack.Decoder(payload) for kind, payload in TYPES.items()}
_ENCODER = msgspec.msgpack.Encoder()

_FNV_OFFSET = 0x6C62272E07BB014262B821756295C58D
_FNV_PRIME = 0x0000000001000000000000000000013B


def run_id(job: str, step: str, token: str) -> bytes:
    """The run's 16 bytes: FNV-1a of 128 bits over job, 0x1f, step, 0x1f, token; big-endian."""
    value = _FNV_OFFSET
    for byte in "\x1f".join((job, step, token)).encode("utf-8", "surrogateescape"):
        value = ((value ^ byte) * _FNV_PRIME) & (2**128 - 1)
    return value.to_bytes(16, "big")


def encode(payload: Payload) -> bytes:
    """The MessagePack map of a payload."""
    return _ENCODER.encode(payload)


def decode(kind: Kind, data: bytes) -> Payload:
    """The payload of a frame; ValueError (msgspec's) when it is not of this schema."""
    try:
        return _DECODERS[kind].decode(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
