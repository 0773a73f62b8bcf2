# SPDX-License-Identifier: Apache-2.0
"""Segments: append-only files of checksummed frames, <history>/<node>/<YYYY-MM>.seg.  C writes them too.

A frame, little-endian, HEADER_BYTES then the payload:

    0   4  magic "PSF1"
    4   4  payload's length in bytes, at most MAX_PAYLOAD_BYTES
    8   4  CRC-32C of bytes 12..32 and the payload
    12  2  version of the schema (record.VERSION)
    14  2  kind (record.Kind)
    16  16 run id
    32     payload: a MessagePack map

Invariants:
1. A node alone appends to its segments; jobs of one node take turns by flock on a file on this node
   (`lock_path`), and a batch of frames is one write() with O_APPEND.  A lock that is not had within
   LOCK_WAIT_S is done without: O_APPEND alone keeps batches whole on one node.
2. A batch that was written in part (full disk) is cut off again while the lock is held; without it, it
   stays as damage.
3. Readers never fail on damage: they go on at the next magic whose frame checks, and name what they skipped.
4. An unfinished frame at the end is not damage yet: it may be in the writing.  `next_offset` stays before it.
5. The month is that of the append, in UTC; the directory's mode is 0700 and files' 0600 unless a group
   may read.
"""

import fcntl
import os
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock._native import crc32c
from penstock.base.errors import DeniedError, PenstockError
from penstock.runs import record

MAGIC = b"PSF1"
_HEAD = struct.Struct("<4sII")
_REST = struct.Struct("<HH16s")
HEADER_BYTES = _HEAD.size + _REST.size
MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
LOCK_WAIT_S = 5.0
CUT = "cut short"


@dataclass(frozen=True)
class Frame:
    """One frame whose checksum held."""

    offset: int
    version: int
    kind: int
    run: bytes
    payload: bytes

    def decode(self) -> record.Payload:
        """The payload as a structure of the record; ValueError when it is none."""
        return record.decode(record.Kind(self.kind), self.payload)


@dataclass(frozen=True)
class Damage:
    """Bytes that are no frame."""

    offset: int
    size_bytes: int
    why: str


@dataclass
class Scan:
    """What a segment holds from an offset on."""

    frames: list[Frame] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    next_offset: int = 0  # where to go on reading later
    torn_tail_bytes: int = 0


def pack(run: bytes, payload: record.Payload) -> bytes:
    """A frame ready to be appended."""
    data = record.encode(payload)
    if len(data) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a frame of {len(data)} bytes is larger than {MAX_PAYLOAD_BYTES}")
    rest = _REST.pack(record.VERSION, record.KINDS[type(payload)], run)
    return _HEAD.pack(MAGIC, len(data), crc32c(data, crc32c(rest))) + rest + data


def _frame_at(data: bytes | memoryview, at: int, base: int) -> Frame | int | None:
    """The frame at `at`; the size it would need when data ends before it; None when there is none."""
    if len(data) - at < HEADER_BYTES:
        return HEADER_BYTES
    size: int
    _, size, crc = _HEAD.unpack_from(data, at)
    if size > MAX_PAYLOAD_BYTES:
        return None
    if len(data) - at < HEADER_BYTES + size:
        return HEADER_BYTES + size
    body = bytes(data[at + _HEAD.size : at + HEADER_BYTES + size])
    if crc32c(body) != crc:
        return None
    version, kind, run = _REST.unpack_from(body)
    return Frame(base + at, version, kind, run, body[_REST.size :])


def scan(data: bytes, base: int = 0) -> Scan:
    """All frames in bytes that were read from offset `base` of a segment."""
    result = Scan(next_offset=base)
    at = 0
    while at < len(data):
        found = _frame_at(data, at, base) if data.startswith(MAGIC, at) else None
        if isinstance(found, Frame):
            result.frames.append(found)
            at += HEADER_BYTES + len(found.payload)
            result.next_offset = base + at
            continue
        after = _next_frame(data, at + 1)
        if after < 0:
            result.torn_tail_bytes = len(data) - at
            break
        result.damages.append(Damage(base + at, after - at, "checksum" if found is None else CUT))
        at = after
    return result


