# SPDX-License-Identifier: Apache-2.0
"""Limits on a board, from Python: what they are, made to hold, changed, watched.

For agents:

    spec = limits.spec([limits.of(limit) for limit in policy.limits], lease_s=2.0)
    hold = limits.Hold(board_folder)        a new board or one that another agent held: nothing is to be repaired
    hold.apply(spec)                        these buckets hold, all at once; ones of a name that is there already go on
    hold.change(bucket, 2.0)                one of them, by its name, in all but its calls and paths
    hold.renew(2.0)                         all leases end so long from now: before every lease is over
    hold.give_back()                        once a second: tickets of dead waiters; how many these were
    hold.observe()                          a Held for each bucket: asked, delayed, waited, waiting, owed
    hold.close()

    limits.plan_file(spec)                  the bytes of a plan for penstock-run (native/launch/plan.h): the file that
                                            PENSTOCK_PLAN names

Each raises PenstockError with one sentence.  Rates are calls (of weight one) or bytes a second; a change of one bucket
costs microseconds, observe() some 20, apply() some 50.  A Hold is one thread's.

Invariants:
1. What C refuses is refused before anything changes: a spec holds whole or not at all.
2. `usage` is only read, with pread; numbers in it are a user's: they are what he claims.
3. Invariants of the protocol itself: native/board/limits.h.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

from penstock import _native
from penstock.base.errors import PenstockError, UsageError
from penstock.policy import costs, rules_toml
from penstock.policy.rules import CLASSES, Limit, Match, Mistake, Policy
from penstock.runs.board import Under, operations

VERSION = 1
SECTION = 1  # PENSTOCK_SECTION_LIMITS
UNITS = 1024  # a call
BUCKETS_MAX = 64
PREFIXES_MAX = 64
OPS_MAX = 72
ON_LOST = ("hold", "open", "rate")
FOREVER_S = 1e9
_RATE_SHIFT = 44
_HEAD = struct.Struct("<6IQ72I72I")
_BUCKET = struct.Struct("<64s2Q5QI4B2I")
_PREFIX = struct.Struct("<HHI248s")
# A word further ahead than these units is wild: a queue that no job of that node can have.
_QUEUE_CALLS = 4096 * UNITS
_QUEUE_BYTES = 8 << 30
_MOST = 1 << 62  # units: more is no number of them


@dataclass(frozen=True)
class Bucket:
    """One limit of one job on one node."""

    name: str
    rate: float  # calls or bytes a second
    operations: frozenset[str]
    bytes: bool = False
    paths: tuple[str, ...] = ()
    burst_s: float = 0.1
    on_lost: str = "hold"
    lost_rate: float = 0.0
    ceiling_s: float = 0.0
    open: bool = False  # nothing is limited now, all is counted
    shadow: bool = False
    close_waits: bool = False  # a close and a lock wait too, which else are only charged


class Held(NamedTuple):
    """What a bucket has seen, and where it stands.  Units are calls of weight one, or bytes."""

    number: int
    name: str
    rate: float
    burst: float  # units
    on_lost: str
    lost_rate: float
    open: bool
    shadow: bool
    lease_s: float  # left; negative: over
    owed: float  # units that were drawn and are not due yet; 0: nobody needs to wait
    asked: float  # units that calls asked for so far, less what they did not use
    delayed: int  # calls that waited (in shadow: would have)
    waited_s: float  # how long, those that are over (in shadow: how late they were)
    ceilings: int  # calls that went on because of the ceiling
    lost: int  # calls that came when the lease was over
    torn: int  # calls that passed because the line could not be read
    unplaced: int  # calls that waited without a waiting place
    given_back: float  # units of dead waiters
    waiting: int  # threads, now
    waiting_units: float
    waiting_s: float  # how long they have waited so far, all together
    longest_s: float

    @property
    def passed(self) -> float:
        """Units that went on."""
        return max(0.0, self.asked - self.waiting_units)


@cache
def _by_class() -> Mapping[str, frozenset[str]]:
    rows = operations().items()
    found = {word: frozenset(name for name, kind in rows if kind == word) for word in CLASSES}
    # Folders, attributes and locks are the metadata servers' business as well.
    found["metadata"] = frozenset(name for name, kind in rows if kind != "data")
    return found


def operations_of(words: Iterable[str]) -> frozenset[str]:
    """The operations that classes and operations name: "metadata" is all that is not data."""
    found: set[str] = set()
    for word in words:
        found |= _by_class().get(word, frozenset((word,)))
    if wrong := found - set(operations()):
        raise UsageError(f"there is no operation {min(wrong)!r}")
    return frozenset(found)


def of(limit: Limit, rate: float | None = None) -> Bucket:
    """A rule's bucket; `rate` is what this job on this node has of it."""
    return Bucket(
        name=limit.name,
        rate=limit.rate if rate is None else rate,
        operations=operations_of(limit.calls),
        bytes=limit.bytes,
        paths=limit.paths,
        burst_s=limit.burst_s,
        on_lost=limit.on_lost,
        lost_rate=limit.lost_rate,
        ceiling_s=limit.ceiling_s,
        shadow=limit.shadow,
        close_waits="close" in limit.calls or "lock" in limit.calls,
    )


