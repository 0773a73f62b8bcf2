# SPDX-License-Identifier: Apache-2.0
"""What prediction takes and gives.

    learn(runs, settings) -> Forecast          forecast.py
    Forecast.size(name, rank, ranks)           of any name: bytes and an estimate of the error, or "unknown"
    Forecast.expected(coming)                  the files of the next run

A run here is what its files say: names, bytes, ranks.  Runs come oldest first.  No scheme of naming is known here;
what varies, how, and what of it returns in the next run is found in the names themselves.
"""

from dataclasses import dataclass, field

from penstock.policy.placing.contract import Match

Name = bytes


@dataclass(frozen=True, slots=True)
class Seen:
    """One file that a run wrote."""

    name: bytes  # the whole path
    bytes: int
    rank: int = -1  # the lowest that wrote it; -1: none known
    writers: int = 1  # ranks or processes that wrote it
    communicator: int = 0  # of MPI_File_open; 0: none
    order: int = 0  # when it was first written: a number that only grows


@dataclass(frozen=True)
class RunFiles:
    """What one run wrote."""

    files: tuple[Seen, ...]
    ranks: int = 0  # 0: not known
    job: bytes = b""  # words that the run is known to have had: names may hold them


@dataclass(frozen=True)
class Coming:
    """What is known of the run to come."""

    ranks: int = 0  # 0: as many as last time
    job: bytes = b""


@dataclass(frozen=True, slots=True)
class Size:
    """A file's predicted bytes.  `error` is the estimated relative error; above 0.5 take it as unknown."""

    bytes: float
    error: float
    how: str


@dataclass(frozen=True, slots=True)
class Predicted:
    """Files of one name, or alike, that the next run is expected to write."""

    match: Match
    bytes: float
    error: float
    files: int = 1  # 0: it may come, nobody knows how often
    rank: int = -1
    shared: bool = False
    communicator: int = 0
    how: str = ""
    name: Name = b""  # where the whole name is foreseen
    like: Name = b""  # one of these files, as the last run that had it named it

    @property
    def known(self) -> bool:
        return self.error <= UNKNOWN_FROM


@dataclass(frozen=True)
class Surprise:
    """How many of a run's files were expected, and whether to learn again."""

    files: int
    expected: int
    learn: bool
    names: tuple[bytes, ...] = field(default_factory=tuple)  # some of those that were not


UNKNOWN_FROM = 0.5
