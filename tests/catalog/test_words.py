# SPDX-License-Identifier: Apache-2.0
"""Words as users type them: paths through links, odd names, empty SQL, counts, damaged catalogs, full disks."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from penstock import Catalog
from penstock.catalog.check import ANOTHER, GONE, Difference, without_gone_below
from penstock.catalog.reader import OutsideError
from penstock.cli._catalog.building import valued
from penstock.cli._catalog.shown import human
from tests.catalog.conftest import PENSTOCK, penstock, plant, walked


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plant(tmp_path_factory.mktemp("words") / "tree")


@pytest.fixture(scope="module")
def catalog(tree: Path) -> Path:
    penstock("build", tree, "-o", tree.with_name("set.cat"), "-q")
    return tree.with_name("set.cat")


def raw(*words: object, **options: object) -> bytes:
    done = subprocess.run(
        [str(word) for word in words], check=True, capture_output=True, timeout=60,
        env=os.environ | {"LC_ALL": "C.UTF-8"}, **options,  # type: ignore[call-overload]
    )  # fmt: skip
    return bytes(done.stdout)


def ours(*words: object, **options: object) -> bytes:
    return raw(PENSTOCK, "catalog", *words, **options)


@pytest.mark.parametrize("text", ["", " ", ";", "-- x"])
def test_sql_without_a_statement(catalog: Path, text: str) -> None:
    assert "no statement" in penstock("sql", catalog, "--", text, status=2).stderr


def test_restore_leaves_the_catalog_of_another_tree(catalog: Path, fast: Path) -> None:
    (fast / "other").mkdir()
    (fast / "other/precious").touch()
    penstock("build", fast / "other", "-o", fast / "other.cat", "-q")
    penstock("export", catalog, "--parquet", fast / "set.parquet")
    held = sorted(it.name for it in (fast / "other.cat").iterdir())
    done = penstock("restore", fast / "set.parquet", "-o", fast / "other.cat", status=1)
    assert "is the catalog of" in done.stderr
    assert Catalog.open(fast / "other.cat").listdir() == ["precious"]
    assert sorted(it.name for it in (fast / "other.cat").iterdir()) == held


def test_check_counts_entries_and_says_once_what_is_gone(fast: Path) -> None:
    tree, catalog = plant(fast / "counted"), fast / "counted.cat"
    penstock("build", tree, "-o", catalog, "-q")
    names = len(walked(tree)) - 1
    with (tree / "a/file7").open("a") as out:
        out.write("x")
    assert f" 1 of {names} entries" in penstock("check", catalog, "-n", status=1).stdout
    penstock("check", catalog)
    shutil.move(tree / "a", tree / "z")
    said = penstock("check", catalog, "-n", status=1).stdout.splitlines()
    assert [line for line in said if line.startswith("a/")] == []
    assert "a: is gone" in said
    assert "z: is new" in said


def test_what_is_gone_with_its_folder() -> None:
    a, below = Difference(b"a", GONE), Difference(b"a/b", GONE)
    assert without_gone_below([a, below, a, Difference(b"ab", GONE)]) == [a, Difference(b"ab", GONE)]
    new, file = Difference(b"a", ANOTHER), Difference(b"a/b", "size differs")
    assert without_gone_below([new, a, below, file]) == [new, file]
    assert without_gone_below([below]) == [below]
    assert without_gone_below([Difference(b"", GONE), a]) == [Difference(b"", GONE)]


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["du", "-a", "-l", "a"], True),
        (["du", "-0", "-l"], True),
        (["du", "--apparent-size", "-h", "-a", "-l", "a"], True),
        (["du", "--apparent-size", "--si", "-a", "-l", "a"], True),
        (["ls", "-R", "a"], False),
    ],
    ids=str,
)
def test_names_go_into_pipes_as_they_are(tree: Path, catalog: Path, words: list[str], same: bool) -> None:
    real = raw(words[0], *words[1:], cwd=tree)
    said = ours(words[0], catalog, *words[1:], *(["."] if words[-1].startswith("-") else []), cwd=tree)
    assert sorted(said.replace(b"\0", b"\n").split(b"\n")) == sorted(real.replace(b"\0", b"\n").split(b"\n"))
    assert same == (b"\t" in said)


def test_sizes_for_people_are_those_of_du(fast: Path) -> None:
    sizes = [
        0,
        1,
        999,
        1000,
        1023,
        1024,
        1025,
        10188,
        10189,
        10240,
        10241,
        1047552,
        1047553,
        2**20,
        324 * 10**6,
    ]
    for i, size in enumerate(sizes):
        with (fast / f"{i:03}").open("wb") as out:
            out.truncate(size)
    files = [fast / f"{i:03}" for i in range(len(sizes))]
    for option, base in (("-h", 1024), ("--si", 1000)):
        real = raw("du", "--apparent-size", option, *files).decode().splitlines()
        assert [human(size, base) for size in sizes] == [line.split("\t")[0] for line in real]


def test_paths_through_links(tree: Path, catalog: Path, fast: Path) -> None:
    (fast / "lnk").symlink_to(tree)
    inner = fast / "lnk/a b"
    for words in (["find"], ["du", "-l"], ["ls"]):
        assert len(ours(words[0], catalog, *words[1:], inner).splitlines()) > (0 if words[0] == "du" else 39)
    assert ours("find", catalog, inner) == ours("find", catalog, tree / "a b").replace(
        bytes(tree), bytes(fast / "lnk")
    )
    assert ours("find", catalog, "lnk/a b", cwd=fast).startswith(b"lnk/a b\nlnk/a b/file0\n")
    cat = Catalog.open(catalog)
    assert cat.stat(inner / "file7").st_size == 700
    assert cat.readlink(fast / "lnk/link") == "a/b/c/file1"
    assert "file7" in cat.listdir(fast / "lnk/a")
    with pytest.raises(FileNotFoundError):
        cat.folder("nosuch")
    with pytest.raises(NotADirectoryError):
        cat.folder("a/file1")
    with pytest.raises(OSError, match="outside of the catalog's tree, which is /") as caught:
        cat.stat(fast / "nosuch")
    assert isinstance(caught.value, OutsideError)
    done = penstock("find", catalog, fast, status=2)
    assert "b'" not in done.stderr
    assert f"which is {tree}" in done.stderr


def test_damage_is_named_and_the_rest_goes_on(fast: Path) -> None:
    tree, catalog = plant(fast / "harmed"), fast / "harmed.cat"
    for i in range(300):
        (tree / f"more{i}").mkdir()
        for j in range(20):
            (tree / f"more{i}" / f"a name of some length {j}").touch()
    penstock("build", tree, "-o", catalog, "-q")
    (segment,) = catalog.glob("*.seg")
    whole = bytearray(segment.read_bytes())
    middle = len(whole) // 3
    whole[middle : middle + 4096] = bytes(4096)
    segment.write_bytes(whole)
    assert "damaged in the catalog" in penstock("find", catalog, tree, status=3).stderr
    done = penstock("ls", catalog, "-R", tree, status=3)
    assert "damaged in the catalog" in done.stderr
    assert "Bad message" not in done.stderr
    assert "more99:" in done.stdout
    errors: list[OSError] = []
    seen = [here for here, _, _ in Catalog.open(catalog).walk(onerror=errors.append)]
    assert len(seen) > 100
    assert errors
    with pytest.raises(OSError, match="check mends it"):
        list(Catalog.open(catalog).walk())
    segment.write_bytes(whole[: len(whole) // 2])
    for words in (("find",), ("ls",), ("du", "-s"), ("top",)):
        done = penstock(words[0], catalog, *words[1:], status=3)
        assert "damaged and left out" in done.stderr
        assert "No data available" not in done.stderr


def test_an_answer_that_cannot_be_written_is_nobody_elses_fault(tree: Path, catalog: Path) -> None:
    for words in (["find"], ["find", catalog, "-printf", "%p\\n"], ["ls", "-R"], ["du", "-a"]):
        file = [] if catalog in words else [catalog]
        whole = [str(word) for word in (PENSTOCK, "catalog", words[0], *file, *words[1:])]
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                whole, check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
            )
        assert done.returncode == 1
        assert "the answer cannot be written: No space left on device" in done.stderr
        assert str(tree) not in done.stderr
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(whole, check=False, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
        os.close(write)
        assert (done.returncode, done.stderr) == (141, "")


MORE_TESTS = [
    ["-regex", ".*/file[12]"],
    ["-regex", ".*/file\\(1\\|2\\)"],
    ["-regex", "file1"],
    ["-iregex", ".*/FILE1.*"],
    ["-regextype", "posix-extended", "-regex", ".*/(file3|b)"],
    ["!", "-regex", ".*[0-9]"],
    ["-newermt", "@1000000000"],
    ["-newercm", "pipe"],
    ["-type", "f", "-anewer", "pipe"],
    ["-newermm", "pipe"],
    ["-samefile", "hard"],
    ["-daystart", "-mtime", "0"],
    ["-daystart", "-mtime", "-1"],
    ["-daystart", "-mtime", "+0"],
    ["-daystart", "-mmin", "+60", "-type", "f"],
    ["-mount", "-type", "d"],
    ["-name", "b", "-xdev"],
]


@pytest.mark.parametrize("words", MORE_TESTS, ids=" ".join)
def test_more_of_find(tree: Path, catalog: Path, words: list[str]) -> None:
    now = os.stat(tree).st_mtime  # noqa: PTH116
    for i in range(4):  # from three days ago until soon after yesterday's end
        os.utime(tree / f"ab/file{i}", (now, now - i * 86400))
    penstock("update", catalog, "--full", "-q")
    said = ours("find", catalog, ".", *words, cwd=tree)
    assert sorted(said.split(b"\n")) == sorted(raw("find", ".", *words, cwd=tree).split(b"\n"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-foo"], "-foo: no such test"),
        (["-newermB", "x"], "no such test"),
        (["-regex", "\\("], "-regex"),
        (["-regextype", "x"], "types are"),
        (["-samefile", "/nosuch"], "a file to compare with"),
    ],
)
def test_find_says_what_is_wrong(tree: Path, catalog: Path, words: list[str], said: str) -> None:
    assert said in penstock("find", catalog, *words, status=2).stderr
    assert '"path"' in penstock("find", catalog, tree, "-maxdepth", "0", "--json").stdout


def test_other_mounts_are_left_out(fast: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    tree = fast / "mounts"
    (tree / "here/other").mkdir(parents=True)
    whole = f"""set -e
        cd {tree}
        mount -t tmpfs none here/other; mkdir here/other/deep; touch here/other/deep/x here/y
        {PENSTOCK} catalog build {tree} -o {fast}/m.cat -q >{fast}/built
        find . -xdev | sort; find here/other -xdev | sort; echo; export LC_ALL=C
        {PENSTOCK} catalog find {fast}/m.cat . -xdev | sort
        {PENSTOCK} catalog find {fast}/m.cat here/other -xdev | sort
        du -ax . | sort >{fast}/du; {PENSTOCK} catalog du {fast}/m.cat -ax . | sort | diff {fast}/du -"""
    real, said = raw("unshare", "-m", "bash", "-c", whole).decode().split("\n\n")
    assert said.split() == real.split()
    assert "./here/other" in said.split()
    assert "./here/other/deep" not in said.split()


@pytest.mark.parametrize(
    "words",
    [
        ["-1"],
        ["-A"],
        ["-t", "a"],
        ["-S", "a"],
        ["-S", "-r", "a"],
        ["-r"],
        ["-F"],
        ["-i", "-1", "a/b"],
        ["-s", "ab"],
    ],
    ids=" ".join,
)
def test_ls_says_what_ls_says(tree: Path, catalog: Path, words: list[str]) -> None:
    real = raw("ls", "-1", *words, cwd=tree).split(b"\n")
    said = ours("ls", catalog, *words, cwd=tree).split(b"\n")
    keys = [[b" ".join(line.split()) for line in lines] for lines in (said, real)]
    if "-S" in words:  # many of one size are not there, but folders' sizes are
        assert keys[0] == keys[1]
    else:
        assert sorted(keys[0]) == sorted(keys[1])


def test_ls_with_numbers_and_unknown_options(tree: Path, catalog: Path) -> None:
    real = raw("ls", "-n", "a/file7", cwd=tree).split()
    assert ours("ls", catalog, "-n", "a/file7", cwd=tree).split() == real
    for verb in ("ls", "du"):
        stderr = penstock(verb, catalog, "-q", "a", status=2).stderr
        assert f"usage: penstock catalog {verb}" in stderr
        assert "no such option: -q" in stderr


@pytest.mark.parametrize(
    "words", [["-m"], ["-B", "4096"], ["-t", "8K"], ["-a", "--threshold=-4K"]], ids=" ".join
)
def test_du_in_other_units(tree: Path, catalog: Path, words: list[str]) -> None:
    said = ours("du", catalog, "-l", *words, ".", cwd=tree)
    assert sorted(said.split(b"\n")) == sorted(raw("du", "-l", *words, ".", cwd=tree).split(b"\n"))


def test_words_of_build_and_export(fast: Path) -> None:
    assert valued(["--checksums", "q", "-o", "x"]) == ["--checksums=xxh3", "q", "-o", "x"]
    assert valued(["q", "--checksums", "blake3"]) == ["q", "--checksums", "blake3"]
    assert valued(["q", "--checksums"]) == ["q", "--checksums=xxh3"]
    tree = plant(fast / "q")
    said = penstock("build", "-q", "-o", fast / "q.cat", "--checksums", tree).stdout
    files = sum(path.is_file() and not path.is_symlink() for path in tree.rglob("*"))
    assert f", {files} checksums in " in said or f", {files - 1} checksums in " in said
    assert ", 0 checksums in " in penstock("update", "--checksums", fast / "q.cat", "-q").stdout
    assert "between 1 and 1024" in penstock("build", tree, "-o", fast / "q.cat", "-j", "0", status=2).stderr
    assert "name a file" in penstock("export", fast / "q.cat", "--parquet", "-", status=2).stderr
    assert "percent" in penstock("check", "--help").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["-depth"],
        ["-depth", "-type", "d", "-maxdepth", "2"],
        ["-depth", "-mindepth", "1", "-name", "b", "-prune", "-o", "-print"],
        ["-depth", "-empty"],
        ["-depth", "-prune", "-type", "d"],
        ["-depth", "-printf", "%p %d %s\\n"],
    ],
    ids=" ".join,
)
def test_folders_after_what_is_in_them(tree: Path, catalog: Path, words: list[str]) -> None:
    said = ours("find", catalog, ".", *words, cwd=tree).split(b"\n")[:-1]
    assert sorted(said) == sorted(raw("find", ".", *words, cwd=tree).split(b"\n")[:-1])
    for i, line in enumerate(said):
        assert not any(later.startswith(line + b"/") for later in said[i:])


def test_a_catalogs_order_ends_at_quit_with_depth_too(tree: Path, catalog: Path) -> None:
    assert ours("find", catalog, "a b", "-depth", "-print", "-quit", cwd=tree) == b"a b/file0\n"
