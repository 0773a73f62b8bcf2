# SPDX-License-Identifier: Apache-2.0
"""What the next run will write: how right, by templates and by ARIMA on the same runs, and what learning costs.

Workloads are made up (model/writers.py): eight as papers and benchmarks have them, of which seven can be predicted, and
twenty odd ways of naming.  Right is 1 - |predicted - written| / the larger, the mean over the files of a fourth run.
"""

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.frame import Row, at_least, at_most, interleave, seen
from penstock.model import writers
from penstock.policy.predicting import arima
from penstock.policy.predicting.contract import RunFiles, Seen
from penstock.policy.predicting.forecast import Forecast, learn, surprise
from penstock.policy.predicting.sizes import mean_error

TITLE = "predict: the next run's files (made-up programs)"
MADE = "made-up programs"
MANY = 10_000


def runs_of(writer: writers.Writer, count: int = 4) -> list[RunFiles]:
    return [
        RunFiles(
            tuple(Seen(name, size, rank, order=i) for i, (name, size, rank) in enumerate(rows)),
            writer.ranks(run),
            b"%d" % writers.job_of(run),
        )
        for run, rows in enumerate(writers.runs(writer, count))
    ]


def right(forecast: Forecast, run: RunFiles) -> float:
    guess = forecast.sizes([f.name for f in run.files], run.ranks)
    return 1 - mean_error([g.bytes for g in guess], [float(f.bytes) for f in run.files])


def right_by_arima(past: Sequence[RunFiles], run: RunFiles) -> float:
    series = [float(f.bytes) for one in past for f in one.files]
    found = arima.forecast(series, len(run.files), time.monotonic)
    return 1 - mean_error(found.values.tolist(), [float(f.bytes) for f in run.files])


def accuracy() -> list[Row]:
    known = [(w, runs_of(w)) for w in writers.PLAIN if w.predictable]
    odd = [(w, runs_of(w)) for w in writers.ODD]
    three = [right(learn(runs[:3]), runs[3]) for _, runs in known]
    strange = [right(learn(runs[:3]), runs[3]) for _, runs in odd]
    foreseen = [surprise(learn(runs[:3]), runs[3].files) for _, runs in odd]
    one = [right(learn(runs[2:3]), runs[3]) for w, runs in known if "more processes" not in w.name]
    by_order = [right_by_arima(runs[:3], runs[3]) for _, runs in known]
    return [
        at_least(
            "right, seven predictable workloads, three runs, the worst", [min(three)], "", 0.99, note=MADE
        ),
        seen("the same, the mean", [float(np.mean(three))], "", note=MADE),
        seen(
            "the same by ARIMA in the order of creation, the mean", [float(np.mean(by_order))], "", note=MADE
        ),
        seen("the same by ARIMA, the worst", [min(by_order)], "", note=MADE),
        at_least("right after one run, where nothing scales, the worst", [min(one)], "", 0.99, note=MADE),
        at_least(
            "right, twenty odd ways of naming, three runs, the worst", [min(strange)], "", 0.99, note=MADE
        ),
        at_least(
            "names expected, odd ways, the worst",
            [min(f.expected / f.files for f in foreseen)],
            "",
            0.99,
            note=MADE,
        ),
    ]


def many(run: int) -> RunFiles:
    own = np.random.default_rng(5).uniform(0.5, 2, 100)
    chance = np.random.default_rng(run)
    return RunFiles(
        tuple(
            Seen(
                b"/s/plt%05d/Cell_D_%05d" % (s, r),
                int(5e7 * own[r] * 1.02**s * (1 + 0.004 * chance.normal())),
                r,
            )
            for s in range(MANY // 100)
            for r in range(100)
        ),
        100,
    )


def cpu_s(call: object) -> float:
    began = time.process_time_ns()
    call()  # type: ignore[operator]
    return (time.process_time_ns() - began) / 1e9


def rows(rounds: int) -> list[Row]:
    run = many(0)
    forecast = learn([run])
    names = [f.name for f in run.files]
    cells = {
        "fit": lambda: cpu_s(lambda: learn([run])),
        "ask": lambda: cpu_s(lambda: forecast.sizes(names)) / MANY * 1e6,
    }
    got = interleave(cells, rounds, "predict")
    return [
        *accuracy(),
        at_most("learning from 10,000 files", got["fit"], "s CPU", 0.5),
        at_most("the size of one name, in bulk", got["ask"], "µs CPU", 10),
    ]