def _ns(seconds: float) -> int:
    return round(min(max(seconds, 0.0), FOREVER_S) * 1e9)


def _rate(rate: float, as_bytes: bool) -> int:
    """Units a second, times 1024."""
    if not 0 <= rate <= 1e12:
        raise UsageError(f"{rate} is not a rate from 0 to 1e12 a second")
    return round(rate * 1024 * (1 if as_bytes else UNITS))


def _numbers(bucket: Bucket) -> tuple[int, int, int, int, int]:
    """rate, burst, most, lost rate, ceiling: as C has them."""
    unit = 1 if bucket.bytes else UNITS
    # One call may always be saved up: else a slow limit delays also who comes once an hour.
    burst = max(round(min(bucket.rate * unit * bucket.burst_s, _MOST)), unit)
    most = round(bucket.rate * unit * 10) + (_QUEUE_BYTES if bucket.bytes else _QUEUE_CALLS)
    lost = _rate(bucket.lost_rate, bucket.bytes)
    return _rate(bucket.rate, bucket.bytes), burst, most, lost, _ns(bucket.ceiling_s)


def bucket_name(name: str) -> str:
    """A limit's name as a board holds it: at most 60 bytes."""
    data = name.encode()
    if len(data) <= 60:
        return name
    return f"{data[:40].decode(errors='ignore')}~{hashlib.blake2b(data, digest_size=8).hexdigest()}"


def _packed(bucket: Bucket) -> bytes:
    bits = sum(1 << number for number, name in enumerate(operations()) if name in bucket.operations)
    rate, burst, most, lost, ceiling = _numbers(bucket)
    flags = (bucket.bytes, bucket.shadow, bucket.open, bucket.close_waits)
    words = (bits & (1 << 64) - 1, bits >> 64, rate, burst, most, lost, ceiling)
    return _BUCKET.pack(
        bucket_name(bucket.name).encode(), *words, _lost(bucket.on_lost), *flags, len(bucket.paths), 0
    )


def _lost(word: str) -> int:
    if word not in ON_LOST:
        raise UsageError(f"on_lost is hold, open or rate, not {word!r}")
    return ON_LOST.index(word)


def _prefix(path: str) -> bytes:
    text = path.rstrip("/").encode(errors="surrogateescape")
    if len(text) > 248:
        raise UsageError(f"the path {path[:40]!r}... of a limit is longer than 248 bytes")
    return _PREFIX.pack(len(text), 0, 0, text)


