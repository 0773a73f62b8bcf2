# SPDX-License-Identifier: Apache-2.0
"""Limits from Python: what a spec says, what a board holds of it, and what is refused."""

import dataclasses
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import _native
from penstock.base.errors import PenstockError, UsageError
from penstock.policy import costs, rules
from penstock.runs import board, limits

META = limits.Bucket("all metadata", 5000, limits.operations_of(["metadata"]))
DATA = limits.Bucket("data", 2**28, limits.operations_of(["data"]), bytes=True, paths=("/pfs/a", "/pfs/b/"))


@pytest.fixture
def folder() -> Iterator[Path]:
    top = Path(f"/dev/shm/penstock-limits-{os.getpid()}")
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir(mode=0o700)
    board.create(top / "board", bytes(16), board.Stages.RECORD, board.Under.RECORD, board.noise())
    yield top / "board"
    shutil.rmtree(top)


def test_a_new_board_holds_no_limits_and_takes_some(folder: Path) -> None:
    with limits.Hold(folder) as hold:
        assert hold.observe() == []
        assert not board.control(folder).stages & board.Stages.LIMIT
        hold.apply(limits.spec([META, DATA], lease_s=5))
        rows = {row.name: row for row in hold.observe()}
        assert rows["all metadata"].rate == pytest.approx(5000)
        assert rows["data"].rate == pytest.approx(2**28)
        assert 4 < rows["data"].lease_s <= 5
        assert board.control(folder).stages & board.Stages.LIMIT
        hold.apply(limits.spec([], lease_s=5))
        assert hold.observe() == []
        assert not board.control(folder).stages & board.Stages.LIMIT


def test_a_change_and_a_renewal_are_seen_by_whoever_holds_it_next(folder: Path) -> None:
    first = limits.Hold(folder)
    first.apply(limits.spec([META, DATA], lease_s=1))
    changed = dataclasses.replace(META, rate=0.2, on_lost="rate", lost_rate=7, shadow=True)
    first.change(changed, 1)
    first.renew(100)
    first.close()
    with limits.Hold(folder) as hold:  # as after a restart
        row = next(row for row in hold.observe() if row.name == META.name)
        assert (row.rate, row.lost_rate) == (pytest.approx(0.2, rel=1e-4), pytest.approx(7, rel=1e-4))
        assert (row.on_lost, row.shadow, row.open) == ("rate", True, False)
        assert row.lease_s > 90
        hold.change(dataclasses.replace(changed, open=True, shadow=False), 1)
        row = next(row for row in hold.observe() if row.name == META.name)
        assert (row.open, row.shadow) == (True, False)
        with pytest.raises(KeyError):
            hold.change(dataclasses.replace(META, name="no such"), 1)


def test_limits_of_the_same_name_keep_their_bucket(folder: Path) -> None:
    with limits.Hold(folder) as hold:
        hold.apply(limits.spec([META, DATA], lease_s=1))
        before = {row.name: row.number for row in hold.observe()}
        other = dataclasses.replace(META, name="other")
        hold.apply(limits.spec([other, DATA], lease_s=1))
        after = {row.name: row.number for row in hold.observe()}
        assert after["data"] == before["data"]
        assert set(after) == {"other", "data"}


def test_every_bucket_can_be_replaced_at_once(folder: Path) -> None:
    """Old ones are let go only when new ones hold, so both need room."""
    many = [dataclasses.replace(META, name=f"a{i}", operations=frozenset({"open"})) for i in range(8)]
    with limits.Hold(folder) as hold:
        for turn in "abc":
            hold.apply(
                limits.spec(
                    [dataclasses.replace(b, name=f"{turn}{i}") for i, b in enumerate(many)], lease_s=1
                )
            )
            assert sorted(row.name for row in hold.observe()) == [f"{turn}{i}" for i in range(8)]


def test_metadata_means_all_that_is_not_data() -> None:
    found = limits.operations_of(["metadata"])
    assert {"open", "mkdir", "getxattr", "lock", "rename"} <= found
    assert not {"read", "write", "seek"} & found
    with pytest.raises(UsageError, match="no operation 'opne'"):
        limits.operations_of(["opne"])


def test_costs_name_operations_that_exist() -> None:
    assert set(costs.COSTS) <= set(board.operations())


def test_words_of_a_command_become_buckets() -> None:
    policy = rules.parse_words(["metadata=5k/s", "data=1MiB/s@/scratch/big/"], frozenset(board.operations()))
    first, second = (limits.of(limit) for limit in policy.limits)
    assert (first.rate, first.bytes, first.paths) == (5000, False, ())
    assert (second.rate, second.bytes, second.paths) == (2**20, True, ("/scratch/big",))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["metadata=5k/s@scratch"], "'metadata=5k/s@scratch': what follows @ is to be a plain absolute path"),
        (["open=1/s", "open=2/s"], "open is limited twice; say it once"),
        (["opne=1/s"], "'opne=1/s': there is no operation or class 'opne'; did you mean open?"),
    ],
)
def test_mistakes_in_words_are_told(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError) as told:
        rules.parse_words(words, frozenset(board.operations()))
    assert str(told.value) == sentence


def spoilt(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def test_what_is_wrong_with_a_spec_is_told() -> None:
    good = limits.spec([META, DATA], lease_s=1)
    assert _native.limits_wrong(good) is None
    bucket = limits._HEAD.size
    cases = {
        "it is no list of limits that this program knows": [b"", good[:100], spoilt(good, 0, b"\x09")],
        "its size is not that of what it should hold": [good[:-1], good + b"\0", spoilt(good, 4, b"\x03")],
        "it has too many limits or paths": [spoilt(good, 4, b"\xff")],
        "a limit has no name, or one that is too long": [
            spoilt(good, bucket, b"\0"),
            spoilt(good, bucket, b"x" * 64),
        ],
        "two limits have the same name": [limits_named(good, bucket)],
        "a weight is above 1000 calls": [spoilt(good, 32, b"\xff\xff\xff\xff")],
        "a path is not absolute, or too long": [spoilt(good, len(good) - 248, b"pfs")],
    }
    for sentence, broken in cases.items():
        assert [_native.limits_wrong(data) for data in broken] == [sentence] * len(broken)


def limits_named(good: bytes, bucket: int) -> bytes:
    size = limits._BUCKET.size
    return spoilt(good, bucket + size, good[bucket : bucket + 64])


def test_no_bytes_make_a_spec_that_crashes(folder: Path) -> None:
    good = bytearray(limits.spec([META, DATA], lease_s=1))
    rng = random.Random(11)
    with limits.Hold(folder) as hold:
        for _ in range(3000):
            data = bytearray(good)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            if _native.limits_wrong(bytes(data)) is None:
                hold.apply(bytes(data))
                hold.observe()
            else:
                with pytest.raises(UsageError):
                    hold.apply(bytes(data))


def test_more_than_eight_limits_of_one_operation_are_refused() -> None:
    many = [dataclasses.replace(META, name=str(i)) for i in range(9)]
    with pytest.raises(UsageError, match="more than eight limits hold for one operation"):
        limits.spec(many, lease_s=1)


def test_what_is_no_board_is_not_held(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="cannot be held: No such file"):
        limits.Hold(tmp_path / "none")
    (tmp_path / "control").write_bytes(bytes(100_000))
    with pytest.raises(PenstockError, match="cannot be held"):
        limits.Hold(tmp_path)
