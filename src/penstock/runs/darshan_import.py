# SPDX-License-Identifier: Apache-2.0
"""Brings Darshan logs into the history: many at once, again without doubling, past broken ones.

Invariants:
1. A log that the history holds already is known by its job and bytes and passed over: an import that was interrupted is
   taken up by calling it again.
2. A broken log, also one that kills its reader, costs itself only, and is named with why.
3. All imports go into one segment; a batch of frames is one append.
"""

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from penstock.base.errors import PenstockError
from penstock.runs import darshan_log, segments

BATCH = 100
BATCH_S, ONE_S = 600, 60  # a log is read in milliseconds: one that takes so long never ends
_reader: darshan_log.Reader | None = None


@dataclass
class Result:
    """What became of the logs."""

    found: int = 0
    imported: int = 0
    known: int = 0
    broken: list[tuple[str, str]] = field(default_factory=list)  # path, why


@dataclass(frozen=True)
class Converted:
    """A batch, as a worker gives it back."""

    frames: list[bytes]
    known: int
    broken: list[tuple[str, str]]


def logs_under(places: Iterable[Path]) -> Iterator[Path]:
    """The files named, and all logs below the folders named, in the order of their names."""
    for place in places:
        if not place.is_dir():
            yield place
            continue
        for folder, below, names in os.walk(place):
            below.sort()
            for name in sorted(names):
                if name.endswith((".darshan", ".darshan.txt")):
                    yield Path(folder, name)


def _quiet() -> None:
    """The library prints its complaints; ours name the log.  A worker makes no cycles: collecting is rare."""
    gc.set_threshold(100_000)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def convert(paths: list[Path], known: frozenset[bytes]) -> Converted:
    """A batch of logs as frames.  Runs in a worker."""
    global _reader  # noqa: PLW0603 - loaded once a process
    frames: list[bytes] = []
    broken: list[tuple[str, str]] = []
    seen = 0
    for path in paths:
        try:
            data = path.read_bytes()
            digest = darshan_log.hash_of(data)
            if darshan_log.is_text(data):
                raw = darshan_log.read_text(data)
            else:
                _reader = _reader or darshan_log.Reader()
                raw = _reader.read(path)
            run = darshan_log.job_and_id(raw, digest)
            if run in known:
                seen += 1
            else:
                frames.append(darshan_log.frames(raw, run))
        except (OSError, PenstockError, ValueError, OverflowError) as error:
            broken.append((str(path), getattr(error, "strerror", None) or str(error)))
    return Converted(frames, seen, broken)


def bring_in(
    history: Path,
    places: Iterable[Path],
    known: frozenset[bytes],
    jobs: int = 1,
    group: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Result:
    """Import all logs; what became of them."""
    paths = list(logs_under(places))
    batches = [paths[i : i + BATCH] for i in range(0, len(paths), BATCH)]
    result = Result(found=len(paths))
    done = 0
    for batch, got in _converted(batches, known, max(jobs, 1)):
        if got.frames:
            segments.append(history, darshan_log.NODE, got.frames, group)
        result.imported += len(got.frames)
        result.known += got.known
        result.broken += got.broken
        done += len(batch)
        progress(done, len(paths))
    return result


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_quiet)


def _end(pool: ProcessPoolExecutor) -> None:
    """The pool and its workers, also one that hangs in a log."""
    workers = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.kill()


def _converted(
    batches: list[list[Path]], known: frozenset[bytes], jobs: int
) -> Iterator[tuple[list[Path], Converted]]:
    """Batches in their order, a few ahead in work; a batch that killed its worker is done again, log by log."""
    pool = _pool(jobs)
    try:
        waiting: list[tuple[list[Path], Future[Converted]]] = []
        rest = iter(batches)
        while True:
            while len(waiting) < 2 * jobs and (batch := next(rest, None)) is not None:
                waiting.append((batch, _submit(pool, batch, known)))
            if not waiting:
                return
            batch, future = waiting.pop(0)
            try:
                yield batch, future.result(BATCH_S)
            except (BrokenProcessPool, TimeoutError):
                _end(pool)
                again = [batch, *(b for b, _ in waiting)]
                waiting = []
                for one in again:
                    yield one, _one_by_one(one, known)
                pool = _pool(jobs)
    finally:
        _end(pool)


def _submit(pool: Executor, batch: list[Path], known: frozenset[bytes]) -> "Future[Converted]":
    try:
        return pool.submit(convert, batch, known)
    except BrokenProcessPool as error:
        broken: Future[Converted] = Future()
        broken.set_exception(error)
        return broken


def _one_by_one(batch: list[Path], known: frozenset[bytes]) -> Converted:
    """Each log in a worker that may die of it; a living one is used on."""
    whole = Converted([], 0, [])
    frames, broken, seen = whole.frames, whole.broken, 0
    pool = _pool(1)
    for path in batch:
        try:
            got = pool.submit(convert, [path], known).result(ONE_S)
            frames += got.frames
            broken += got.broken
            seen += got.known
        except (BrokenProcessPool, TimeoutError) as error:
            why = "kills the reader" if isinstance(error, BrokenProcessPool) else f"takes over {ONE_S} s"
            broken.append((str(path), f"reading it {why}"))
            _end(pool)
            pool = _pool(1)
    _end(pool)
    return Converted(frames, seen, broken)
