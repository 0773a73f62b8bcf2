# SPDX-License-Identifier: Apache-2.0
"""A plan as the board's section that programs look names up in: native/board/place.h is the format.

Invariants:
1. What does not fit (entries, patterns, marks, bytes) is left out and counted; what is in is whole.
2. Of two entries for one name the one that states more values is found first, then the one that came first.
3. Nothing of a plan is trusted here: numbers out of range leave their entry out.
"""

import os
import struct
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock import _native
from penstock.base.errors import VersionError
from penstock.policy.placing.contract import DIGITS, LISTS_STRIPES_MAX, MARKS, Action, Entry, Match, Plan
from penstock.targets import lov

KIND, VERSION = 2, 1
PLAN_VERSION = 1
VARIANTS_MAX, MARKS_MAX, STRIPES_MAX, POOLS_MAX, FOLDERS_MAX = 64, 24, LISTS_STRIPES_MAX, 64, 4096
CURSORS = 256
MOUNT_MAX = 240
STOCK, BYTES, OVERRIDE, WISH = 1, 2, 4, 8
DRIVERS = {"lustre": 1, "ceph": 2}
WHY_LATE, WHY_BUSY, WHY_FAILED = range(3)  # enum penstock_place_why

_HEAD = struct.Struct("<IIIIQQIIIIH240sH4x")
_PART = struct.Struct("<QII")
_VARIANT = struct.Struct("<IIII")
_ENTRY = struct.Struct("<QIIIIHHI")
_POOL = struct.Struct("<II56s")
_FOLDER = struct.Struct("<QHHHH")


class Default(NamedTuple):
    """What a folder says of new files in it: "none", "plain" with its numbers, "left" (a list, components)."""

    kind: str = "none"
    stripes: int = 0
    size_bytes: int = 0
    pool: str = ""


_FOLDER_KINDS = {"none": 1, "plain": 2, "left": 3}


class Place(NamedTuple):
    """What a board must know of a file system besides the plan.

    `pools` have their own spare lists; on CephFS each is the one target that a pool stands for, and
    `default_pool` is the one that new files are in.
    """

    driver: str
    mount: str
    dev: int = 0
    default_count: int = 1
    default_size_bytes: int = 0
    pools: Mapping[str, Sequence[int]] = {}
    default_pool: str = ""
    may_override: bool = False
    wishes: Container[Match] | None = None
    """Entries whose count and size hold where a folder has no default of its own; None: all."""
    folders: Mapping[bytes, Default] = {}
    """By path, as far as they were read."""
    number: int = 0
    """By which the plan is known: when it was made, in ns.  0: what the plan says."""


class Section(NamedTuple):
    """The bytes, and how many of the plan's entries are not in them."""

    data: bytes
    left_out: int


def pattern_of(match: Match) -> bytes:
    return b"".join(match.pieces)


def stated_of(match: Match) -> int:
    """A bit by mark: must it have a value?"""
    return sum(1 << i for i, value in enumerate(match.values) if value is not None)


def key_texts(match: Match) -> list[bytes]:
    """The texts that make the key: numbers without leading zeros."""
    marks = [piece for piece in match.pieces if piece in MARKS]
    texts = []
    for mark, value in zip(marks, match.values, strict=True):
        if value is not None:
            texts.append((value.lstrip(b"0") or b"0") if mark == DIGITS else value)
    return texts


class _Variants:
    """Patterns and which of their marks are stated, those that state most first."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        seen: dict[tuple[bytes, int], None] = {}
        for entry in entries:
            match = entry.match
            if not match.exact and len(match.values) <= MARKS_MAX:
                seen.setdefault((pattern_of(match), stated_of(match)))
        order = sorted(seen, key=lambda row: -row[1].bit_count())  # stable: then as they came
        self.number = {row: i for i, row in enumerate(order[:VARIANTS_MAX])}

    def key(self, match: Match) -> int | None:
        if match.exact:
            return int(_native.place_key(-1, [b"".join(match.pieces)]))
        number = self.number.get((pattern_of(match), stated_of(match)))
        return None if number is None else int(_native.place_key(number, key_texts(match)))


class _Pile:
    """Bytes behind the head: what was added, and where it begins."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._known: dict[bytes, int] = {}

    def add(self, more: bytes) -> int:
        at = self._known.get(more)
        if at is None:
            at = self._known[more] = len(self.data)
            self.data += more
        return at


