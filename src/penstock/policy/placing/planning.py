# SPDX-License-Identifier: Apache-2.0
"""A plan: what becomes of each file that a run is expected to create.

Invariants:
1. A file that is small, appended to, unknown, or without room is left as the file system does it, and the plan says so.
2. Promises are what the entries place, to the byte.
3. Without a ledger that others share, targets are drawn by two random choices, never by "the best".
4. The plan states what it costs (requests) and what it is modelled to gain, against the stock allocator on the same
   figures.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import NamedTuple

import numpy as np

from penstock.base.units import show_size
from penstock.policy.placing import ALLOCATORS, stock
from penstock.policy.placing.contract import (
    ALIGN_BYTES,
    EXTRA_REQUESTS,
    LISTS_STRIPES_MAX,
    Action,
    Allocation,
    Entry,
    Expected,
    Floats,
    Match,
    Part,
    Plan,
    PlanSettings,
    Requests,
    Situation,
    Target,
    available_bytes_per_s,
    usable,
)
from penstock.policy.placing.ledger import Ledger, kept, outstanding, written

EVEN_ROUNDS = 20  # with as many rounds over its targets a file's stripes are even enough as they are
STOCK_DRAWS = 5
FILES_MAX = 200_000  # of one plan
DEFAULTS = PlanSettings()


def with_ledger(situation: Situation, ledger: Ledger | None) -> Situation:
    """The situation with what other runs were promised; without a ledger that is kept, it says so."""
    if ledger is None or not kept(ledger, situation.now_s):
        return replace(situation, keeper=False)
    # Promised bytes stand for the runs that will write them: as sharers these would count twice.
    promised = outstanding(ledger, situation.now_s)
    wrote = written(ledger, situation.now_s)
    targets = [
        replace(
            t,
            promised_bytes=t.promised_bytes + promised.get(t.id, 0.0),
            written_bytes=t.written_bytes + wrote.get(t.id, 0.0),
        )
        for t in situation.targets
    ]
    return replace(situation, targets=targets, keeper=True)


def small_from_model(situation: Situation, settings: PlanSettings) -> float:
    """Below this size the requests that placing adds take longer than balance is expected to save."""
    able = usable(situation.targets)
    if not able:
        return 0.0
    rate = median(available_bytes_per_s(t) for t in able)
    return EXTRA_REQUESTS * settings.request_s * rate / settings.expected_gain


def even_stripe_bytes(file_bytes: float, count: int, size_bytes: int) -> int:
    """A stripe size near the wished one with which the last round over the targets is (nearly) full."""
    if count <= 1 or size_bytes <= 0 or file_bytes <= count * ALIGN_BYTES:
        return size_bytes
    rounds = max(round(file_bytes / (count * size_bytes)), 1)
    if rounds >= EVEN_ROUNDS or file_bytes < count * size_bytes / 2:
        return size_bytes
    blocks = -(-int(file_bytes) // (count * rounds * ALIGN_BYTES))
    return blocks * ALIGN_BYTES


def _wished(e: Expected, situation: Situation) -> int:
    count = e.stripe_count or situation.default_count
    return len(usable(situation.targets, e.pool)) if count < 0 else max(count, 1)


def _width(e: Expected, situation: Situation) -> int:
    """Stripes that it can really have."""
    return min(_wished(e, situation), len(usable(situation.targets, e.pool)))


def _wide(e: Expected, situation: Situation) -> bool:
    most = LISTS_STRIPES_MAX
    return _wished(e, situation) > most and _width(e, situation) > most  # the first is quick


def why_stock(e: Expected, small_bytes: float, settings: PlanSettings) -> str:
    """Why a file is left as the file system does it; nothing where it is to be placed."""
    if e.append:
        return "opened to append: always one stripe"
    if e.bytes < small_bytes:
        return f"smaller than {show_size(small_bytes)}: placing would cost more than it saves"
    if e.composite and not (e.gain_known and settings.parts):
        return "the folder's default is composite and grows with the file"
    return ""


class Asked(NamedTuple):
    """The files of one pool that are to be placed: a row each, and by row which of `files` it is."""

    pool: str
    files: list[Expected]
    requests: Requests
    owner: list[int]


class Given(NamedTuple):
    """Targets that a site's planner chose: for each that was asked (`asked`), in that order."""

    found: Sequence[Allocation]
    spare: tuple[int, ...]
    promises: Mapping[int, float]


