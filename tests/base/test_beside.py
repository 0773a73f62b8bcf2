# SPDX-License-Identifier: Apache-2.0
"""Files that are there whole or not at all."""

import os
import stat
import threading
from pathlib import Path

import pytest

from penstock.base import beside


def test_a_file_is_replaced_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "page"
    place.write_bytes(b"old")
    beside.write(place, b"new")
    assert place.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [place]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("page")
    beside.write(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page").read_bytes() == b"new"


def test_a_pipe_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    beside.write(pipe, b"page")
    reader.join()
    assert got == [b"page"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_failed_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    with pytest.raises(IsADirectoryError):
        beside.write(tmp_path / "page", b"x")
    assert list(tmp_path.iterdir()) == [tmp_path / "page"]
