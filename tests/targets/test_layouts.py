# SPDX-License-Identifier: Apache-2.0
"""Which bytes lie where: pieces tile the file, agree with the C codec's arithmetic, and add up."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.targets.layouts import EOF, Component, Layout, bytes_on, pieces, wish

KIB = 1 << 10


def striped(targets: tuple[int, ...], size: int, start: int = 0, end: int = EOF, **more: object) -> Component:
    return Component(start, end, size, len(targets), targets, **more)  # type: ignore[arg-type]


def test_four_stripes_in_turn() -> None:
    layout = Layout("lustre", (striped((3, 5, 7, 9), 100),))
    seen = [(p.start_bytes, p.size_bytes, p.target, p.object, p.offset_bytes) for p in pieces(layout, 450)]
    assert seen == [
        (0, 100, 3, 0, 0),
        (100, 100, 5, 1, 0),
        (200, 100, 7, 2, 0),
        (300, 100, 9, 3, 0),
        (400, 50, 3, 0, 100),
    ]
    assert bytes_on(layout, 450) == {3: 150, 5: 100, 7: 100, 9: 100}


def test_ceph_objects_have_a_greatest_size() -> None:
    """Two stripes of 1, three units an object: 0 1 0 1 0 1 | 2 3 2 3 2 3."""
    layout = Layout("ceph", (striped((4, 4), 1, object_size_bytes=3),))
    found = list(pieces(layout, 12))
    assert [p.object for p in found] == [0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3]
    assert [p.offset_bytes for p in found] == [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]
    assert bytes_on(layout, 12) == {4: 12}


def test_second_component_counts_stripes_from_the_files_begin() -> None:
    layout = Layout("lustre", (striped((1,), 100, 0, 100), striped((2, 3), 100, 100)))
    assert [p.target for p in pieces(layout, 300)] == [1, 3, 2]


def test_bytes_without_a_place() -> None:
    dom = Component(0, 64, 64, 0, on_mds=True)
    unplaced = Component(64, 128, 64, -1)
    layout = Layout("lustre", (dom, unplaced))
    assert bytes_on(layout, 200) == {None: 200}
    assert [(p.start_bytes, p.size_bytes) for p in pieces(layout, 200)] == [(0, 64), (64, 64), (128, 72)]


def test_mirror_that_is_stale_is_not_read() -> None:
    old = striped((1,), 100, stale=True, mirror=1)
    new = striped((2,), 100, mirror=2)
    assert bytes_on(Layout("lustre", (old, new)), 50) == {2: 50}


def test_empty_file_has_no_pieces() -> None:
    layout = Layout("lustre", (striped((1, 2), 100),))
    assert list(pieces(layout, 0)) == []
    assert bytes_on(layout, 0) == {}


def test_petabyte_is_counted_without_a_walk() -> None:
    held = bytes_on(Layout("lustre", (striped(tuple(range(1000)), 1 << 20),)), 10**15)
    assert sum(held.values()) == 10**15


def test_wish_with_a_list_counts_itself() -> None:
    assert wish(stripe_count=7, targets=(3, 1)).components[0].stripe_count == 2


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    bounds = sorted(draw(st.sets(st.integers(1, 40), max_size=3)))
    parts = []
    for start, end in zip([0, *bounds], [*bounds, EOF], strict=True):
        if draw(st.booleans()) or not parts:
            stripes = draw(st.lists(st.integers(0, 5), max_size=4))
            size = draw(st.integers(0, 9))
            parts.append(
                Component(start, end, size, len(stripes), tuple(stripes), on_mds=draw(st.booleans()))
            )
    return Layout("any", tuple(parts))


@given(layouts(), st.integers(0, 100))
def test_pieces_tile_the_file_once(layout: Layout, size: int) -> None:
    at = 0
    held: dict[int | None, int] = {}
    for piece in pieces(layout, size):
        assert piece.start_bytes == at
        assert piece.size_bytes > 0
        at += piece.size_bytes
        held[piece.target] = held.get(piece.target, 0) + piece.size_bytes
    assert at == size
    assert held == bytes_on(layout, size)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 5), st.integers(1, 60))
def test_object_offsets_rise_without_holes(targets: list[int], size: int, length: int) -> None:
    ends: dict[int, int] = {}
    for piece in pieces(Layout("lustre", (striped(tuple(targets), size),)), length):
        assert piece.offset_bytes == ends.get(piece.object, 0)
        ends[piece.object] = piece.offset_bytes + piece.size_bytes