def _sorted(
    expected: Iterable[Expected], situation: Situation, settings: PlanSettings
) -> tuple[list[Entry], list[Asked], float, list[str]]:
    """The entries of files that stay stock, the others by pool, below which size files are small, and remarks."""
    small = settings.small_bytes if settings.small_bytes >= 0 else small_from_model(situation, settings)
    known, notes = _known(expected, settings)
    entries: list[Entry] = []
    wanted: dict[str, list[Expected]] = {}
    for e in known:
        why = why_stock(e, small, settings)
        if why:
            entries.append(_entry(e, Action.STOCK, why=why))
        elif e.files > 1 and (e.composite or _wide(e, situation)):
            entries.append(_listless(e, situation, settings))
        else:
            wanted.setdefault(e.pool, []).append(e)
    asked = [Asked(pool, files, *_requests(files, pool, situation)) for pool, files in sorted(wanted.items())]
    return entries, asked, small, notes


def asked(
    expected: Iterable[Expected], situation: Situation, settings: PlanSettings = DEFAULTS
) -> list[Asked]:
    """What a plan needs targets for."""
    return _sorted(expected, situation, settings)[1]


def unfit(given: Given, wanted: Sequence[Asked], situation: Situation) -> str:
    """What in a planner's answer is not for these files and targets; nothing if it fits."""
    if len(given.found) != len(wanted):
        return "it is for other files"
    for one, found in zip(wanted, given.found, strict=True):
        able = {t.id for t in usable(situation.targets, one.pool)}
        if len(found.targets) != len(one.requests):
            return "it is for other files"
        for row, count in zip(found.targets, one.requests.counts.tolist(), strict=True):
            if not able.issuperset(row) or len(set(row)) != len(row) or len(row) > count:
                return "it names targets that may not get these files"
    if not {t.id for t in situation.targets}.issuperset(given.spare):
        return "its spare targets are not there"
    return ""


def plan(
    expected: Iterable[Expected],
    situation: Situation,
    settings: PlanSettings = DEFAULTS,
    given: Given | None = None,
) -> Plan:
    """What becomes of the files that are expected; `given`: with targets that a site's planner chose."""
    entries, wanted, small, notes = _sorted(expected, situation, settings)
    name = settings.allocator if situation.keeper else "two-choices"
    if given is not None:
        name = "site"
    elif not situation.keeper:
        notes.append("nobody keeps a ledger of promises here: each stripe takes the better of two targets")
    targets, gain_s = list(situation.targets), 0.0
    for number, (_, files, requests, owner) in enumerate(wanted):
        chosen = (
            given.found[number]
            if given is not None
            else ALLOCATORS[name].allocate(requests, targets, settings.allocation)
        )
        found = whole(chosen, owner)
        gain_s += _gain_s(requests, found, targets, settings)
        targets = loaded(targets, requests, found)
        entries += _placed(files, owner, found, situation, settings)
    if not usable(situation.targets):
        notes.append("no target may get new files: everything is left as the file system does it")
    entries, cut = _bounded(entries, settings.entries_max)
    if cut:
        notes.append(f"{cut} of {len(entries) + cut} entries did not fit; the smallest files go stock")
    before = {t.id: t.promised_bytes for t in situation.targets}
    requests_more = EXTRA_REQUESTS * sum(e.files for e in entries if e.action is Action.PLACE)
    return Plan(
        file_system=situation.file_system,
        made_s=situation.now_s,
        entries=tuple(entries),
        spare=spare(targets) if given is None else given.spare,
        small_bytes=small,
        extra_requests=requests_more,
        cost_s=requests_more * settings.request_s,
        gain_s=gain_s,
        promises={t.id: t.promised_bytes - before[t.id] for t in targets if t.promised_bytes > before[t.id]}
        if given is None
        else given.promises,
        notes=tuple(notes),
        allocator=name,
    )


