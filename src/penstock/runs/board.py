# SPDX-License-Identifier: Apache-2.0
"""The board from Python: what its heads say, and all that a job's processes counted on it.

native/board/board.h is the format.  The heads stand here once more as ctypes structures, and a test compares
them with what the compiler makes of the header; everything else is read by the same C code that the collector
uses (native/board/read.c), which takes the files as the hostile input that they are.
"""

import ctypes
import errno
import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum, IntFlag
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock import _native
from penstock.base.errors import PenstockError, VersionError

VERSION = 1
CONTROL_MAGIC = 0x314C5254434B5350
USAGE_MAGIC = 0x31474153554B5350
PREFIXES_MAX = 64
SECTIONS_MAX = 8
LOST_MAX = 16


class Stages(IntFlag):
    """Bits of control.stages, in the order in which a call passes them."""

    SERVE = 1
    LIMIT = 2
    PLACE = 4
    FORWARD = 8
    RECORD = 16
    CATALOG = 32
    PASS = 64


class Under(IntFlag):
    """What a path means."""

    NOTHING = 0
    RECORD = 1
    MOUNT = 2


class Lost(IntEnum):
    """What did not fit or could not be done."""

    CHUNKS = 0
    FILES = 1
    DIRECTORIES = 2
    THREADS = 3
    NAMES = 4
    FDS = 5
    UNKNOWN = 6
    SYSCALLS = 7
    STOCK = 8


PLACED: tuple[str, ...] = _native.place_counts()
"""What became of files that were to be created: native/board/place.h says what each counts."""
_PLACED_OFFSET = 1024


class Prefix(ctypes.LittleEndianStructure):
    _fields_ = [
        ("dev", ctypes.c_uint64),
        ("size", ctypes.c_uint16),
        ("under", ctypes.c_uint8),
        ("zero", ctypes.c_uint8 * 5),
        ("path", ctypes.c_char * 240),
    ]


