# SPDX-License-Identifier: Apache-2.0
"""An agent in this process, without a socket or a controller: what users and policies ask of it that cannot be."""

import asyncio
import os
import shutil
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.base.errors import BusyError, PenstockError, UsageError
from penstock.control import agent, controller, fleet, local, wire
from penstock.policy.rules import MAX_RATE
from penstock.runs import board, limits

POLICY = '[control]\nlease = "1h"\n[[limit]]\nname = "all"\nrate = "100/s"\n'
OPERATIONS = frozenset(board.operations())


class Alone:
    """The agent, and questions as its socket would bring them."""

    def __init__(self, folder: Path) -> None:
        config = agent.Config(
            at=folder / "s/agent.sock", folder=folder / "b", node="n1", everybody=True, max_bytes=1 << 22
        )
        self.agent = agent.Agent(config)
        self.agent.set_policy(POLICY, 1)
        self.fleet = self.agent.fleet = fleet.Fleet(self.agent.policy, 1)
        self.fleet.join(fleet.Member("n1", heard_s=time.monotonic()))

    def restart(self) -> None:
        """Another agent goes on with the same boards."""
        for here in self.agent.jobs.values():
            here.hold.close()
            here.board.watch = None
        self.agent = agent.Agent(self.agent.config)
        self.agent.adopt()

    def set_policy(self, text: str, number: int) -> None:
        self.agent.set_policy(text, number)
        self.fleet.set_policy(self.agent.policy, number)

    def ask(self, pid: int = os.getpid(), **words: str) -> dict[str, str]:
        asked = {"op": "board", "run": os.urandom(16).hex(), **words}
        return asyncio.run(self.agent.answer(local.Peer(pid, os.geteuid(), os.getegid()), asked))

    def by_hand(self, job: str, *buckets: limits.Bucket, pid: int = os.getpid()) -> dict[str, str]:
        return self.ask(pid, job=job, limits=limits.spec(buckets, lease_s=10).hex())

    def here(self, job: str) -> agent.JobHere:
        return self.agent.jobs[os.geteuid(), job]

    def names(self, job: str) -> list[str]:
        """The limits of a job: as the agent has them, and as its board has them."""
        here = self.here(job)
        of_board = [held.name for held in here.hold.observe()]
        assert sorted(row.bucket.name for row in here.rows) == sorted(of_board)
        return sorted(of_board)


