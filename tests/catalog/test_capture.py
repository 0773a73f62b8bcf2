# SPDX-License-Identifier: Apache-2.0
"""penstock run --catalog: after the run the catalog is what a fresh scan would make, whatever the run did."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Catalog
from penstock.catalog.build import build
from penstock.catalog.check import check
from penstock.catalog.update import update
from tests.catalog.captured import (
    DISORDER,
    PYTHON,
    Set,
    kill_amid,
    names,
    sets,
    stripped,
)
from tests.catalog.conftest import penstock


@pytest.fixture
def make_set() -> Iterator[Callable[[Path], Set]]:
    with sets() as make:
        yield make


@pytest.fixture
def plain(make_set: Callable[[Path], Set], fast: Path) -> Set:
    return make_set(fast / "set")


def test_what_a_run_writes_is_in_the_catalog_and_folders_it_made_are_complete(plain: Set) -> None:
    plain.shell(
        "mkdir -p out/step1; echo data > out/step1/rank0; ln -s rank0 out/step1/last; mv out/step1 out/one"
    )
    cat = Catalog.open(plain.catalog)
    assert cat.listdir("out") == ["one"]
    assert cat.listdir("out/one") == ["last", "rank0"]
    assert cat.stat("out/one/rank0").st_size == 5
    assert cat.readlink("out/one/last") == "rank0"
    assert cat.folder("out").complete and cat.folder("out/one").complete
    assert not cat.folder("").complete  # what else lies there nobody said
    assert cat.fresh("out") and cat.fresh("out/one")


def test_a_change_deep_in_a_tree_that_was_there_can_be_asked_for(plain: Set) -> None:
    (plain.tree / "a" / "b" / "c").mkdir(parents=True)
    (plain.tree / "a" / "b" / "c" / "old").write_text("was there")
    plain.shell("echo new > a/b/c/new")
    cat = Catalog.open(plain.catalog)
    assert list(names(cat)) == [b"", b"a", b"a/b", b"a/b/c", b"a/b/c/new", b"a/b/c/old"]
    assert not cat.folder("").complete and not cat.folder("a/b").complete
    for path in ("", "a", "a/b"):
        assert stripped(cat.stat(path)) == stripped(os.lstat(plain.tree / path)), path
    for words in (("find",), ("du", "-s"), ("top",), ("export", "--csv", plain.catalog.parent / "out")):
        said = penstock(words[0], plain.catalog, *words[1:], status=3).stderr
        assert "3 folders in the answer were not read whole" in said and "update --full" in said, words
    penstock("find", plain.catalog, "a/b/c", status=0)
    update(plain.catalog, full=True)
    assert penstock("du", plain.catalog, status=0).stderr == ""
    plain.is_as_fresh()


def test_a_catalog_that_was_built_stays_complete(plain: Set) -> None:
    (plain.tree / "old").mkdir()
    (plain.tree / "old" / "file").write_text("was there")
    plain.build()
    plain.shell("echo new > old/new; rm old/file; echo top > top")
    cat = Catalog.open(plain.catalog)
    assert cat.folder("old").complete and cat.fresh("old")
    assert cat.listdir("old") == ["new"]
    plain.is_as_fresh()


def test_k01_what_was_there_is_not_taken_for_new(plain: Set) -> None:
    """O_CREAT on a file that exists, and a file that is truncated and written again."""
    (plain.tree / "there").write_text("x" * 1000)
    plain.build()
    before = Catalog.open(plain.catalog).stat("there")
    plain.shell("echo -n abc >> there; : > other; echo -n 12345 > other")
    cat = Catalog.open(plain.catalog)
    assert (cat.stat("there").st_size, cat.stat("there").st_ino) == (1003, before.st_ino)
    assert cat.stat("other").st_size == 5


def test_descriptors_that_are_copied_inherited_or_left_open(plain: Set) -> None:
    plain.build()
    plain.shell("""
        exec 5> kept; echo one >&5
        (echo two >&5; sleep 0.05; echo three >&5) &
        /bin/echo four > by_program
        python3 -c 'if True:
            import subprocess
            subprocess.run(["sh", "-c", "echo 5; echo 6 >&2"], stdout=open("so", "w"), stderr=open("se", "w"))'
        python3 -c 'import os; f = os.open("unclosed", os.O_CREAT | os.O_WRONLY); os.write(f, b"seven"); os._exit(0)'
        python3 -c 'if True:
            import multiprocessing
            child = multiprocessing.Process(target=lambda: open("mp", "w").write("eight"))
            child.start()
            child.join()'
        wait
    """)
    plain.is_as_fresh()


def test_k05_k06_links_and_folders_that_move(plain: Set) -> None:
    (plain.tree / "deep" / "er").mkdir(parents=True)
    for i in range(20):
        (plain.tree / "deep" / "er" / f"f{i}").write_text("x" * i)
    os.link(plain.tree / "deep" / "er" / "f1", plain.tree / "second")
    plain.build()
    plain.shell("""
        mv deep moved; echo more >> moved/er/f3; mv moved/er up; chmod 600 second; rm moved/nothing || true
        python3 -c 'import os; f = open("gone", "w"); f.write("x"); os.unlink("gone"); f.write("y"); f.close()'
        mkdir swap; mv up swap/up; rm -r moved; mkdir moved; echo again > moved/er
    """)
    plain.is_as_fresh()


def test_a_folder_from_outside_is_read_whole(plain: Set, fast: Path) -> None:
    plain.build()
    (fast / "elsewhere" / "in").mkdir(parents=True)
    (fast / "elsewhere" / "in" / "file").write_text("unseen")
    plain.shell(f"mv {fast}/elsewhere here; mkdir out; mv out {fast}/away")
    assert Catalog.open(plain.catalog).stat("here/in/file").st_size == 6
    plain.is_as_fresh()


@pytest.mark.parametrize("seed", range(6))
def test_random_runs(plain: Set, seed: int) -> None:
    plain.run(PYTHON, DISORDER, plain.tree, seed + 100, 30, 1, 1)
    plain.wait()
    plain.build()
    processes, threads = ((1, 1), (3, 1), (1, 3), (2, 2))[seed % 4]
    assert plain.run(PYTHON, DISORDER, plain.tree, seed, 150, processes, threads) == 0
    plain.is_as_fresh()


@pytest.mark.parametrize("seed", range(6))
def test_random_runs_that_are_killed(plain: Set, seed: int) -> None:
    """kill -9 of all the run's processes but the agent and the helper, or of the agent too."""
    plain.build()
    kill_amid(plain, seed, with_agent=seed % 3 == 2)
    plain.is_as_fresh()