def _known(expected: Iterable[Expected], settings: PlanSettings) -> tuple[list[Expected], list[str]]:
    """The files whose size is known well enough, each match once, and what is said of the others."""
    known: dict[Match, Expected] = {}
    unknown = twice = 0
    files = 0
    for e in expected:
        if not (np.isfinite(e.bytes) and e.bytes >= 0 and e.error <= settings.unknown_from):
            unknown += max(e.files, 1)
        elif e.match in known:
            twice += 1
        elif files + max(e.files, 1) <= FILES_MAX:
            known[e.match] = e
            files += max(e.files, 1)
    notes = []
    if unknown:
        notes.append(f"{unknown} files are unknown in size: they keep the default's count and size")
    if twice:
        notes.append(f"{twice} names were expected twice; the first holds")
    return list(known.values()), notes


def _requests(files: Sequence[Expected], pool: str, situation: Situation) -> tuple[Requests, list[int]]:
    """One row a file, and by row which of the expected it is."""
    owner = [i for i, e in enumerate(files) for _ in range(max(e.files, 1))]
    counts = [_wished(e, situation) for e in files]
    return Requests(
        np.array([max(files[i].bytes, 1.0) for i in owner]),
        np.array([max(counts[i], 1) for i in owner], dtype=np.int64),
        pool,
        np.array([files[i].stripe_count != 0 for i in owner]),
    ), owner


def whole(found: Allocation, owner: Sequence[int]) -> Allocation:
    """Files alike share an entry: all of them are placed or none."""
    short = {i for i, row in zip(owner, found.targets, strict=True) if not row}
    return Allocation([() if i in short else row for i, row in zip(owner, found.targets, strict=True)])


def _entry(e: Expected, action: Action, why: str) -> Entry:
    return Entry(e.match, action, files=max(e.files, 1), bytes_each=e.bytes, why=why, pool=e.pool)


def _placed(
    files: Sequence[Expected],
    owner: Sequence[int],
    found: Allocation,
    situation: Situation,
    settings: PlanSettings,
) -> list[Entry]:
    """The entries of files that have targets now."""
    turns: list[list[tuple[int, ...]]] = [[] for _ in files]
    for i, row in zip(owner, found.targets, strict=True):
        if row:
            turns[i].append(row)
    entries = []
    for e, rows in zip(files, turns, strict=True):
        if not rows:
            entries.append(_entry(e, Action.STOCK, "no targets have room for it"))
            continue
        count = len(rows[0])
        size = e.stripe_size_bytes or even_stripe_bytes(e.bytes, count, situation.default_size_bytes)
        why = e.why or f"{count} stripe{'s' * (count > 1)} as the default says, targets by load and room"
        made = Entry(
            e.match,
            Action.PLACE,
            count,
            size,
            tuple(row[:count] for row in rows),
            e.pool,
            files=max(e.files, 1),
            bytes_each=e.bytes,
            why=why,
        )
        entries.append(_composite(made) if e.composite else made)
    return entries


def _listless(e: Expected, situation: Situation, settings: PlanSettings) -> Entry:
    """Files alike with components, or wider than lists: they share one layout, so that the file system has to choose
    their targets, and nothing is promised."""
    count = _width(e, situation)
    if not count:
        return _entry(e, Action.STOCK, "no targets have room for it")
    size = e.stripe_size_bytes or even_stripe_bytes(e.bytes, count, situation.default_size_bytes)
    why = f"{count} stripes in one layout for all {e.files} files: the file system chooses targets"
    made = replace(_entry(e, Action.PLACE, why), stripe_count=count, stripe_size_bytes=size)
    return _composite(made) if e.composite else made