@pytest.fixture
def alone() -> Iterator[Alone]:
    folder = Path(f"/dev/shm/penstock-test-alone-{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o711)
    yield Alone(folder)
    shutil.rmtree(folder, ignore_errors=True)


def bucket(name: str) -> limits.Bucket:
    return limits.Bucket(name, 5.0, frozenset({"open"}))


def test_what_a_board_cannot_hold_is_refused_and_changes_nothing(alone: Alone) -> None:
    """A name that is the site's, more limits on one operation than there may be: the node goes on."""
    alone.ask(job="good")
    alone.by_hand("evil", bucket("mine"))
    kept = alone.here("evil").board.about.by_hand
    for wrong, why in (
        ([bucket("all")], "two limits have the same name"),
        ([bucket(f"x{i}") for i in range(8)], "more than eight limits hold for one operation"),
    ):
        with pytest.raises(UsageError, match=why):
            alone.by_hand("evil", *wrong)
        assert alone.here("evil").board.about.by_hand == kept
        alone.agent.tick()
        assert alone.names("evil") == ["all", "mine"]
    alone.set_policy(POLICY.replace('"all"', '"other"'), 2)
    alone.agent.tick()

    assert (alone.names("good"), alone.names("evil")) == (["other"], ["mine", "other"])
    assert [row.limit.name for _, row in alone.agent.rows] == ["other", "other"]
    assert alone.ask(op="release")["json"]


def test_a_policy_that_meets_an_owners_limits_badly_holds_without_them(alone: Alone) -> None:
    alone.by_hand("1", bucket("other"))
    alone.ask(job="2")
    alone.set_policy(POLICY.replace('"all"', '"other"'), 2)
    alone.agent.tick()

    assert (alone.names("1"), alone.names("2")) == (["other"], ["other"])
    assert [row.number for row in alone.here("1").rows] == [0]


def test_a_board_that_lost_its_limits_harms_no_other_and_gets_them_back(alone: Alone) -> None:
    for job in "123":
        alone.ask(job=job)
    alone.here("2").hold.apply(limits.spec([], lease_s=10))
    alone.agent.released_here = True
    alone.agent._all_again()
    alone.agent.tick()
    assert [held.open for job in "13" for held in alone.here(job).hold.observe()] == [True, True]
    asyncio.run(alone.agent.look())

    assert [alone.names(job) for job in "123"] == [["all"]] * 3


def test_a_board_that_can_hold_nothing_is_told_of_no_limit_until_it_can(alone: Alone) -> None:
    """Its rows of before have numbers of another policy."""
    for job in "12":
        alone.ask(job=job)
    alone.agent.tick()
    good, here = alone.here("1").hold.apply, alone.here("1")

    def refuse(_data: bytes) -> None:
        raise UsageError("no bucket is free")

    here.hold.apply = refuse  # type: ignore[method-assign]
    alone.set_policy(POLICY.replace('"all"', '"other"'), 2)
    alone.agent.tick()
    assert [(row.limit.name, owner.job.id) for owner, row in alone.agent.rows] == [("other", "2")]
    here.hold.apply = good  # type: ignore[method-assign]
    asyncio.run(alone.agent.look())
    alone.agent.tick()

    assert [(row.limit.name, owner.job.id) for owner, row in alone.agent.rows] == [
        ("other", "1"),
        ("other", "2"),
    ]


MANY = {
    "nine on one operation": (
        "\n".join(f'[[limit]]\nname = "l{i}"\nrate = "1k/s"\ncalls = "open"' for i in range(9)),
        "site.toml:33: 'l8' has no room on a board: .*more than eight limits hold for one operation",
    ),
    "too many paths": (
        '[[limit]]\nname = "p"\nrate = "1k/s"\npaths = [' + ",".join(f'"/s/{i}"' for i in range(65)) + "]",
        "site.toml:1: 'p' has no room on a board: a board holds 64 limits with 64 paths at most",
    ),
    "a path of its own that is too long": (
        f'[[limit]]\nrate = "1k/s"\nusers = ["a"]\npaths = ["/{"x" * 300}"]',
        "longer than 248 bytes",
    ),
}


@pytest.mark.parametrize("what", MANY)
def test_a_policy_that_no_board_can_hold_is_refused_everywhere(alone: Alone, what: str) -> None:
    text, why = MANY[what]
    with pytest.raises(UsageError, match=why):
        controller.checked(text, OPERATIONS, "site.toml")
    with pytest.raises(wire.WireError, match="the old one stays"):
        alone.agent.set_policy(text, 2)

    assert alone.agent.number == 1


def test_limits_of_different_users_need_not_fit_together() -> None:
    text = "\n".join(
        f'[[limit]]\nname = "l{i}"\nrate = "1k/s"\ncalls = "open"\nusers = ["u{i}"]' for i in range(20)
    )

    assert len(controller.checked(text, OPERATIONS, "site.toml").limits) == 20


def test_limits_by_hand_replace_those_of_the_same_process_and_are_bounded(alone: Alone) -> None:
    sleepers = [os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "600") for _ in range(agent.BY_HAND_MAX)]
    try:
        for name in ("one", "two"):
            alone.by_hand("1", bucket(name))
        assert alone.names("1") == ["all", "two"]
        for pid in sleepers[1:]:
            alone.by_hand("1", bucket("two"), pid=pid)
        with pytest.raises(BusyError, match="16 processes of job 1 have set limits"):
            alone.by_hand("1", bucket("two"), pid=sleepers[0])
    finally:
        for pid in sleepers:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    with pytest.raises(PenstockError, match=r"is gone|cannot be looked at"):
        alone.by_hand("1", bucket("two"), pid=sleepers[0])


def test_a_user_has_so_many_jobs_that_no_scheduler_knows(alone: Alone) -> None:
    for number in range(agent.UNVERIFIED_MAX):
        alone.ask(job=str(number))
    with pytest.raises(BusyError, match="64 jobs on this node that no scheduler knows"):
        alone.ask(job="one more")
    alone.ask(job="3")  # a job that is there has its board


