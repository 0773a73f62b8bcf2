# SPDX-License-Identifier: Apache-2.0
"""Segments: whatever was appended comes back, whatever happens to the bytes around it."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.runs import record, segments

RUN = record.run_id("1", "0", "token")


def mark(text: str) -> bytes:
    return segments.pack(RUN, record.Mark(node="n1", word="test", text=text))


def texts(scan: segments.Scan) -> list[str]:
    found = [frame.decode() for frame in scan.frames]
    return [payload.text for payload in found if isinstance(payload, record.Mark)]


@given(st.lists(st.text(), max_size=8))
def test_frames_come_back_in_order(words: list[str]) -> None:
    """What was packed is read, all of it, in order."""
    scan = segments.scan(b"".join(mark(w) for w in words))

    assert texts(scan) == words
    assert scan.damages == []
    assert scan.torn_tail_bytes == 0


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5), st.data())
def test_one_damaged_byte_costs_one_frame(words: list[str], data: st.DataObject) -> None:
    """A flipped byte loses its own frame alone, and is named."""
    frames = [mark(w) for w in words]
    whole = bytearray(b"".join(frames))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    hit = next(i for i in range(len(frames)) if at < sum(map(len, frames[: i + 1])))

    scan = segments.scan(bytes(whole))

    assert texts(scan) == words[:hit] + words[hit + 1 :]
    assert len(scan.damages) + (scan.torn_tail_bytes > 0) == 1


@given(st.integers(0, 500), st.binary(max_size=64))
def test_torn_tail_is_ignored_and_later_skipped(cut: int, noise: bytes) -> None:
    """A torn tail is no damage until somebody appends behind it; then it is skipped and named."""
    torn = mark("torn" * 20)
    torn = torn[: 1 + cut % (len(torn) - 1)]
    first = segments.scan(mark("a") + torn)
    assert texts(first) == ["a"]
    assert first.damages == []
    assert first.next_offset == len(mark("a"))

    later = segments.scan(mark("a") + torn + noise + mark("b"))

    assert texts(later) == ["a", "b"]
    assert sum(d.size_bytes for d in later.damages) == len(torn + noise)


@given(st.binary(max_size=400))
def test_noise_never_raises(noise: bytes) -> None:
    """Any bytes at all give frames or damage, no exception."""
    segments.scan(noise)
    segments.scan(segments.MAGIC + noise)


def test_append_makes_private_files(tmp_path: Path) -> None:
    """Nobody else may read a history unless the setting says so."""
    path = segments.append(tmp_path / "h", "n/../1", [mark("a"), mark("b")])

    assert path.parent == tmp_path / "h" / "n_.._1"
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "h").stat().st_mode & 0o777 == 0o700
    assert texts(segments.read(path)) == ["a", "b"]
    assert os.fspath(path) == os.fspath(next(segments.segments(tmp_path / "h")))
