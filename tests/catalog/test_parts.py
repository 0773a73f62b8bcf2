# SPDX-License-Identifier: Apache-2.0
"""Catalogs of many segments: long builds that were killed, many writers at once, and what a build leaves alone."""

import os
import random
import shutil
import subprocess
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Catalog, _native
from penstock.catalog import build as building
from penstock.catalog import scanning, serving, store
from penstock.catalog import update as updating
from penstock.catalog.build import build, fewer, joined
from penstock.catalog.capture import Follower
from penstock.catalog.identity import identity_of
from penstock.catalog.reader import COMPLETE
from penstock.catalog.scanning import Limits
from penstock.catalog.update import update
from penstock.policy.scanning import aside_after_s
from tests.catalog.conftest import facts, penstock, walked

FOLDERS = 90


@pytest.fixture
def wide(fast: Path) -> Path:
    tree = fast / "tree"
    for i in range(FOLDERS):
        (tree / f"d{i}").mkdir(parents=True)
        for k in range(3):
            (tree / f"d{i}" / f"f{k}").write_text("x" * k)
    return tree


def segment(catalog: Path, tree: Path, folders: list[str]) -> store.Part:
    """A segment of these folders as they are, as a scan would write it."""
    batch = _native.batch_new()
    for folder in folders:
        here = tree / folder
        if not folder:
            _native.batch_root(batch, b"", _native.entry_at(tree), None, None, None)
        for name in sorted(os.listdir(here)):  # noqa: PTH208 - names
            target = os.readlink(here / name) if (here / name).is_symlink() else None  # noqa: PTH115
            linked = target and os.fsencode(target)
            _native.batch_add(batch, os.fsencode(name), _native.entry_at(here / name), linked, None, None)
        _native.batch_close(batch, os.fsencode(folder), COMPLETE, 1)
    return store.put(catalog, [batch])


def begin(catalog: Path, tree: Path) -> None:
    """A catalog of nothing yet."""
    top = os.fsencode(tree)
    store.prepare(catalog)
    store.commit(catalog, lambda held: held or store.Manifest(top, identity_of(top)))


def put_aside(catalog: Path, tree: Path, count: int) -> None:
    """What a build leaves that was killed after so many segments, by a Penstock that joined none."""
    begin(catalog, tree)
    parts = [segment(catalog, tree, [folder]) for folder in ["", *(f"d{i}" for i in range(count - 1))]]

    def left(held: store.Manifest | None) -> store.Manifest:
        assert held
        return msgspec.structs.replace(held, building=tuple(reversed(parts)))

    store.commit(catalog, left)


def with_parts(held: store.Manifest | None, parts: tuple[store.Part, ...]) -> store.Manifest:
    assert held
    return msgspec.structs.replace(held, parts=parts)


def is_as(catalog: Path, tree: Path) -> None:
    cat = Catalog.open(catalog)
    for path in walked(tree):
        assert facts(cat.stat(path)) == facts(os.lstat(os.fsencode(tree) + b"/" + path)), path
    assert sum(len(folders) + len(files) for _, folders, files in cat.walk()) + 1 == len(walked(tree))