def _list(targets: Iterable[int]) -> bytes:
    return b"".join(struct.pack("<H", target) for target in targets)


def _composite(entry: Entry) -> bytes:
    begin, parts = 0, []
    for part in entry.parts:
        end = part.end_bytes or lov.EOF
        made = lov.template(part.stripe_count, part.stripe_size_bytes, part.targets)
        parts.append(made._replace(start_bytes=begin, end_bytes=end))
        begin = end
    return lov.encode(lov.Lov(composite=True, parts=tuple(parts)))


def _wide(entry: Entry) -> bytes:
    osts = entry.turns[0] if len(entry.turns) == 1 else ()  # several files: each its own, as Lustre chooses
    part = lov.template(entry.stripe_count, entry.stripe_size_bytes, osts, entry.pool)
    return lov.encode(lov.Lov(parts=(part,)))


def _row(
    entry: Entry,
    number: int,
    key: int,
    targets: _Pile,
    pile: _Pile,
    pools: Mapping[str, int],
    wished: bool,
) -> bytes:
    """One entry, its lists added; ValueError, struct.error or OSError: it cannot be said on a board."""
    if entry.action is Action.STOCK:
        return _ENTRY.pack(key, STOCK, 0, 0, 0, 0, 0, 0)
    if entry.stripe_count > STRIPES_MAX and not wished:
        raise ValueError("so wide a layout is given only where it is wished")
    if entry.parts or entry.stripe_count > STRIPES_MAX:
        blob = _composite(entry) if entry.parts else _wide(entry)
        lov.check(blob)
        flags = BYTES | (OVERRIDE if entry.parts else 0)
        return _ENTRY.pack(key, flags, pile.add(blob), len(blob), 0, 0, 0, 0)
    if any(len(turn) != entry.stripe_count or len(set(turn)) != len(turn) for turn in entry.turns):
        raise ValueError("a list of targets is not as long as its stripes, or names one twice")
    if entry.stripe_size_bytes % lov.STRIPE_UNIT_BYTES:
        raise ValueError("a stripe size is no multiple of 64 KiB")
    if entry.pool and entry.pool not in pools:
        raise ValueError("a pool is not known")
    lists = b"".join(_list(turn) for turn in entry.turns)
    pool = 1 + pools[entry.pool] if entry.pool else 0
    first = targets.add(lists) // 2 if lists else 0
    count, size = entry.stripe_count, entry.stripe_size_bytes
    return _ENTRY.pack(
        key, WISH if wished else 0, first, len(entry.turns), size, count, pool, number % CURSORS
    )


def _folders(place: Place, pools: Mapping[str, int]) -> list[bytes]:
    """The folders' rows by key; one of a pool that is not known is left for programs to ask for."""
    rows: dict[int, bytes] = {}
    for path, said in place.folders.items():
        if said.pool and said.pool not in pools:
            continue
        key = int(_native.place_key(-1, [path]))
        pool = 1 + pools[said.pool] if said.pool else 0
        size = said.size_bytes // lov.STRIPE_UNIT_BYTES
        rows[key] = _FOLDER.pack(key, _FOLDER_KINDS[said.kind], pool, said.stripes & 0xFFFF, size & 0xFFFF)
    return [rows[key] for key in sorted(rows)[:FOLDERS_MAX]]


