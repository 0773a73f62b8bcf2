# SPDX-License-Identifier: Apache-2.0
"""What the next run of a program will write: learned from its last runs.

A mark's values are taken for one of these, by what they did:
    rank        always the rank that wrote, or one more, or ...
    job         always a word that the run is known by (its job's id)
    constant    one value in all runs
    fixed       one value in each run, another in the next: a date, a run's number, the number of parts
    returning   the same values come back from run to run: steps, parts, names; a rank too
    going on    values continue where the last run ended: steps after a restart
    other       everything else: hashes, times, process ids

Invariants:
1. An estimate of the error stands beside every size; what is not known says so (error 1).
2. Names are matched as the board does it: by separators, literals and marks.
3. Learning from the same runs gives the same forecast.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.policy.placing.contract import DIGITS, MARKS, Expected, Floats, Ints, Match
from penstock.policy.predicting import names as naming
from penstock.policy.predicting.contract import (
    Coming,
    Predicted,
    RunFiles,
    Seen,
    Size,
    Surprise,
)
from penstock.policy.predicting.sizes import Model, Table, choose

RUNS_MAX = 4
FILES_MAX = 25_000
NEW_RANKS_ERROR = 0.3
LEARN_FROM = 0.5  # more unexpected names than this share: learn


@dataclass(frozen=True)
class Known:
    """A template with what was learned of it."""

    template: naming.Template
    kinds: tuple[str, ...]  # of its marks
    codes: tuple[dict[bytes, int], ...]  # by mark: number of each value seen
    model: Model
    files: tuple[Seen, ...]  # of the last run that had it
    values: tuple[tuple[bytes, ...], ...]  # of those
    last_ranks: int
    shift: tuple[float, ...]  # by mark: how far it goes on from run to run; how far ahead of the rank it is
    rank_numbers: frozenset[int]  # of the runs learned from
    present: float  # share of the last runs that had it
    shared: bool

    def predict(self, values: Sequence[tuple[bytes, ...]], ranks: int) -> tuple[list[float], list[float]]:
        """Bytes and errors.  How sizes go with the number of ranks is a guess as long as it never changed."""
        ranks = ranks or self.last_ranks
        table = _table(values, self.codes, self.kinds, np.zeros(len(values)), ranks=ranks)
        guess, error = self.model.predict(table)
        if len(self.rank_numbers) == 1 and ranks not in self.rank_numbers:
            error = np.maximum(error, NEW_RANKS_ERROR)
        return guess.tolist(), error.tolist()


@dataclass(frozen=True)
class Forecast:
    """What was learned of a program's files."""

    known: tuple[Known, ...]
    ranks: int  # of the last run
    runs: int  # learned from
    middle: float  # of all files of the last run
    names: frozenset[bytes] = frozenset()

    def index(self) -> naming.Index:
        return naming.Index([k.template for k in self.known])

    def sizes(self, asked: Sequence[bytes], ranks: int = 0) -> list[Size]:
        """Bytes of files by name, of any names."""
        index = self.index()
        by_template: dict[int, list[tuple[int, tuple[bytes, ...]]]] = {}
        answers: list[Size] = [Size(0.0, 1.0, "unknown")] * len(asked)
        for row, name in enumerate(asked):
            found = index.find(name)
            if found is None:
                answers[row] = self._stranger(name, ranks)
            else:
                by_template.setdefault(found[0], []).append((row, found[1]))
        for number, rows in by_template.items():
            k = self.known[number]
            guess, error = k.predict([values for _, values in rows], ranks)
            for (row, _), size, wrong in zip(rows, guess, error, strict=True):
                answers[row] = Size(size, wrong, k.model.how)
        return answers

    def size(self, name: bytes, ranks: int = 0) -> Size:
        return self.sizes([name], ranks)[0]

    def _stranger(self, name: bytes, ranks: int) -> Size:
        """A name without a template: that of its last part in other folders, else the middle of all."""
        base = b"/" + name.rpartition(b"/")[2]
        for k in self.known:
            own = _last_part(k.template).values(base)
            if own is not None:
                values = (*k.values[-1][: len(k.kinds) - len(own)], *own)
                guess, error = k.predict([values], ranks)
                return Size(guess[0], max(error[0], 0.3), "like files of that name in other folders")
        if not self.known:
            return Size(0.0, 1.0, "unknown")
        return Size(self.middle, 1.0, "unknown: the middle of all files")

    def expected(self, coming: Coming = Coming()) -> list[Predicted]:  # noqa: B008 - frozen
        """The files of the next run; last, for each template, one for values that nobody foresaw."""
        found: list[Predicted] = []
        for k in self.known:
            if k.present > 0:
                found += _expected(k, coming)
        return found


