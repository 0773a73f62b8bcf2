# SPDX-License-Identifier: Apache-2.0
"""penstock catalog build, ls, find, du, top, sql, export as typed, beside the programs they are named after."""

import json
import os
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from penstock import Catalog, _native
from penstock.base.errors import PenstockError
from penstock.catalog import store
from penstock.catalog.build import build
from penstock.catalog.reader import COMPLETE, is_expired
from tests.catalog.conftest import PENSTOCK, penstock, plant, same, walked


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: nothing here changes it for long."""
    return plant(tmp_path_factory.mktemp("standing") / "tree")


@pytest.fixture(scope="module")
def catalog(tree: Path) -> Path:
    penstock("build", tree, "-o", tree.with_name("set.cat"))
    return tree.with_name("set.cat")


def ran(*words: object) -> list[str]:
    env = os.environ | {"LC_ALL": "C.UTF-8"}
    done = subprocess.run([str(word) for word in words], check=True, capture_output=True, env=env, timeout=60)
    return sorted(done.stdout.decode(errors="surrogateescape").split("\n"))


def test_catalog_in_python(tree: Path, catalog: Path) -> None:
    cat = Catalog.open(catalog)
    assert all(same(cat.stat(path), os.fsencode(tree) + b"/" + path) for path in walked(tree))
    assert cat.listdir("a/b") == sorted(os.listdir(tree / "a/b"))  # noqa: PTH208 - names
    assert cat.readlink("link") == "a/b/c/file1"
    assert cat.layout("a/file1") is None
    assert cat.folder("a").complete
    assert cat.fresh("a")
    assert [here for here, _, _ in cat.walk()] == ["", ".dot", "a", "a/b", "a/b/c", "a b", "ab", "empty"]
    with pytest.raises(FileNotFoundError):
        cat.listdir("absent")
    with pytest.raises(NotADirectoryError):
        cat.listdir("a/file1")
    with pytest.raises(PenstockError, match="outside of the catalog's tree"):
        cat.stat("/elsewhere")


EXPRESSIONS = [
    [],
    ["-type", "f"],
    ["-type", "f,l", "-name", "file1*"],
    ["-iname", "FILE2?"],
    ["-size", "+2k"],
    ["-size", "-3"],
    ["-size", "1000c", "-o", "-type", "p"],
    ["!", "-name", "file*"],
    ["-path", "*/b/*", "-a", "-not", "-path", "*/c/*"],
    ["(", "-name", "file3", "-o", "-name", "file4", ")", "-links", "+1"],
    ["-name", "b", "-prune", "-o", "-type", "f", "-print"],
    ["-maxdepth", "1"],
    ["-mindepth", "2", "-maxdepth", "2", "-name", "file39"],
    ["-empty"],
    ["-mtime", "-1", "-type", "f"],
    ["-mtime", "+1"],
    ["-mmin", "-600", "-size", "0"],
    ["-perm", "644"],
    ["-perm", "-u+rx"],
    ["-perm", "/o+w"],
    ["-user", "root", "-type", "d"],
    ["-lname", "*file1"],
    ["-printf", "%p|%s|%m|%M|%i|%n|%d|%y|%f|%h|%P|%U|%G|%k|%b|%l\\n"],
    ["-printf", "%T@ %C@ %5s %-10f|%TY-%Tm\\n"],
    ["-name", "file5", "-print0", "-printf", "\\n"],
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=" ".join)
def test_find_says_what_find_says(tree: Path, catalog: Path, expression: list[str]) -> None:
    said = penstock("find", catalog, tree, *expression).stdout.split("\n")
    assert sorted(said) == ran("find", tree, *expression)


# (where, words): names of starts, and ends that come early; the order of names does not show in these
STARTS = [
    ("a", [".", "-name", "."]),
    ("a", [".", "-maxdepth", "0", "-name", "a"]),
    ("a", ["./b/", "-name", "b"]),
    ("a", ["b//", "-maxdepth", "0", "-name", "b*"]),
    ("a", ["../a", "-name", "a"]),
    ("a", ["..", "-maxdepth", "0", "-name", ".."]),
    (".", ["a/b", "-name", "b"]),
    (".", ["a", "ab", "-maxdepth", "0", "-print", "-quit"]),
    (".", ["a", "ab", "-maxdepth", "0", "-quit"]),
    (".", ["a", "-maxdepth", "0", "-quit", "-print"]),
    (".", ["a", "-maxdepth", "0", "!", "-quit", "-o", "-print"]),
    (".", ["a", "-maxdepth", "0", "-quit", ",", "-print"]),
    (".", ["a", "ab", "-maxdepth", "0", "-name", "ab", "-quit", "-o", "-print"]),
]


@pytest.mark.parametrize(("where", "words"), STARTS, ids=str)
def test_find_begins_and_ends_where_find_does(
    tree: Path, catalog: Path, where: str, words: list[str]
) -> None:
    done = subprocess.run(
        ["find", *words], cwd=tree / where, check=True, capture_output=True, text=True, timeout=60
    )
    assert penstock("find", catalog, *words, cwd=tree / where).stdout == done.stdout


def test_find_of_relative_paths_and_several(tree: Path, catalog: Path) -> None:
    said = penstock("find", catalog, "a", "./ab", "-name", "file7", cwd=tree).stdout.split()
    assert said == ["a/b/c/file7", "a/b/file7", "a/file7", "./ab/file7"]
    reference = tree.with_name("reference")
    reference.touch()
    os.utime(reference, (0, time.time() - 3600))
    assert len(penstock("find", catalog, "-newer", reference).stdout.split("\n")) == len(walked(tree)) + 2
    assert penstock("find", catalog, "-newermt", "2990-01-01").stdout == ""
    rows = [
        json.loads(line) for line in penstock("find", "--json", catalog, "-name", "new*").stdout.splitlines()
    ]
    assert [(row["path"], row["type"]) for row in rows] == [(f"{tree}/a/new\\x0aline", "f")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-delete"], "only looks"),
        (["-exec", "rm", "{}", ";"], "only looks"),
        (["-nosuch", "x"], "no such test"),
        (["(", "-name", "x"], "without its )"),
        (["-name"], "needs a value"),
        (["-size", "big"], "write a number"),
        (["-type", "q"], "types are"),
        (["-name", "x", ")"], "not expected"),
        (["-user", "nobody-of-that-name"], "nobody has that name"),
    ],
)
def test_find_refuses(catalog: Path, words: list[str], said: str) -> None:
    assert said in penstock("find", catalog, *words, status=2).stderr


@pytest.mark.parametrize(
    "options",
    [["-l"], ["-s"], ["-al"], ["-l", "-d", "1"], ["-bl"], ["-s", "--apparent-size"], ["-c", "-s"]],
    ids=" ".join,
)
def test_du_says_what_du_says(tree: Path, catalog: Path, options: list[str]) -> None:
    said = penstock("du", catalog, *options, tree).stdout
    assert sorted(said.replace("\\x0a", "\n").replace("\\xff\\xfe", "\udcff\udcfe").split("\n")) == ran(
        "du", *options, tree
    )


@pytest.mark.parametrize(
    "words",
    [["a", "a"], ["a/b", "a"], ["a", "a/b"], ["-l", "a", "a/b"], ["a/file3", "hard"], ["-s", ".", "a"]],
    ids=" ".join,
)
def test_du_of_several_counts_once_what_du_counts_once(tree: Path, catalog: Path, words: list[str]) -> None:
    real = subprocess.run(
        ["du", "-c", *words], cwd=tree, check=True, capture_output=True, text=True, timeout=60
    )
    said = penstock("du", catalog, "-c", *words, cwd=tree).stdout
    assert sorted(said.split("\n")) == sorted(real.stdout.split("\n"))


def test_du_tells_neighbours_apart(fast: Path) -> None:
    """Files with several names whose inode numbers follow one another, where there are no times of birth."""
    tree, catalog = fast / "linked", fast / "linked.cat"
    tree.mkdir()
    for i in range(20):
        (tree / f"f{i}").write_bytes(b"x" * 5000)
        (tree / f"g{i}").hardlink_to(tree / f"f{i}")
    numbers = {(tree / f"f{i}").stat().st_ino for i in range(20)}
    assert any(number + 1 in numbers for number in numbers if number % 2 == 0), numbers
    build(tree, catalog)
    batch = _native.batch_new()
    for path in sorted(tree.iterdir()):
        fields = _native.entry_at(path).fields
        unborn = (*fields[:11], 0, *fields[12:])
        _native.batch_add(batch, os.fsencode(path.name), unborn, None, None, None)
    _native.batch_close(batch, b"", COMPLETE, time.time_ns())
    part = store.put(catalog, [batch])
    store.commit(catalog, lambda held: on_top(held, part))
    assert penstock("du", catalog, "-s", tree).stdout.split("\n")[0] in ran("du", "-s", tree)


def on_top(held: store.Manifest | None, part: store.Part) -> store.Manifest:
    assert held
    return msgspec.structs.replace(held, parts=(part, *held.parts))


def test_ls(tree: Path, catalog: Path) -> None:
    assert penstock("ls", catalog).stdout.split("\n")[:-1] == [
        name for name in sorted(os.listdir(tree)) if not name.startswith(".")  # noqa: PTH208
    ]  # fmt: skip
    assert penstock("ls", catalog, "-a").stdout.split()[0] == ".dot"
    long = penstock("ls", catalog, "-l", "a/file7").stdout.split()
    real = ran("ls", "-l", tree / "a/file7")[1].split()
    assert (long[:5], long[5:8]) == (real[:5], real[5:8])
    assert "link -> a/b/c/file1" in penstock("ls", catalog, "-l").stdout
    assert "No such file" in penstock("ls", catalog, "absent", status=1).stderr
    assert penstock("ls", catalog, "-R", "a").stdout.count(":\n") == 3
    assert json.loads(penstock("ls", catalog, "--json", "a/file7").stdout)["size_bytes"] == 700


def test_top(tree: Path, catalog: Path) -> None:
    assert penstock("top", catalog, "--by", "folder", "-n", "1").stdout.splitlines()[1].split()[-1] == str(
        tree
    )
    rows = json.loads(penstock("top", catalog, "--by", "user", "--json").stdout)["rows"]
    assert rows[0]["files"] == len(walked(tree)) - 8 - 1  # folders, and the second name of a file
    for by in ("file", "group", "type", "ending", "age", "target"):
        assert len(penstock("top", catalog, "--by", by).stdout.splitlines()) > 1


def test_sql_and_exports(tree: Path, catalog: Path, tmp_path: Path) -> None:
    said = json.loads(
        penstock(
            "sql", catalog, "select type, count(*) as n from files group by type order by n desc", "--json"
        ).stdout
    )
    assert {row["type"]: row["n"] for row in said["rows"]} == {"f": 283, "d": 8, "l": 1, "p": 1}
    assert "bytes" not in penstock("sql", catalog, "select path from files where path like '%xff%'").stdout
    assert "no such" not in penstock("sql", catalog, "select 1 from files where size > 1e9").stderr
    assert "sql: " in penstock("sql", catalog, "selec", status=1).stderr
    penstock("export", catalog, "--csv", tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert len(lines) == 294
    assert lines[0].startswith("path,type,mode,uid")
    assert (
        "1 names hold a newline" in penstock("export", catalog, "--gufi", tmp_path / "trace", status=3).stderr
    )
    trace = (tmp_path / "trace").read_bytes().split(b"\n")
    assert trace[0].split(b"\x1e")[:2] == [b"tree", b"d"]
    assert {len(line.split(b"\x1e")) for line in trace if line} == {24}


def test_k07_archive_and_back(tree: Path, catalog: Path, tmp_path: Path) -> None:
    """Names of any bytes come through Parquet; the restored catalog says the same."""
    penstock("export", catalog, "--parquet", tmp_path / "set.parquet")
    penstock("restore", tmp_path / "set.parquet", "-o", tmp_path / "again.cat")
    one, two = Catalog.open(catalog), Catalog.open(tmp_path / "again.cat")
    for path in walked(tree):
        a, b = one.stat(path), two.stat(path)
        assert a.fields[:11] == b.fields[:11], path
        assert one.view.part(path, 1) == two.view.part(path, 1)
    assert two.folder("a").complete
    (tmp_path / "set.parquet").write_bytes((tmp_path / "set.parquet").read_bytes()[:-100])
    done = penstock("restore", tmp_path / "set.parquet", "-o", tmp_path / "third.cat", status=1)
    assert "no whole Parquet file" in done.stderr


def test_k09_times_and_sizes_beyond_64_bits_of_nanoseconds(fast: Path) -> None:
    """They come through index, archive and SQL unrounded; only SQL's own type of time leaves them out."""
    tree, catalog = fast / "old", fast / "old.cat"
    tree.mkdir()
    for name, seconds in (("past", -(10**11)), ("future", 10**11), ("before", -1)):
        (tree / name).touch()
        os.utime(tree / name, ns=(seconds * 10**9 + 7, seconds * 10**9 + 7))
    with (tree / "large").open("wb") as out:
        out.truncate(2**62)
    assert (tree / "future").stat().st_mtime_ns > 2**63, "this file system has no such times"
    penstock("build", tree, "-o", catalog, "-q")
    penstock("export", catalog, "--parquet", fast / "old.parquet")
    penstock("restore", fast / "old.parquet", "-o", fast / "again.cat")
    for file in (catalog, fast / "again.cat"):
        cat = Catalog.open(file)
        for path in walked(tree):
            assert same(cat.stat(path), os.fsencode(tree) + b"/" + path), path
    query = (
        "select path, mtime_s, mtime_ns, mtime is null as beyond from files where type = 'f' order by path"
    )
    rows = json.loads(penstock("sql", catalog, query, "--json").stdout)["rows"]
    assert [(row["path"], row["mtime_s"], row["beyond"]) for row in rows if row["path"] != "large"] == [
        ("before", -1, False),
        ("future", 10**11, True),
        ("past", -(10**11), True),
    ]
    penstock("export", catalog, "--csv", fast / "old.csv")
    assert f",{2**62}," in (fast / "old.csv").read_text()
    penstock("ls", catalog, "-l")
    penstock("du", catalog, "-b", "-s")


