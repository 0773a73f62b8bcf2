# SPDX-License-Identifier: Apache-2.0
"""Whose names a catalog shows, and trees of others: what may not be read, links that lead elsewhere, many owners."""

import os
from pathlib import Path

import pytest

from penstock import Catalog
from penstock.catalog.build import build
from penstock.catalog.check import Difference, check
from penstock.catalog.reader import DOUBT
from penstock.catalog.scanning import Limits, Scan
from penstock.catalog.store import Options
from penstock.catalog.update import update
from tests.catalog.conftest import as_nobody, facts, same, walked


@pytest.fixture
def out(fast: Path) -> Path:
    """A place where anybody writes."""
    folder = fast / "out"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def test_check_keeps_what_it_may_not_ask_for(tree: Path, out: Path) -> None:
    """Names can be listed and nothing more: those that are known stay as they are known, new ones are in doubt."""
    catalog = out / "set.cat"
    as_nobody(lambda: build(tree, catalog))
    (tree / "ab/file1").unlink()
    (tree / "ab/newer").touch()
    (tree / "ab/file2").unlink()
    (tree / "ab/other").touch()
    (tree / "ab/other").rename(tree / "ab/file2")
    (tree / "ab").chmod(0o444)
    as_nobody(lambda: check(catalog))
    cat = Catalog.open(catalog)
    assert cat.listdir("ab") == sorted(os.listdir(tree / "ab"))  # noqa: PTH208 - names
    assert all(same(cat.stat(f"ab/file{i}"), os.fsencode(tree / f"ab/file{i}")) for i in range(3, 40))
    assert (cat.stat("ab/newer").flags & DOUBT, cat.stat("ab/newer").error) == (DOUBT, 13)
    assert cat.stat("ab/newer").st_ino == (tree / "ab/newer").stat().st_ino
    assert cat.stat("ab/file2").flags & DOUBT, "another file has the name now"
    assert cat.folder("ab").complete
    as_nobody(lambda: check(catalog))
    assert len(Catalog.open(catalog).manifest.parts) == len(cat.manifest.parts), "nothing was new"
    (tree / "ab").chmod(0o755)
    found = {it for it in check(catalog).differences if it.path.startswith(b"ab/")}
    assert found == {Difference(b"ab/newer", "is new"), Difference(b"ab/file2", "is new")}
    assert not check(catalog).differences
    assert same(Catalog.open(catalog).stat("ab/newer"), os.fsencode(tree / "ab/newer"))


def test_check_does_not_call_complete_where_names_are_left_out(tree: Path, fast: Path) -> None:
    """The catalog came into a folder that was listed wholly."""
    build(tree, fast / "set.cat")
    (fast / "set.cat").rename(tree / "a/own.cat")
    assert Difference(b"a", "has names that are left out") in check(tree / "a/own.cat").differences
    cat = Catalog.open(tree / "a/own.cat")
    assert not cat.exists("a/own.cat")
    assert not cat.folder("a").complete
    assert cat.exists("a/file7")
    assert not check(tree / "a/own.cat").differences


def test_a_catalog_of_roots_is_for_root(tree: Path, out: Path) -> None:
    """It has names in folders that others may not list; one of anybody else's has what that one sees."""
    as_nobody(lambda: build(tree, out / "nobodys.cat"))
    build(tree, out / "roots.cat")
    assert (out / "roots.cat").stat().st_mode & 0o777 == 0o700
    assert (out / "nobodys.cat").stat().st_mode & 0o777 == 0o777 & ~_umask()
    (out / "roots.cat").chmod(0o755)
    update(out / "roots.cat")
    build(tree, out / "roots.cat")
    assert (out / "roots.cat").stat().st_mode & 0o777 == 0o755
    as_nobody(lambda: Catalog.open(out / "roots.cat").stat("a/file7"))


def _umask() -> int:
    mask = os.umask(0o22)
    os.umask(mask)
    return mask


def test_links_in_the_middle_of_a_path_are_not_followed(tree: Path, fast: Path) -> None:
    """A folder was replaced by a link to a place outside where the same names are: nothing of that is looked at."""
    catalog, outside = fast / "set.cat", fast / "outside"
    (outside / "b" / "c").mkdir(parents=True)
    (outside / "b" / "secret").touch()
    (outside / "b" / "c" / "secret").touch()
    build(tree, catalog)
    (tree / "a").rename(tree / "moved")
    (tree / "a").symlink_to(outside)
    update(catalog)
    cat = Catalog.open(catalog)
    names = [path for path in walked(tree) if not path.startswith(b"a/")]
    assert all(cat.exists(path) for path in names)
    assert cat.readlink("a") == str(outside)
    for path in ("a/b", "a/b/secret", "a/b/c", "a/b/c/secret", "a/b/c/file1"):
        assert not cat.exists(path), path
    assert cat.manifest.parts[0].entries < 400
    scan = Scan(os.fsencode(tree), catalog, Options(), Limits(threads=1))
    scan.push([b"a/b"])
    outcome = scan.run(lambda progress: None)
    assert (outcome.entries, outcome.moved) == (0, [b"a/b"])


def test_more_owners_than_a_table_holds(fast: Path) -> None:
    """Threads that meet different owners: together more than a segment's table has room for."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to others")
    tree, per_folder = fast / "tree", 700
    for i in range(100):
        (tree / f"d{i}").mkdir(parents=True)
        fd = os.open(tree / f"d{i}", os.O_RDONLY)
        for k in range(per_folder):
            name = f"f{k}"
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
            os.chown(name, 1000 + i * per_folder + k, 100, dir_fd=fd)
        os.close(fd)
    built = build(tree, fast / "set.cat", limits=Limits(threads=4))
    assert built.outcome.entries == 100 * (per_folder + 1)
    cat = Catalog.open(fast / "set.cat")
    for i in range(0, 100, 9):
        for k in (0, 99, per_folder - 1):
            path = f"d{i}/f{k}"
            assert facts(cat.stat(path)) == facts(os.lstat(tree / path)), path
    assert cat.stat(f"d99/f{per_folder - 1}").st_uid == 1000 + 100 * per_folder - 1
