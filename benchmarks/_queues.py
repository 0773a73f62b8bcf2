# SPDX-License-Identifier: Apache-2.0
"""What queueing theory says of the modelled servers, exactly."""

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement, pairwise

import numpy as np

Kinds = Mapping[str, tuple[float, float]]
"""Kinds of calls: how large their share is, and the mean seconds that a server needs for one."""


def closed_rate(clients: int, servers: int, think_s: float, kinds: Kinds) -> float:
    """Calls a second of clients that think, ask, wait for the answer, and think again; all times exponential.

    The kind of a call is drawn when a server begins with it, which is the same as drawing it before.  The state is
    how many calls are there and which kinds are being served; from the highest number of calls down, R says how
    likely states are in terms of those with one call less.
    """
    if not kinds or clients < 1 or servers < 1:
        raise ValueError("a closed queue has clients, servers and kinds of calls")
    shares = [share for share, _ in kinds.values()]
    rates = [1 / mean_s for _, mean_s in kinds.values()]
    served = [_mixes(len(rates), min(n, servers)) for n in range(clients + 1)]
    ups = [_up(served[n], served[n + 1], shares, (clients - n) / think_s) for n in range(clients)]
    downs = [_down(served[n], served[n - 1], shares, rates, n > servers) for n in range(1, clients + 1)]
    ratio: list[np.ndarray] = []
    beyond = np.zeros((len(served[-1]), len(served[-1])))
    for n in range(clients, 0, -1):
        leaves = downs[n - 1].sum(axis=1) + (ups[n].sum(axis=1) if n < clients else 0)
        ratio.insert(0, ups[n - 1] @ np.linalg.inv(np.diag(leaves) - beyond))
        beyond = ratio[0] @ downs[n - 1]
    weight, total, flow = np.ones(1), 1.0, 0.0
    for n in range(1, clients + 1):
        weight = weight @ ratio[n - 1]
        total += weight.sum()
        flow += float(weight @ downs[n - 1].sum(axis=1))
    return flow / float(total)


def _mixes(kinds: int, busy: int) -> list[tuple[int, ...]]:
    """How many of each kind are being served, all ways."""
    return [
        tuple(chosen.count(kind) for kind in range(kinds))
        for chosen in combinations_with_replacement(range(kinds), busy)
    ]


def _more(mix: tuple[int, ...], kind: int, by: int = 1) -> tuple[int, ...]:
    return (*mix[:kind], mix[kind] + by, *mix[kind + 1 :])


def _up(
    here: list[tuple[int, ...]], above: list[tuple[int, ...]], shares: Sequence[float], rate: float
) -> np.ndarray:
    """A call comes: it is served at once, or waits."""
    place = {mix: i for i, mix in enumerate(above)}
    flow = np.zeros((len(here), len(above)))
    for i, mix in enumerate(here):
        if mix in place:
            flow[i, place[mix]] = rate
        else:
            for kind, share in enumerate(shares):
                flow[i, place[_more(mix, kind)]] += rate * share
    return flow


def _down(
    here: list[tuple[int, ...]],
    below: list[tuple[int, ...]],
    shares: Sequence[float],
    rates: Sequence[float],
    waiting: bool,
) -> np.ndarray:
    """A call is answered, and if one waits it is begun."""
    place = {mix: i for i, mix in enumerate(below)}
    flow = np.zeros((len(here), len(below)))
    for i, mix in enumerate(here):
        for kind, rate in enumerate(rates):
            if not mix[kind]:
                continue
            left = _more(mix, kind, -1)
            for other, share in enumerate(shares):
                to = _more(left, other) if waiting else left
                flow[i, place[to]] += mix[kind] * rate * share
    return flow


def slowdown(points: Sequence[tuple[float, float]], processes: float) -> float:
    """g(n) between points, and on past the last."""
    for (n0, g0), (n1, g1) in pairwise(points):
        if processes <= n1 or (n1, g1) == points[-1]:
            return g0 + (processes - n0) * (g1 - g0) / (n1 - n0)
    raise ValueError("a slowdown has two points at least")
