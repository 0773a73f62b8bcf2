# SPDX-License-Identifier: Apache-2.0
"""Readings become rates; what is old is called stale; a server's texts become shares."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import PenstockError
from penstock.targets import servers
from penstock.targets.driver import Load, Target, Where
from penstock.targets.layouts import Layout
from penstock.targets.mounts import Mount, mount_of
from penstock.targets.observe import Observer, Watch, rates


class Playing:
    """A file system whose answers the test chooses."""

    kind = "played"

    def __init__(self) -> None:
        self.mount: Mount = mount_of("/")
        self.rows = {1: Load(0, 0, 0, 0, 0, 0)}
        self.broken = False

    def targets(self) -> tuple[Target, ...]:
        if self.broken:
            raise PenstockError("the file system does not answer")
        return tuple(Target(i, f"t{i}", "s", 100, 50) for i in self.rows)

    def load(self) -> Mapping[int, Load]:
        return dict(self.rows)

    def health(self) -> Mapping[int, str]:
        return dict.fromkeys(self.rows, "up")

    def servers(self) -> Mapping[str, str]:
        return {}

    def layout(self, where: Where) -> Layout:
        raise NotImplementedError

    def create(self, path: str, layout: Layout) -> None:
        raise NotImplementedError

    def set_default(self, path: str, layout: Layout) -> None:
        raise NotImplementedError

    def job_counts(self) -> Mapping[str, Mapping[str, int]]:
        return {}


def test_rates_are_differences() -> None:
    played = Playing()
    observer = Observer(played)
    observer.collect(10)
    (view,) = observer.view(10)
    assert (view.state, view.ops_per_s, view.stale) == ("up", None, False)
    played.rows = {1: Load(10, 30, 4000, 8000, 40_000, 3)}
    observer.collect(12)
    (view,) = observer.view(12)
    assert (view.read_bytes_per_s, view.written_bytes_per_s, view.ops_per_s) == (2000, 4000, 20)
    assert (view.latency_ns, view.waiting) == (1000, 3)


def test_longer_spans_and_the_window() -> None:
    played = Playing()
    observer = Observer(played, window_s=60)
    for second in range(200):
        played.rows = {1: Load(second * 10, 0, 0, 0, 0, 0)}
        observer.collect(second)
    assert observer.view(199, over_s=30)[0].ops_per_s == 10
    assert [at for at, _ in observer.history(1)] == list(range(139, 200))


def test_counter_that_went_back_gives_no_rate() -> None:
    assert rates(Load(10, 0, 0, 0, 0), Load(3, 0, 0, 0, 0), 1) == (None, None, None, None)
    assert rates(Load(), Load(3, 0, 0, 0, 0), 1) == (None, None, None, None)


def test_silence_makes_stale_and_is_told() -> None:
    played = Playing()
    observer = Observer(played, stale_after_s=5)
    observer.collect(0)
    played.broken = True
    observer.collect(4)
    assert observer.trouble == "the file system does not answer"
    assert not observer.view(4)[0].stale
    observer.collect(6)
    (view,) = observer.view(6)
    assert (view.stale, view.state, view.age_s, view.target.free_bytes) == (True, "unknown", 6, 50)
    played.broken = False
    observer.collect(7)
    assert not observer.trouble
    assert not observer.view(7)[0].stale


def test_target_that_is_gone_stays_and_is_stale() -> None:
    played = Playing()
    observer = Observer(played, stale_after_s=5)
    observer.collect(0)
    played.rows = {2: Load(0, 0, 0, 0, 0, 0)}
    observer.collect(10)
    assert {v.target.id: v.stale for v in observer.view(10)} == {1: True, 2: False}


def test_watch_collects_beside_and_stops() -> None:
    observer = Observer(Playing())
    watch = Watch(observer, every_s=0.01)
    end = time.monotonic() + 30
    while len(observer.history(1)) < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    watch.stop()
    count = len(observer.history(1))
    assert observer.view(time.monotonic())[0].state == "up"
    assert len(observer.history(1)) == count


loads = st.builds(Load, *[st.integers(-1, 2**60)] * 6)


@given(loads, loads, st.floats(-1, 100))
def test_rates_are_never_negative(old: Load, new: Load, over_s: float) -> None:
    assert all(value is None or value >= 0 for value in rates(old, new, over_s))


STAT = "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4\n"
LATER = "cpu  160 0 120 760 160 0 0 0 0 0\ncpu0 1 2 3 4\n"


def test_shares_of_a_server() -> None:
    assert servers.cpu_share(STAT, LATER) == pytest.approx(80 / 200)
    assert servers.cpu_share(STAT, STAT) == 0
    assert servers.memory_share("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\n") == 0.75
    assert servers.memory_share("rubbish") == 0
    assert servers.pressure_share("some avg10=1.50 avg60=0 total=1\nfull avg10=0.00\n") == pytest.approx(
        0.015
    )
    assert servers.pressure_share("") is None


def test_texts_that_are_damaged_are_an_error() -> None:
    with pytest.raises(PenstockError, match="/proc/stat"):
        servers.cpu_share("intr 1 2", "")


def test_this_machine_as_a_server() -> None:
    (server,) = next(servers.watch(servers.here(), 0.1))
    assert 0 <= server.cpu <= 1
    assert 0 < server.memory < 1
    assert (server.io_pressure is None) == (not Path("/proc/pressure/io").exists())