def encode(plan: Plan, place: Place, room_bytes: int = 3 << 20) -> Section:
    """The section.  What has no room is left out from the end of the plan's entries on."""
    if plan.version != PLAN_VERSION:
        raise VersionError(
            f"the plan for {plan.file_system} has version {plan.version}; this Penstock knows {PLAN_VERSION}"
        )
    mount = os.fsencode(place.mount.rstrip("/"))
    if place.driver not in DRIVERS or len(mount) > MOUNT_MAX:
        raise ValueError(f"{place.mount}: nothing can be placed on a file system of kind {place.driver}")
    variants, pile, targets = _Variants(plan.entries), _Pile(), _Pile()
    named = {name: i for i, name in enumerate([n for n in place.pools if n][: POOLS_MAX - 1], 1)}
    variant_rows = [_VARIANT.pack(pile.add(text), len(text), stated, 0) for text, stated in variants.number]
    spare = [("", place.default_pool, plan.spare), *((n, n, place.pools[n]) for n in named)]
    pool_rows = []
    for _, name, members in spare:
        members = [t for t in members if 0 <= t < 1 << 16]
        pool_rows.append(
            _POOL.pack(targets.add(_list(members)) // 2 if members else 0, len(members), name.encode()[:55])
        )
    folders = _folders(place, named)
    used = _HEAD.size + 6 * _PART.size + sum(map(len, (*variant_rows, *pool_rows, *folders))) + 64
    rows: dict[int, bytes] = {}
    left_out = 0
    for number, entry in enumerate(plan.entries):
        key = variants.key(entry.match)
        size = used + (len(rows) + 1) * _ENTRY.size + len(pile.data) + len(targets.data)
        if key is None or size + 2 * sum(map(len, entry.turns)) + 64 * len(entry.parts) > room_bytes:
            left_out += 1
        elif key not in rows:
            try:
                wished = place.wishes is None or entry.match in place.wishes
                rows[key] = _row(entry, number, key, targets, pile, named, wished)
            except (ValueError, struct.error, OSError, OverflowError):
                left_out += 1
    arrays = (
        (b"".join(variant_rows), _VARIANT.size),
        (b"".join(rows[key] for key in sorted(rows)), _ENTRY.size),
        (bytes(targets.data), 2),
        (b"".join(pool_rows), _POOL.size),
        (bytes(pile.data), 1),
        (b"".join(folders), _FOLDER.size),
    )
    return Section(_joined(_head(plan, place, mount, left_out), arrays), left_out)


def _head(plan: Plan, place: Place, mount: bytes, left_out: int) -> bytes:
    return _HEAD.pack(
        VERSION,
        0,
        DRIVERS[place.driver],
        left_out,
        place.number or max(int(plan.made_s * 1e9), 0),
        place.dev,
        0,
        place.default_count & 0xFFFF,
        place.default_size_bytes,
        place.may_override,
        len(mount),
        mount,
        0,
    )


def nothing(mount: str, why: int, made_ns: int, dev: int = 0) -> bytes:
    """A section without a plan: it keeps the place for one, and says why there is none."""
    name = os.fsencode(mount.rstrip("/"))[:MOUNT_MAX]
    parts = _PART.pack(_HEAD.size + 6 * _PART.size, 0, 0) * 6
    return _HEAD.pack(VERSION, 0, 0, 0, made_ns, dev, 0, 0, 0, 0, len(name), name, why) + parts


def _joined(head: bytes, arrays: Sequence[tuple[bytes, int]]) -> bytes:
    """The head, where each array lies, and the arrays (their bytes, and an item's size), each on 8 bytes."""
    begin = len(head) + len(arrays) * _PART.size
    parts, body = b"", b""
    for data, size in arrays:
        body += bytes(-(begin + len(body)) % 8)
        parts += _PART.pack(begin + len(body), len(data) // size, 0)
        body += data
    return head + parts + body


class Head(NamedTuple):
    """What a section says of itself; `driver` 0: there is no plan, and `why` says why."""

    driver: int
    made_ns: int
    mount: str
    why: int


def head_of(data: bytes) -> Head | None:
    """The head of a section; None: it is of another version, or being changed."""
    if len(data) < _HEAD.size:
        return None
    version, generation, driver, _, made_ns, *_, size, mount, why = _HEAD.unpack(data[: _HEAD.size])
    if version != VERSION or generation & 1 or size > MOUNT_MAX:
        return None
    return Head(driver, made_ns, os.fsdecode(mount[:size]) or "/", why)


def heads(control: Path, sections: Iterable[tuple[int, int]]) -> list[Head]:
    """The heads of a board's plans, and of spots that wait for one; (kind, offset) are its sections."""
    found = []
    with control.open("rb") as file:
        for kind, offset_bytes in sections:
            if kind == KIND:
                file.seek(offset_bytes)
                found.append(head_of(file.read(_HEAD.size)))
    return [head for head in found if head is not None and (head.driver or head.mount != "/")]