def _composite(entry: Entry) -> Entry:
    """First one stripe for what might stay small, then the whole width."""
    row = entry.turns[0] if entry.turns else ()
    size = max(entry.stripe_size_bytes, ALIGN_BYTES)
    first = max(int(entry.bytes_each / 64) // size, 1) * size
    parts = (Part(first, 1, size, row[:1]), Part(0, entry.stripe_count, size, row))
    return replace(entry, parts=parts, turns=())


def _bounded(entries: list[Entry], most: int) -> tuple[list[Entry], int]:
    """As many entries as a board takes: the largest files first."""
    if len(entries) <= most:
        return entries, 0
    order = sorted(range(len(entries)), key=lambda i: -entries[i].bytes_each * entries[i].files)
    return [entries[i] for i in sorted(order[:most])], len(entries) - most


def _loads(requests: Requests, found: Allocation, targets: Sequence[Target]) -> Floats:
    at = {t.id: i for i, t in enumerate(targets)}
    load = np.zeros(len(targets))
    for size, row in zip(requests.bytes.tolist(), found.targets, strict=True):
        for target in row:
            load[at[target]] += size / len(row)
    return load


def loaded(targets: Sequence[Target], requests: Requests, found: Allocation) -> list[Target]:
    """The targets with what was just planned."""
    load = _loads(requests, found, targets).tolist()
    return [replace(t, promised_bytes=t.promised_bytes + b) for t, b in zip(targets, load, strict=True)]


def finish_s(targets: Sequence[Target], load: Floats, server_rate_bytes_per_s: float = 0.0) -> float:
    """When the last byte of `load` is written: the slowest target that has any of it, or its server."""
    if not len(targets):
        return 0.0
    rate = np.array([available_bytes_per_s(t) for t in targets])
    whole = load + np.array([t.promised_bytes for t in targets])
    touched = load > 0
    slowest = float((whole / rate)[touched].max(initial=0.0))
    if server_rate_bytes_per_s <= 0:
        return slowest
    names = {s: i for i, s in enumerate(sorted({t.server for t in targets}))}
    server = np.array([names[t.server] for t in targets])
    by_server = np.bincount(server, whole) / server_rate_bytes_per_s
    return max(slowest, float(by_server[np.unique(server[touched])].max(initial=0.0)))


def _gain_s(
    requests: Requests, found: Allocation, targets: Sequence[Target], settings: PlanSettings
) -> float:
    """How much sooner than with the stock allocator, on the mean of some draws, the last byte is written."""
    own = settings.allocation
    placed = np.array([bool(row) for row in found.targets])
    if not placed.any() or len(requests) > 20_000:
        return 0.0
    rows = Requests(requests.bytes[placed], requests.counts[placed], requests.pool)
    ours = Allocation([row for row in found.targets if row])
    rate = own.server_rate_bytes_per_s
    times = []
    for draw in range(STOCK_DRAWS):
        theirs = stock.RACY.allocate(rows, targets, replace(own, seed=own.seed + draw))
        times.append(finish_s(targets, _loads(rows, theirs, targets), rate))
    return sum(times) / len(times) - finish_s(targets, _loads(rows, ours, targets), rate)


def spare(targets: Sequence[Target]) -> tuple[int, ...]:
    """Targets for files that nobody expected: those at least half as quick as the middle one, the least booked first,
    servers in turn.  Whoever takes k in a row (going round) has k different ones."""
    able = usable(targets)
    if not able:
        return ()
    middle = median(available_bytes_per_s(t) for t in able)
    good = [t for t in able if available_bytes_per_s(t) >= middle / 2]
    good.sort(key=lambda t: (t.promised_bytes / available_bytes_per_s(t), t.id))
    return tuple(good[i].id for i in stock.spread_order(good))
