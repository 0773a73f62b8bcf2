# SPDX-License-Identifier: Apache-2.0
"""What limits cost a run: calls that waited, how long, and the longest, by limit.  Pure."""

from collections.abc import Sequence
from typing import Any

from penstock.base import units
from penstock.base.text import visible
from penstock.runs import record

CALL_UNITS = 1024  # of a call of weight one: native/board/limits.h


def name_of(limit: record.Limit) -> str:
    return visible(limit.name) or "(lifted meanwhile)"


def rate(limit: record.Limit) -> str:
    """The rate as it stood at the end, all nodes together."""
    if limit.released or not limit.name:
        return "released"
    value = limit.rate_milli / 1000
    return f"{units.show_size(value)}/s" if limit.bytes else f"{units.show_count(value)}/s"


def asked(limit: record.Limit) -> str:
    if limit.bytes:
        return units.show_size(limit.units)
    return units.show_count(limit.units / CALL_UNITS)


def lines(limits: Sequence[record.Limit]) -> list[str]:
    """A line for each limit, the dearest first; nothing for a run without."""
    return [f"{name_of(limit)} ({rate(limit)}): {_cost(limit)}" for limit in limits]


def _cost(limit: record.Limit) -> str:
    of = f"asked for {asked(limit)}" + ("" if limit.bytes else " calls")
    if not limit.delayed:
        return f"nobody {'would have ' if limit.shadow else ''}waited, {of}"
    calls = f"{limit.delayed:,} call{'s' * (limit.delayed != 1)}"
    took = f"{units.show_duration(limit.waited_ns)} in all"
    if limit.longest_ns:  # 0: there was a longer one before the run began
        took += f", the longest {units.show_duration(limit.longest_ns)}"
    if limit.shadow:
        return f"{calls} would have waited, {took} late; {of}"
    return f"{calls} waited, {took}; {of}"


def waited_ns(limits: Sequence[record.Limit]) -> int:
    """Time that calls really waited."""
    return sum(limit.waited_ns for limit in limits if not limit.shadow)


def document(limits: Sequence[record.Limit]) -> list[dict[str, Any]]:
    """For programs."""
    return [
        {
            "limit": limit.name or None,
            "bytes": limit.bytes,
            "shadow": limit.shadow,
            "released": limit.released,
            "rate": limit.rate_milli / 1000,
            "asked": limit.units if limit.bytes else limit.units / CALL_UNITS,
            "delayed": limit.delayed,
            "waited_s": limit.waited_ns / 1e9,
            "longest_s": limit.longest_ns / 1e9 if limit.longest_ns or not limit.delayed else None,
        }
        for limit in limits
    ]