def learn(runs: Sequence[RunFiles]) -> Forecast:
    """From the files of a program's last runs, oldest first."""
    runs = list(runs)[-RUNS_MAX:]
    rows = [(number, run, f) for number, run in enumerate(runs) for f in _bounded(run.files)]
    if not rows:
        return Forecast((), 0, len(runs), 0.0)
    groups = naming.group([f.name for _, _, f in rows], [number for number, _, _ in rows])
    known = [_known(g, rows, len(runs)) for g in groups]
    last = [f.bytes for number, _, f in rows if number == rows[-1][0]]
    return Forecast(
        tuple(known),
        runs[-1].ranks,
        len(runs),
        float(np.median(last)),
        frozenset(f.name for number, _, f in rows if number == len(runs) - 1),
    )


def _last_part(template: naming.Template) -> naming.Template:
    """Of a path's template that of its last part, with the slash."""
    pieces = template.pieces
    at = max((i for i, p in enumerate(pieces) if p not in MARKS and b"/" in p), default=-1)
    if at < 0:
        return template
    return naming.template_of((b"/" + pieces[at].rpartition(b"/")[2], *pieces[at + 1 :]))


def _bounded(files: Sequence[Seen]) -> Sequence[Seen]:
    """The largest files of a run that wrote very many."""
    if len(files) <= FILES_MAX:
        return files
    return sorted(files, key=lambda f: -f.bytes)[:FILES_MAX]


def _known(g: naming.Group, rows: Sequence[tuple[int, RunFiles, Seen]], runs: int) -> Known:
    here = [rows[i] for i in g.rows]
    values = [g.template.values(f.name) or () for _, _, f in here]
    number = np.array([n for n, _, _ in here])
    kinds, shift = [], []
    for mark in range(len(g.template.marks)):
        kind, by = _kind_of(mark, [v[mark] for v in values], here, g.template.marks[mark])
        kinds.append(kind)
        shift.append(by)
    codes: list[dict[bytes, int]] = []
    for mark in range(len(kinds)):
        different = sorted({v[mark] for v in values})
        codes.append({value: i for i, value in enumerate(different)})
    ranks = np.array([float(run.ranks) for _, run, _ in here])
    table = _table(values, codes, kinds, number, sizes=[f.bytes for _, _, f in here], ranks_by_row=ranks)
    last = int(number.max())
    of_last = [i for i, n in enumerate(number.tolist()) if n == last]
    recent = range(max(runs - 3, 0), runs)
    seen_in = set(number.tolist())
    present = sum(n in seen_in for n in recent) / len(recent)
    files = [here[i][2] for i in of_last]
    return Known(
        g.template,
        tuple(kinds),
        tuple(codes),
        choose(table),
        tuple(files),
        tuple(values[i] for i in of_last),
        here[of_last[0]][1].ranks,
        tuple(shift),
        frozenset(run.ranks for _, run, _ in here),
        present if present >= 0.5 or last == runs - 1 else 0.0,
        sum(f.writers > 1 for f in files) * 2 > len(files),
    )


def _table(
    values: Sequence[tuple[bytes, ...]],
    codes: Sequence[dict[bytes, int]],
    kinds: Sequence[str],
    run: Ints | Floats,
    sizes: Sequence[float] | None = None,
    ranks: int = 0,
    ranks_by_row: Floats | None = None,
) -> Table:
    marks = range(len(kinds))
    columns = [[v[m] for v in values] for m in marks]
    shape = (len(values), len(kinds))
    numbered = np.empty(shape, dtype=np.int64)
    ordinals = np.empty(shape)
    for m in marks:
        base = naming.base_of(codes[m])
        numbers = {value: naming.ordinal(value, base) for value in set(columns[m])}
        numbered[:, m] = [codes[m].get(value, -1) for value in columns[m]]
        ordinals[:, m] = [numbers[value] for value in columns[m]]
    return Table(
        np.clip(np.array(sizes if sizes is not None else [0.0] * len(values), dtype=float), 0.0, 2.0**62),
        np.asarray(run, dtype=np.int64),
        ranks_by_row if ranks_by_row is not None else np.full(len(values), float(ranks)),
        numbered,
        ordinals,
        tuple(m for m in marks if kinds[m] in ("rank", "returning", "going on")),
    )


