# SPDX-License-Identifier: Apache-2.0
"""Catalogs of a real CephFS: equal to a walk, with the layouts that the driver says; a new layout is found; after runs
that do anything at all a kept catalog is what a fresh scan would make."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Catalog
from penstock.catalog.build import build
from penstock.catalog.check import Difference, check
from penstock.catalog.update import update
from penstock.targets.driver import driver_for
from penstock.targets.layouts import wish
from penstock.testbed import ceph
from tests.catalog.captured import DISORDER, PYTHON, kill_amid, names, sets, stripped
from tests.catalog.conftest import facts, penstock, plant, same, walked
from tests.catalog.test_serve import FORMAT, settle
from tests.catalog.test_serve import same as alike

WHY_NOT = ceph.missing()
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(WHY_NOT), reason=f"skipped: no CephFS lab: {WHY_NOT}"),
]


@pytest.fixture(scope="module")
def mount() -> Iterator[Path]:
    made = subprocess.run(
        ["mktemp", "-d", "/tmp/penstock-ceph.XXXX"], capture_output=True, text=True, check=True
    )
    place = Path(made.stdout.strip())
    try:
        yield Path(ceph.up(place, osds=2).mount)
    finally:
        ceph.down(place)


def test_catalog_of_cephfs(mount: Path, fast: Path) -> None:
    tree, catalog = plant(mount / "tree"), fast / "set.cat"
    driver = driver_for(str(mount))
    wishes = {"wide": wish(2, 65536), "plain": wish(), "large": wish(1, 8 << 20)}
    for name, asked in wishes.items():
        driver.create(str(tree / name), asked)
        (tree / name).write_bytes(b"x" * 300_000)
    built = build(tree, catalog)
    assert not built.outcome.problems
    cat = Catalog.open(catalog, check=True)
    top = str(tree).encode()
    for path in walked(tree):
        entry = cat.stat(path)
        assert entry.st_mode & 0o170000 == 0o40000 or same(entry, top + b"/" + path), path
    for name in wishes:
        said, real = cat.layout(name), driver.layout(str(tree / name))
        assert said is not None
        (ours,), (theirs,) = said.components, real.components
        assert (ours.stripe_size_bytes, ours.stripe_count, ours.pool, ours.object_size_bytes) == (
            theirs.stripe_size_bytes,
            theirs.stripe_count,
            theirs.pool,
            theirs.object_size_bytes,
        )
    assert not check(catalog, mend=False).differences
    found = {
        test: penstock("find", catalog, ".", *test.split()).stdout.split()
        for test in ("-stripe-count 2", "-stripe-size 64K -name wide", "-pool data -name plain", "-pool no")
    }
    assert found == {
        "-stripe-count 2": ["./wide"],
        "-stripe-size 64K -name wide": ["./wide"],
        "-pool data -name plain": ["./plain"],
        "-pool no": [],
    }


def test_changes_on_cephfs(mount: Path, fast: Path) -> None:
    tree, catalog = plant(mount / "changes"), fast / "set.cat"
    driver = driver_for(str(mount))
    driver.create(str(tree / "file"), wish(1, 1 << 20))
    build(tree, catalog)
    (tree / "file").unlink()
    driver.create(str(tree / "file"), wish(2, 65536))
    (tree / "a/new").write_text("new")
    update(catalog)
    cat = Catalog.open(catalog)
    assert facts(cat.stat("a/new")) == facts((tree / "a/new").lstat())
    found = cat.layout("file")
    assert found is not None
    assert found.components[0].stripe_count == 2
    (tree / "a/file3").write_bytes(b"in place")
    assert Difference(b"a/file3", "size differs") in check(catalog).differences
    assert not check(catalog).differences


@pytest.mark.parametrize(("seed", "processes", "threads"), [(0, 1, 1), (1, 2, 1), (2, 1, 3)])
def test_random_runs_on_cephfs(mount: Path, seed: int, processes: int, threads: int) -> None:
    """Some milliseconds after calls that changed a folder have returned, CephFS may move the folder's times once more:
    it is read again by `update`.  All names and what is in files stand before."""
    with sets() as make:
        it = make(mount / f"run{seed}")
        it.build()
        assert it.run(PYTHON, DISORDER, it.tree, seed, 100, processes, threads) == 0
        it.wait()
        before = {path: cat.stat(path) for cat in [Catalog.open(it.catalog)] for path in names(cat)}
        update(it.catalog)
        it.is_as_fresh()
        cat = Catalog.open(it.catalog)
        assert before.keys() == set(names(cat))
        for path in names(cat):
            if not cat.stat(path).st_mode & 0o040000:
                assert stripped(before[path]) == stripped(cat.stat(path)), path
            if cat.stat(path).st_mode & 0o170000 == 0o100000:
                whole = os.fsencode(it.tree) + b"/" + path
                assert cat.layout_bytes(path) == os.getxattr(whole, "ceph.file.layout"), path


@pytest.mark.parametrize("seed", range(2))
def test_random_runs_on_cephfs_that_are_killed(mount: Path, seed: int) -> None:
    """kill -9 of all the run's processes but the agent and the helper, or of the agent too.

    A call that was cut off may reach the servers after its caller's death, and after the helper looked: its folder's
    times show it, and `update` reads that folder again.  What was in files `update` would not find.
    """
    with sets() as make:
        it = make(mount / f"killed{seed}")
        it.build()
        kill_amid(it, seed, with_agent=seed == 1)
        update(it.catalog)
        it.is_as_fresh()


def test_programs_are_answered_from_the_catalog_as_they_would_be(mount: Path, tmp_path: Path) -> None:
    """Links, names, inodes as CephFS gives them.  Sizes of folders are its own: they change when nothing else does."""
    tree, other, cat = plant(mount / "served"), mount / "other", tmp_path / "set.cat"
    other.mkdir()
    settle(tree, 2.3)
    build(tree, cat)
    env = {**os.environ, "PENSTOCK_STATE_DIR": str(tmp_path / "state"), "PENSTOCK_LOG": str(tmp_path / "log")}
    ran = alike(env, cat, ["find", str(tree), "!", "-type", "d", "-printf", FORMAT])
    assert ran.listings == 8
    assert ran.stats > 200
    names = "print(sorted((it.inode(), it.name) for a, *_ in os.walk(sys.argv[1]) for it in os.scandir(a)))"
    ran = alike(env, cat, [sys.executable, "-S", "-c", f"import os, sys; {names}", str(tree)])
    assert ran.listings == 16
    ran = alike(env, cat, ["rsync", "-an", "--out-format=%i %n%L", f"{tree}/", f"{other}/"])
    assert ran.stats > 200
    ran = alike(env, cat, ["find", str(tree), str(tree / "a"), "-maxdepth", "0", "-printf", "%i %m\\n"])
    assert ran.stats == 0
