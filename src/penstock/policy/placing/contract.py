# SPDX-License-Identifier: Apache-2.0
"""What placement takes and gives: allocators (which targets), and plans (what becomes of the next files).

    allocate(requests, targets, settings) -> Allocation        one file an allocator, see __init__.py
    plan(expected, situation, settings) -> Plan                planning.py

Laws of every allocator, of which each names those that it holds:
    DISTINCT    no file twice on one target, and no target that is not usable or not of the asked pool
    WHOLE       a file has as many targets as it asked for (all, where it asked for more than there are), or none
    ROOM        no target gets more bytes than it has room for; what does not fit has no targets (it goes stock)
    BALANCED    equal stripes on equal, idle targets: loads differ by one stripe at the most
Units: bytes, seconds; targets are the file system's own indices, which may have gaps.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, Flag, auto

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Law(Flag):
    DISTINCT = auto()
    WHOLE = auto()
    ROOM = auto()
    BALANCED = auto()


ALL_LAWS = Law.DISTINCT | Law.WHOLE | Law.ROOM | Law.BALANCED


# -- which targets ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """One storage target as a planner sees it."""

    id: int
    server: str = ""
    size_bytes: float = 0.0
    free_bytes: float = 0.0
    rate_bytes_per_s: float = 200e6  # what it can do when nobody else uses it
    busy: float = 0.0  # the share of that others use now, 0..1
    sharers: int = 0  # jobs known to use it whose traffic is not in `busy`
    promised_bytes: float = 0.0  # planned for it by others and not yet in these figures
    written_bytes: float = 0.0  # of what is promised: free_bytes shows it already
    usable: bool = True
    why_not: str = ""  # "full", "inactive", ...
    pools: frozenset[str] = frozenset()
    age_s: float = 0.0


@dataclass(frozen=True)
class Requests:
    """Files in columns: a hundred thousand of them are three arrays.  All of one pool ("" is any target)."""

    bytes: Floats
    counts: Ints  # stripes asked for, at least 1
    pool: str = ""
    fixed: npt.NDArray[np.bool_] | None = None  # True: this count is asked for; else it may be widened

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def stripe_bytes(self) -> Floats:
        return self.bytes / np.maximum(self.counts, 1)


@dataclass(frozen=True)
class AllocationSettings:
    server_rate_bytes_per_s: float = (
        0.0  # of one server's network and bus; 0: as much as its targets together
    )
    reserve: float = 1.1  # a target must have this times the bytes free
    space_weight: float = 0.5  # how much unequal filling counts, where targets are filled unequally
    space_from: float = 0.30  # ... that is, by more than this share
    widen: int = 0  # up to so many files may get more stripes so that the last round comes out even
    seed: int = 1


ALLOCATION = AllocationSettings()


@dataclass(frozen=True)
class Allocation:
    """By request: its targets, in the order of stripes.  Empty: none could be found, the file goes stock."""

    targets: list[tuple[int, ...]]


Allocate = Callable[[Requests, Sequence[Target], AllocationSettings], Allocation]


@dataclass(frozen=True)
class Allocator:
    name: str
    laws: Law
    allocate: Allocate


def usable(targets: Sequence[Target], pool: str = "") -> list[Target]:
    """Those that may get new files, by id."""
    return sorted((t for t in targets if t.usable and (not pool or pool in t.pools)), key=lambda t: t.id)


def room_bytes(target: Target, reserve: float) -> float:
    """What may still be planned for it."""
    unwritten = max(target.promised_bytes, 0.0) - max(target.written_bytes, 0.0)
    return max(target.free_bytes, 0.0) / reserve - max(unwritten, 0.0)


def available_bytes_per_s(target: Target) -> float:
    """What is left for a newcomer: a target with n other users gives him one part of n + 1."""
    busy = min(max(target.busy, 0.0), 0.98) if target.busy == target.busy else 0.98
    return max(target.rate_bytes_per_s * (1 - busy) / (1 + max(target.sharers, 0)), 1.0)


# -- plans -----------------------------------------------------------------------------------------------

# Pieces of a pattern.  A name never holds a zero byte, so a mark is told from a literal by its first byte.
DIGITS = b"\0d"  # one or more of 0-9
LETTERS = b"\0l"  # one or more of a-z, A-Z
WORD = b"\0w"  # one or more of both
MARKS = (DIGITS, LETTERS, WORD)
Name = bytes


@dataclass(frozen=True, slots=True)
class Match:
    """Which names an entry is for.

    `pieces` are literals and marks, in order; a mark takes the longest run of its characters.  Literals that
    stand beside a mark do not go on with its characters, so one look from left to right decides.  Names are whole paths
    as the program's calls make them absolute, bytes.  `values` has one item for each mark: the text that must
    stand there (digits without their leading zeros, at least one), or None for any.
    """

    pieces: tuple[bytes, ...]
    values: tuple[bytes | None, ...] = ()

    @property
    def exact(self) -> bool:
        return not self.values

    @property
    def wide(self) -> bool:
        """Does it take any value everywhere?"""
        return bool(self.values) and all(value is None for value in self.values)


class Action(Enum):
    PLACE = "place"
    STOCK = "stock"  # expected, and left as the file system does it


@dataclass(frozen=True, slots=True)
class Part:
    """A component of a composite layout; the last one ends at EOF (0 here)."""

    end_bytes: int
    stripe_count: int
    stripe_size_bytes: int
    targets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """What becomes of the files that match.

    `turns` are lists of targets: the first file of this entry gets the first list, the next the next, and so on, round
    and round.  Each is as long as `stripe_count`; its order is that of the stripes.  Empty: count and size hold, the
    targets come from the plan's spare list.
    Of entries that match one name the one with more values stated holds; an exact name before all.
    """

    match: Match
    action: Action
    stripe_count: int = 0  # 0: as the folder's default says
    stripe_size_bytes: int = 0  # 0: as the folder's default says; else a multiple of 64 KiB
    turns: tuple[tuple[int, ...], ...] = ()
    pool: str = ""
    parts: tuple[Part, ...] = ()  # composite, instead of the plain layout above; `turns` is empty then
    files: int = 1  # how many are expected
    bytes_each: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class Plan:
    """What becomes of a run's next files."""

    file_system: str  # the mount it is for
    made_s: float  # by the maker's real-time clock
    entries: tuple[Entry, ...]
    spare: tuple[int, ...]  # targets for files not expected: take as many as needed from a running place on
    small_bytes: float  # files predicted below this are left stock
    extra_requests: int  # that placing costs the metadata server
    cost_s: float  # the time that those take, all together
    gain_s: float  # by how much sooner the last byte is written than with the stock allocator, as modelled
    promises: Mapping[int, float] = field(default_factory=dict)  # bytes by target, for the ledger
    notes: tuple[str, ...] = ()
    allocator: str = ""
    version: int = 1


