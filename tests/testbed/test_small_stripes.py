# SPDX-License-Identifier: Apache-2.0
"""Writes over many small stripes end, whatever waits for whatever in the service model, and read back right.

The programs run aside with a limit of time, so that a write that never ends fails a test and does not stop them all.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from penstock.targets.driver import driver_for
from penstock.targets.layouts import wish
from penstock.testbed import emulated

pytestmark = pytest.mark.root

KIB, MIB = 1 << 10, 1 << 20
LIMIT_S = 60

WRITE_AND_READ = """
import json, mmap, os, sys

path, flags, requests, readers = json.loads(sys.argv[1])
fd, at, data = os.open(path, os.O_CREAT | os.O_WRONLY | flags), 0, b""
for number, size in enumerate(requests):
    room = mmap.mmap(-1, size)
    room[:] = bytes([number + 1]) * size
    assert os.write(fd, room) == size
    data += room[:]
os.fsync(fd)
os.close(fd)
for reader in readers:
    fd = os.open(reader, os.O_RDONLY | flags & os.O_DIRECT)
    for number, size in enumerate(requests):
        room = mmap.mmap(-1, size)
        assert os.preadv(fd, [room], at := sum(requests[:number])) == size
        assert room[:] == data[at : at + size], (reader, at)
    os.close(fd)
"""


def run(code: str, *words: object) -> None:
    subprocess.run([sys.executable, "-c", code, *map(str, words)], check=True, timeout=LIMIT_S)


def written(bed: Any, name: str, requests: list[int], flags: int, *others: Path) -> None:
    readers = [str(top / name) for top in (bed.path, *others)]
    run(WRITE_AND_READ, json.dumps([str(bed.path / name), flags, requests, readers]))


@pytest.mark.parametrize("flags", [0, os.O_DIRECT])
@pytest.mark.parametrize("cache", ["0", "1GiB"])
def test_write_of_many_stripes_on_one_object(make_testbed: Callable[..., Any], cache, flags) -> None:
    bed = make_testbed(oss=4, osts=1, settings={"ost.bandwidth": "6MB/s", "client.cache": cache})
    folder = bed.path / "small"
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-m", "penstock", "layout", "set", "-c", "1", "-S", "64K", folder], check=True
    )
    written(bed, "small/f", [MIB, MIB], flags)


@pytest.mark.parametrize("cache", ["0", "1GiB"])
def test_any_requests_over_any_stripes_end(make_testbed, cache) -> None:
    quick = {
        "time.scale": "0.01",
        "client.cache": cache,
        "client.max_dirty": "256KiB",
        "client.grant": "128KiB",
    }
    bed = make_testbed(oss=2, osts=2, settings=quick)
    other, turn = bed.more("other"), [0]
    sizes = st.one_of(
        st.integers(1, 32).map(lambda units: units * 64 * KIB),
        st.integers(1, 64).map(lambda pages: pages * 4 * KIB),
    )

    @settings(
        max_examples=25,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],  # an example that hangs is not tried again and again
    )
    @given(
        count=st.integers(1, 4),
        stripe=st.sampled_from([64 * KIB, 128 * KIB, 192 * KIB, MIB]),
        requests=st.lists(sizes, min_size=1, max_size=5),
        flags=st.sampled_from([0, os.O_DIRECT, os.O_SYNC, os.O_DIRECT | os.O_SYNC]),
    )
    @example(count=1, stripe=64 * KIB, requests=[MIB], flags=os.O_SYNC)
    @example(count=2, stripe=64 * KIB, requests=[4 * KIB, MIB, 2 * MIB], flags=os.O_DIRECT)
    def check(count: int, stripe: int, requests: list[int], flags: int) -> None:
        turn[0] += 1
        driver_for(bed.path).create(str(bed.path / f"f{turn[0]}"), wish(count, stripe))
        written(bed, f"f{turn[0]}", requests, flags, other)

    check()


@pytest.mark.parametrize(("cache", "flags"), [("0", 0), ("1GiB", os.O_DIRECT)])
def test_what_lies_together_in_an_object_is_one_request(
    make_testbed: Callable[..., Any], cache, flags
) -> None:
    bed = make_testbed(oss=2, osts=2, settings={"model": "count", "client.cache": cache})
    driver_for(bed.path).create(str(bed.path / "f"), wish(2, 64 * KIB))
    with bed.counted(0) as got:
        written(bed, "f", [MIB], flags | os.O_SYNC)
    assert (got["write"], got["read"], got["ost:sync"]) == (2, 2, 4)  # fsync asks again


def test_a_writer_without_room_goes_on_after_a_write_past_the_cache(make_testbed) -> None:
    """Room for buffered bytes comes when they are sent, and nobody sends them while other writes are under way."""
    little = {"ost.bandwidth": "1MB/s", "client.max_dirty": "4KiB", "client.writeback": "3600s"}
    bed = make_testbed(oss=1, osts=1, settings=little)
    for name in ("direct", "buffered"):
        (bed.path / name).touch()
    past = (
        "import mmap, os, sys; "
        "os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT), mmap.mmap(-1, 1 << 20))"
    )
    with subprocess.Popen([sys.executable, "-c", past, bed.path / "direct"]) as first:
        assert emulated._wait_until(lambda: emulated.counters(bed.folder).get("write", 0) > 0)
        run("import os, sys; os.write(os.open(sys.argv[1], os.O_WRONLY), b'x' * 8192)", bed.path / "buffered")
        assert first.wait(LIMIT_S) == 0
    assert (bed.path / "buffered").read_bytes() == b"x" * 8192
