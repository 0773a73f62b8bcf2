# SPDX-License-Identifier: Apache-2.0
"""Sizes, rates and times: what is written reads back, and the words mean what people expect."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base import units
from penstock.base.errors import UsageError


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("4k", 4096),
        ("4K", 4096),
        ("4Ki", 4096),
        ("4KiB", 4096),
        ("4kB", 4000),
        ("4MB", 4_000_000),
        ("1.5 GiB", 3 * 2**29),
        ("1.5GB", 1_500_000_000),
        (" 2T ", 2 * 2**40),
    ],
)
def test_sizes_are_read_as_documented(text: str, size_bytes: int) -> None:
    """k M G are 1024 as IOR has them; kB MB GB are 1000."""
    assert units.parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "-1", "4X", "iB", "4iB", "k", "1e3", "٤k", "4 k B", "0x10"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="write it like"):
        units.parse_size(text)


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("250ms", 250_000_000),
        ("1h30m", 5400 * 10**9),
        ("7d", 604_800 * 10**9),
        ("1.5s", 1_500_000_000),
        ("0", 0),
    ],
)
def test_times_are_read_as_documented(text: str, time_ns: int) -> None:
    assert units.parse_duration(text) == time_ns


@pytest.mark.parametrize("text", ["", "90", "-1s", "s", "1x", "1s2", "1 hour"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write it like"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("300k/s", 300e3), ("600/min", 10.0), ("2M/s", 2e6), ("0.5/s", 0.5)]
)
def test_rates_of_operations_count_in_thousands(text: str, rate: float) -> None:
    assert units.parse_rate(text) == rate


def test_rates_need_a_period() -> None:
    for parse in (units.parse_rate, units.parse_byte_rate):
        with pytest.raises(UsageError, match="write it like"):
            parse("300k")
    assert units.parse_byte_rate("200MiB/s") == 200 * 2**20


@given(st.integers(0, 2**63 - 1))
def test_exact_size_reads_back(size_bytes: int) -> None:
    assert units.parse_size(units.exact_size(size_bytes)) == size_bytes


@given(st.integers(0, 2**62))
def test_exact_duration_reads_back(time_ns: int) -> None:
    assert units.parse_duration(units.exact_duration(time_ns)) == time_ns


@given(st.floats(0, 1e15, allow_nan=False))
def test_exact_rate_reads_back(rate: float) -> None:
    assert units.parse_rate(units.exact_rate(rate)) == rate


@given(st.integers(1, 2**60))
def test_shown_size_is_near_and_short(size_bytes: int) -> None:
    """A size for eyes is off by half a per cent at most and takes eight columns."""
    shown = units.show_size(size_bytes)

    assert abs(units.parse_size(shown) - size_bytes) <= size_bytes * 0.0051
    assert len(shown) <= 8


@given(st.integers(0, 10**18))
def test_shown_duration_reads_back_nearly(time_ns: int) -> None:
    shown = units.show_duration(time_ns)

    assert abs(units.parse_duration(shown) - time_ns) <= max(time_ns * 0.03, 1)


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_a_share_is_never_rounded_to_nothing_or_all(part: int, whole: int) -> None:
    part = min(part, whole)
    shown = units.show_ratio(part, whole)

    assert (shown == "0 %") == (part == 0)
    assert (shown == "100 %") == (part == whole)
