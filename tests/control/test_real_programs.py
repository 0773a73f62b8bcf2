# SPDX-License-Identifier: Apache-2.0
"""Real programs under `penstock run` do what they do without: the same output, the same files, and a record of it.

The hardest users of libc: CPython's own tests of files and processes, git, tar, rsync, sqlite3 from
several processes at once, make -j with gcc, and a multiprocessing pool.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import launching
import pytest
from launching import PENSTOCK, call

from penstock.runs import merge

STARTERS: dict[str, list[object]] = {"without": [], "with": [PENSTOCK, "run", "--"]}


def files(folder: Path) -> dict[str, tuple[int, str]]:
    """Mode and content of all that is there."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if path.is_symlink():
            content = os.readlink(path)  # noqa: PTH115
        else:
            content = hashlib.md5(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (mode, content)
    return found


PROJECT = """
mkdir -p origin && cd origin
git init -q -b main .
for i in $(seq 40); do mkdir -p d$((i % 5)); seq $((i * 30)) > d$((i % 5))/f$i; done
ln -s d0/f5 link; chmod 755 d1/f1
git add . && git commit -q -m first
cd .. && git clone -q --no-local origin clone && cd clone
git checkout -q -b other && echo more >> d1/f1 && git commit -qam second
git log --format=%H && git fsck --strict && git status --porcelain
"""
TREE = """
mkdir t && cd t
for i in $(seq 60); do seq $i > f$i; done
ln f1 hard; ln -s f2 soft
cd ..
"""
TAR = """
tar --sort=name --mtime=@1 -cf a.tar t
mkdir out && tar -C out -xpf a.tar && tar -C out -df a.tar && md5sum a.tar
"""
RSYNC = """
touch -hd @1000 t/*
rsync -aH t/ copy/
echo new >> t/f9; rm t/f8; touch -d @2000 t t/f9
rsync -aHi --delete t/ copy/ && rsync -aHni --delete t/ copy/
"""
MAKE = r"""
for i in $(seq 12); do echo "int part$i(int x) { return x + $i; }" > p$i.c; done
{
  echo '#include <stdio.h>'
  for i in $(seq 12); do echo "int part$i(int);"; done
  echo 'int main(void) { int x = 0;'
  for i in $(seq 12); do echo "x = part$i(x);"; done
  echo 'printf("%d\n", x); return 0; }'
} > main.c
printf 'prog: main.o lib.a\n\tgcc -o $@ $^\nlib.a: $(patsubst %%.c,%%.o,$(wildcard p*.c))\n\tar rcsD $@ $^\n' > Makefile
make -s -j4 && ./prog && make -q && echo up to date
"""
SCRIPTS = {"git": PROJECT, "tar": TREE + TAR, "rsync": TREE + RSYNC, "gcc, make -j": MAKE}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_scripts(script: str, env: dict[str, str], tmp_path: Path) -> None:
    who = {"NAME": "t", "EMAIL": "t@example.org", "DATE": "2026-01-01T00:00:00Z"}
    git = {f"GIT_{role}_{k}": v for role in ("AUTHOR", "COMMITTER") for k, v in who.items()}
    seen = {}
    for name, start in STARTERS.items():
        folder = tmp_path / "work"  # the same path both times: it ends up in what compilers write
        folder.mkdir()
        words = [*start, "bash", "-euo", "pipefail", "-c", script]
        done = call(*words, env={**env, **git, "GIT_CONFIG_GLOBAL": "/dev/null"}, cwd=folder, seconds=120)
        assert done.returncode == 0, done.stderr.decode()
        left = files(folder)
        kept = {k: v for k, v in left.items() if not k.endswith((".git/index", ".pack", ".idx", ".rev"))}
        seen[name] = (done.stdout, done.stderr, kept)
        folder.rename(tmp_path / name)
    assert seen["with"] == seen["without"]
    [run] = launching.runs(env)
    assert merge.partial(run) == []
    assert any(row.bytes_written for row in launching.rows(run))


SQLITE = """
import sqlite3, sys, os
path, number = sys.argv[1], int(sys.argv[2])
base = sqlite3.connect(path, timeout=60, isolation_level=None)
for turn in range(40):
    base.execute("begin immediate")
    base.execute("update counter set n = n + 1")
    base.execute("insert into t values (?, ?)", (number * 1000 + turn, os.urandom(turn * 100)))
    base.execute("commit")
"""


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite_under_load(journal: str, env: dict[str, str], tmp_path: Path) -> None:
    """Five processes write to one database at once: its fcntl locks hold (trap I09)."""
    path = tmp_path / "db"
    (tmp_path / "work.py").write_text(SQLITE)
    make = f"pragma journal_mode={journal}; create table counter (n); insert into counter values (0);"
    make += "create table t (k integer primary key, v blob);"
    script = f"""
sqlite3 {path} '{make}' && for i in 1 2 3 4 5; do {sys.executable} {tmp_path}/work.py {path} $i & done; wait
sqlite3 {path} 'pragma integrity_check; select n from counter; select count(*) from t;'"""
    done = call(PENSTOCK, "run", "--", "bash", "-c", script, env=env, seconds=120)

    assert (done.stdout.decode().split(), done.stderr) == ([journal, "ok", "200", "200"], b"")
    [run] = launching.runs(env)
    assert launching.written(run, path) > 0


POOL = """
import multiprocessing, os, sys
def work(number):
    with open(f"{sys.argv[2]}/{number}", "w") as file:
        file.write("x" * number)
    return os.path.getsize(f"{sys.argv[2]}/{number}")
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(4) as pool:
        print(sum(pool.map(work, range(100))))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_r01_multiprocessing_pool(method: str, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL)
    (tmp_path / "out").mkdir()
    words = [sys.executable, tmp_path / "pool.py", method, tmp_path / "out"]
    done = call(PENSTOCK, "run", "--", *words, env=env)
    assert (done.stdout, done.stderr) == (b"4950\n", b"")
    [run] = launching.runs(env)
    assert [launching.written(run, tmp_path / f"out/{n}") for n in range(100)] == list(range(100))


# ---- CPython's own tests ----

MODULES = [
    "test_os",
    "test_posix",
    "test_io",
    "test_fileio",
    "test_shutil",
    "test_glob",
    "test_subprocess",
    "test_mmap",
    "test_tempfile",
]


def outcomes(report: Path) -> dict[str, str]:
    """How each single test ended."""
    found = {}
    for case in ET.parse(report).iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[f"{case.get('classname')}.{case.get('name')}"] = min(kinds) if kinds else "passed"
    return found


def run_cpython_tests(start: list[object], folder: Path, env: dict[str, str], *words: str) -> dict[str, str]:
    folder.mkdir()
    command = [*start, sys.executable, "-m", "test", "-j2", "--timeout", "240", "--tempdir", folder]
    command += ["--junit-xml", folder / "report.xml", *words]
    started = subprocess.Popen([str(w) for w in command], env=env, cwd=folder, stdout=subprocess.DEVNULL)
    try:
        started.wait(timeout=280)
    finally:
        started.kill()
    return outcomes(folder / "report.xml")


def with_and_without(folder: Path, env: dict[str, str], *words: str) -> list[dict[str, str]]:
    """Side by side: they mostly wait."""
    folder.mkdir()
    with ThreadPoolExecutor() as both:
        jobs = [
            both.submit(run_cpython_tests, start, folder / name, env, *words)
            for name, start in STARTERS.items()
        ]
        return [job.result() for job in jobs]


def test_cpythons_own_tests(env: dict[str, str], tmp_path: Path) -> None:
    assert importlib.util.find_spec("test.test_os"), "make setup installs CPython's tests"
    alone, under = with_and_without(tmp_path / "all", env, *MODULES)
    assert len(alone) > 1500
    assert set(under) == set(alone)
    differ = {name for name in alone if under[name] != alone[name]}
    if differ:  # some wait for a fixed while and fail on a busy machine: once more, these alone
        names = [word for name in sorted(differ) for word in ("-m", name.rpartition(".")[2])]
        alone, under = with_and_without(tmp_path / "again", env, *names, *MODULES)
        assert under == alone
    assert len(launching.runs(env)) >= 1