def spec(
    buckets: Sequence[Bucket],
    *,
    lease_s: float,
    under: Under = Under.NOTHING,
    weights: Mapping[str, float] | None = None,
    known_s: int = costs.KNOWN_S,
) -> bytes:
    """What is to hold, in the form that boards and plans take.  `under`: of which files; if not said, those on
    mounts where the board knows some, else what is recorded."""
    table = costs.with_weights(weights or {})
    row = [table.get(name, costs.Cost(0)) for name in operations()]
    row += [costs.Cost(0)] * (OPS_MAX - len(row))
    paths = [path for bucket in buckets for path in bucket.paths]
    if len(buckets) > BUCKETS_MAX or len(paths) > PREFIXES_MAX:
        raise UsageError(f"a board holds {BUCKETS_MAX} limits with {PREFIXES_MAX} paths at most")
    head = _HEAD.pack(
        *(VERSION, len(buckets), len(paths), under, known_s, round(costs.TRUNCATE * UNITS), _ns(lease_s)),
        *(round(cost.calls * UNITS) for cost in row),
        *(round(cost.lookup * UNITS) for cost in row),
    )
    data = head + b"".join(map(_packed, buckets)) + b"".join(map(_prefix, paths))
    if wrong := _native.limits_wrong(data):
        raise UsageError(f"these limits cannot hold: {wrong}")
    return data


def parse(text: str, names: frozenset[str]) -> tuple[Policy | None, list[Mistake]]:
    """A policy that boards can hold, or its mistakes; `names`: the operations."""
    policy, mistakes = rules_toml.parse(text, names)
    wrong = misfit(policy) if policy is not None else None
    return (None, [wrong]) if wrong is not None else (policy, mistakes)


def misfit(policy: Policy) -> Mistake | None:
    """The first limit that does not fit on a board beside those that every job is under."""
    together: list[Bucket] = []
    for limit in sorted(policy.limits, key=lambda limit: limit.match != Match()):
        bucket = replace(of(limit), name=str(len(together)))
        try:
            spec([*together, bucket], lease_s=policy.lease_s, weights=policy.weights)
        except UsageError as error:
            return Mistake(limit.line, f"{limit.name!r} has no room on a board: {error}")
        together += [bucket] if limit.match == Match() else []
    return None


def read_spec(data: bytes) -> list[Bucket]:
    """The buckets that a spec names: what spec() was given, from bytes of whoever wrote them."""
    if wrong := _native.limits_wrong(data):
        raise UsageError(f"these limits cannot hold: {wrong}")
    count = _HEAD.unpack_from(data)[1]
    paths = iter(_PREFIX.iter_unpack(data[_HEAD.size + count * _BUCKET.size :]))
    return [_unpacked(row, paths) for row in _BUCKET.iter_unpack(data[_HEAD.size :][: count * _BUCKET.size])]


def _unpacked(row: tuple[Any, ...], paths: Iterator[tuple[Any, ...]]) -> Bucket:
    (
        name,
        low,
        high,
        rate,
        burst,
        _most,
        lost,
        ceiling,
        on_lost,
        as_bytes,
        shadow,
        is_open,
        waits,
        prefixes,
        _,
    ) = row
    unit = 1 if as_bytes else UNITS
    bits = low | high << 64
    per_s = rate / 1024 / unit
    return Bucket(
        name=name.rstrip(b"\0").decode(errors="replace"),
        rate=per_s,
        operations=frozenset(word for number, word in enumerate(operations()) if bits >> number & 1),
        bytes=bool(as_bytes),
        paths=tuple(
            path[:size].decode(errors="surrogateescape") for size, _, _, path in islice(paths, prefixes)
        ),
        burst_s=burst / unit / per_s if per_s else 0.1,
        on_lost=ON_LOST[on_lost],
        lost_rate=lost / 1024 / unit,
        ceiling_s=ceiling / 1e9,
        open=bool(is_open),
        shadow=bool(shadow),
        close_waits=bool(waits),
    )


