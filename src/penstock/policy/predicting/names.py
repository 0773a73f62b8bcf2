# SPDX-License-Identifier: Apache-2.0
"""Templates: names with what varies in them taken out, found by comparing names, not by knowing any scheme.

A name is words (runs of ASCII letters and digits) between separators.  Names with the same separators are compared
word by word.  A word that is the same everywhere but for its digits stays, its digits become a mark.  Of a
word that varies in its letters too, the question is whether its values return from run to run (`model`, `optim`):
then each makes a template of its own; or whether they do not (a hash, a host's name), or only count on
(`aa`, `ab`, `ac`): then the whole word becomes a mark.

Invariants:
1. Every name that was learned from matches exactly the template it is listed under.
2. Templates of one list of separators never both match a name with equal literals: `find` gives the one with most.
3. Names are bytes; nothing is decoded, and a name of any bytes has a template.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.policy.placing.contract import DIGITS, LETTERS, MARKS, WORD

DIGIT_RUNS = re.compile(rb"[0-9]+")
_WORDS = re.compile(rb"([0-9A-Za-z]+)")
_SIDES = {DIGITS: rb"([0-9]+)", LETTERS: rb"([A-Za-z]+)", WORD: rb"([0-9A-Za-z]+)"}

FEW = 12  # so many different words at one place are kinds of files; more are values of a field
KINDS_MAX = 64
HASHED = 3  # runs of digits in a word: nobody numbers like that, it is a hash that only one run has shown
RETURNING = 0.5


@dataclass(frozen=True)
class Template:
    """Literals and marks in order, as in contract.Match."""

    pieces: tuple[bytes, ...]
    regex: re.Pattern[bytes]

    def values(self, name: bytes) -> tuple[bytes, ...] | None:
        """What stands at the marks (digits without leading zeros), or None if the name is not of this template."""
        found = self.regex.fullmatch(name)
        if found is None:
            return None
        return tuple(map(plain, found.groups()))

    def name_with(self, name: bytes, values: Sequence[bytes]) -> bytes:
        """A name of this template with other values; numbers are as wide as before where those had leading zeros."""
        found = self.regex.fullmatch(name)
        if found is None:
            return b""
        out, at = b"", 0
        for number, value in enumerate(values, 1):
            old = found[number]
            new = old if plain(old) == value else value.zfill(len(old)) if old.startswith(b"0") else value
            out += name[at : found.start(number)] + new
            at = found.end(number)
        return out + name[at:]

    @property
    def marks(self) -> tuple[bytes, ...]:
        return tuple(p for p in self.pieces if p in MARKS)


def plain(value: bytes) -> bytes:
    """A value as entries of a plan write it: a number without its leading zeros."""
    return (value.lstrip(b"0") or b"0") if value.isdigit() else value


def shape_of(name: bytes) -> bytes:
    """The name with each run of digits taken out."""
    return DIGIT_RUNS.sub(DIGITS, name)


def template_of(pieces: tuple[bytes, ...]) -> Template:
    pattern = b"".join(_SIDES[p] if p in MARKS else re.escape(p) for p in pieces)
    return Template(pieces, re.compile(pattern, re.DOTALL))


def separators(name: bytes) -> tuple[bytes, ...]:
    """What names must share to be compared: all that stands between their words."""
    return tuple(_WORDS.split(name)[::2])


@dataclass(frozen=True)
class Group:
    """A template and the rows (of what was learned from) that are of it."""

    template: Template
    rows: tuple[int, ...]


def group(names: Sequence[bytes], runs: Sequence[int]) -> list[Group]:
    """The templates of these names; `runs` says which run each is from."""
    by_separators: dict[tuple[bytes, ...], list[int]] = {}
    words: list[list[bytes]] = []
    for row, name in enumerate(names):
        parts = _WORDS.split(name)
        words.append(parts[1::2])
        by_separators.setdefault(tuple(parts[::2]), []).append(row)
    found: list[Group] = []
    for between, rows in by_separators.items():
        found += _split(between, rows, words, runs)
    return found


def _split(
    between: tuple[bytes, ...], rows: list[int], words: list[list[bytes]], runs: Sequence[int]
) -> list[Group]:
    """One template, or several where a word says the kind of file."""
    shapes: dict[bytes, bytes] = {}
    places: list[bytes] = []
    best: tuple[int, int, dict[bytes, bytes]] | None = None
    one_run = len({runs[row] for row in rows}) == 1
    for place in range(len(between) - 1):
        column = [words[row][place] for row in rows]
        for word in set(column) - shapes.keys():
            shapes[word] = shape_of(word)
        distinct = {shapes[word] for word in set(column)}
        if len(distinct) == 1:
            shape = distinct.pop()
            alone = len(set(column)) == 1 and shape.count(DIGITS) >= HASHED and one_run
            places.append(WORD if alone else shape)
            continue
        kinds = _kinds(column, shapes, [runs[row] for row in rows])
        # What is no kind is the field: it gets the empty key.
        if kinds:
            keys = {shape: shape if shape in kinds else b"" for shape in distinct}
            number = len(set(keys.values()))
            if number > 1 and (best is None or number < best[0]):
                best = (number, place, keys)
        places.append(LETTERS if all(word.isalpha() for word in set(column)) else WORD)
    if best is not None:
        _, place, keys = best
        parts: dict[bytes, list[int]] = {}
        for row in rows:
            parts.setdefault(keys[shapes[words[row][place]]], []).append(row)
        return [g for part in parts.values() for g in _split(between, part, words, runs)]
    return [Group(template_of(_pieces(between, places)), tuple(rows))]


def _pieces(between: tuple[bytes, ...], places: list[bytes]) -> tuple[bytes, ...]:
    """Literals joined, marks apart."""
    pieces: list[bytes] = []
    literal = between[0]
    for shape, after in zip(places, between[1:], strict=True):
        parts = [shape] if shape in (LETTERS, WORD) else re.split(b"(\0d)", shape)
        for part in parts:
            if part in MARKS:
                if literal:
                    pieces.append(literal)
                pieces.append(part)
                literal = b""
            else:
                literal += part
        literal += after
    return (*pieces, literal) if literal or not pieces else tuple(pieces)


def _kinds(column: list[bytes], shapes: dict[bytes, bytes], runs: list[int]) -> set[bytes]:
    """Of the words at one place those that say what kind of file it is; the others are a field's values."""
    counts = Counter(shapes[word] for word in column)
    if counts_on(set(column)) or _mixed(counts):
        return set()
    if len(set(runs)) == 1:
        return set(counts) if _look_like_kinds(counts, column) else set()
    seen_in: dict[bytes, set[int]] = {}
    for word, run in zip(column, runs, strict=True):
        seen_in.setdefault(shapes[word], set()).add(run)
    returning = {shape for shape, where in seen_in.items() if len(where) > 1}
    share = sum(counts[shape] for shape in returning) / len(column)
    if share >= RETURNING:
        if len(returning) <= KINDS_MAX and len(counts) <= 2 * len(returning):
            return set(counts)
        return set()
    # A few words that return each time among many that do not: `best` among hashes.
    return {s for s in returning if s.isalpha() and len(s) > 2 and len(seen_in[s]) == len(set(runs))}


