# SPDX-License-Identifier: Apache-2.0
"""Sizes, rates and times as people type and read them.

Invariants:
1. `k M G T P E` and `Ki Mi ...` are 1024, with or without B behind the latter; `kB MB ...` are 1000.
2. Rates of operations count in thousands (`300k/s` is 300,000 a second); rates of bytes follow the sizes.
3. What `exact_*` writes, `parse_*` reads back to the same number; `show_*` rounds for eyes.
4. Sizes are bytes, durations nanoseconds, both whole; rates are floats per second.
"""

import re
from decimal import Decimal
from fractions import Fraction

from penstock.base.errors import UsageError

_POWERS = "kMGTPE"
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kKmMgGtTpPeE]?)(i?)([bB]?)\s*", re.ASCII)
_COUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kMGT]?)\s*", re.ASCII)
_PERIODS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_TIMES_NS = {
    "w": 7 * 86400 * 10**9,
    "d": 86400 * 10**9,
    "h": 3600 * 10**9,
    "min": 60 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
    "us": 10**3,
    "ns": 1,
}
_TIME_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(min|ms|us|µs|ns|w|d|h|m|s)\s*", re.ASCII)


def parse_size(text: str) -> int:
    """Bytes: `4MiB`, `4M` and `4Mi` are 4,194,304; `4MB` is 4,000,000; `4096` and `4096B` are themselves."""
    match = _SIZE.fullmatch(text)
    if match is None or (match[3] and not match[2]):
        raise UsageError(f"{text!r} is not a size; write it like 4096, 64k, 4MiB or 1.5GB")
    number, power, binary, byte = match.groups()
    base = 1000 if byte and not binary else 1024
    exponent = _POWERS.lower().index(power.lower()) + 1 if power else 0
    return round(Fraction(number) * int(base**exponent))


def exact_size(size_bytes: int) -> str:
    """The shortest size that reads back as the same number: `4MiB`, `4097`."""
    exponent = 0
    while size_bytes and exponent < len(_POWERS) and size_bytes % 1024 ** (exponent + 1) == 0:
        exponent += 1
    if not exponent:
        return str(size_bytes)
    return f"{size_bytes // 1024**exponent}{_POWERS[exponent - 1].upper()}iB"


def show_size(size_bytes: float) -> str:
    """A size for eyes, three digits: `1.5 GiB`."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes:.0f} B"
    exponent = 0
    while abs(size_bytes) >= 999.5 and exponent < len(_POWERS):
        size_bytes /= 1024
        exponent += 1
    return f"{_three(size_bytes)} {_POWERS[exponent - 1].upper()}iB"


def _three(number: float) -> str:
    """Three significant digits without zeros at the end."""
    if abs(number) >= 99.95:
        return f"{number:.0f}"
    return (
        f"{number:.1f}".removesuffix(".0")
        if abs(number) >= 9.995
        else f"{number:.2f}".rstrip("0").rstrip(".")
    )


def parse_rate(text: str) -> float:
    """Operations per second: `300k/s`, `50/s`, `600/min`."""
    number, slash, period = text.partition("/")
    match = _COUNT.fullmatch(number)
    if match is None or not slash or period.strip() not in _PERIODS:
        raise UsageError(f"{text!r} is not a rate; write it like 500/s, 300k/s or 600/min")
    factor = 1000 ** (" kMGT".index(match[2]) if match[2] else 0)
    return float(Fraction(match[1]) * factor / _PERIODS[period.strip()])


def exact_rate(rate_ops_per_s: float) -> str:
    """A rate that reads back as the same number: `300k/s`."""
    for power, letter in ((3, "G"), (2, "M"), (1, "k")):
        if rate_ops_per_s and rate_ops_per_s % 1000**power == 0 and rate_ops_per_s < 1e15:
            return f"{int(rate_ops_per_s // 1000**power)}{letter}/s"
    return f"{Decimal(repr(rate_ops_per_s)):f}".removesuffix(".0") + "/s"


def parse_byte_rate(text: str) -> float:
    """Bytes per second: `200MiB/s`, `1GB/s`."""
    number, slash, period = text.partition("/")
    if not slash or period.strip() not in _PERIODS:
        raise UsageError(f"{text!r} is not a rate of bytes; write it like 200MiB/s")
    return parse_size(number) / _PERIODS[period.strip()]


def parse_duration(text: str) -> int:
    """Nanoseconds: `250ms`, `90s`, `5m`, `1h30m`, `7d`.  A bare 0 is allowed, other bare numbers are not."""
    rest = text.strip()
    total, at = Fraction(0), 0
    while match := _TIME_PART.match(rest, at):
        total += Fraction(match[1]) * _TIMES_NS[match[2].replace("µs", "us")]
        at = match.end()
    if at != len(rest) or not rest:
        if rest == "0":
            return 0
        raise UsageError(f"{text!r} is not a time; write it like 250ms, 90s, 1h30m or 7d")
    return round(total)


def exact_duration(time_ns: int) -> str:
    """A duration that reads back as the same number: `1h30m`, `250ms`."""
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us", "ns"):
        count, time_ns = divmod(time_ns, _TIMES_NS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def show_duration(time_ns: float) -> str:
    """A duration for eyes: `850 ns`, `4.2 s`, `1 h 30 min`."""
    for unit, limit in (("ns", 1e3), ("us", 1e6), ("ms", 1e9), ("s", 120e9)):
        if time_ns < limit * 0.9995:
            shown = _three(time_ns / _TIMES_NS[unit])
            return f"{shown} {unit.replace('us', 'µs')}"
    seconds = round(time_ns / 1e9)
    if seconds < 2 * 3600:
        return f"{seconds // 60} min {seconds % 60} s" if seconds % 60 else f"{seconds // 60} min"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    hours = round(minutes / 60)
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def show_count(count: float) -> str:
    """A count for eyes: `999`, `12.3k`, `4.5M` (thousands)."""
    if abs(count) < 10_000:
        return f"{count:.0f}"
    exponent = 0
    while abs(count) >= 999.5 and exponent < 5:
        count /= 1000
        exponent += 1
    return f"{_three(count)}{'kMGTP'[exponent - 1]}"


def show_ratio(part: float, whole: float) -> str:
    """A share in per cent; one that is neither nothing nor all is never shown as that."""
    if whole <= 0:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f}".removesuffix(".0") + " %" if percent < 10 or percent > 99 else f"{percent:.0f} %"
