# SPDX-License-Identifier: Apache-2.0
"""Prediction on naming schemes that it was not made for.  Each writes four runs; three are learned, the fourth is
foreseen: names by the entries of a plan, bytes of each.
"""

import math
import random
import re
import uuid
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.policy.placing.contract import DIGITS, LETTERS, WORD
from penstock.policy.predicting import forecast
from penstock.policy.predicting.contract import Coming, Predicted, RunFiles, Seen

MB = 1_000_000
CLASSES = {DIGITS: rb"([0-9]+)", LETTERS: rb"([A-Za-z]+)", WORD: rb"([0-9A-Za-z]+)"}
Files = list[tuple[str, float, int]]  # name, bytes, rank


def hex_counter(run: int) -> Files:
    return [(f"/s/out/{i:04x}.bin", MB * (1 + i % 16), -1) for i in range(300)]


def hex_that_grows(run: int) -> Files:
    return [(f"/s/blk_{100 * run + i:x}", MB + 5000 * (100 * run + i), -1) for i in range(100)]


def dates_of_varying_width(run: int) -> Files:
    day = f"2026-{9 + run}-{5 * run + 3}"
    return [(f"/s/d/{day}/h{h}/part-{p}.nc", MB * (2 + p), -1) for h in range(24) for p in range(4)]


def rank_between_job_and_size(run: int) -> Files:
    return [(f"/s/sim_j{81233 + 517 * run}_r{r:04d}_of_0064.dat", 3 * MB + r * 20000, r) for r in range(64)]


def letters_that_count(run: int) -> Files:
    ab = "abcdefghijklmnopqrstuvwxyz"
    return [(f"/s/chunk_{ab[i // 26]}{ab[i % 26]}", (10 if i < 99 else 3) * MB, -1) for i in range(100)]


def padded_to_the_count(run: int) -> Files:
    count = (50, 99, 100, 104)[run]
    return [(f"/s/w/f{i:0{len(str(count))}d}.out", 4 * MB + i * 1000, -1) for i in range(1, count + 1)]


def names_of_other_nodes(run: int) -> Files:
    nodes = enumerate(sorted(random.Random(run).sample(range(1, 600), 16)))
    return [(f"/s/ckpt.node{n:03d}.gpu.{g}.h5", (5 + g) * MB, 4 * i + g) for i, n in nodes for g in range(4)]


def two_counters_that_wrap(run: int) -> Files:
    return [(f"/s/seg_{i // 16}_{i % 16}.raw", MB * (1 + i % 16 / 2), -1) for i in range(200)]


def restarts(run: int) -> Files:
    steps = range(run * 100, run * 100 + 100, 10)
    return [(f"/s/state.{step:05d}.r{r}", (2 + r) * MB, r) for step in steps for r in range(8)]


def several_endings(run: int) -> Files:
    kinds = {"vtu": 8.0, "xml": 0.02, "idx": 0.5}
    return [(f"/s/p{i:04d}.{kind}", size * MB, -1) for i in range(80) for kind, size in kinds.items()]


def folders_by_step(run: int) -> Files:
    return [
        (f"/s/step_{step:04d}/rank_{r}/field.bin", MB * 1.02**step * (1 + r % 4), r)
        for step in range(0, 100, 10)
        for r in range(8)
    ]


def a_token_for_each_run(run: int) -> Files:
    token = ("x7f3k9", "q01zzp", "7abbc2", "m3n4p5")[run]
    return [(f"/s/out_{token}/part-{i}", (i % 5 + 1) * MB, -1) for i in range(60)]


def times_with_fractions(run: int) -> Files:
    begin = 1732060800 + 86400 * run
    return [(f"/s/{begin + i * 37}.{i * 7919 % 10**6:06d}.chk", 6 * MB, -1) for i in range(50)]


def before_and_after_zero(run: int) -> Files:
    return [(f"/s/fc_T{h:+05d}.grib", (5 if h >= 0 else 2) * MB, -1) for h in range(-60, 240, 6)]


def words_without_separators(run: int) -> Files:
    sides = {"Left": 3, "Right": 4}
    return [
        (f"/s/Frame{f}Eye{eye}{side}.exr", size * MB + f * 1000, -1)
        for f in range(40)
        for eye in range(2)
        for side, size in sides.items()
    ]


def months_by_name(run: int) -> Files:
    day = f"{7 * run + 5:02d}{('Aug', 'Sep', 'Oct', 'Nov')[run]}2026"
    return [(f"/s/{day}/tile{x}x{y}.tif", MB * (1 + x), -1) for x in range(8) for y in range(8)]


def folders_by_hash(run: int) -> Files:
    chance = random.Random(7 + run)
    hashes = [f"{chance.getrandbits(64):016x}" for _ in range(120)]
    kinds = [("npy", 12.0) if i % 3 else ("json", 0.01) for i in range(120)]
    return [(f"/s/{h[:2]}/{h[2:4]}/{h[4:]}.{k}", z * MB, -1) for h, (k, z) in zip(hashes, kinds, strict=True)]


