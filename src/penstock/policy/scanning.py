# SPDX-License-Identifier: Apache-2.0
"""How many threads a scan may use, from what its calls cost: a scan must not be a storm of its own.

Each period the scan's speed is looked at.  While more threads make it faster, it gets more; when a step brought
nothing, it is taken back and kept for a while, then tried again, since servers become free.  When the calls take
much longer than they did at best, without more speed for it, the scan takes half.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Observed:
    """One period: entries read, seconds of it, and of all threads together in calls, calls made."""

    entries: int
    period_s: float
    busy_s: float
    calls: int


@dataclass(frozen=True)
class Limits:
    least: int = 1
    most: int = 64
    gain: float = 1.1
    """A step up stays if the speed grew by this factor."""
    slow: float = 4.0
    """Calls that take so many times the best latency mean that the server has too much to do."""
    patience: int = 20
    """Periods until a step up is tried again."""


@dataclass(frozen=True)
class State:
    threads: int
    speed: float = 0.0
    best_call_s: float = float("inf")
    rising: bool = True
    wait: int = 0


def decide(seen: Observed, limits: Limits, state: State) -> tuple[int, State]:
    """The threads for the next period."""
    if seen.period_s <= 0 or seen.calls <= 0 or limits.least >= limits.most:
        return state.threads, state
    speed, call_s = seen.entries / seen.period_s, seen.busy_s / seen.calls
    best = min(state.best_call_s, call_s) if call_s > 0 else state.best_call_s
    after = replace(state, speed=speed, best_call_s=best)
    faster = speed > state.speed * limits.gain
    if call_s > limits.slow * best and not faster and state.threads > limits.least:
        return _to(after, max(limits.least, state.threads // 2), limits, rising=False)
    if state.rising and not faster and state.speed > 0:
        return _to(after, max(limits.least, state.threads * 2 // 3), limits, rising=False)
    if state.rising or state.wait <= 0:
        up = min(limits.most, max(state.threads + 1, state.threads * 3 // 2))
        return _to(after, up, limits, rising=up > state.threads)
    return state.threads, replace(after, wait=state.wait - 1)


def _to(state: State, threads: int, limits: Limits, rising: bool) -> tuple[int, State]:
    return threads, replace(state, threads=threads, rising=rising, wait=limits.patience)


def aside_after_s(checkpoint_s: float, running_s: float) -> float:
    """After how long a scan that has run so long puts aside what it read: a day's scan needs no segment each ten
    seconds, and killed it loses a sixteenth at most."""
    return max(checkpoint_s, running_s / 16)