def _next_frame(data: bytes, at: int) -> int:
    """Where the next frame that checks begins, -1 when there is none."""
    while (at := data.find(MAGIC, at)) >= 0:
        if isinstance(_frame_at(data, at, 0), Frame):
            return at
        at += 1
    return -1


def read(path: Path, offset: int = 0) -> Scan:
    """The frames of a segment from an offset on."""
    with path.open("rb") as file:
        file.seek(offset)
        return scan(file.read(), offset)


def read_some(path: Path, offset: int, size_bytes: int) -> Scan:
    """Like `read`, but about so much at once; go on at `next_offset` until it stays the same."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(size_bytes)
        while True:
            more = file.read(len(data))
            found = _whole_part(scan(data, offset)) if more else scan(data, offset)
            if not more or found.next_offset > offset:
                return found
            data += more


def _whole_part(found: Scan) -> Scan:
    """What a scan that ended before the file did can be sure of: all before the first frame that was cut."""
    cut = next((d.offset for d in found.damages if d.why == CUT), None)
    if cut is None:
        return found
    frames = [frame for frame in found.frames if frame.offset < cut]
    return Scan(frames, [d for d in found.damages if d.offset < cut], cut)


def read_frame(path: Path, offset: int, size_bytes: int) -> Frame | None:
    """The frame of which the place is known; None when it is not there any more."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(size_bytes)
    found = _frame_at(data, 0, offset) if data.startswith(MAGIC) else None
    return found if isinstance(found, Frame) else None


def node_folder(node: str) -> str:
    """A node's name as a folder's: nothing but letters, digits, dot, dash and underscore."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", node)[:64]
    return name if name.strip(".") else "_" + name


def segment_path(history: Path, node: str, now_s: float | None = None) -> Path:
    """Where a frame of this moment goes."""
    month = time.strftime("%Y-%m", time.gmtime(time.time() if now_s is None else now_s))
    return history / node_folder(node) / f"{month}.seg"


def segments(history: Path) -> Iterator[Path]:
    """All segments of a history, in a stable order; other files there are none of ours."""
    yield from sorted(p for p in history.glob("*/????-??.seg") if node_folder(p.parent.name) == p.parent.name)


def lock_path() -> Path:
    """The file that jobs of this user on this node lock: does not depend on the environment, so all agree."""
    for place in ("/dev/shm", "/tmp"):
        folder = Path(place) / f"penstock-{os.getuid()}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            if folder.lstat().st_uid == os.getuid():
                return folder / "history.lock"
        except OSError:
            continue
    raise DeniedError("neither /dev/shm nor /tmp lets this user make a lock file; make one of them writable")


def _lock(wait_s: float) -> int | None:
    """A descriptor that holds the lock, or None when it was not to be had in time."""
    try:
        fd = os.open(lock_path(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except (OSError, PenstockError):
        return None
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError:
            if time.monotonic() >= deadline:
                os.close(fd)
                return None
            time.sleep(0.01)


def append(history: Path, node: str, frames: list[bytes], group: bool = False) -> Path:
    """Append frames as one batch; with `group` the group may read.  PenstockError when the disk is full."""
    path = segment_path(history, node)
    folder_mode, file_mode = (0o750, 0o640) if group else (0o700, 0o600)
    try:
        history.parent.mkdir(parents=True, exist_ok=True)
        history.mkdir(mode=folder_mode, exist_ok=True)
        path.parent.mkdir(mode=folder_mode, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, file_mode)
    except OSError as error:
        raise DeniedError(
            f"the history {path} cannot be written ({error.strerror}); "
            "choose another place with PENSTOCK_STATE_DIR"
        ) from error
    lock = _lock(LOCK_WAIT_S)
    try:
        _write_whole(fd, b"".join(frames), path, locked=lock is not None)
    finally:
        os.close(fd)
        if lock is not None:
            os.close(lock)
    return path


def _write_whole(fd: int, data: bytes, path: Path, locked: bool) -> None:
    before = os.fstat(fd).st_size
    try:
        written = os.write(fd, data)
        if written == len(data):
            return
        reason = "no room"
    except OSError as error:
        reason = error.strerror or "error"
    if locked:
        os.ftruncate(fd, before)
    raise PenstockError(f"the history {path} took only a part of the record ({reason}); free some room there")
