# SPDX-License-Identifier: Apache-2.0
"""The wire format from Python: messages of wire.proto, and frames of them.

The build turns wire.proto into a description (wire.binpb), and classes are made from it when this module is imported:
no generated code that a newer or older protobuf would refuse.

Invariants:
1. A frame is at most MAX_FRAME_BYTES, of who is not known yet UNKNOWN_FRAME_BYTES; what is longer, or no message, is a
   WireError with one sentence.
2. A column has the length that its rows ask for, or the message is refused.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from penstock.base.errors import PenstockError

VERSION = 1
OLDEST = 1
MAX_FRAME_BYTES = 16 << 20
UNKNOWN_FRAME_BYTES = 64 << 10
PACKAGE = "penstock.v1"
SERVICE = f"{PACKAGE}.Tools"
_LENGTH = struct.Struct(">I")


class WireError(PenstockError):
    """What came is not what the wire format says."""


def _load() -> Any:
    described = descriptor_pb2.FileDescriptorSet.FromString(
        Path(__file__).with_name("wire.binpb").read_bytes()
    )
    pool = descriptor_pool.Default()
    for file in described.file:
        pool.Add(file)
    return pool.FindFileByName(described.file[0].name)


FILE = _load()


def message(name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(FILE.message_types_by_name[name])


FromAgent, ToAgent = message("FromAgent"), message("ToAgent")
Hello, Job, Rows, Report = (message(name) for name in ("Hello", "Job", "Rows", "Report"))
Welcome, Policy, Grants, Refusal = (message(name) for name in ("Welcome", "Policy", "Grants", "Refusal"))
Release, Why = message("Release"), message("Why")
Targets, Pool, Wanted, Promised, Over, Allotted = (
    message(name) for name in ("Targets", "Pool", "Wanted", "Promised", "Over", "Allotted")
)


def frame(value: Any) -> bytes:
    """A message with its length before it."""
    data: bytes = value.SerializeToString()
    return _LENGTH.pack(len(data)) + data


class Frames:
    """Cuts a stream of bytes into messages of one kind."""

    def __init__(self, kind: Any, most: int = MAX_FRAME_BYTES) -> None:
        self.kind = kind
        self.most = most  # may be raised at any time
        self.rest = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that are complete now."""
        rest = self.rest
        rest += data
        at = 0
        while len(rest) - at >= 4:
            (size,) = _LENGTH.unpack_from(rest, at)
            if size > self.most:
                raise WireError(f"a frame of {size} bytes came; {self.most} are allowed")
            if len(rest) - at - 4 < size:
                break
            try:
                found = self.kind.FromString(bytes(rest[at + 4 : at + 4 + size]))
            except DecodeError as error:
                raise WireError("what came is no message of this protocol") from error
            at += 4 + size
            yield found
        del rest[:at]