def uuids_of_one_size(run: int) -> Files:
    chance = random.Random(199 + run)
    return [(f"/s/t/{uuid.UUID(int=chance.getrandbits(128))}.blk", 8 * MB, -1) for _ in range(100)]


def every_fifth_is_large(run: int) -> Files:
    return [
        (f"/s/plt{step}.{v}", (9 if step % 50 == 0 else 1) * (1 + "uvwp".index(v)) * MB, -1)
        for step in range(0, 500, 10)
        for v in "uvwp"
    ]


def growing_from_run_to_run(run: int) -> Files:
    return [(f"/s/run{run + 1}/member{m:03d}/out.nc", MB * (10 + m) * 1.1**run, -1) for m in range(50)]


SCHEMES: list[Callable[[int], Files]] = [
    hex_counter,
    hex_that_grows,
    dates_of_varying_width,
    rank_between_job_and_size,
    letters_that_count,
    padded_to_the_count,
    names_of_other_nodes,
    two_counters_that_wrap,
    restarts,
    several_endings,
    folders_by_step,
    a_token_for_each_run,
    times_with_fractions,
    before_and_after_zero,
    words_without_separators,
    months_by_name,
    folders_by_hash,
    uuids_of_one_size,
    every_fifth_is_large,
    growing_from_run_to_run,
]
UNFORESEEN = (
    hex_that_grows,
)  # names that go on in other letters match no entry of a plan but the one for any value


def run_of(files: Files, number: int) -> RunFiles:
    """Created in no order."""
    order = list(range(len(files)))
    random.Random(number).shuffle(order)
    seen = [
        Seen(name.encode(), int(size), rank, order=order[i]) for i, (name, size, rank) in enumerate(files)
    ]
    return RunFiles(tuple(seen), max(rank for _, _, rank in files) + 1)


def taken(expected: list[Predicted], name: bytes, left: list[int]) -> Predicted | None:
    """The entry for a name: of those that match and have files left the one with most values stated."""
    best: tuple[int, int] | None = None
    for i, e in enumerate(expected):
        found = re.fullmatch(b"".join(CLASSES.get(p) or re.escape(p) for p in e.match.pieces), name)
        if found is None or not left[i]:
            continue
        given = [g.lstrip(b"0") or b"0" if g.isdigit() else g for g in found.groups()]
        if all(v is None or v == g for v, g in zip(e.match.values, given, strict=True)):
            best = max(best or (-1, 0), (sum(v is not None for v in e.match.values), i))
    if best is None:
        return None
    left[best[1]] -= 1
    return expected[best[1]]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda s: s.__name__)
def test_the_fourth_run_is_foreseen(scheme: Callable[[int], Files]) -> None:
    learned = forecast.learn_anew([run_of(scheme(number), number) for number in range(3)])
    coming = run_of(scheme(3), 3)

    sizes = learned.sizes([f.name for f in coming.files], coming.ranks)
    expected = [e for e in learned.expected(Coming(coming.ranks)) if e.files]
    left = [e.files for e in expected]
    hits = [taken(expected, f.name, left) for f in coming.files]

    close = [min(s.bytes, f.bytes) / max(s.bytes, f.bytes) for s, f in zip(sizes, coming.files, strict=True)]
    assert sum(close) / len(close) >= 0.99
    assert sum(s.error for s in sizes) / len(sizes) <= 0.1
    if scheme not in UNFORESEEN:
        good = [
            h is not None and abs(h.bytes - f.bytes) <= 0.1 * f.bytes
            for h, f in zip(hits, coming.files, strict=True)
        ]
        assert sum(good) >= 0.95 * len(good)
        assert abs(sum(e.files for e in expected) - len(good)) <= 0.05 * len(good)


def test_what_nobody_can_foresee_is_unknown() -> None:
    """Random names with random sizes."""

    def temporary(number: int) -> Files:
        chance = random.Random(99 + number)
        return [
            (f"/s/t/{uuid.UUID(int=chance.getrandbits(128))}.tmp", math.exp(chance.uniform(7, 21)), -1)
            for _ in range(100)
        ]

    learned = forecast.learn_anew([run_of(temporary(number), number) for number in range(3)])
    coming = run_of(temporary(3), 3)

    sizes = learned.sizes([f.name for f in coming.files], coming.ranks)

    assert all(s.error > 0.5 for s in sizes)


@pytest.mark.parametrize("scheme", [hex_counter, a_token_for_each_run, months_by_name, folders_by_step])
def test_one_run_is_enough_for_sizes(scheme: Callable[[int], Files]) -> None:
    """The same parts return in another folder, or under the same names."""
    learned = forecast.learn_anew([run_of(scheme(2), 2)])
    coming = run_of(scheme(3), 3)

    sizes = learned.sizes([f.name for f in coming.files], coming.ranks)

    close = [min(s.bytes, f.bytes) / max(s.bytes, f.bytes) for s, f in zip(sizes, coming.files, strict=True)]
    assert sum(close) / len(close) >= 0.98
    assert Counter(s.error <= 0.5 for s in sizes)[True] == len(sizes)
