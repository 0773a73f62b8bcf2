# SPDX-License-Identifier: Apache-2.0
"""Numbers out of many files of statistics at once."""

import os
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native

NONE = -(2**63)
STATS = """\
snapshot_time             1795041946.844225075 secs.nsecs
write_bytes               8 samples [bytes] 4096 4194304 33554432 1407374
open                      6 samples [usecs] 482 3863 9929 23994839
getxattr_hits             18 samples [reqs]
"""


def numbers(paths: list[Path | str], *names: str) -> list[int]:
    text = "".join(f"{path}\0" for path in paths).encode()
    rows = _native.read_counters(b"/", text, "".join(f"{n}\0" for n in names).encode())
    return memoryview(rows).cast("q").tolist()


def test_counters_of_a_stats_file(tmp_path: Path) -> None:
    (tmp_path / "stats").write_text(STATS)
    names = ["open", "write_bytes", "getxattr_hits", "close", "snapshot_time"]
    assert numbers([tmp_path / "stats"], *names) == [
        *(6, 9929),
        *(8, 33554432),
        *(18, 0),
        *(0, 0),
        *(1795041946, 0),
    ]
    assert numbers([tmp_path / "absent"], *names) == [-1] * 10


def test_plain_numbers_and_what_is_missing(tmp_path: Path) -> None:
    for name, text in {"a": "4194304\n", "b": "-28", "c": "", "d": "off\n", "e": "9" * 30}.items():
        (tmp_path / name).write_text(text)
    paths: list[Path | str] = [*(tmp_path / name for name in "abcde"), tmp_path / "absent", tmp_path, ""]
    assert numbers(paths) == [4194304, -28, NONE, NONE, 2**63 - 1, NONE, NONE, NONE]


def test_files_that_are_kept_open_are_those_with_the_names(tmp_path: Path) -> None:
    """Written in place, replaced, gone and there again, as statistics are."""
    path, text = tmp_path / "a", f"{tmp_path}/a\0{tmp_path}/b\0".encode()
    kept = array("i", [-1, -1])

    def seen() -> list[int]:
        return memoryview(_native.read_counters(b"/", text, b"", kept)).cast("q").tolist()

    path.write_text("1")
    assert seen() == [1, NONE]
    first = kept[0]
    path.write_text("2")
    assert seen() == [2, NONE]
    assert list(kept) == [first, -1]
    (tmp_path / "new").write_text("3")
    (tmp_path / "new").rename(path)
    assert seen() == [3, NONE]
    path.unlink()
    assert seen() == [NONE, NONE]
    assert list(kept) == [-1, -1]
    path.write_text("4")
    assert seen() == [4, NONE]
    os.close(kept[0])


def test_no_files_and_bad_arguments() -> None:
    assert numbers([]) == []
    with pytest.raises(ValueError, match="NUL"):
        _native.read_counters(b"/", b"/proc/uptime", b"")
    with pytest.raises(ValueError, match="too many"):
        _native.read_counters(b"/", b"", b"a\0" * 17)
    with pytest.raises(ValueError, match="one descriptor"):
        _native.read_counters(b"/", b"/proc/uptime\0", b"", array("i", [-1, -1]))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2**62), st.integers(0, 2**62)), max_size=5))
def test_last_line_of_a_name_counts(rows: list[tuple[str, int, int]]) -> None:
    text = "".join(f"{n:<25} {count} samples [x] 1 2 {total} 3\n" for n, count, total in rows)
    last = {name: [count, total] for name, count, total in rows}
    path = Path("/dev/shm") / "penstock-test-counters"
    path.write_text(text)
    assert numbers([path], *"abc") == [value for name in "abc" for value in last.get(name, [0, 0])]
    path.unlink()
