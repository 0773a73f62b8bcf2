# SPDX-License-Identifier: Apache-2.0
"""Catalogs of an emulated Lustre: what a scan asks the servers, layouts, and answers that ask nobody."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Catalog
from penstock.catalog.build import build
from penstock.catalog.check import check
from penstock.catalog.scanning import Limits
from penstock.catalog.update import update
from penstock.targets.driver import driver_for
from penstock.targets.layouts import wish
from tests.catalog.conftest import facts, penstock, same, walked

pytestmark = pytest.mark.root


@pytest.fixture
def bed(make_testbed: Callable[..., object]) -> object:
    return make_testbed(oss=2, osts=4, settings={"model": "count"})


def cold(bed) -> None:
    bed.ask("flush")
    bed.counters()
    bed.ask("drop")
    bed.path.stat()


def test_thousand_files_cost_some_thirty_requests(bed, fast: Path) -> None:
    """Names are asked for in the order of the listing while it is open, so the client looks ahead; layouts are free."""
    for i in range(1000):
        (bed.path / f"file{i:04}").touch()
    cold(bed)
    with bed.counted(0) as got:
        build(bed.path, fast / "set.cat")
    enqueues = sum(got[name] for name in got if name.startswith("enq:"))
    assert enqueues + got["batch"] + got["readpage"] + got["close"] <= 40
    assert got["enq:layout"] + got["enq:getxattr"] == 0
    assert got["glimpse"] == 1000
    cat = Catalog.open(fast / "set.cat")
    with bed.counted(0) as got:
        found = [cat.layout(f"file{i:04}") for i in range(1000)]
        assert cat.listdir() == [f"file{i:04}" for i in range(1000)]
    assert not any(got.values())
    assert all(it and len(it.targets) == 1 for it in found)


def test_layouts_are_those_of_the_files(bed, fast: Path) -> None:
    driver = driver_for(bed.path)
    wishes = {"one": (2,), "four": (3, 1, 0, 2), "two": (1, 3)}
    for name, targets in wishes.items():
        driver.create(str(bed.path / name), wish(targets=targets, stripe_size_bytes=1 << 20))
    subprocess.run(
        [
            f"{bed.folder}/bin/lfs",
            "setstripe",
            "-E",
            "1M",
            "-c",
            "1",
            "-E",
            "-1",
            "-c",
            "2",
            bed.path / "pfl",
        ],
        check=True,
    )
    build(bed.path, fast / "set.cat")
    cat = Catalog.open(fast / "set.cat")
    for name in (*wishes, "pfl"):
        assert cat.layout(name) == driver.layout(str(bed.path / name))
        assert cat.layout_bytes(name) == os.getxattr(bed.path / name, "lustre.lov")
    root = bed.path
    for words, names in (
        (["-ost", "0"], {"four"}),
        (["-O", "1,3"], {"four", "two"}),
        (["--stripe-count", "+2"], {"four"}),
        (["-stripe-size", "1M", "-type", "f", "-component-count", "1"], {"one", "four", "two"}),
        (["--component-count", "2"], {"pfl"}),
    ):
        said = set(penstock("find", fast / "set.cat", *words).stdout.split())
        assert {str(root / name) for name in names} <= said, words
        others = set(wishes) - names if words[0] in ("-ost", "-O") else {*wishes, "pfl"} - names
        assert not {str(root / name) for name in others} & said, words
    assert "targets 3, 1, 0, 2" in penstock("ls", fast / "set.cat", "--layout", "four").stdout


def test_new_layout_of_a_file_is_found_by_check(bed, fast: Path) -> None:
    """Same name, size and times may be had again; the object ids differ."""
    driver = driver_for(bed.path)
    driver.create(str(bed.path / "file"), wish(targets=(0,)))
    (bed.path / "file").write_text("x")
    build(bed.path, fast / "set.cat")
    (bed.path / "file").unlink()
    driver.create(str(bed.path / "file"), wish(targets=(3,)))
    (bed.path / "file").write_text("x")
    assert check(fast / "set.cat").mended
    assert Catalog.open(fast / "set.cat").layout("file") == driver.layout(str(bed.path / "file"))


def test_asking_the_catalog_asks_no_server(bed, fast: Path) -> None:
    for i in range(20):
        (bed.path / f"d{i}").mkdir()
        for k in range(10):
            (bed.path / f"d{i}" / f"f{k}").write_bytes(b"x" * k)
    build(bed.path, fast / "set.cat")
    cold(bed)
    with bed.counted(0) as got:
        assert len(penstock("find", fast / "set.cat", "-type", "f", "-size", "+0").stdout.splitlines()) == 180
        penstock("du", fast / "set.cat", "-s")
        penstock("ls", fast / "set.cat", "-lR")
        penstock("top", fast / "set.cat", "--by", "target")
    assert not any(got.values())
    cat = Catalog.open(fast / "set.cat")
    for path in walked(bed.path):
        assert same(cat.stat(path), os.fsencode(bed.path) + b"/" + path)


def test_update_asks_for_folders_and_what_is_new(bed, fast: Path) -> None:
    for i in range(20):
        (bed.path / f"d{i}").mkdir()
        for k in range(30):
            (bed.path / f"d{i}" / f"f{k}").touch()
    build(bed.path, fast / "set.cat", limits=Limits(threads=4))
    (bed.path / "d3/new").touch()
    cold(bed)
    with bed.counted(0) as got:
        done = update(fast / "set.cat", Limits(threads=4), tick_ns=0)
    assert got["enq:getattr"] + got["batch"] <= 20 + 15
    assert done.entries <= 31 + 21
    assert facts(Catalog.open(fast / "set.cat").stat("d3/new")) == facts((bed.path / "d3/new").lstat())


def test_k08_testbed_of_another_name_is_refused(make_testbed: Callable[..., object], fast: Path) -> None:
    one, two = make_testbed(), make_testbed()
    (one.path / "file").touch()
    build(one.path, fast / "set.cat")
    import msgspec

    from penstock.catalog import store

    held = store.read(fast / "set.cat").manifest
    assert held
    store.commit(fast / "set.cat", lambda now: msgspec.structs.replace(held, root=os.fsencode(two.path)))
    assert "another file system" in penstock("update", fast / "set.cat", status=1).stderr
