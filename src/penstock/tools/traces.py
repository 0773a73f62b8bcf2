# SPDX-License-Identifier: Apache-2.0
"""Traces of metadata operations: their two formats, and when a replay does what.

Counts by interval (what monitoring of a file system keeps):

    # interval_s = 60                      how long an interval is (60 seconds if this line is missing)
    time_s,open,close,getattr              seconds, or a date and time; then a column for each operation
    0,1740000,2610000,5748000

Single operations:

    time_s,operation
    0.000125,getattr

Lines that begin with # are remarks.

Invariants:
1. A line that cannot be right is named, with its number and why, and passed over; all others count.
2. Rates stay as they are when time is sped up: a replay at speed 60 makes a minute a second and does a sixtieth of
   the operations.  Fractions of operations are carried on, so none is lost over the whole.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TextIO

from penstock.base.errors import UsageError
from penstock.base.text import cut, visible

OPERATIONS = (
    *("open", "close", "getattr", "setattr", "rename", "mkdir", "mknod", "rmdir", "statfs", "sync", "unlink"),
    *("read", "write"),
)
MAX_COUNT = 10**12
MAX_NAMED = 20  # damaged lines that are named one by one


class Span(NamedTuple):
    """An operation, so many times, evenly over so long; a length of 0 is a single instant."""

    start_s: float
    length_s: float
    operation: str
    times: int


class Damage(NamedTuple):
    line: int
    text: str


@dataclass
class Trace:
    """A trace as it is read: iterate once, then look at `damages` and `unknown`."""

    path: Path
    synthetic: str = ""  # what the file itself says about how it was made
    damaged: int = 0
    damages: list[Damage] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)  # columns of no known operation
    spans: int = 0
    end_s: float = 0.0
    _interval_s: float = 60.0
    _origin: float | None = None

    def __iter__(self) -> Iterator[Span]:
        try:
            with self.path.open(encoding="utf-8", errors="surrogateescape") as file:
                yield from self._read(file)
        except OSError as error:
            raise UsageError(f"the trace {self.path} cannot be read ({error.strerror})") from error
        if not self.spans:
            raise UsageError(f"{self.path} holds no operation that can be replayed" + self._first_damage())

    def _first_damage(self) -> str:
        return f": line {self.damages[0].line} {self.damages[0].text}" if self.damages else ""

    def _read(self, file: TextIO) -> Iterator[Span]:
        columns: list[str] | None = None
        for number, line in enumerate(file, 1):
            text = line.strip()
            if text.startswith("#"):
                self._remark(number, text)
            elif text and columns is None:
                columns = self._header(text)
            elif text and columns is not None:
                try:
                    yield from self._row(columns, text)
                except ValueError as error:
                    self._damage(number, str(error))

    def _remark(self, number: int, text: str) -> None:
        name, equals, value = text.lstrip("# ").partition("=")
        if text.lstrip("# ").startswith("synthetic"):
            self.synthetic = visible(text.lstrip("# "))
        if equals and name.strip() == "interval_s":
            try:
                self._interval_s = _number(value)
            except ValueError as error:
                self._damage(number, str(error))

    def _header(self, text: str) -> list[str]:
        columns = [word.strip().lower() for word in text.split(",")]
        if columns[0] not in ("time", "time_s", "timestamp") or len(columns) < 2:
            raise UsageError(
                f"{self.path} does not begin as a trace: its first line is to be time_s,operation "
                "or time_s,open,close,..."
            )
        if columns[1:] == ["operation"] or columns[1:] == ["op"]:
            return ["time", "operation"]
        self.unknown = [visible(word) for word in columns[1:] if word not in OPERATIONS]
        if len(self.unknown) == len(columns) - 1:
            raise UsageError(
                f"{self.path} has no column of a known operation; these are: {', '.join(OPERATIONS)}"
            )
        if len(set(columns)) < len(columns):
            raise UsageError(f"{self.path} has two columns of one name")
        return columns

    def _row(self, columns: list[str], text: str) -> list[Span]:
        words = text.split(",")
        if len(words) != len(columns):
            raise ValueError(f"has {len(words)} fields, not {len(columns)}")
        single = columns[1] == "operation"
        time_s = self._time(words[0])
        length_s = 0.0 if single else self._interval_s
        if single and words[1].strip() not in OPERATIONS:
            raise ValueError(f"names no operation: {_shown(words[1])}")
        counts = [1] if single else [_count(word) for word in words[1:]]
        names = [words[1].strip()] if single else columns[1:]
        if time_s < self.end_s - 1e-9:
            raise ValueError("goes back in time, or overlaps the interval before it")
        self.end_s = time_s + length_s
        found = [
            Span(time_s, length_s, name, count)
            for name, count in zip(names, counts, strict=True)
            if count and name in OPERATIONS
        ]
        self.spans += len(found)
        return found

    def _time(self, word: str) -> float:
        text = word.strip()
        try:
            value = _number(text)
        except ValueError:
            try:
                value = datetime.fromisoformat(text).timestamp()
            except (ValueError, OverflowError, OSError):
                raise ValueError(f"has no time: {_shown(text)}") from None
        if self._origin is None:
            self._origin = value
        return value - self._origin

    def _damage(self, line: int, text: str) -> None:
        self.damaged += 1
        if len(self.damages) < MAX_NAMED:
            self.damages.append(Damage(line, text))


def _shown(text: str) -> str:
    return f"'{cut(visible(text.strip()), 40)}'"


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"holds {_shown(text)}, which is no number") from None
    if not math.isfinite(value) or not 0 <= value <= 1e11:
        raise ValueError(f"holds {_shown(text)}, which is out of range")
    return value


def _count(text: str) -> int:
    """A count; monitoring writes averages, so it may have a fraction."""
    value = _number(text or "0")
    if value > MAX_COUNT:
        raise ValueError(f"holds {_shown(text)}, which is out of range")
    return round(value)


def schedule(spans: Iterable[Span], scale: float, speed: float) -> Iterator[str]:
    """Lines for the replayer: OPERATION START_NS LENGTH_NS COUNT, scaled and sped up."""
    factor = scale / speed
    wanted: dict[str, float] = {}
    given: dict[str, int] = {}
    for span in spans:
        start_ns = round(span.start_s / speed * 1e9)
        end_ns = round((span.start_s + span.length_s) / speed * 1e9)
        wanted[span.operation] = wanted.get(span.operation, 0.0) + span.times * factor
        count = math.floor(wanted[span.operation] + 1e-6) - given.get(span.operation, 0)
        if count > 0:
            given[span.operation] = given.get(span.operation, 0) + count
            yield f"{span.operation} {start_ns} {end_ns - start_ns} {count}\n"


@dataclass
class Statistics:
    """What a trace is like: rates by interval, all operations and each."""

    interval_s: float
    times_s: list[float] = field(default_factory=list)
    rates: dict[str, list[float]] = field(default_factory=dict)  # operations a second, by interval

    @property
    def total(self) -> list[float]:
        return [sum(column) for column in zip(*self.rates.values(), strict=True)]

    def mean(self, operation: str | None = None) -> float:
        rates = self.total if operation is None else self.rates[operation]
        return sum(rates) / len(rates) if rates else 0.0


def statistics(spans: Iterable[Span], interval_s: float = 60.0) -> Statistics:
    """Rates by interval; single operations are counted into intervals."""
    cells: dict[tuple[str, int], float] = {}
    last = 0
    for span in spans:
        width = span.length_s or interval_s
        cell = int(span.start_s // width)
        cells[span.operation, cell] = cells.get((span.operation, cell), 0.0) + span.times / width
        interval_s, last = width, max(last, cell)
    names = [name for name in OPERATIONS if any(operation == name for operation, _ in cells)]
    return Statistics(
        interval_s,
        [cell * interval_s for cell in range(last + 1)],
        {name: [cells.get((name, cell), 0.0) for cell in range(last + 1)] for name in names},
    )


def longest_above(total: list[float], bound: float, interval_s: float) -> float:
    """Hours of the longest stretch whose hourly means are all above a bound."""
    width = max(1, round(3600 / interval_s))
    best = run = 0
    for at in range(len(total) - width + 1):
        above = sum(total[at : at + width]) / width > bound
        run = run + 1 if above else 0
        best = max(best, run)
    return (best + width - 1) * interval_s / 3600 if best else 0.0


def facts(found: Statistics) -> dict[str, object]:
    """The figures that a trace is judged by."""
    total, interval_s = sorted(found.total), found.interval_s
    return {
        "intervals": len(total),
        "hours": len(total) * interval_s / 3600,
        "mean_ops_per_s": found.mean(),
        "least_ops_per_s": total[0],
        "median_ops_per_s": total[len(total) // 2],
        "most_ops_per_s": total[-1],
        "hours_above_400k": sum(rate > 400_000 for rate in total) * interval_s / 3600,
        "longest_stretch_above_400k_hours": longest_above(found.total, 400_000, interval_s),
        "share": {name: found.mean(name) / (found.mean() or 1.0) for name in found.rates},
    }