def _mixed(counts: Counter[bytes]) -> bool:
    """Many words with letters and digits in different places: hashes, hex numbers."""
    both = sum(DIGITS in shape and shape != DIGITS for shape in counts)
    return len(counts) > 4 and both >= 0.3 * len(counts)


def _look_like_kinds(counts: Counter[bytes], column: list[bytes]) -> bool:
    """With one run alone: few words, each more than once, or words as people write them."""
    if len(counts) > FEW:
        return False
    if len(column) >= 2 * len(counts):
        return True
    lengths = {len(word) for word in column}
    hashes = len(lengths) == 1 and max(lengths) >= 6
    return not hashes


def base_of(values: Iterable[bytes]) -> int:
    """In which base these words count: 10 for numbers, 16 where none has a letter past f, else 36."""
    letters = b"".join(values).lower().translate(None, b"0123456789")
    return 10 if not letters else 16 if not letters.translate(None, b"abcdef") else 36


def ordinal(value: bytes, base: int = 0) -> float:
    """A word as a number; its letters and digits are digits of the base, or of the one that it is itself in."""
    base = base or base_of([value])
    try:
        return float(int(value[:18] if base == 10 else value[:12], base))
    except ValueError:  # a value of another kind than those that the base was found from
        return float(int(value[:12], 36))


def counts_on(values: set[bytes]) -> bool:
    """Do these words count on: a, b, c; aa, ab, ac (of one length); 8, 9, a, b (of any, zeros in front or not)?"""
    if len(values) < 3:
        return False
    lowered = {v.lower() for v in values}
    letters = all(v.isalpha() for v in values)
    digits = b"abcdefghijklmnopqrstuvwxyz" if letters else b"0123456789abcdef"
    if letters and len({len(v) for v in values}) != 1:
        return False
    if not letters and not all(c in digits for v in lowered for c in v):
        return False
    numbers = np.array(sorted(_in_digits(v, digits) for v in lowered))
    steps = np.diff(numbers)
    return bool(len(steps) and (steps == 1).mean() >= 0.8)


def _in_digits(value: bytes, digits: bytes) -> int:
    number = 0
    for c in value[-8:]:
        number = number * len(digits) + max(digits.find(c), 0)
    return number


def show(pieces: Sequence[bytes], names: Sequence[str] = ()) -> str:
    """A template for eyes: `out.{rank}`, marks without a name are `{#}` for digits and `{*}` for words."""
    given = iter(names)
    words = []
    for piece in pieces:
        if piece in MARKS:
            name = next(given, "")
            words.append("{" + (name or ("#" if piece == DIGITS else "*")) + "}")
        else:
            words.append(piece.decode("utf-8", "backslashreplace"))
    return "".join(words)


class Index:
    """Templates by their separators, to find the one of a name."""

    def __init__(self, templates: Sequence[Template]) -> None:
        self.by_separators: dict[tuple[bytes, ...], list[int]] = {}
        self.templates = templates
        for i, template in enumerate(templates):
            name = b"".join(
                b"0" if p in (DIGITS, WORD) else b"a" if p == LETTERS else p for p in template.pieces
            )
            self.by_separators.setdefault(separators(name), []).append(i)
        for found in self.by_separators.values():
            found.sort(key=lambda i: -sum(len(p) for p in templates[i].pieces if p not in MARKS))

    def find(self, name: bytes) -> tuple[int, tuple[bytes, ...]] | None:
        """Which template, and what stands at its marks."""
        for i in self.by_separators.get(separators(name), ()):
            values = self.templates[i].values(name)
            if values is not None:
                return i, values
        return None
