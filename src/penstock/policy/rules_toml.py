# SPDX-License-Identifier: Apache-2.0
"""Reads a policy's text (what it may say: rules.py): a Policy, or each mistake with line and sentence."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.base import units
from penstock.base.errors import UsageError
from penstock.base.text import did_you_mean
from penstock.policy.rules import (
    CLASSES,
    MAX_JOBS,
    MAX_LIMITS,
    SCOPES,
    SHARINGS,
    Guard,
    JobRule,
    Limit,
    Match,
    Mistake,
    Policy,
    plain_path,
    read_rate,
)

LIMIT_KEYS = (
    *("name", "rate", "per", "calls", "paths", "users", "groups", "jobs"),
    *("sharing", "burst", "on_lost", "ceiling", "shadow"),
)


def parse(text: str, operations: frozenset[str]) -> tuple[Policy | None, list[Mistake]]:
    """The policy of a text; `operations` are the names of calls.def."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = _line_in(str(error)) or text.count("\n") + 1
        return None, [Mistake(line, f"this is not TOML: {error}")]
    reader = _Reader(Lines(text), operations)
    policy = reader.policy(table)
    mistakes = sorted(reader.mistakes, key=lambda m: m.line)
    return (None, mistakes) if mistakes else (policy, [])


def _line_in(message: str) -> int:
    found = message.rpartition("at line ")[2].partition(",")[0]
    return int(found) if found.isdigit() else 0


class Lines:
    """Where things stand in a TOML text: tables by their dotted name and number, keys in them."""

    def __init__(self, text: str) -> None:
        self.tables: dict[tuple[str, int], int] = {}
        self.keys: dict[tuple[str, int, str], int] = {}
        counts: dict[str, int] = {}
        table, number = "", 0
        for at, line in enumerate(text.splitlines(), 1):
            bare = line.strip()
            if bare.startswith("[[") and "]]" in bare:
                table = bare[2 : bare.index("]]")].strip().replace('"', "")
                number = counts.get(table, -1) + 1
                counts[table] = number
                self.tables[table, number] = at
            elif bare.startswith("[") and "]" in bare and "=" not in bare.partition("]")[0]:
                table, number = bare[1 : bare.index("]")].strip().replace('"', ""), 0
                self.tables[table, 0] = at
            elif "=" in bare and not bare.startswith("#"):
                key = bare.partition("=")[0].strip().strip('"')
                self.keys.setdefault((table, number, key), at)

    def of(self, table: str, number: int = 0, key: str = "") -> int:
        return self.keys.get((table, number, key)) or self.tables.get((table, number), 0)