def _kind_of(
    mark: int, values: list[bytes], rows: Sequence[tuple[int, RunFiles, Seen]], sort: bytes
) -> tuple[str, float]:
    """What a mark's values are, and how far they go on from run to run."""
    if len(set(values)) > 1 and sort == DIGITS:
        ahead = Counter(
            naming.ordinal(v) - f.rank for v, (_, _, f) in zip(values, rows, strict=True) if f.rank >= 0
        )
        if ahead and ahead.most_common(1)[0][1] >= 0.95 * ahead.total() > 0.5 * len(rows):
            return "rank", ahead.most_common(1)[0][0]
    if all(run.job and v == naming.plain(run.job) for v, (_, run, _) in zip(values, rows, strict=True)):
        return "job", 0.0
    by_run: dict[int, list[bytes]] = {}
    for value, (number, _, _) in zip(values, rows, strict=True):
        by_run.setdefault(number, []).append(value)
    sets = [set(by_run[n]) for n in sorted(by_run)]
    if len(sets) == 1:
        return _kind_of_one(by_run[min(by_run)], sort), 0.0
    if all(len(s) == 1 for s in sets):
        return ("constant" if len(set(values)) == 1 else "fixed"), 0.0
    last, before = by_run[max(by_run)], set().union(*sets[:-1])
    if sum(v in before for v in last) >= 0.5 * len(last):
        return "returning", 0.0
    numbers = [np.array([naming.ordinal(v) for v in s]) for s in sets]
    nested = any(a <= b or b <= a for a, b in itertools.pairwise(sets))
    if nested:  # more ranks or more steps than last time
        return "returning", 0.0
    gaps = [float(b.min() - a.min()) for a, b in itertools.pairwise(numbers)]
    on = all(b.min() >= a.max() for a, b in itertools.pairwise(numbers))
    if on and sort == DIGITS and _dense(numbers[-1]) and max(gaps) <= 2 * max(min(gaps), 1.0):
        return "going on", gaps[-1]
    return "other", 0.0


def _dense(numbers: Floats) -> bool:
    """Do these numbers count, in ones or in tens, rather than lie anywhere?"""
    different = np.unique(numbers)
    if len(different) < 2:
        return True
    steps = np.diff(different)
    return bool(steps.max() <= 2 * np.median(steps))


def _kind_of_one(values: list[bytes], sort: bytes) -> str:
    """With one run alone: what counts will return, what lies anywhere will not."""
    if len(set(values)) == 1:
        return "fixed"
    if sort == DIGITS:
        return "returning" if _dense(np.array([naming.ordinal(v) for v in set(values)])) else "other"
    return "returning" if naming.counts_on(set(values)) else "other"


def _expected(k: Known, coming: Coming) -> list[Predicted]:
    """Of one template."""
    keyed = [m for m, kind in enumerate(k.kinds) if kind in ("rank", "returning", "going on")]
    ranks = coming.ranks or k.last_ranks
    rows = list(zip(k.values, k.files, strict=True))
    if "rank" in k.kinds and k.last_ranks and ranks != k.last_ranks:
        mark = k.kinds.index("rank")
        rows = _other_ranks(rows, mark, ranks, int(k.shift[mark]))
    told: dict[tuple[bytes | None, ...], list[tuple[tuple[bytes, ...], Seen]]] = {}
    for values, f in rows:
        moved = tuple(_moved(k, m, v) for m, v in enumerate(values))
        stated = tuple(
            moved[m] if m in keyed else (coming.job or None) if k.kinds[m] == "job" else None
            for m in range(len(k.kinds))
        )
        told.setdefault(stated, []).append((moved, f))
    guess, error = k.predict([alike[0][0] for alike in told.values()], ranks)
    found = []
    foreseen = {"rank", "returning", "going on", "constant"} | ({"job"} if coming.job else set())
    whole = all(kind in foreseen for kind in k.kinds)
    for (stated, alike), size, wrong in zip(told.items(), guess, error, strict=True):
        values, f = alike[0]
        found.append(
            Predicted(
                Match(k.template.pieces, stated),
                size,
                wrong,
                len(alike),
                f.rank if f.writers == 1 else -1,
                k.shared,
                f.communicator,
                k.model.how,
                k.template.name_with(f.name, [s or v for s, v in zip(stated, values, strict=True)])
                if whole
                else b"",
                f.name,
            )
        )
    wide: tuple[bytes | None, ...] = (None,) * len(k.kinds)
    if wide and wide not in told:
        middle = float(np.median(guess))
        spread = float(np.abs(np.array(guess) - middle).mean() / max(middle, 1.0))
        found.append(
            Predicted(Match(k.template.pieces, wide), middle, min(max(k.model.second_error, spread), 1.0), 0,
                      shared=k.shared, how="values that did not occur yet")
        )  # fmt: skip
    return found