def test_k17_sql_spills_to_a_place_of_its_own(catalog: Path, tmp_path: Path) -> None:
    """Two at once in one folder: neither's is the other's, and nothing is left."""
    query = "select current_setting('temp_directory') as place from range(1)"
    words = [str(PENSTOCK), "catalog", "sql", str(catalog), query, "--json"]
    (tmp_path / "here").mkdir()
    running = [
        subprocess.Popen(words, cwd=tmp_path / "here", stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [json.loads(it.communicate(timeout=60)[0])["rows"][0]["place"] for it in running]
    assert [it.returncode for it in running] == [0, 0]
    assert len(set(said)) == 2
    for place in map(Path, said):
        assert place.is_absolute()
        assert not place.exists()
    assert not list((tmp_path / "here").iterdir())


def test_a_catalog_older_than_it_may_be_is_not_fresh(fast: Path) -> None:
    tree, catalog = plant(fast / "aged"), fast / "aged.cat"
    penstock("build", tree, "-o", catalog, "-q")
    any_age = Catalog.open(catalog)
    assert any_age.fresh("a")
    assert not any_age.folder("a").expired
    learnt = any_age.folder("a").learnt_ns
    assert Catalog.open(catalog, max_age_s=3600).fresh("a")
    old = Catalog.open(catalog, max_age_s=1e-9)
    assert old.folder("a").expired
    assert all(row.folder.expired for row in old.scandir("") if row.folder)
    assert not old.fresh("a")
    assert old.stat("a/file7").st_size == 700  # it answers all the same
    assert not is_expired(learnt, 10, learnt + 10**10)
    assert is_expired(learnt, 10, learnt + 10**10 + 1)
    (tree / "a/late").touch()
    assert not any_age.fresh("a")


def test_build_refuses_what_is_no_place_for_a_catalog(tree: Path, catalog: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "data").write_text("precious")
    for output, said in (
        ("full", "holds 'data'"),
        ("full/data", "is a file"),
        ("no/where", "does not exist"),
    ):
        assert said in penstock("build", tree, "-o", tmp_path / output, status=1).stderr
    assert (tmp_path / "full" / "data").read_text() == "precious"
    (tmp_path / "other").mkdir()
    assert "is the catalog of" in penstock("build", tmp_path / "other", "-o", catalog, status=1).stderr
    assert "No such file" in penstock("build", tmp_path / "absent", "-o", tmp_path / "x.cat", status=1).stderr
    assert "no such catalog" in penstock("ls", tmp_path / "absent.cat", status=1).stderr
    assert "no catalog" in penstock("ls", tree, status=1).stderr


def test_max_age_is_told_and_answers_stay(tree: Path, fast: Path) -> None:
    catalog = fast / "set.cat"
    penstock("build", tree, "-o", catalog, "-q")
    old = {**os.environ, "PENSTOCK_CATALOG_MAX_AGE": "1ns"}
    young = {**os.environ, "PENSTOCK_CATALOG_MAX_AGE": "300d"}
    folders = sum(path.is_dir() for path in tree.rglob("*")) + 1
    for words in (("ls", catalog), ("find", catalog), ("du", catalog, "-s")):
        plain, told, quiet = penstock(*words), penstock(*words, env=old), penstock(*words, env=young)
        assert told.stdout == plain.stdout == quiet.stdout
        assert quiet.stderr == plain.stderr == ""
        (line,) = told.stderr.splitlines()
        assert f"{folders} of its folders were learnt more than" in line
        assert "penstock catalog update" in line