def test_a_build_of_many_segments_goes_on(wide: Path, fast: Path) -> None:
    """More than a view can hold: what was listed is not listed again, and all is there."""
    put_aside(fast / "set.cat", wide, 81)
    assert "build was not finished" in penstock("ls", fast / "set.cat", status=1).stderr
    built = build(wide, fast / "set.cat")
    assert built.resumed
    assert built.outcome.folders == FOLDERS - 80
    is_as(fast / "set.cat", wide)
    assert len(list((fast / "set.cat").glob("*.seg"))) == 1, "what was joined on the way is gone"


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(3, 12), st.integers(0, 2**32))
def test_segments_of_a_scan_become_one_in_any_order(tree: Path, fast: Path, most: int, seed: int) -> None:
    """Links, names of any bytes, folders in folders: as one scan has them."""
    draw, catalog = random.Random(seed), fast / f"{seed}-{most}.cat"
    folders = ["", *(os.path.relpath(here, tree) for here, _, _ in os.walk(tree) if here != str(tree))]
    begin(catalog, tree)
    parts = [segment(catalog, tree, [folder]) for folder in folders for _ in range(2)]
    draw.shuffle(parts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(building, "PARTS_MOST", most)
        patched.setattr(building, "JOINED_AT_ONCE", draw.randrange(2, most))
        few = fewer(catalog, tuple(parts))
    assert len(few) <= most
    whole = joined(catalog, few)
    assert whole.entries == len(walked(tree))
    store.commit(catalog, lambda held: with_parts(held, (whole,)))
    is_as(catalog, tree)
    shutil.rmtree(catalog)


def test_a_build_by_many_joins_what_is_put_aside(
    wide: Path, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "PARTS_MOST", 4)
    monkeypatch.setattr(building, "JOINED_AT_ONCE", 3)
    begin(fast / "set.cat", wide)
    for i in range(40):
        part = segment(fast / "set.cat", wide, ["" if i == 0 else f"d{i}"])
        building._put_aside(fast / "set.cat", part)
        held = store.read(fast / "set.cat").manifest
        assert held
        assert len(held.building) <= 4
        assert len(list((fast / "set.cat").glob("*.seg"))) == len(held.building)
    built = build(wide, fast / "set.cat")
    assert built.outcome.folders == FOLDERS - 39
    is_as(fast / "set.cat", wide)


def test_what_is_put_aside_becomes_rarer() -> None:
    assert aside_after_s(10, 0) == aside_after_s(10, 160) == 10
    running, parts = 0.0, 0
    while running < 86400:
        running += aside_after_s(10, running)
        parts += 1
    assert parts < 130


def test_an_update_that_takes_long_is_one_segment(wide: Path, fast: Path) -> None:
    build(wide, fast / "set.cat")
    for i in range(FOLDERS):
        (wide / f"d{i}" / "late").touch()
    outcome = update(fast / "set.cat", Limits(threads=1, rate_per_s=1500, checkpoint_s=0.0))
    assert outcome.folders >= FOLDERS
    assert len(outcome.parts) == 1
    is_as(fast / "set.cat", wide)


def put_on_top(catalog: Path, part: store.Part) -> None:
    held = store.read(catalog).manifest
    assert held
    updating.add(catalog, held.parts, (part,))


def test_many_writers_at_once_stay_below_what_a_view_holds(
    wide: Path, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merging is given up, as when others merge meanwhile: what must be merged to stay readable, is."""
    build(wide, fast / "set.cat")
    monkeypatch.setattr(updating, "should_merge", lambda entries: False)

    def add(first: int) -> None:
        for i in range(first, FOLDERS, 3):
            (wide / f"d{i}" / "late").touch()
            put_on_top(fast / "set.cat", segment(fast / "set.cat", wide, [f"d{i}"]))

    threads = [threading.Thread(target=add, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cat = Catalog.open(fast / "set.cat")
    assert len(cat.manifest.parts) <= updating.PARTS_MOST
    assert all(cat.exists(f"d{i}/late") for i in range(FOLDERS))


def test_what_others_add_at_once_to_a_merged_catalog_does_not_undo_the_merge(
    wide: Path, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest has got its name, and another was made of it, before its writer has looked around."""
    build(wide, fast / "set.cat")
    (wide / "d3" / "late").touch()
    put_on_top(fast / "set.cat", segment(fast / "set.cat", wide, ["d3"]))
    numbers, left = store._numbers, [True]

    def late(folder: Path) -> list[int]:
        newest = store.decode((folder / f"manifest-{numbers(folder)[0]:08d}").read_bytes(), "")
        if len(newest.parts) == 1 and left:
            left.clear()
            (wide / "d4" / "late").touch()
            put_on_top(fast / "set.cat", segment(fast / "set.cat", wide, ["d4"]))
        return numbers(folder)

    with monkeypatch.context() as patched:
        patched.setattr(updating, "should_merge", lambda entries: False)
        patched.setattr(store, "_numbers", late)
        updating.merge(fast / "set.cat")
    assert not left
    cat = Catalog.open(fast / "set.cat")
    assert len(cat.manifest.parts) == 2
    assert cat.exists("d3/late") and cat.exists("d4/late") and cat.exists("d4/f1")


def test_a_build_that_is_not_done_leaves_the_catalog_as_it_was_asked_for(
    wide: Path, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other options and another identity hold when their build is done, not before; the next go on with them."""
    catalog = fast / "set.cat"
    build(wide, catalog, store.Options(excludes=(b"f2",)))
    before = store.read(catalog).manifest
    assert before

    def killed(scan: scanning.Scan, say: Any, put: Any) -> None:
        part = scan.put() or segment(catalog, wide, [""])
        put(part)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(scanning.Scan, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            build(wide, catalog, store.Options(excludes=(b"f1",)))
    between = store.read(catalog).manifest
    assert between
    assert between.building
    assert (between.options, between.identity) == (before.options, before.identity)
    (wide / "d3" / "late").touch()
    update(catalog, full=True)
    assert not Catalog.open(catalog).exists("d3/f2")
    assert Catalog.open(catalog).exists("d3/f1")
    built = build(wide, catalog, store.Options(excludes=(b"f1",)))
    assert built.resumed
    assert built.manifest.options.excludes == (b"f1",)
    assert (built.manifest.building_options, built.manifest.building_identity) == (None, None)
    assert Catalog.open(catalog).exists("d3/f2")
    assert not Catalog.open(catalog).exists("d3/f1")


def test_a_tree_that_is_named_by_a_link_is_known_by_its_own_path(
    wide: Path, fast: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that an older Penstock named by the link: it can be served, kept and built again."""
    (fast / "link").symlink_to(wide)
    own, old = fast / "own.cat", fast / "old.cat"
    assert build(fast / "link", own).manifest.root == os.fsencode(wide)
    with monkeypatch.context() as patched:
        patched.setattr(building, "absolute", os.fsencode)
        build(fast / "link", old)
    assert Catalog.open(old).root == str(fast / "link")
    assert serving.prepare(old).fresh == serving.prepare(own).fresh
    helper = Follower(old, os.fsencode(wide))
    helper.finish((0, 0, 0, 0, 0, []))
    assert build(wide, old).manifest.root == os.fsencode(wide)
    is_as(old, wide)


class Counted(bytes):
    """A path that counts how often it is looked for."""

    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return super().__hash__()


class AtOnce(Executor):
    """Every task is done when it is given, and found nothing."""

    def __init__(self) -> None:
        self.given: list[bytes] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.given += args[-1]
        done = Future[Any]()
        done.set_result(scanning.Outcome())
        return done


def test_many_folders_are_dealt_out_without_searching(fast: Path) -> None:
    pending, executor = [Counted(f"d{i}".encode()) for i in range(2000)], AtOnce()
    limits = Limits(threads=1)
    building._spread(executor, 4, b"/", fast, store.Options(), limits, scanning.quiet, list(pending))
    assert sorted(executor.given) == sorted(pending)
    assert Counted.looks <= 4 * len(pending)


def test_tasks_deal_out_each_folder_once(wide: Path, fast: Path) -> None:
    """By threads in place of nodes, from many pending folders: none is read twice."""
    put_aside(fast / "set.cat", wide, 1)
    with ThreadPoolExecutor(2) as pool:
        built = build(wide, fast / "set.cat", executor=pool, workers=2)
    assert built.outcome.folders == FOLDERS
    is_as(fast / "set.cat", wide)


def test_a_folder_whose_names_are_gone_is_empty(wide: Path, fast: Path) -> None:
    """A newer segment says of each name that it is gone; an older one has them."""
    from penstock.catalog.capture import _TOMBSTONE

    build(wide, fast / "set.cat")
    batch = _native.batch_new()
    for name in sorted(os.listdir(wide / "d3")):  # noqa: PTH208 - names
        (wide / "d3" / name).unlink()
        _native.batch_add(batch, os.fsencode(name), _TOMBSTONE, None, None, None)
    _native.batch_close(batch, b"d3", 0, 1)
    (wide / "d4" / "f1").unlink()
    _native.batch_add(batch, b"f1", _TOMBSTONE, None, None, None)
    _native.batch_close(batch, b"d4", 0, 1)
    put_on_top(fast / "set.cat", store.put(fast / "set.cat", [batch]))
    assert len(Catalog.open(fast / "set.cat").manifest.parts) == 2
    real = subprocess.run(
        ["find", wide, "-empty", "-type", "d"], check=True, capture_output=True, text=True, timeout=60
    )
    assert penstock("find", fast / "set.cat", "-empty", "-type", "d").stdout == real.stdout
