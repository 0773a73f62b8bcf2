# SPDX-License-Identifier: Apache-2.0
"""Lustre's layouts as values: every field of their bytes, named.

Invariants:
1. encode(decode(x)) == x for every value that Lustre makes, in both byte orders.
2. Bytes that are no layout that we know are OSError (ERANGE, EINVAL), never a guess.
3. The table of objects stays bytes (24 each, in this machine's order): reading a layout of 2,000 stripes
   makes no 2,000 objects.  `osts` and `objects()` look into it.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from penstock import _native

V1, V3, SPECIFIC, COMPOSITE, FOREIGN = 0x0BD10BD0, 0x0BD30BD0, 0x0BD50BD0, 0x0BD60BD0, 0x0BD70BD0
RAID0, MDT, OVERSTRIPED = 0x1, 0x100, 0x201
STALE, INIT = 0x1, 0x10
ALL, ANY = 0xFFFF, 0xFFFF
"""stripe_count: every OST; stripe_offset: Lustre chooses."""
EOF = 2**64 - 1
STRIPE_UNIT_BYTES = 65536
XATTR = "lustre.lov"
MAX_BYTES = 65536

_OBJECT = struct.Struct("=QIIII")
_OLD_OBJECT = struct.Struct("=QQII")
_FIRST_FID_SEQUENCE = 0x200000400


class Object(NamedTuple):
    """One object of a file; [seq:oid:version] is its FID."""

    seq: int
    oid: int
    version: int
    gen: int
    ost: int


class Part(NamedTuple):
    """One component, or a whole plain layout.  The extension's layout.c knows the order of the fields."""

    start_bytes: int = 0
    end_bytes: int = EOF
    id: int = 0
    flags: int = 0
    gen: int = 0
    timestamp: int = 0
    extra: bytes = b"\0\0\0\0"
    magic: int = V1
    pattern: int = RAID0
    oi_id: int = 0
    oi_seq: int = 0
    stripe_size_bytes: int = 0
    stripe_count: int = 0
    stripe_offset: int = ANY
    pool: bytes = b""
    table: bytes = b""

    @property
    def osts(self) -> tuple[int, ...]:
        """The OST of each stripe, as far as there are objects."""
        return tuple(memoryview(self.table).cast("I")[5::6])

    @property
    def known(self) -> bool:
        return self.magic in (V1, V3, SPECIFIC)

    def objects(self) -> list[Object]:
        found = []
        for row in range(0, len(self.table), _OBJECT.size):
            seq, oid, version, gen, ost = _OBJECT.unpack_from(self.table, row)
            if seq < _FIRST_FID_SEQUENCE:  # of old file systems: the number first, then its group
                oid, seq, gen, ost = _OLD_OBJECT.unpack_from(self.table, row)
                version = 0
            found.append(Object(seq, oid, version, gen, ost))
        return found


class Lov(NamedTuple):
    """A layout: one part if plain.  `mirrors` is one less than there are."""

    composite: bool = False
    big_endian: bool = False
    gen: int = 0
    flags: int = 0
    mirrors: int = 0
    parity_count: int = 0
    parts: tuple[Part, ...] = (Part(),)


_part = Part._make


def decode(blob: bytes) -> Lov:
    """What the bytes say.  OSError: ERANGE (no layout, or cut off) or EINVAL (its parts do not fit)."""
    composite, big, gen, flags, mirrors, parity, parts = _native.layout_decode(blob)
    return Lov(composite, big, gen, flags, mirrors, parity, tuple(map(_part, parts)))


def encode(lov: Lov) -> bytes:
    """The bytes.  OSError EINVAL: a part of an unknown kind, or none."""
    blob: bytes = _native.layout_encode(lov)
    return blob


def check(blob: bytes) -> None:
    """OSError (EINVAL, E2BIG, ERANGE) if Lustre would refuse this template whatever its OSTs are."""
    _native.layout_check(blob)


def template(
    stripe_count: int, stripe_size_bytes: int, osts: Sequence[int] = (), pool: str = "", offset: int = ANY
) -> Part:
    """A wish: with `osts` exactly those, in this order; else Lustre chooses.  A count of -1 means all."""
    magic = SPECIFIC if osts else V3 if pool else V1
    pattern = OVERSTRIPED if len(set(osts)) < len(osts) else RAID0
    return Part(
        magic=magic,
        pattern=pattern,
        stripe_size_bytes=stripe_size_bytes,
        stripe_count=len(osts) or stripe_count & 0xFFFF,
        stripe_offset=offset,
        pool=pool.encode(),
        table=b"".join(_OBJECT.pack(0, 0, 0, 0, ost) for ost in osts),
    )
