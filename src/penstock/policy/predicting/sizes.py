# SPDX-License-Identifier: Apache-2.0
"""The size of the files of one template, as a function of what stands at its marks: several models, chosen by their
error on data that they have not seen.

Data not seen are the last runs, each predicted from those before it; with one run alone it is every fourth file.

Models, simplest first; of two whose error differs by less than 0.2 % the first holds:
    constant    the middle of the last run
    same        what the file with the same values had last time, or in the middle of all times; times the growth
                from run to run, or by the number of ranks, where there is any
    line        a + b·x of one mark
    factors     a product of effects of marks, found one after another: by value, by remainder (every tenth),
                exponential in it, a power of it, a power of the number of ranks

Invariants:
1. Predictions are finite and at least 0, whatever was learned from.
2. The same data give the same model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.policy.placing.contract import Floats, Ints

TIE = 0.002
EVEN = 0.001
PERIODS = (
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    12,
    14,
    15,
    16,
    20,
    24,
    25,
    30,
    32,
    40,
    50,
    60,
    64,
    100,
    128,
    200,
    250,
    256,
    500,
    1000,
)
SAMPLE = 800
EFFECTS_MAX = 4
BOUND = 60.0  # of a logarithm: beyond e^60 bytes nothing is believed


@dataclass(frozen=True)
class Table:
    """Files of one template in columns.  `keys` are the marks whose values return from run to run."""

    bytes: Floats
    run: Ints
    ranks: Floats  # of the run
    values: Ints  # [files, marks]: numbers of the values, equal for equal ones
    numbers: Floats  # [files, marks]: values as numbers
    keys: tuple[int, ...]

    def take(self, rows: Ints) -> "Table":
        return Table(
            self.bytes[rows],
            self.run[rows],
            self.ranks[rows],
            self.values[rows],
            self.numbers[rows],
            self.keys,
        )

    def __len__(self) -> int:
        return len(self.bytes)


Predict = Callable[[Table], Floats]
"""NaN where a model says nothing (a value it has not seen)."""


@dataclass(frozen=True)
class Model:
    """What was chosen: the best, then the best that also speaks of values not seen; and the error to expect."""

    how: str
    error: float
    first: Predict
    second: Predict
    second_error: float
    middle: float

    def predict(self, table: Table) -> tuple[Floats, Floats]:
        """Bytes and estimated errors."""
        guess = _sane(self.first(table))
        error = np.full(len(table), self.error)
        missing = np.isnan(guess)
        if missing.any():
            other = _sane(self.second(table))
            guess = np.where(missing, other, guess)
            error = np.where(missing, self.second_error, error)
        missing = np.isnan(guess)
        guess = np.where(missing, self.middle, guess)
        return guess, np.where(missing, 1.0, error)


def _sane(guess: Floats) -> Floats:
    """Nothing negative and nothing infinite."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(guess), np.clip(guess, 0.0, 2.0**62), np.nan)


def error_of(guess: Floats, true: Floats) -> Floats:
    """|guess - true| over the larger of the two; 1 where nothing was said."""
    guess = np.where(np.isnan(guess), 0.0, guess)
    larger = np.maximum(np.maximum(guess, true), 1.0)
    return np.minimum(np.abs(guess - true) / larger, 1.0)


def mean_error(guess: Sequence[float], true: Sequence[float]) -> float:
    """The mean of `error_of`."""
    return (
        float(error_of(np.array(guess, dtype=float), np.array(true, dtype=float)).mean())
        if len(true)
        else 0.0
    )


# -- models --------------------------------------------------------------------------------------------------


def constant(seen: Table, by_ranks: bool = False) -> Predict:
    last = seen.run == seen.run.max()
    middle, ranks = float(np.median(seen.bytes[last])), max(float(np.median(seen.ranks[last])), 1.0)
    slope = rank_slope(seen) if by_ranks else 0.0
    return lambda t: middle * (np.maximum(t.ranks, 1) / ranks) ** slope


def _rows_of(values: Ints, keys: Sequence[int]) -> list[tuple[int, ...]]:
    return list(map(tuple, values[:, list(keys)].tolist()))