@dataclass(frozen=True, slots=True)
class Expected:
    """A file (or several alike) that the next run is expected to create."""

    match: Match
    bytes: float  # of each
    error: float = 0.0  # estimate of the relative error; above 0.5 the file counts as unknown
    files: int = 1
    shared: bool = False  # several ranks write it
    rank: int = -1
    ranks: int = 0  # of its communicator; 0: not known
    stripe_count: int = 0  # 0: nobody asks for a number (the folder's default holds)
    stripe_size_bytes: int = 0
    pool: str = ""
    composite: bool = False  # the folder's default is composite
    gain_known: bool = False  # the tuner knows that the asked layout is better
    append: bool = False
    why: str = ""  # of the count and size
    like: Name = b""  # a name of the last run that had such a file; it says on which file system


@dataclass(frozen=True)
class Situation:
    """What a plan is made in."""

    file_system: str
    now_s: float
    targets: Sequence[Target]
    default_count: int = 1
    default_size_bytes: int = 1 << 20
    keeper: bool = True  # is there a ledger that others who plan share?


@dataclass(frozen=True)
class PlanSettings:
    allocator: str = "finish"
    allocation: AllocationSettings = AllocationSettings()
    small_bytes: float = -1.0  # below: stock.  Negative: from the model
    request_s: float = 0.0003  # one request at the metadata server
    expected_gain: float = (
        0.25  # share of the writing time that balance saves where it saves (placement model)
    )
    parts: bool = False  # may a plan give components where the folder's default is composite?
    entries_max: int = 65536
    unknown_from: float = 0.5


LISTS_STRIPES_MAX = 32  # files alike take turns with lists up to so long; wider ones have one layout
EXTRA_REQUESTS = 3  # a placed create costs 5 requests, a stock one 2
ALIGN_BYTES = 65536
