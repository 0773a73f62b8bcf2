# SPDX-License-Identifier: Apache-2.0
"""Fixtures that several folders of tests share: an emulated parallel file system that is always taken down.

def test_it(testbed): (testbed.path / "file").write_text("on 4 OSTs of 2 OSS, the service model off")
def test_it(make_testbed): bed = make_testbed(oss=3, osts=5, caching="posix", settings={"mds.threads": "1"})

With settings={"model": "count"} requests take no time and are counted: bed.counted(), bed.counters(), bed.jobs().
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from penstock.targets.lustre import job_rows
from penstock.testbed import emulated

# Other tests' file systems come and go: a run has those under control that its test names.
os.environ.setdefault("PENSTOCK_RUN_DETECT", "none")

# A busy machine is no mistake of a property's.  In CI the same commit draws the same examples; at a desk new ones.
hypothesis.settings.register_profile("tests", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("tests")


TEST_USERS = range(61000, 61010)
"""Who tests become, where they become somebody."""


@pytest.fixture(scope="session", autouse=True)
def _boards_of_test_users() -> Iterator[None]:
    """Folders of boards, which commands make for each user and keep, go with the users."""
    yield
    for uid in TEST_USERS:
        for top in ("/dev/shm", "/tmp"):
            with contextlib.suppress(OSError):
                os.rmdir(f"{top}/penstock-{uid}")  # noqa: PTH106 - as it is named


class Counted(dict[str, int]):
    """Counts by name; what is not there is 0."""

    def __missing__(self, key: str) -> int:
        return 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where PENSTOCK_TEST_NO_SKIP=1 (CI), tests of the testbed must run: a green run without it says nothing."""
    report = yield
    if (
        os.environ.get("PENSTOCK_TEST_NO_SKIP") == "1"
        and report.skipped
        and "no testbed" in str(report.longrepr)
    ):
        report.outcome = "failed"
    return report


class Bed:
    """A running testbed: `path` is its first mount."""

    def __init__(self, path: Path, shape: emulated.Shape, caching: str, settings: dict[str, str]) -> None:
        self.path = path
        self.folder = f"{path}.testbed"
        self.shape, self.caching, self.settings = shape, caching, settings
        self.said: list[str] = []
        self.start()

    def start(self) -> emulated.Status:
        """Up again, as it was left; `said` gets what was told at that."""
        return emulated.up(self.path, self.shape, self.caching, self.settings, self.said.append)

    def more(self, name: str) -> Path:
        """Another client's mount."""
        path = self.path.with_name(name)
        emulated.mount_more(self.folder, path)
        return path

    def ask(self, line: str) -> str:
        return emulated.ask(self.folder, line)

    def counters(self, client: int | None = None) -> "Counted":
        """Requests by kind that reached the servers so far; what goes out in the background settles first."""
        last, until = None, time.monotonic() + 10
        while time.monotonic() < until:
            now = Counted(emulated.counters(self.folder, client))
            if now == last:
                return now
            last = now
            time.sleep(0.02)
        raise AssertionError("the counters do not come to rest")

    @contextlib.contextmanager
    def counted(self, client: int | None = None) -> "Iterator[Counted]":
        """The requests meanwhile, filled at the end:  with bed.counted() as got: ...; got == {"enq:open": 1}"""
        before, got = self.counters(client), Counted()
        yield got
        got.update({k: n - before[k] for k, n in self.counters(client).items() if n != before[k]})

    def jobs(self) -> dict[str, dict[str, int]]:
        """What the servers counted for each job id (job.var says what that is), all servers together."""
        found: dict[str, dict[str, int]] = {}
        for job, name, count in job_rows(
            self.ask("param mdt.*.job_stats") + self.ask("param obdfilter.*.job_stats")
        ):
            row = found.setdefault(job, Counted())
            row[name] = row.get(name, 0) + count
        return found

    def status(self) -> emulated.Status:
        return emulated.status(self.folder)

    def stop(self) -> None:
        emulated.down(self.folder, say=self.said.append)

    def kill(self) -> None:
        """kill -9 of the server."""
        os.kill(self.status().pid, signal.SIGKILL)
        assert emulated._wait_until(lambda: not emulated.is_running(self.folder))

    @property
    def store(self) -> Path:
        return Path(self.folder, "store")

    @property
    def state(self) -> Path:
        """Lustre's statistics, as files."""
        return Path(self.folder, "state")


@pytest.fixture
def make_testbed() -> Iterator[Callable[..., Bed]]:
    """Bring up testbeds of any shape; all are gone at the end, whatever happened."""
    if why := emulated.missing():
        pytest.skip(f"no testbed: {why}")
    top = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    top.chmod(0o755)  # tests become other users
    beds: list[Bed] = []

    def make(
        mds: int = 1,
        oss: int = 2,
        osts: int = 2,
        caching: str = "contention",
        settings: dict[str, str] | None = None,
    ) -> Bed:
        path = top / f"pfs{len(beds)}"
        held = {"model": "off"} if settings is None else settings
        beds.append(Bed(path, emulated.Shape(mds, oss, osts), caching, held))
        return beds[-1]

    try:
        yield make
    finally:
        for bed in beds:
            with contextlib.suppress(Exception):
                emulated.down(bed.folder)
        for mount in emulated.mounts():
            if mount.path.startswith(f"{top}/"):
                emulated.unmount(mount.path, force=True)
        shutil.rmtree(top, ignore_errors=True)


@pytest.fixture
def testbed(make_testbed: Callable[..., Bed]) -> Bed:
    """4 OSTs on 2 OSS, every call and byte reaching the server, the service model off."""
    return make_testbed()
