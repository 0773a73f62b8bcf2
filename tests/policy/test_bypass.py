# SPDX-License-Identifier: Apache-2.0
"""What the servers counted against what was seen: the rows of which a call is a count, and no others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy import bypass


@pytest.mark.parametrize(
    ("server", "seen", "unseen"),
    [
        ({"mkdir": 50}, {"mkdir": 50}, {}),
        ({"mkdir": 50}, {"mkdir": 20}, {"mkdir": 30}),
        ({"mknod": 70}, {"mknod": 10, "symlink": 10, "open": 50}, {}),  # opens may have created
        ({"setattr": 20}, {"chmod": 10, "truncate": 5, "utime": 3, "chown": 2}, {}),
        ({"setxattr": 9}, {"setxattr": 4, "removexattr": 4}, {"setxattr": 1}),
        ({"getattr": 10**6, "statfs": 10**6, "open": 10**6, "close": 9}, {}, {}),  # say nothing
        ({"rename": 5}, {"rename": 900}, {}),
    ],
)
def test_rows(server: dict[str, int], seen: dict[str, int], unseen: dict[str, int]) -> None:
    assert bypass.compare(server, seen, 0).by == unseen


def test_a_large_difference_is_a_reason() -> None:
    gap = bypass.compare({"mkdir": 60, "unlink": 40, "write_bytes": 64 << 20}, {"mkdir": 10}, 1 << 20)

    assert gap.ratio == pytest.approx(0.9)
    assert [(r.word, r.count) for r in bypass.reasons(gap)] == [("counts", 90), ("bytes", 63 << 20)]
    assert bypass.reasons(gap)[0].text == (
        "of 100 changes that the servers counted nobody saw 90 (mkdir 50, unlink 40)"
    )


@pytest.mark.parametrize("server", [{"mkdir": 19}, {"mkdir": 1000, "unlink": 49}])
def test_a_small_one_is_taken_for_chance(server: dict[str, int]) -> None:
    assert bypass.reasons(bypass.compare(server, {"mkdir": 1000} if len(server) > 1 else {}, 0)) == []


def test_nothing_counted_is_no_ratio() -> None:
    assert bypass.compare({}, {"mkdir": 5}, 0).ratio is None


COUNTS = st.dictionaries(
    st.sampled_from([*bypass.COMPARED, "getattr", "open", "chmod", "utime", "symlink", "write_bytes"]),
    st.integers(0, 10**6),
)


@given(COUNTS, COUNTS, st.integers(0, 10**6))
def test_never_more_unseen_than_counted_and_seeing_more_helps(
    server: dict[str, int], seen: dict[str, int], written: int
) -> None:
    gap = bypass.compare(server, seen, written)
    more = bypass.compare(server, {name: count + 1 for name, count in seen.items()}, written + 1)

    assert 0 <= gap.unseen <= gap.counted
    assert 0 <= gap.unseen_bytes <= gap.written_bytes
    assert (more.unseen, more.unseen_bytes) <= (gap.unseen, gap.unseen_bytes)
