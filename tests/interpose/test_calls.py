# SPDX-License-Identifier: Apache-2.0
"""A snippet for each call of calls.def: same results, errno, offsets and files with the interposer as without."""

import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import board
import library

sys.path.insert(0, str(library.TOP / "tools"))
import calls

SOURCES = sorted(library.PROGRAMS.glob("calls_*.c"))
# glibc 2.38 brought them; the compiler here has nothing that asks for them.
NOT_IN_THIS_LIBC = {f"__isoc23_{v}{f}scanf" for v in ("", "v") for f in ("", "f", "w", "fw")}
VARIANTS = {
    "plain": [],
    "64": ["-D_FILE_OFFSET_BITS=64"],
    "fortify2": ["-D_FORTIFY_SOURCE=2"],
    "fortify3_64": ["-D_FORTIFY_SOURCE=3", "-D_FILE_OFFSET_BITS=64"],
}


@cache
def snippets(variant: str, *flags: str) -> Path:
    out = library.built_here() / f"snippets-{variant}{''.join(flags)}"
    # Wild pointers and NULL are meant: no warnings.
    library.gcc(
        "-w",
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-U_FORTIFY_SOURCE",
        "-O1",
        *VARIANTS[variant],
        *flags,
        *SOURCES,
        "-o",
        out,
        "-pthread",
    )
    return out


def tree(folder: Path) -> dict[str, tuple[int, int, str]]:
    """What is there: by name the mode, size and content of all files."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(root) / name
            st = path.lstat()
            if path.is_symlink():
                content = str(path.readlink())
            elif path.is_file():
                content = hashlib.md5(path.read_bytes()).hexdigest()
            else:
                content = ""
            size = 0 if path.is_dir() else st.st_size
            found[os.fsdecode(path.relative_to(folder))] = (st.st_mode, size, content)
    return found


def spoken(words: list[object], mode: str, folder: Path, on: Path | None) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    extra = {"PENSTOCK_LOG": str(folder.parent / "log")}
    if mode == "constructor":
        extra |= {"CALLS_MODE": mode, "CALLS_FOLDER": str(folder)}
    done = library.run([*words, mode, folder], on, cwd=folder, seconds=120, **extra)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.replace(str(folder), "HERE")


def compare(words: list[object], mode: str, tmp_path: Path) -> None:
    on = board.make(tmp_path / "board", ("pass", "record"))
    folder = tmp_path / "files"
    without = spoken(words, mode, folder, None)
    files_without = tree(folder)
    withal = spoken(words, mode, folder, on)
    assert withal.splitlines() == without.splitlines()
    assert tree(folder) == files_without
    assert without.count("\n") > 1000
    assert not (tmp_path / "log").exists()


def test_each_call_has_a_snippet() -> None:
    table = calls.parse((library.NATIVE / "calls.def").read_text())
    done = subprocess.run([snippets("plain"), "list", "/"], capture_output=True, text=True, check=True)
    listed = {line.split()[0] for line in done.stdout.splitlines()}
    assert {call.symbol for call in table.calls} - listed == NOT_IN_THIS_LIBC


@pytest.mark.parametrize("mode", ["plain", "constructor", "threads", "fork", "vfork"])
def test_calls_are_as_without(mode: str, tmp_path: Path) -> None:
    compare([snippets("plain")], mode, tmp_path)


def test_calls_are_as_without_after_dlopen(tmp_path: Path) -> None:
    compare(
        [library.program("loader"), snippets("plain", "-DLIBRARY", "-fPIC", "-shared")], "plain", tmp_path
    )


@pytest.mark.parametrize("variant", [v for v in VARIANTS if v != "plain"])
def test_I12_calls_by_their_other_names_are_as_without(variant: str, tmp_path: Path) -> None:
    compare([snippets(variant)], "plain", tmp_path)
