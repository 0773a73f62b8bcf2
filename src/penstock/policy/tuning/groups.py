# SPDX-License-Identifier: Apache-2.0
"""Which files of one run may have different layouts, so that one run shows several.

Invariants:
1. The n-th file of every writer is in one group: checkpoints, not ranks, are compared.
2. Names that cannot be told apart before they come (any value), and files that are small beside the largest, count
   for nothing: they go with group 0.
3. Where nobody knows which of several processes writes which file, all are one group.
4. At most GROUPS_MAX groups are made: what has few of a run's bytes shows nothing.
"""

from collections.abc import Sequence

from penstock.policy.placing.contract import MARKS, Expected

GROUPS_MAX = 4
SMALL_SHARE = 0.1  # of the largest file


def _order(e: Expected) -> tuple[object, ...]:
    """By pattern, then by the values in its name: numbers as numbers."""
    values = tuple((0, int(v), b"") if v and v.isdigit() else (1, 0, v or b"") for v in e.match.values)
    return (tuple(p for p in e.match.pieces if p in MARKS), e.match.pieces, values)


def groups_of(expected: Sequence[Expected], processes: int = 1) -> list[int]:
    """A group's number for each file of a run of so many writers, from 0."""
    large = SMALL_SHARE * max((e.bytes for e in expected), default=0.0)
    turns: dict[int, int] = {}
    found = [0] * len(expected)
    told = [
        i
        for i, e in enumerate(expected)
        if e.files == 1 and not e.match.wide and e.bytes >= large and not e.append
    ]
    if processes > 1 and any(expected[i].rank < 0 and not expected[i].shared for i in told):
        return found
    for i in sorted(told, key=lambda i: _order(expected[i])):
        writer = -1 if expected[i].shared else expected[i].rank
        found[i] = turns.get(writer, 0)
        turns[writer] = found[i] + 1
    most = min(turns.values(), default=0)
    count = min(most, GROUPS_MAX)
    return [n % count if count > 1 else 0 for n in found]