def test_k04_a_full_ring_makes_nobody_wait_and_its_folders_are_read(plain: Set) -> None:
    plain.build()
    text = "import os\nfor d in range(20):\n os.mkdir(f'd{d}')\n for i in range(100): open(f'd{d}/{i}', 'w').close()"
    assert plain.run(PYTHON, "-c", text, PENSTOCK_CATALOG_RING_SIZE="64KiB") == 0
    plain.is_as_fresh()


def test_two_runs_at_once_keep_one_catalog(plain: Set) -> None:
    plain.build()
    both = [
        plain.start("bash", "-c", f"mkdir r{i}; for f in 1 2 3; do echo {i} > r{i}/$f; done") for i in (1, 2)
    ]
    assert [p.wait(timeout=60) for p in both] == [0, 0]
    plain.is_as_fresh()


def test_the_catalog_of_another_folder_keeps_that_one_and_is_refused_for_this(plain: Set, fast: Path) -> None:
    other = fast / "other"
    other.mkdir()
    build(other, plain.catalog)
    plain.shell(f"echo x > file; echo long > {other}/file")
    assert Catalog.open(plain.catalog).stat("file").st_size == 5
    assert plain.run("touch", "more", PENSTOCK_CATALOG_ROOT=str(plain.tree)) == 2
    assert not (plain.tree / "more").exists()


def test_check_agrees(plain: Set) -> None:
    plain.build()
    plain.shell("mkdir d; for i in $(seq 50); do echo $i > d/$i; done; rm d/7; mv d/8 d/80; chmod 640 d/9")
    assert {d.path for d in check(plain.catalog).differences} <= {os.fsencode(plain.catalog.name)}


def test_on_a_testbed_only_touched_names_are_asked_about(
    make_set: Callable[[Path], Set], testbed: Any
) -> None:
    """By the server's own counters."""
    bed = make_set(testbed.path / "set")
    for i in range(300):
        (bed.tree / f"old{i}").write_text("")
    bed.build()
    with testbed.counted() as got:
        bed.shell("for i in 1 2 3; do echo data > new$i; done")
    bed.is_as_fresh()
    assert sum(got.values()) < 250, got


@pytest.mark.parametrize("seed", range(2))
def test_random_runs_on_a_testbed(make_set: Callable[[Path], Set], testbed: Any, seed: int) -> None:
    bed = make_set(testbed.path / "set")
    bed.build()
    assert bed.run(PYTHON, DISORDER, bed.tree, seed, 100, 2, 1) == 0
    bed.is_as_fresh()
    cat = Catalog.open(bed.catalog)
    for path in names(cat):
        if cat.stat(path).st_mode & 0o170000 == 0o100000:
            assert cat.layout_bytes(path) == os.getxattr(os.fsencode(bed.tree) + b"/" + path, "lustre.lov")