class Hold:
    """An agent's hold on the limits of one board."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._hold = _native.limits_hold(folder)
        except OSError as error:
            raise PenstockError(
                f"the limits of the board {folder} cannot be held: {error.strerror}"
            ) from error
        self._numbers: dict[str, int] = {}

    def apply(self, data: bytes) -> None:
        """What spec() made; the numbers of its buckets are the board's."""
        try:
            _native.limits_apply(self._hold, data)
        except ValueError as error:
            raise UsageError(f"these limits cannot hold: {error}") from error
        self._numbers.clear()

    def change(self, bucket: Bucket, lease_s: float) -> None:
        """The bucket of this name, in all but its calls and paths.  Raises KeyError when there is none."""
        if bucket.name not in self._numbers:
            self._numbers = {row.name: row.number for row in self.observe()}
        number = self._numbers[bucket_name(bucket.name)]
        rate, burst, most, lost, ceiling = _numbers(bucket)
        lease, on_lost = _ns(lease_s), _lost(bucket.on_lost)
        words = (rate, burst, most, lease, on_lost, lost, bucket.open, bucket.shadow, ceiling)
        _native.limits_change(self._hold, number, *words)

    def renew(self, lease_s: float) -> None:
        """All leases end so long from now."""
        _native.limits_renew(self._hold, _ns(lease_s))

    def give_back(self) -> int:
        """Take back the tickets of dead waiters: how many these were."""
        return int(_native.limits_give_back(self._hold))

    def observe(self) -> list[Held]:
        """Each bucket in use."""
        try:
            rows = _native.limits_observe(self._hold)
        except OSError as error:
            raise PenstockError(f"the board {self._folder}: {error}") from error
        return [_held(row, self._is_bytes(row[0])) for row in rows]

    def _is_bytes(self, number: int) -> bool:
        return bool(_native.limits_bytes(self._hold) >> number & 1)

    def close(self) -> None:
        """Let go; what holds goes on until its lease is over."""
        _native.limits_end(self._hold)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _held(row: tuple[int | bytes, ...], as_bytes: bool) -> Held:
    number, name, rate, burst, lost_rate, on_lost, flags, left, owed, units, *more = row
    delayed, waited, ceilings, lost, torn, unplaced, given, waiting, w_units, w_ns, longest = more
    unit = 1 if as_bytes else UNITS
    per_s = 1e9 / (1 << _RATE_SHIFT) / unit
    assert isinstance(name, bytes)
    return Held(
        number=int(number),
        name=name.decode(errors="replace"),
        rate=int(rate) * per_s,
        burst=int(burst) / unit,
        on_lost=ON_LOST[int(on_lost)],
        lost_rate=int(lost_rate) * per_s,
        open=bool(int(flags) & 1),
        shadow=bool(int(flags) & 2),
        lease_s=int(left) / 1e9,
        owed=max(0, int(owed)) / unit,
        asked=int(units) / unit,
        delayed=int(delayed),
        waited_s=int(waited) / 1e9,
        ceilings=int(ceilings),
        lost=int(lost),
        torn=int(torn),
        unplaced=int(unplaced),
        given_back=int(given) / unit,
        waiting=int(waiting),
        waiting_units=int(w_units) / unit,
        waiting_s=int(w_ns) / 1e9,
        longest_s=int(longest) / 1e9,
    )


# ---- the plan of a job (native/launch/plan.h) ----

PLAN_MAGIC = 0x314E4C504B534350
PLAN_VERSION = 1
_PLAN = struct.Struct("<QIIQII")
_PART = struct.Struct("<IIQQ")


def plan_file(*parts: tuple[int, int, bytes]) -> bytes:
    """A plan of (kind, version, bytes), each to become a section of the same kind in control."""
    at = _PLAN.size + len(parts) * _PART.size
    rows, body = b"", b""
    for kind, version, data in parts:
        start = (at + len(body) + 63) // 64 * 64
        body += b"\0" * (start - at - len(body)) + data
        rows += _PART.pack(kind, version, start, len(data))

    def head(check: int) -> bytes:
        return _PLAN.pack(PLAN_MAGIC, PLAN_VERSION, len(parts), at + len(body), check, 0)

    return head(_native.crc32c(head(0) + rows + body)) + rows + body


def plan_parts(data: bytes) -> list[tuple[int, int, bytes]]:
    """The parts of such a file again; none of one that is damaged or another's."""
    if len(data) < _PLAN.size:
        return []
    magic, version, count, size, check, zero = _PLAN.unpack_from(data)
    bare = _PLAN.pack(magic, version, count, size, 0, zero) + data[_PLAN.size :]
    if (magic, version, size) != (PLAN_MAGIC, PLAN_VERSION, len(data)) or _native.crc32c(bare) != check:
        return []
    if count * _PART.size > size - _PLAN.size:
        return []
    rows = [_PART.unpack_from(data, _PLAN.size + i * _PART.size) for i in range(count)]
    return [(kind, made, data[start : start + length]) for kind, made, start, length in rows]
