# SPDX-License-Identifier: Apache-2.0
"""The site's planner in the controller: agents' figures of targets, one ledger of promises a file system, answers.

Also the agents' half of the wire format for it: messages to values of policy/placing/central.py and back, in one place.

Invariants:
1. Numbers from agents are hostile: a message with a column of the wrong length or an absurd number is refused whole,
   and what was known before stays.
2. An agent closes only its own promises, and answers go to who asked.
3. Only what agents tell opens an entry for a file system, never a user's question.
4. Killed at any time: agents tell their standing promises again when they are welcomed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.control import wire
from penstock.policy import guard
from penstock.policy.placing import central, planning
from penstock.policy.placing import ledger as books
from penstock.policy.placing.contract import Allocation, Target

TARGETS_MAX = 1 << 16
POOLS_MAX = 1024
FILE_SYSTEMS_MAX = 64
NAME_MAX = 200
NODES_MAX = 100_000
ABSURD = float(1 << 60)
PROMISE_MAX_S = 86400.0


def _column(data: bytes, kind: str, rows: int, what: str) -> Any:
    if len(data) != rows * np.dtype(kind).itemsize:
        raise wire.WireError(f"{what}: a column is not as long as its rows")
    return np.frombuffer(data, dtype=kind)


def _amounts(data: bytes, rows: int, what: str, least: float = 0.0) -> Any:
    found = _column(data, "<f8", rows, what)
    if not ((found >= least) & (found <= ABSURD)).all():
        raise wire.WireError(f"{what}: a number is absurd")
    return found


def packed(values: Sequence[int] | Sequence[float] | Any, kind: str = "<u4") -> bytes:
    return np.asarray(values, dtype=kind).tobytes()


# -- figures ------------------------------------------------------------------------------------------------


def figures_of(said: Any, now_s: float, node: str) -> central.Figures:
    """What an agent told, by our own clock."""
    what = f"the targets of {said.file_system[:100]!r} that {node} tells of"
    rows = len(said.target) // 4
    if rows > TARGETS_MAX or len(said.pools) > POOLS_MAX or not 0 <= said.age_s <= 1e6:
        raise wire.WireError(f"{what}: a number is absurd")
    ids = _column(said.target, "<u4", rows, what).tolist()
    server = _column(said.server, "<u4", rows, what).tolist()
    size, free = _amounts(said.size, rows, what).tolist(), _amounts(said.free, rows, what).tolist()
    moved = _amounts(said.moved, rows, what, -1.0).tolist()
    usable = _column(said.usable, "<u1", rows, what).tolist()
    if (
        len(set(ids)) != rows
        or max(ids, default=0) >= TARGETS_MAX
        or max(server, default=0) >= len(said.servers) + 1
    ):
        raise wire.WireError(f"{what}: targets or servers are named that are not there")
    member: dict[int, set[str]] = {}
    for pool in said.pools:
        for target in _column(pool.target, "<u4", len(pool.target) // 4, what).tolist():
            member.setdefault(target, set()).add(pool.name[:64])
    cpu = _amounts(said.mds_cpu, len(said.mds), what).tolist()
    memory = _amounts(said.mds_memory, len(said.mds), what).tolist()
    at_s = now_s - said.age_s
    names = [*said.servers, ""]
    return central.Figures(
        at_s,
        tuple(
            Target(
                ids[i],
                names[server[i]][:100],
                size[i],
                free[i],
                usable=bool(usable[i]),
                pools=frozenset(member.get(ids[i], ())),
            )
            for i in range(rows)
        ),
        {t: rate for t, rate in zip(ids, moved, strict=True) if rate >= 0},
        said.whole,
        tuple(guard.Busy(n[:100], c, m, 0.0) for n, c, m in zip(said.mds, cpu, memory, strict=True)),
    )


def message_of(file_system: str, figures: central.Figures, now_s: float) -> Any:
    """The same the other way: what an agent sends."""
    targets = figures.targets
    servers = sorted({t.server for t in targets})
    number = {name: i for i, name in enumerate(servers)}
    pools = sorted({name for t in targets for name in t.pools})
    return wire.Targets(
        file_system=file_system,
        age_s=max(now_s - figures.at_s, 0.0),
        whole=figures.whole,
        servers=servers,
        target=packed([t.id for t in targets]),
        server=packed([number[t.server] for t in targets]),
        size=packed([t.size_bytes for t in targets], "<f8"),
        free=packed([t.free_bytes for t in targets], "<f8"),
        moved=packed([figures.moved.get(t.id, -1.0) for t in targets], "<f8"),
        usable=packed([t.usable for t in targets], "<u1"),
        pools=[wire.Pool(name=p, target=packed([t.id for t in targets if p in t.pools])) for p in pools],
        mds=[m.name for m in figures.mds],
        mds_cpu=packed([m.cpu for m in figures.mds], "<f8"),
        mds_memory=packed([m.memory for m in figures.mds], "<f8"),
    )


# -- questions and answers ----------------------------------------------------------------------------------


def wanted_columns(asked: Sequence[planning.Asked]) -> dict[str, Any]:
    """What a run needs targets for as columns of Wanted; `unpacked` takes the answer apart again."""
    pools = [one.pool for one in asked if one.pool]
    size, count, files, pool, fixed = [], [], [], [], []
    for one in asked:
        runs = _alike(one)
        for i, n in runs:
            size.append(float(one.requests.bytes[i]))
            count.append(int(one.requests.counts[i]))
            files.append(n)
            pool.append(1 + pools.index(one.pool) if one.pool else 0)
            fixed.append(bool(one.requests.fixed[i]) if one.requests.fixed is not None else False)
    return {
        "size": packed(size, "<f8"),
        "count": packed(count),
        "files": packed(files),
        "pool": packed(pool),
        "fixed": packed(fixed, "<u1"),
        "pools": pools,
    }


def _alike(one: planning.Asked) -> list[tuple[int, int]]:
    """(first, how many) of rows with the same owner, which are alike."""
    found: list[tuple[int, int]] = []
    last = -1
    for i, owner in enumerate(one.owner):
        if owner == last:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((i, 1))
            last = owner
    return found


def wanted_of(said: Any, node: str) -> central.Wanted:
    what = f"what {node} asks for"
    rows = len(said.size) // 8
    return central.Wanted(
        _column(said.size, "<f8", rows, what),
        _column(said.count, "<u4", rows, what).astype(np.int64),
        _column(said.files, "<u4", rows, what).astype(np.int64),
        _column(said.pool, "<u4", rows, what).astype(np.int64),
        _column(said.fixed, "<u1", rows, what) != 0,
        tuple(name[:64] for name in said.pools[:POOLS_MAX]),
    )


def allotted_message(number: int, file_system: str, found: central.Allotted) -> Any:
    rows = [files for row in found.targets for files in row]
    return wire.Allotted(
        number=number,
        file_system=file_system,
        why=found.why,
        age_s=found.age_s,
        width=packed([len(row) for row in rows]),
        target=packed([t for row in rows for t in row]),
        spare=packed(found.spare),
        promised=packed(list(found.promises)),
        amount=packed(list(found.promises.values()), "<f8"),
    )


def given_of(said: Mapping[str, bytes], asked: Sequence[planning.Asked]) -> planning.Given:
    """The answer (columns of Allotted) as targets for what was asked; a WireError where it does not fit."""
    what = "the controller's plan"
    width = _column(said["width"], "<u4", len(said["width"]) // 4, what).tolist()
    targets = _column(said["target"], "<u4", len(said["target"]) // 4, what).tolist()
    if len(width) != sum(len(one.requests) for one in asked) or sum(width) != len(targets):
        raise wire.WireError(f"{what} is for other files than were asked for")
    at, row, found = 0, 0, []
    for one in asked:
        rows = []
        for n in width[row : row + len(one.requests)]:
            rows.append(tuple(targets[at : at + n]))
            at += n
        row += len(one.requests)
        found.append(Allocation(rows))
    return planning.Given(
        found,
        tuple(_column(said["spare"], "<u4", len(said["spare"]) // 4, what).tolist()),
        promises_of(said["promised"], said["amount"], what),
    )


def promises_of(target: bytes, amount: bytes, what: str) -> dict[int, float]:
    rows = len(target) // 4
    return dict(
        zip(_column(target, "<u4", rows, what).tolist(), _amounts(amount, rows, what).tolist(), strict=True)
    )


# -- the controller's half -----------------------------------------------------------------------------------


@dataclass
class Known:
    """One file system."""

    figures: dict[str, central.Figures] = field(default_factory=dict)  # by node
    ledger: books.Ledger = field(default_factory=books.Ledger)


class Planner:
    """All file systems that agents tell of."""

    def __init__(self, settings: central.CentralSettings = central.DEFAULTS) -> None:
        self.settings = settings
        self.known: dict[str, Known] = {}
        self.answered = self.refused = 0

    def _of(self, file_system: str) -> Known:
        """For what an agent tells by itself."""
        name = file_system[:NAME_MAX]
        if name not in self.known and len(self.known) >= FILE_SYSTEMS_MAX:
            raise wire.WireError(f"plans for more than {FILE_SYSTEMS_MAX} file systems are not made here")
        return self.known.setdefault(name, Known())

    def _known(self, file_system: str) -> Known | None:
        """For names that users make up: those of which nobody has told take no room here."""
        return self.known.get(file_system[:NAME_MAX])

    def hear(self, node: str, said: Any, now_s: float) -> Any:
        """Take in what an agent said of placement; the answer to it, or None."""
        what = said.WhichOneof("what")
        if what == "targets":
            figures = figures_of(said.targets, now_s, node)
            known = self._of(said.targets.file_system)
            known.figures = {
                n: f for n, f in known.figures.items() if now_s - f.at_s <= central.STALE_S and n != node
            } | {node: figures}
        elif what == "wanted":
            return self._plan(node, said.wanted, now_s)
        elif what == "promised":
            self._remember(node, said.promised, now_s)
        elif what == "over":
            known = self._known(said.over.file_system) or Known()
            for number in said.over.number:
                known.ledger = books.close(known.ledger, f"{node}/{number}")
        return None

    def _plan(self, node: str, said: Any, now_s: float) -> Any:
        wanted = wanted_of(said, node)
        known = self._known(said.file_system) or Known()
        found, known.ledger = central.decide(
            wanted, list(known.figures.values()), known.ledger, f"{node}/{said.number}", now_s, self.settings
        )
        self.answered += not found.why
        self.refused += bool(found.why)
        return wire.ToAgent(allotted=allotted_message(said.number, said.file_system, found))

    def _remember(self, node: str, said: Any, now_s: float) -> None:
        what = f"what {node} was promised"
        amounts = promises_of(said.target, said.amount, what)
        if not 0 <= said.left_s <= PROMISE_MAX_S:
            raise wire.WireError(f"{what}: a number is absurd")
        known = self._of(said.file_system)
        known.ledger = books.promise(known.ledger, f"{node}/{said.number}", amounts, now_s, said.left_s)

    def outstanding(self, file_system: str, now_s: float) -> dict[int, float]:
        """Bytes by target that runs were promised and have not ended to write."""
        return books.outstanding((self._known(file_system) or Known()).ledger, now_s)
