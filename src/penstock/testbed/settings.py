# SPDX-License-Identifier: Apache-2.0
"""Settings of the service model, from the table that the model itself is compiled with.

model_settings.def has a row for each: key, kind, default, bounds, what it does.  Here settings that people write (in
TOML, on the command line) are checked and become the flat text that the server reads: plain numbers, times in ns, sizes
in bytes.

Invariants: pure but for reading that table; a key of a layout or a pool is not the model's and passes unchanged.
"""

import difflib
import itertools
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base import units
from penstock.base.errors import UsageError

_ROW = re.compile(
    r'^SETTING\(\w+, "(?P<key>[^"]+)", (?P<kind>\w+), "(?P<default>[^"]*)", (?P<least>[^,]+), (?P<most>[^,]+),'
    r' "(?P<doc>[^"]*)"\)$',
    re.MULTILINE,
)
_SERVER = re.compile(r"(mds|oss|ost)\.(\d+)\.(.+)", re.ASCII)
_OTHERS = ("layout.", "pool.")
_WRITTEN = {
    "TIME": "time",
    "SIZE": "size",
    "RATE": "bytes a second",
    "COUNT": "whole number",
    "FACTOR": "number",
    "SHARE": "share",
    "TEXT": "text",
    "POINTS": "points n:g",
}


class Setting(NamedTuple):
    """One row; `words` are what a WORD may be."""

    key: str
    kind: str
    default: str
    least: float
    most: float
    doc: str
    words: tuple[str, ...]

    @property
    def for_one(self) -> bool:
        """May be set for a single server."""
        return self.key.startswith(("mds.", "oss.", "ost.")) and self.kind not in ("TEXT", "POINTS")


def rows(text: str) -> Iterator[Setting]:
    """The rows of a model_settings.def."""
    for match in _ROW.finditer(text):
        words, doc = (), match["doc"]
        if match["kind"] == "WORD":
            head, _, doc = doc.partition(": ")
            words = tuple(head.split("|"))
        yield Setting(
            match["key"],
            match["kind"],
            match["default"],
            float(match["least"]),
            float(match["most"]),
            doc,
            words,
        )


@cache
def schema() -> dict[str, Setting]:
    here = Path(__file__).with_name("model_settings.def")
    return {row.key: row for row in rows(here.read_text("utf-8"))}


def setting_of(key: str) -> Setting:
    """The row of a key; `ost.7.bandwidth` is `ost.bandwidth` of one."""
    match = _SERVER.fullmatch(key)
    row = schema().get(f"{match[1]}.{match[3]}" if match else key)
    if row is None:
        near = difflib.get_close_matches(key, schema(), n=1)
        raise UsageError(f"the testbed has no setting {key}" + (f"; did you mean {near[0]}?" if near else ""))
    if match and not row.for_one:
        raise UsageError(f"{key}: {row.key} holds for all of them; set it without a number")
    return row


def _number(row: Setting, text: str) -> float:
    if re.fullmatch(r"-?\d+(\.\d+)?(e\d+)?", text, re.ASCII):
        return float(text)
    match row.kind:
        case "TIME":
            return units.parse_duration(text)
        case "SIZE":
            return units.parse_size(text)
        case "RATE":
            return units.parse_byte_rate(text if "/" in text else f"{text}/s")
        case "SHARE" if text.endswith("%"):
            return float(text[:-1]) / 100
    raise ValueError


def normal(key: str, value: str) -> str:
    """A value as the server reads it; what is impossible is refused with a sentence."""
    row = setting_of(key)
    text = value.strip()
    if row.kind in ("TEXT", "POINTS"):
        if row.kind == "POINTS":
            _check_points(key, text)
        return text
    if row.kind == "WORD":
        if text not in row.words:
            raise UsageError(f"{key} is one of {', '.join(row.words)}, not {value!r}")
        return text
    try:
        number = _number(row, text)
    except UsageError as error:
        raise UsageError(f"{key}: {error}") from error
    except ValueError as error:
        raise UsageError(f"{key} is a {_WRITTEN[row.kind]}, not {value!r}") from error
    if row.kind == "COUNT" and number != int(number):
        raise UsageError(f"{key} is a whole number, not {value!r}")
    if not row.least <= number <= row.most:
        raise UsageError(f"{key} must lie between {row.least:.15g} and {row.most:.15g}, not {number:.15g}")
    return f"{number:.15g}"


def _check_points(key: str, text: str) -> None:
    try:
        points = [tuple(map(float, word.split(":"))) for word in text.replace(",", " ").split()]
        pairs = [(n, g) for n, g in points]
    except ValueError:
        raise UsageError(f'{key} is a list of points like "1:1 64:32", not {text!r}') from None
    if not pairs or pairs[0] != (1, 1):
        raise UsageError(f"{key} must begin with 1:1, one process alone")
    if any(n1 >= n2 or g1 > g2 for (n1, g1), (n2, g2) in itertools.pairwise(pairs)):
        raise UsageError(f"{key} must rise from point to point: {text}")


def _walk(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = prefix + str(key)
        if isinstance(value, Mapping):
            yield from _walk(value, f"{name}.")
        elif isinstance(value, bool):
            yield name, "on" if value else "off"
        elif isinstance(value, list):
            inner = (":".join(map(str, v)) if isinstance(v, list) else str(v) for v in value)
            yield name, ("," if name.startswith("pool.") else " ").join(inner)
        else:
            yield name, str(value)


def checked(settings: Mapping[str, str]) -> dict[str, str]:
    """All of them as the server reads them."""
    return {key: value if key.startswith(_OTHERS) else normal(key, value) for key, value in settings.items()}


def flatten(table: Mapping[str, Any]) -> str:
    """TOML tables as the flat text of the server: a line `key=value` each."""
    return "".join(f"{key}={value}\n" for key, value in checked(dict(_walk(table))).items())


def markdown() -> str:
    """The table for the guide."""
    lines = ["| setting | written as | default | what it does |", "| --- | --- | --- | --- |"]
    for row in schema().values():
        written = " \\| ".join(row.words) if row.words else _WRITTEN[row.kind]
        doc = row.doc[0].upper() + row.doc[1:]
        lines.append(f"| `{row.key}` | {written} | `{row.default}` | {doc}. |")
    return "\n".join(lines) + "\n"