def test_absurd_counters_of_a_user_are_no_absurd_report(alone: Alone) -> None:
    """He writes into his own usage; the controller would refuse all of the node's."""
    path, good = Path(alone.ask(job="evil")["board"]), alone.ask(job="good")
    refused = []

    def turn() -> None:
        alone.agent.tick()
        time.sleep(0.02)
        refused.extend(alone.fleet.cycle(time.monotonic(), 1.0).refused)

    turn()
    control = board.control(path)
    rows = ((4096 + control.chunk_count * 16) + 4095) // 4096 * 4096
    undrawn = rows + 128 + 64 * 128 + 8  # of bucket 0, first line
    for value in (1 << 63, (1 << 64) - 1, 1 << 62):
        with (path / "usage").open("r+b") as file:
            file.seek(undrawn)
            file.write(struct.pack("<Q", value))
        turn()
        asked = {here.job.id: row.asked for here, row in alone.agent.rows}
        assert asked["evil"] <= MAX_RATE

    assert good["board"]
    assert refused == []
    assert any(row.past[-1][1] > 1e12 for row in alone.here("evil").rows)  # it was read


def test_one_user_who_writes_that_calls_are_slow_is_one_of_many(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    uids = {"liar": 1, "a": 2, "b": 3, "more of the liar's": 1}
    for name, uid in uids.items():
        alone.ask(job=name)
        alone.agent.jobs[uid, name] = alone.agent.jobs.pop((os.geteuid(), name))
    told = {here.board.path: (0, 0) for here in alone.agent.jobs.values()}
    monkeypatch.setattr(agent.boards.Board, "latency", lambda self: told[self.path])
    alone.agent._measure_latency()
    for (uid, _), here in alone.agent.jobs.items():
        told[here.board.path] = (100 * 3600 * 10**9, 100) if uid == 1 else (100 * uid * 10**6, 100)
    alone.agent._measure_latency()

    assert alone.agent.latency_s == 0.003


def test_counters_that_go_back_mark_the_job(alone: Alone) -> None:
    """A user who writes his counters down asks for less than he has."""
    path = Path(alone.ask(job="1")["board"])
    control = board.control(path)
    undrawn = ((4096 + control.chunk_count * 16) + 4095) // 4096 * 4096 + 128 + 64 * 128 + 8

    def counted(calls: int) -> str:
        with (path / "usage").open("r+b") as file:
            file.seek(undrawn)
            file.write(struct.pack("<Q", calls * 1024))
        for _ in range(3):
            alone.agent.tick()
        alone.agent._mark_bypassing()
        return alone.here("1").bypassing

    assert [counted(calls) for calls in (10, 500, 500, 900)] == [""] * 4
    assert counted(300) == agent.FALSE
    assert counted(2000) == agent.FALSE


def test_a_job_that_was_released_here_stays_so_over_a_restart(alone: Alone) -> None:
    alone.ask(job="1")
    alone.ask(job="2")
    alone.ask(op="release", job="1")
    alone.agent.hear(wire.ToAgent(release=wire.Release(jobs=["2"])))
    assert [alone.here(job).hold.observe()[0].open for job in "12"] == [True, True]
    alone.restart()
    released = [alone.here(job).hold.observe()[0].open for job in "12"]
    alone.ask(op="release", job="1", undo="1")
    alone.restart()

    assert released == [True, False]  # what the controller said it says again
    assert not alone.here("1").hold.observe()[0].open


@pytest.mark.parametrize(
    ("mounts", "user", "under"),
    [
        ((), None, False),
        (("/mnt/pfs",), None, True),
        ((), 61001, False),
        ((), 0, True),
        ((), os.geteuid(), True),
    ],
)
def test_nobody_names_or_mounts_himself_out_of_the_sites_limits(
    alone: Alone, monkeypatch: pytest.MonkeyPatch, mounts: tuple[str, ...], user: int | None, under: bool
) -> None:
    """Limits hold on mounts where there are some: of those that the agent was told of, and of root's."""
    line = f"9 1 0:9 / /tmp/his rw - fuse.ceph his rw,user_id={user},group_id=0\n"
    found = agent.mounts_of.parse(line) if user is not None else []
    monkeypatch.setattr(agent.mounts_of, "of_types", lambda _types: found)
    alone.agent.config = replace(alone.agent.config, mounts=mounts)
    path = Path(alone.ask(job="sly", mount0="/nonexistent")["board"])
    control = board.control(path)
    rows = {bytes(row.path[: row.size]): board.Under(row.under) for row in control.prefixes}

    assert board.Under.RECORD in rows[b"/nonexistent"]
    assert any(board.Under.MOUNT in found for found in rows.values()) is under