class Section(ctypes.LittleEndianStructure):
    _fields_ = [
        ("kind", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("offset_bytes", ctypes.c_uint64),
        ("size_bytes", ctypes.c_uint64),
    ]


class Control(ctypes.LittleEndianStructure):
    _fields_ = [
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("head_bytes", ctypes.c_uint32),
        ("control_bytes", ctypes.c_uint64),
        ("usage_max_bytes", ctypes.c_uint64),
        ("usage_bytes", ctypes.c_uint64),
        ("nonce", ctypes.c_uint8 * 16),
        ("run", ctypes.c_uint8 * 16),
        ("boot_id", ctypes.c_uint64),
        ("monotonic_offset_ns", ctypes.c_int64),
        ("agent_pid", ctypes.c_uint32),
        ("uid", ctypes.c_uint32),
        ("stages", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("record_files_max", ctypes.c_uint32),
        ("record_sample_every", ctypes.c_uint32),
        ("otherwise", ctypes.c_uint32),
        ("prefix_count", ctypes.c_uint32),
        ("prefixes", Prefix * PREFIXES_MAX),
        ("sections", Section * SECTIONS_MAX),
        ("chunk_count", ctypes.c_uint32),
        ("zero", ctypes.c_uint32),
    ]


class Usage(ctypes.LittleEndianStructure):
    _fields_ = [
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("zero", ctypes.c_uint32),
        ("nonce", ctypes.c_uint8 * 16),
        ("hint", ctypes.c_uint32),
        ("attached", ctypes.c_uint32),
        ("lost", ctypes.c_uint64 * LOST_MAX),
    ]


# What the structures are called in C, for the test that compares them.
STRUCTURES: dict[str, type[ctypes.LittleEndianStructure]] = {
    "penstock_prefix": Prefix,
    "penstock_section": Section,
    "penstock_control": Control,
    "penstock_usage": Usage,
}


class SeenOp(NamedTuple):
    """An operation of a process, by its number in calls.def."""

    op: int
    calls: int
    errors: int
    time_ns: int  # of the sampled ones alone
    sampled: int


class SeenWay(NamedTuple):
    """One direction of a file."""

    calls: int
    bytes: int
    sequential: int
    consecutive: int
    time_ns: int  # of the sampled ones alone
    sampled: int
    sizes: tuple[int, ...]  # ten classes, record.SIZE_BOUNDS


class SeenFile(NamedTuple):
    """A file as one process used it, over all its threads."""

    kind: int
    name: bytes
    threads: int
    opens: int
    metas: int
    switches: int
    maps: int
    meta_ns: int
    meta_sampled: int
    first_ns: int
    last_ns: int
    highest: int
    files: int
    comm_size: int
    reading: SeenWay
    writing: SeenWay
    common: tuple[tuple[int, int], ...]  # (size, at least so often), the commonest first


class SeenProcess(NamedTuple):
    """A process, over all programs that it was."""

    pid: int
    ppid: int
    start_ticks: int
    pid_namespace: int
    start_ns: int
    start_real_ns: int
    end_ns: int
    run: bytes
    rank: int
    size: int
    threads: int
    execs: int
    mpi_files: int
    mpi_largest: int
    anonymous_read_bytes: int
    anonymous_written_bytes: int
    exe: bytes
    argv: list[bytes]
    ops: list[SeenOp]
    files: list[SeenFile]


class Seen(NamedTuple):
    """All that a board tells."""

    lost: dict[Lost, int]
    attached: int
    skipped: int
    chunks_held: int
    processes: list[SeenProcess]


def _wrong(folder: Path, error: OSError) -> PenstockError:
    if error.errno == errno.EPROTO:
        return VersionError(
            f"{folder} is no board that this Penstock can read: damaged, or of another version"
        )
    return PenstockError(f"the board {folder} cannot be read: {error.strerror}")


def noise() -> list[tuple[str, int]]:
    """The rules that keep noise out of records: system folders, and where Python keeps its modules."""
    return [(path, under) for path, under in _native.board_noise()]


@cache
def operations() -> Mapping[str, str]:
    """The operations of calls.def with their classes, in the order of their numbers."""
    return MappingProxyType(dict(_native.operations()))


def create(
    folder: Path,
    run: bytes,
    stages: Stages,
    otherwise: Under,
    rules: Sequence[tuple[str, int]],
    *,
    files_max: int = 0,
    sample_every: int = 0,
    max_bytes: int = 0,
    place_spots: int = 0,
) -> None:
    """Make a board, complete or not at all; FileExistsError when there is one.  `place_spots`: room for plans."""
    _native.board_create(
        folder, run, stages, otherwise, rules, files_max, sample_every, max_bytes, place_spots
    )


def put_plan(folder: Path, section: bytes, begin: int = 0) -> None:
    """A plan of placement (place_section.py) onto a board, under running programs."""
    try:
        _native.place_put(folder, section, begin)
    except OSError as error:
        why = {errno.ENOSPC: "it has no room for it", errno.EINVAL: "the plan makes no sense"}
        raise PenstockError(
            f"the plan cannot be put onto the board {folder} ({why.get(error.errno or 0, error.strerror)})"
        ) from error


def grow(folder: Path) -> bool:
    """Give `usage` another step of room if it needs one; whether it got one."""
    return bool(_native.board_grow(folder))


def delete(folder: Path) -> None:
    """Remove the board; programs that have it mapped go on, unread."""
    _native.board_delete(folder)


def control(folder: Path) -> Control:
    """The head of `control`; an error says what is wrong with it."""
    data = (folder / "control").read_bytes()[: ctypes.sizeof(Control)]
    if len(data) < ctypes.sizeof(Control):
        raise PenstockError(f"{folder / 'control'} is too short to be a board")
    head = Control.from_buffer_copy(data)
    if head.magic != CONTROL_MAGIC:
        raise PenstockError(f"{folder / 'control'} is not a board")
    if head.version != VERSION:
        raise VersionError(
            f"{folder} is a board of version {head.version}; this Penstock knows version {VERSION}"
        )
    return head


def _file(row: tuple[Any, ...]) -> SeenFile:
    *counts, reading, writing, common = row
    ways = [SeenWay._make(reading), SeenWay._make(writing)]
    return SeenFile._make([*counts, *ways, tuple(pair for pair in common if pair[1])])


def _process(row: tuple[Any, ...]) -> SeenProcess:
    *head, argv, ops, files = row
    words = argv.split(b"\0") if argv else []
    return SeenProcess._make(
        [*head, words, [SeenOp._make(op) for op in ops], [_file(file) for file in files]]
    )


def read(folder: Path) -> Seen:
    """All that counts on the board and was not harvested yet."""
    try:
        lost, attached, skipped, held, processes = _native.board_read(folder)
    except OSError as error:
        raise _wrong(folder, error) from error
    counts = {what: lost[what] for what in Lost if lost[what]}
    return Seen(counts, attached, skipped, held, [_process(row) for row in processes])


def placed(folder: Path) -> dict[str, int]:
    """What the stage `place` counted, by PLACED."""
    try:
        data = (folder / "usage").open("rb")
    except OSError as error:
        raise _wrong(folder, error) from error
    with data as file:
        file.seek(_PLACED_OFFSET)
        raw = file.read(8 * len(PLACED)).ljust(8 * len(PLACED), b"\0")
    return dict(zip(PLACED, struct.unpack(f"<{len(PLACED)}Q", raw), strict=True))