def _moved(k: Known, mark: int, value: bytes) -> bytes:
    """The value of a mark in the next run."""
    if k.kinds[mark] != "going on":
        return value
    return b"%d" % int(naming.ordinal(value) + k.shift[mark])


def _other_ranks(
    rows: list[tuple[tuple[bytes, ...], Seen]], mark: int, ranks: int, ahead: int
) -> list[tuple[tuple[bytes, ...], Seen]]:
    """The same files for another number of ranks: each rank has what rank 0 (or the first) has."""
    first = min((naming.ordinal(values[mark]) for values, _ in rows), default=0.0)
    pattern = [(values, f) for values, f in rows if naming.ordinal(values[mark]) == first]
    return [
        ((*values[:mark], b"%d" % (rank + ahead), *values[mark + 1 :]), replace(f, rank=rank))
        for rank in range(ranks)
        for values, f in pattern
    ]


def learn_anew(runs: Sequence[RunFiles]) -> Forecast:
    """Learn; and where a run was mostly unexpected by what those before it taught, and has little in common with them,
    forget those before it."""
    kept: list[RunFiles] = []
    for run in runs:
        if kept and surprise(learn(kept), run.files).learn and not _related(kept, run):
            kept = []
        kept.append(run)
    return learn(kept)


def _related(before: Sequence[RunFiles], run: RunFiles) -> bool:
    """Do most names of a run share templates with earlier ones, once both are compared?"""
    rows = [(number, f.name) for number, r in enumerate((*before, run)) for f in _bounded(r.files)]
    groups = naming.group([name for _, name in rows], [number for number, _ in rows])
    common = 0
    for g in groups:
        own = [rows[i][1] for i in g.rows if rows[i][0] == len(before)]
        others = [rows[i][1] for i in g.rows if rows[i][0] < len(before)]
        common += len(own) * bool(_sorts(g.template, own) & _sorts(g.template, others))
    return common > LEARN_FROM * len(_bounded(run.files))


def _sorts(template: naming.Template, names: Sequence[bytes]) -> set[tuple[tuple[bool, bool], ...]]:
    """Which marks hold letters, which digits: a word in place of a number is another scheme."""
    found = [template.values(name) or () for name in names]
    return {tuple((v.isdigit(), v.isalpha()) for v in values) for values in found}


def surprise(forecast: Forecast, files: Sequence[Seen]) -> Surprise:
    """How many of a run's files were expected; more than half not: learn.  A program never seen is to be learned."""
    index = forecast.index()
    strange = [f.name for f in files if index.find(f.name) is None]
    share = len(strange) / len(files) if files else 0.0
    return Surprise(len(files), len(files) - len(strange), share > LEARN_FROM, tuple(strange[:10]))


def to_place(found: Sequence[Predicted], under: bytes = b"") -> list[Expected]:
    """What a plan takes: the files below a folder, those of unknown size too."""
    return [
        Expected(
            p.match,
            p.bytes,
            p.error if p.error == p.error else 1.0,
            p.files,
            p.shared,
            p.rank,
            p.communicator,
            like=p.like,
        )
        for p in found
        if not under or _below(p.match.pieces[0], under)
    ]


def _below(first: bytes, folder: bytes) -> bool:
    """May a name that begins like this lie in the folder?"""
    folder = folder.rstrip(b"/") + b"/"
    return first.startswith(folder) or folder.startswith(first)