def same(seen: Table, last_only: bool, by_ranks: bool = False, grows: bool = False) -> Predict:
    """What the same values had before."""
    rows = _rows_of(seen.values, seen.keys)
    held: dict[tuple[int, ...], float]
    if last_only:
        sums: dict[tuple[int, ...], tuple[int, float, int]] = {}
        for key, run, size in zip(rows, seen.run.tolist(), seen.bytes.tolist(), strict=True):
            newest, total, number = sums.get(key, (-1, 0.0, 0))
            if run > newest:
                sums[key] = (run, size, 1)
            elif run == newest:
                sums[key] = (run, total + size, number + 1)
        held = {key: total / number for key, (_, total, number) in sums.items()}
    else:
        lists: dict[tuple[int, ...], list[float]] = {}
        for key, size in zip(rows, seen.bytes.tolist(), strict=True):
            lists.setdefault(key, []).append(size)
        held = {key: sorted(sizes)[len(sizes) // 2] for key, sizes in lists.items()}
    slope = rank_slope(seen) if by_ranks else 0.0
    last = seen.run == seen.run.max()
    ranks = float(np.median(seen.ranks[last]))
    growth = _growth(seen) if grows else 1.0

    def predict(t: Table) -> Floats:
        found = np.array([held.get(key, np.nan) for key in _rows_of(t.values, t.keys)], dtype=float)
        return found * growth * (np.maximum(t.ranks, 1) / max(ranks, 1)) ** slope

    return predict


def _run_medians(seen: Table) -> tuple[Floats, Floats]:
    """Log of the middle size of each run, and log of its ranks."""
    runs = np.unique(seen.run)
    sizes = np.array([np.median(seen.bytes[seen.run == r]) for r in runs])
    ranks = np.array([np.median(seen.ranks[seen.run == r]) for r in runs])
    return np.log(np.maximum(sizes, 1.0)), np.log(np.maximum(ranks, 1.0))


def rank_slope(seen: Table) -> float:
    """By which power of the number of ranks sizes go: -1 where a whole is shared out, 0 where each writes the same."""
    sizes, ranks = _run_medians(seen)
    if len(np.unique(ranks)) < 2:
        return 0.0
    _, slope, _ = straight(ranks, sizes)
    near = round(slope)
    return float(np.clip(near if abs(slope - near) < 0.1 else slope, -3, 3))


def _growth(seen: Table) -> float:
    sizes, _ = _run_medians(seen)
    if len(sizes) < 2:
        return 1.0
    return float(np.exp(np.clip(np.median(np.diff(sizes)), -2, 2)))


def straight(x: Floats, y: Floats) -> tuple[float, float, float]:
    """Least squares: a + b·(x - m)."""
    m = float(x.mean())
    spread = float(((x - m) ** 2).sum())
    b = float(((x - m) * (y - y.mean())).sum()) / spread if spread > 0 else 0.0
    return float(y.mean()), b, m


def line(seen: Table, mark: int) -> Predict:
    a, b, m = straight(seen.numbers[:, mark], seen.bytes)
    return lambda t: a + b * (t.numbers[:, mark] - m)


@dataclass(frozen=True)
class Effect:
    """A part of the logarithm of a size."""

    kind: str  # "value", "remainder", "exponential", "power", "ranks"
    mark: int = 0
    period: int = 0
    step: float = 1.0
    start: float = 0.0

    def classes(self, t: Table) -> Ints:
        if self.kind == "value":
            return t.values[:, self.mark]
        turns = np.round((t.numbers[:, self.mark] - self.start) / self.step)
        return np.mod(turns, self.period).astype(np.int64)

    def x(self, t: Table) -> Floats:
        if self.kind == "ranks":
            return np.log(np.maximum(t.ranks, 1))
        x = t.numbers[:, self.mark]
        return np.log(np.maximum(x, 0) + 1) if self.kind == "power" else x

    def fit(self, seen: Table, rest: Floats) -> Predict:
        if self.kind in ("value", "remainder"):
            classes = self.classes(seen)
            levels, index = np.unique(classes, return_inverse=True)
            middle = np.bincount(index, weights=rest) / np.bincount(index)

            def by_class(t: Table) -> Floats:
                at = np.searchsorted(levels, self.classes(t))
                at = np.minimum(at, len(levels) - 1)
                return np.where(levels[at] == self.classes(t), middle[at], np.nan)

            return by_class
        a, b, m = straight(self.x(seen), rest)
        return lambda t: a + b * (self.x(t) - m)


def _effects(seen: Table) -> list[Effect]:
    """What may matter: the marks in their different roles."""
    found: list[Effect] = []
    if len(np.unique(seen.ranks)) > 1:
        found.append(Effect("ranks"))
    for mark in range(seen.values.shape[1]):
        different = np.unique(seen.numbers[:, mark])
        if len(different) < 2:
            continue
        if len(np.unique(seen.values[:, mark])) <= len(seen) / 2:
            found.append(Effect("value", mark))
        if len(different) >= 2:
            found += [Effect("exponential", mark), Effect("power", mark)]
        steps = np.diff(different)
        step, start = float(steps.min()), float(different[0])
        turns = int((different[-1] - start) / step) if step > 0 else 0
        # Multiples matter, not places in the list: 10, 20, 30 are every tenth of 1, 2, 3.
        if start % step == 0:
            start = 0.0
        if turns >= 3:
            found += [Effect("remainder", mark, p, step, start) for p in PERIODS if p * 2 <= turns + 1]
    return found


def factors(seen: Table) -> Predict | None:
    """Effects found one after another, each by what it explains of what is left."""
    if float(seen.bytes.min()) <= 0:
        return None
    y = np.log(seen.bytes)
    draw = np.random.default_rng(1)
    few = (
        np.arange(len(seen))
        if len(seen) <= SAMPLE
        else np.sort(draw.choice(len(seen), SAMPLE, replace=False))
    )
    table, target = seen.take(few), y[few]
    even = np.arange(len(table)) % 2 == 0
    halves = [table.take(np.flatnonzero(even)), table.take(np.flatnonzero(~even))]
    if not len(halves[1]):
        return None
    chosen: list[Effect] = []
    base = float(np.median(target))
    rest = target - base
    left = float(np.abs(rest).mean())
    while len(chosen) < EFFECTS_MAX and left > EVEN:
        best: tuple[float, Effect] | None = None
        for effect in _effects(table):
            if effect in chosen:
                continue
            errors = []
            for half, mask in zip(halves, (even, ~even), strict=True):
                guess = effect.fit(half, rest[mask])(table)[~mask]
                errors.append(np.abs(rest[~mask] - np.where(np.isnan(guess), 0.0, guess)).mean())
            error = float(np.mean(errors))
            # A simpler role comes first in the list and stays unless another is clearly better.
            if best is None or error < best[0] * 0.9:
                best = (error, effect)
        if best is None or best[0] > 0.9 * left:
            break
        left = best[0]
        chosen.append(best[1])
        rest = _fitted(chosen, table, target)[1]
    if not chosen:
        return None
    parts, _ = _fitted(chosen, seen, y)
    base = float(np.median(y))
    return lambda t: np.exp(np.clip(base + sum(part(t) for part in parts), -BOUND, BOUND))


def _fitted(effects: Sequence[Effect], seen: Table, y: Floats) -> tuple[list[Predict], Floats]:
    """All effects together, each fitted anew to what the others leave, three times round."""
    base = float(np.median(y))
    parts: list[Predict] = [lambda t: np.zeros(len(t))] * len(effects)
    for _ in range(3 if len(effects) > 1 else 1):
        for i, effect in enumerate(effects):
            others = sum((part(seen) for j, part in enumerate(parts) if j != i), np.zeros(len(seen)))
            parts[i] = effect.fit(seen, y - base - others)
    return parts, y - base - sum((part(seen) for part in parts), np.zeros(len(seen)))


# -- choosing ------------------------------------------------------------------------------------------------


def _candidates(seen: Table) -> list[tuple[str, bool, Callable[[Table], Predict | None]]]:
    """Name, whether it speaks of values not seen, and how it is made; simplest first."""
    found: list[tuple[str, bool, Callable[[Table], Predict | None]]] = [("constant", True, constant)]
    several = len(np.unique(seen.run)) > 1
    if len(np.unique(seen.ranks)) > 1:
        found.append(("by the number of ranks", True, lambda s: constant(s, by_ranks=True)))
    if seen.keys:
        found.append(("same as last time", False, lambda s: same(s, True)))
        if several:
            found.append(("same as in the middle of all times", False, lambda s: same(s, False)))
            found.append(("same, growing from run to run", False, lambda s: same(s, True, grows=True)))
        if len(np.unique(seen.ranks)) > 1:
            found.append(("same, by the number of ranks", False, lambda s: same(s, True, by_ranks=True)))
    for mark in range(seen.values.shape[1]):
        if len(np.unique(seen.numbers[:, mark])) >= 3:
            found.append((f"a line in mark {mark + 1}", True, lambda s, m=mark: line(s, m)))  # type: ignore[misc]
    found.append(("a product of effects", True, factors))
    return found


def _folds(seen: Table) -> list[tuple[Table, Table]]:
    """What to learn from and what to predict."""
    runs = np.unique(seen.run)
    folds = []
    # One run alone shows no change from run to run: where there are more, each fold learns from two at least.
    for last in (runs[2:] if len(runs) > 2 else runs[1:])[-2:]:
        folds.append(
            (seen.take(np.flatnonzero(seen.run < last)), seen.take(np.flatnonzero(seen.run == last)))
        )
    return folds


def choose(seen: Table) -> Model:
    """The model with the least error on what it has not seen."""
    middle = float(np.median(seen.bytes[seen.run == seen.run.max()]))
    low, high = float(seen.bytes.min()), float(seen.bytes.max())
    if high - low <= EVEN * high:
        keep = constant(seen)
        return Model("constant", (high - low) / max(high, 1.0), keep, keep, EVEN, middle)
    folds = _folds(seen)
    alone = not folds
    if alone:
        held = np.arange(len(seen)) % 4 == 3
        if not held.any():
            keep = same(seen, True) if seen.keys else constant(seen)
            spread = (high - low) / max(high, 1.0)
            return Model("same as last time", min(spread, 0.4), keep, constant(seen), spread, middle)
        folds = [(seen.take(np.flatnonzero(~held)), seen.take(np.flatnonzero(held)))]
    scores: list[tuple[float, str, bool, Callable[[Table], Predict | None]]] = []
    for how, general, make in _candidates(seen):
        if alone and not general:
            continue
        errors = [_score(make, train, test) for train, test in folds]
        scores.append((float(np.mean(errors)), how, general, make))
    return _model(seen, scores, alone, middle)


def _score(make: Callable[[Table], Predict | None], train: Table, test: Table) -> float:
    predict = make(train)
    if predict is None:
        return 1.0
    guess = _sane(predict(test))
    missing = np.isnan(guess)
    if missing.any():
        guess = np.where(missing, float(np.median(train.bytes)), guess)
    return float(error_of(guess, test.bytes).mean())


def _model(
    seen: Table,
    scores: list[tuple[float, str, bool, Callable[[Table], Predict | None]]],
    alone: bool,
    middle: float,
) -> Model:
    least = min(score for score, *_ in scores)
    error, how, _, make = next(row for row in scores if row[0] <= least + TIE)
    general = [row for row in scores if row[2]]
    least_general = min(row[0] for row in general)
    second_error, _, _, second_make = next(row for row in general if row[0] <= least_general + TIE)
    second = second_make(seen) or constant(seen)
    if alone and seen.keys and error > 0.01:
        # Nobody knows yet whether sizes return with their values; that is likelier than not.
        return Model("same as last time", min(error, 0.4), same(seen, True), second, second_error, middle)
    return Model(how, error, make(seen) or constant(seen), second, second_error, middle)
