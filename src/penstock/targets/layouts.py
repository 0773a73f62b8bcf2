# SPDX-License-Identifier: Apache-2.0
"""Layouts of any file system: which bytes of a file lie on which target.

Invariants:
1. The pieces of a file tile [0, size) exactly once, in order.
2. Nothing is invented: bytes whose target nobody stated (not placed yet, spread by hashing) have target None.
3. Sizes are bytes, counts are counts, targets are the file system's own indices (which may have gaps).
"""

from collections.abc import Iterator
from typing import NamedTuple

EOF = 2**64 - 1
ALL = -1
"""stripe_count: as many as there are targets."""


class Component(NamedTuple):
    """A range of the file and how it is striped.  `targets` has one entry a stripe; empty: not stated."""

    start_bytes: int = 0
    end_bytes: int = EOF
    stripe_size_bytes: int = 0
    stripe_count: int = 1
    targets: tuple[int, ...] = ()
    pool: str = ""
    object_size_bytes: int = 0
    """Where objects have a greatest size (Ceph); 0: they have none."""
    on_mds: bool = False
    stale: bool = False
    mirror: int = 0


class Layout(NamedTuple):
    """`kind` is the file system's, or "unknown": bytes that no driver understands, kept in `blob`."""

    kind: str
    components: tuple[Component, ...] = ()
    blob: bytes = b""

    @property
    def known(self) -> bool:
        return self.kind != "unknown"

    @property
    def targets(self) -> tuple[int, ...]:
        """All targets stated, each once, in the order of first use."""
        return tuple(dict.fromkeys(t for c in self.components for t in c.targets))


def wish(
    stripe_count: int = 0, stripe_size_bytes: int = 0, targets: tuple[int, ...] = (), pool: str = ""
) -> Layout:
    """What `penstock layout set` asks for: zeros are the file system's defaults."""
    count = len(targets) or stripe_count
    return Layout("wish", (Component(0, EOF, stripe_size_bytes, count, targets, pool),))


class Piece(NamedTuple):
    """Bytes that lie together in one object."""

    start_bytes: int
    size_bytes: int
    target: int | None
    object: int
    offset_bytes: int
    """Where in the object."""


def _read_from(layout: Layout) -> list[Component]:
    """The components in order, of the first mirror without stale ones if there is one."""
    mirrors = sorted({c.mirror for c in layout.components})
    whole = [m for m in mirrors if not any(c.stale for c in layout.components if c.mirror == m)]
    chosen = (whole or mirrors or [0])[0]
    return [c for c in layout.components if c.mirror == chosen]


def _only_target(c: Component) -> int | None:
    return c.targets[0] if len(set(c.targets)) == 1 and not c.on_mds else None


def _place(c: Component, at: int) -> Piece:
    """The piece of the component that holds byte `at`, to the end of its stripe."""
    size, count = c.stripe_size_bytes, len(c.targets) or c.stripe_count
    if c.on_mds or size <= 0 or count <= 0:
        return Piece(at, c.end_bytes - at, _only_target(c), 0, at)
    block, inside = divmod(at, size)
    row, column = divmod(block, count)
    target = c.targets[column] if c.targets else None
    run = min(size - inside, c.end_bytes - at)
    if not c.object_size_bytes:
        return Piece(at, run, target, column, row * size + inside)
    rows_per_set = max(c.object_size_bytes // size, 1)
    group, row = divmod(row, rows_per_set)
    return Piece(at, run, target, group * count + column, row * size + inside)


def pieces(layout: Layout, size_bytes: int) -> Iterator[Piece]:
    """The file's bytes in order.  What no component covers has target None."""
    at = 0
    for c in _read_from(layout):
        if c.start_bytes > at:
            gap = min(c.start_bytes, size_bytes) - at
            if gap > 0:
                yield Piece(at, gap, None, 0, at)
            at += max(gap, 0)
        while at < min(c.end_bytes, size_bytes):
            piece = _place(c, at)
            piece = piece._replace(size_bytes=min(piece.size_bytes, size_bytes - at))
            yield piece
            at += piece.size_bytes
    if at < size_bytes:
        yield Piece(at, size_bytes - at, None, 0, at)


def _below(limit: int, size: int, count: int, column: int) -> int:
    """How many of the bytes below `limit` fall into this column of stripes."""
    rounds, rest = divmod(limit, size * count)
    return rounds * size + min(max(rest - column * size, 0), size)


def bytes_on(layout: Layout, size_bytes: int) -> dict[int | None, int]:
    """How many bytes of the file each target holds, without walking over them."""
    held: dict[int | None, int] = {}
    covered = 0
    for c in _read_from(layout):
        start, end = min(c.start_bytes, size_bytes), min(c.end_bytes, size_bytes)
        size, count = c.stripe_size_bytes, len(c.targets)
        if end <= start:
            continue
        covered += end - start
        if c.on_mds or not count or size <= 0:
            only = _only_target(c)
            held[only] = held.get(only, 0) + end - start
            continue
        for column, target in enumerate(c.targets):
            share = _below(end, size, count, column) - _below(start, size, count, column)
            if share:
                held[target] = held.get(target, 0) + share
    if covered < size_bytes:
        held[None] = held.get(None, 0) + size_bytes - covered
    return held
