# SPDX-License-Identifier: Apache-2.0
"""Real programs on the testbed do what they do on a plain folder, in both settings of caching."""

import contextlib
import filecmp
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest


def run(*words: object, cwd: Path | None = None) -> str:
    quiet = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "t",
        "GIT_AUTHOR_EMAIL": "t@example.org",
        "GIT_COMMITTER_NAME": "t",
        "GIT_COMMITTER_EMAIL": "t@example.org",
    }
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=quiet,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def same_trees(a: Path, b: Path) -> bool:
    compared = filecmp.dircmp(a, b, ignore=[])
    if compared.left_only or compared.right_only or compared.funny_files:
        return False
    _, wrong, errors = filecmp.cmpfiles(a, b, compared.common_files, shallow=False)
    return not wrong and not errors and all(same_trees(a / d, b / d) for d in compared.common_dirs)


@pytest.fixture(params=["contention", "posix"])
def place(request, make_testbed) -> Path:
    """A folder on a testbed, files striped over all OSTs."""
    bed = make_testbed(
        caching=request.param,
        settings={"model": "off", "layout.stripe_size": "65536", "layout.stripe_count": "4"},
    )
    return bed.path


@pytest.fixture(scope="session")
def sources(tmp_path_factory) -> Path:
    """A tree of a few hundred files with links, modes, times and odd names."""
    top = tmp_path_factory.mktemp("sources") / "tree"
    dice = random.Random(7)
    for i in range(200):
        folder = top / f"d{i % 13}" / f"e{i % 5}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"f {i}\n"
        path.write_bytes(dice.randbytes(dice.choice([0, 10, 4096, 70_000, 300_000 if i % 20 == 0 else 1])))
        path.chmod(dice.choice([0o600, 0o644, 0o755, 0o444]))
        os.utime(path, ns=(10**18 + i, 10**18 + 7 * i))
        if i % 10 == 0:
            (folder / f"link{i}").symlink_to(path.name)
            os.link(path, folder / f"hard{i}")
    return top


def test_git(place, tmp_path):
    origin = tmp_path / "origin"
    run("git", "init", "-q", "-b", "main", origin)
    for i in range(60):
        path = origin / f"dir{i % 7}" / f"file{i}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"line {i}\n" * (i * 50))
    run("git", "add", ".", cwd=origin)
    run("git", "commit", "-q", "-m", "first", cwd=origin)
    clone = place / "clone"
    run("git", "clone", "-q", "--no-local", origin, clone)
    assert same_trees(origin / "dir0", clone / "dir0")
    (clone / "dir1" / "file1").write_text("changed\n")
    run("git", "checkout", "-q", "-b", "other", cwd=clone)
    run("git", "commit", "-qam", "second", cwd=clone)
    run("git", "gc", "-q", cwd=clone)
    run("git", "fsck", "--strict", cwd=clone)
    run("git", "checkout", "-q", "main", cwd=clone)
    assert (clone / "dir1" / "file1").read_text() == "line 1\n" * 50
    assert run("git", "status", "--porcelain", cwd=clone) == ""


def test_a_compiler_and_what_it_made(place):
    for i in range(8):
        (place / f"part{i}.c").write_text(f"int part{i}(int x) {{ return x + {i}; }}\n")
    calls = "".join(f"int part{i}(int);" for i in range(8))
    body = "".join(f"x = part{i}(x);" for i in range(8))
    (place / "main.c").write_text(
        f'#include <stdio.h>\n{calls}int main(void){{int x=0;{body}printf("%d",x);}}'
    )
    (place / "Makefile").write_text(
        "prog: main.o lib.a\n\tcc -g -o $@ $^\nlib.a: $(patsubst %.c,%.o,$(wildcard part*.c))\n\tar rcs $@ $^\n"
    )
    run("make", "-j2", cwd=place)
    assert run(place / "prog") == "28"
    assert "up to date" in run("make", cwd=place)
    run("cc", "-shared", "-fPIC", "-o", place / "lib.so", place / "part3.c")
    assert run(sys.executable, "-c", f"import ctypes; print(ctypes.CDLL('{place}/lib.so').part3(4))") == "7\n"


def test_tar_and_rsync(place, sources, tmp_path):
    run("tar", "-C", sources.parent, "-cf", tmp_path / "a.tar", "tree")
    run("tar", "-C", place, "-xpf", tmp_path / "a.tar")
    assert same_trees(sources, place / "tree")
    run("tar", "-C", place, "-df", tmp_path / "a.tar")  # modes, times, owners, contents
    run("rsync", "-aHX", f"{place}/tree/", f"{place}/copy/")
    assert run("rsync", "-aHn", "--delete", "--itemize-changes", f"{sources}/", f"{place}/copy/") == ""
    run("rm", "-r", place / "tree", place / "copy")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite(place, journal):
    with contextlib.closing(sqlite3.connect(place / "db")) as base:
        assert base.execute(f"pragma journal_mode={journal}").fetchone() == (journal,)
        base.execute("create table t (k integer primary key, v blob)")
        for start in range(0, 2000, 200):
            base.executemany(
                "insert into t values (?, ?)",
                [(k, bytes([k % 256]) * (k % 700)) for k in range(start, start + 200)],
            )
            base.commit()
        base.execute("delete from t where k % 3 = 0")
        base.commit()
        base.execute("vacuum")
    code = """
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
print(*base.execute("pragma integrity_check").fetchone())
print(*base.execute("select count(*), sum(length(v)) from t").fetchone())
"""
    expected = sum(1 for k in range(2000) if k % 3), sum(k % 700 for k in range(2000) if k % 3)
    assert run(sys.executable, "-c", code, place / "db").split() == ["ok", *map(str, expected)]