class _Reader:
    """Turns tables into values and collects mistakes instead of stopping at the first."""

    def __init__(self, lines: Lines, operations: frozenset[str]) -> None:
        self.lines = lines
        self.operations = operations
        self.mistakes: list[Mistake] = []

    def policy(self, table: Mapping[str, Any]) -> Policy:
        known = ("limit", "job", "weights", "rates", "timetable", "guard", "control")
        for key in table:
            if key not in known:
                is_table = isinstance(table[key], dict | list)
                text = _unknown("table", key, known) if is_table else f"{key!r} stands outside a table"
                self.wrong(self.lines.of(key) or self.lines.of("", 0, key), text)
        limits = tuple(self.limit(i, row) for i, row in enumerate(self.rows(table, "limit", MAX_LIMITS)))
        names = [limit.name for limit in limits]
        for limit in limits:
            if names.count(limit.name) > 1:
                self.wrong(limit.line, f"two limits are named {limit.name!r}; give each its own name")
        bytes_of = {limit.name: limit.bytes for limit in limits}
        control = self.table(table, "control", ("interval", "lease"))
        policy = Policy(
            limits=limits,
            jobs=tuple(self.job(i, row, bytes_of) for i, row in enumerate(self.rows(table, "job", MAX_JOBS))),
            weights=dict(self.weights(table)),
            rates=dict(self.rates(table, bytes_of)),
            timetables=dict(self.timetables(table, bytes_of)),
            guard=self.guard(table, bytes_of),
            interval_s=self.seconds("control", 0, control, "interval", 0.1),
            lease_s=self.seconds("control", 0, control, "lease", 2.0),
        )
        self.together(policy)
        return policy

    def together(self, policy: Policy) -> None:
        """What is right by itself but not with the rest."""
        if not 0.01 <= policy.interval_s <= 60:
            line = self.lines.of("control", 0, "interval")
            self.wrong(line, "interval is to be between 10ms and 1min")
        if policy.lease_s < 3 * policy.interval_s:
            line = self.lines.of("control", 0, "lease")
            self.wrong(line, "lease is to be at least three intervals, else one late grant ends it")
        for limit in policy.limits:
            if limit.sharing in ("static", "priority") and limit.name not in policy.rates:
                text = f'sharing {limit.sharing!r} needs a table [rates."{limit.name}"]'
                self.wrong(limit.line, text)
            if limit.sharing == "timetable" and limit.name not in policy.timetables:
                text = f'sharing "timetable" needs a table [timetable."{limit.name}"]'
                self.wrong(limit.line, text)
        for limit in policy.limits:
            reserved = sum(rule.reserve.get(limit.name, 0.0) for rule in policy.jobs)
            if limit.per == "site" and reserved > limit.rate * (1 + 1e-9):
                show = units.show_size if limit.bytes else units.show_count
                text = f"{limit.name!r} has {show(reserved)}/s reserved, more than its rate of {show(limit.rate)}/s"
                self.wrong(limit.line, text)

    def limit(self, number: int, row: Mapping[str, Any]) -> Limit:
        self.keys("limit", number, row, LIMIT_KEYS)
        line = self.lines.of("limit", number)
        calls = self.calls(number, row.get("calls", "metadata"))
        as_bytes = bool(calls) and all(call in ("data", "read", "write") for call in calls)
        if not as_bytes and any(call in ("data", "read", "write") for call in calls):
            at = self.lines.of("limit", number, "calls")
            self.wrong(at, "data is limited in bytes: give it a limit of its own")
        if "rate" not in row:
            self.wrong(line, 'a limit needs a rate, like rate = "300k/s"')
        lost, lost_rate = self.on_lost(number, row, as_bytes)
        return Limit(
            name=self.text("limit", number, row, "name", f"limit {number + 1}"),
            rate=self.a_rate("limit", number, row, "rate", as_bytes),
            per=self.word(number, row, "per", SCOPES),
            calls=calls,
            bytes=as_bytes,
            paths=self.paths(number, row),
            match=self.match("limit", number, row),
            sharing=self.word(number, row, "sharing", SHARINGS),
            burst_s=self.seconds("limit", number, row, "burst", 0.1),
            on_lost=lost,
            lost_rate=lost_rate,
            ceiling_s=self.seconds("limit", number, row, "ceiling", 0.0),
            shadow=self.flag("limit", number, row, "shadow"),
            line=line,
        )

    def job(self, number: int, row: Mapping[str, Any], bytes_of: Mapping[str, bool]) -> JobRule:
        self.keys("job", number, row, ("jobs", "users", "groups", "reserve", "weight", "priority", "unit"))
        reserve = {}
        at = self.lines.of("job", number, "reserve")
        for name, value in self.mapping("job", number, row, "reserve").items():
            if name not in bytes_of:
                self.wrong(at, _unknown("limit", name, tuple(bytes_of)))
            else:
                reserve[name] = self.rate_at(at, value, bytes_of[name])
        weight = row.get("weight", 1)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1e6:
            self.wrong(self.lines.of("job", number, "weight"), "weight is to be a number above 0")
            weight = 1
        return JobRule(
            match=self.match("job", number, row),
            reserve=reserve,
            weight=float(weight),
            priority=self.text("job", number, row, "priority", ""),
            unit=self.text("job", number, row, "unit", ""),
            line=self.lines.of("job", number),
        )

    def weights(self, table: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
        for name, value in self.table(table, "weights").items():
            at = self.lines.of("weights", 0, name)
            if name not in self.operations:
                self.wrong(at, _unknown("operation", name, tuple(self.operations)))
            elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1000:
                self.wrong(at, f"the weight of {name} is to be a number from 0 to 1000")
            else:
                yield name, float(value)

    def rates(
        self, table: Mapping[str, Any], bytes_of: Mapping[str, bool]
    ) -> Iterator[tuple[str, dict[str, float]]]:
        for name, row in self.table(table, "rates").items():
            if self.is_limit("rates", name, bytes_of) and self.is_table(f"rates.{name}", row):
                yield name, self.rate_row(f"rates.{name}", row, bytes_of[name])

    def rate_row(self, where: str, row: Mapping[str, Any], as_bytes: bool) -> dict[str, float]:
        return {
            key: self.rate_at(self.lines.of(where, 0, key), value, as_bytes) for key, value in row.items()
        }

    def timetables(
        self, table: Mapping[str, Any], bytes_of: Mapping[str, bool]
    ) -> Iterator[tuple[str, tuple[float, tuple[tuple[float, Mapping[str, float]], ...]]]]:
        for name, row in self.table(table, "timetable").items():
            where = f"timetable.{name}"
            if not self.is_limit("timetable", name, bytes_of) or not self.is_table(where, row):
                continue
            steps = []
            for start, rates in row.items():
                at = self.lines.of(where, 0, start)
                if start == "period":
                    continue
                begins = self.time_at(at, start)
                if self.is_table(where, rates):
                    steps.append((begins, self.rate_row(where, rates, bytes_of[name])))
            period = self.seconds(where, 0, row, "period", 0.0)
            yield name, (period, tuple(sorted(steps, key=lambda step: step[0])))

    def guard(self, table: Mapping[str, Any], bytes_of: Mapping[str, bool]) -> Guard | None:
        if "guard" not in table:
            return None
        row = self.table(table, "guard", ("limit", "latency", "least"))
        name = self.text("guard", 0, row, "limit", "")
        if not self.is_limit("guard", name, bytes_of):
            return None
        return Guard(
            name,
            self.seconds("guard", 0, row, "latency", 0.05),
            self.a_rate("guard", 0, row, "least", bytes_of[name]) if "least" in row else 0.0,
        )

    # Pieces.  Each says what is wrong where, and gives something harmless.

    def wrong(self, line: int, text: str) -> None:
        self.mistakes.append(Mistake(line, text))

    def checked(self, line: int, read: Callable[[], float]) -> float:
        try:
            return read()
        except UsageError as error:
            self.wrong(line, str(error))
            return 0.0

    def rate_at(self, line: int, value: Any, as_bytes: bool) -> float:
        return self.checked(line, lambda: read_rate(value, as_bytes))

    def time_at(self, line: int, text: str) -> float:
        return self.checked(line, lambda: units.parse_duration(text) / 1e9)

    def rows(self, table: Mapping[str, Any], name: str, most: int) -> list[Mapping[str, Any]]:
        rows = table.get(name, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            at = self.lines.of(name) or self.lines.of("", 0, name)
            self.wrong(at, f"write each {name} as a table of its own: [[{name}]]")
            return []
        if len(rows) > most:
            self.wrong(self.lines.of(name, most), f"there may be {most} tables [[{name}]] at most")
        return rows[:most]

    def table(
        self, table: Mapping[str, Any], name: str, known: tuple[str, ...] | None = None
    ) -> Mapping[str, Any]:
        row = table.get(name, {})
        if not self.is_table(name, row):
            return {}
        if known is not None:
            self.keys(name, 0, row, known)
        return dict(row)

    def is_table(self, where: str, row: Any) -> bool:
        if isinstance(row, dict):
            return True
        self.wrong(self.lines.of(where) or self.lines.of("", 0, where), f"{where} is to be a table")
        return False

    def is_limit(self, where: str, name: str, bytes_of: Mapping[str, bool]) -> bool:
        if name in bytes_of:
            return True
        line = self.lines.of(f"{where}.{name}") or self.lines.of(where)
        self.wrong(line, _unknown("limit", name, tuple(bytes_of)))
        return False

    def keys(self, where: str, number: int, row: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in row:
            if key not in known:
                self.wrong(self.lines.of(where, number, key), _unknown("key", key, known))

    def text(self, where: str, number: int, row: Mapping[str, Any], key: str, default: str) -> str:
        value = row.get(key, default)
        if isinstance(value, str) and len(value) <= 200 and value.isprintable():
            return value
        self.wrong(self.lines.of(where, number, key), f"{key} is to be a short text")
        return default

    def word(self, number: int, row: Mapping[str, Any], key: str, words: tuple[str, ...]) -> str:
        """One of a limit's words; the first is the default."""
        value = row.get(key, words[0])
        if value in words:
            return str(value)
        at = self.lines.of("limit", number, key)
        self.wrong(at, f"{key} is to be one of {', '.join(words)}, not {value!r}")
        return words[0]

    def flag(self, where: str, number: int, row: Mapping[str, Any], key: str) -> bool:
        value = row.get(key, False)
        if not isinstance(value, bool):
            self.wrong(self.lines.of(where, number, key), f"{key} is to be true or false")
        return value is True

    def seconds(self, where: str, number: int, row: Mapping[str, Any], key: str, default: float) -> float:
        if key not in row:
            return default
        at = self.lines.of(where, number, key)
        if not isinstance(row[key], str):
            self.wrong(at, f'{key} is to be a time, like "100ms"')
            return default
        return self.time_at(at, row[key])

    def a_rate(self, where: str, number: int, row: Mapping[str, Any], key: str, as_bytes: bool) -> float:
        if key not in row:
            return 0.0
        return self.rate_at(self.lines.of(where, number, key), row[key], as_bytes)

    def mapping(self, where: str, number: int, row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = row.get(key, {})
        if isinstance(value, dict):
            return value
        self.wrong(self.lines.of(where, number, key), f"{key} is to be a table of limits and rates")
        return {}

    def words(self, where: str, number: int, row: Mapping[str, Any], key: str) -> tuple[str, ...]:
        value = row.get(key, [])
        value = [value] if isinstance(value, str) else value
        if isinstance(value, list) and all(isinstance(item, str) and item for item in value):
            return tuple(value)
        self.wrong(self.lines.of(where, number, key), f"{key} is to be a list of texts")
        return ()

    def match(self, where: str, number: int, row: Mapping[str, Any]) -> Match:
        return Match(*(self.words(where, number, row, key) for key in ("jobs", "users", "groups")))

    def paths(self, number: int, row: Mapping[str, Any]) -> tuple[str, ...]:
        paths = self.words("limit", number, row, "paths")
        for path in paths:
            if not plain_path(path):
                at = self.lines.of("limit", number, "paths")
                self.wrong(at, f"{path!r} is not a plain absolute path")
        return tuple(path.rstrip("/") for path in paths)

    def calls(self, number: int, value: Any) -> tuple[str, ...]:
        names = [value] if isinstance(value, str) else value
        at = self.lines.of("limit", number, "calls")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            self.wrong(at, "calls is to be a class, an operation, or a list of them")
            return ("metadata",)
        known = (*CLASSES, *sorted(self.operations))
        for name in names:
            if name not in known:
                self.wrong(at, _unknown("operation or class", name, known))
        return tuple(names)

    def on_lost(self, number: int, row: Mapping[str, Any], as_bytes: bool) -> tuple[str, float]:
        value = row.get("on_lost", "hold")
        if value in ("hold", "open"):
            return value, 0.0
        at = self.lines.of("limit", number, "on_lost")
        if not isinstance(value, str) or "/" not in value:
            self.wrong(at, f"on_lost is to be hold, open or a rate, not {value!r}")
            return "hold", 0.0
        return "rate", self.rate_at(at, value, as_bytes)


def _unknown(kind: str, name: str, known: tuple[str, ...]) -> str:
    return f"there is no {kind} {name!r}{did_you_mean(name, known)}"
