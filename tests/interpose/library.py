# SPDX-License-Identifier: Apache-2.0
"""Programs under the interposer: the installed library, or one whose only stage tells what it sees."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
NATIVE = TOP / "native"
INSTALLED = Path(sys.prefix) / "lib" / "penstock" / "libpenstock.so"
PROGRAMS = TOP / "tests" / "programs"
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra"]
LIBRARY_FLAGS = [
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-delete-null-pointer-checks",
    "-Wno-nonnull-compare",
    "-Wno-deprecated-declarations",
    "-U_FORTIFY_SOURCE",
]


@cache
def built_here() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="penstock-built-")
    built_here.kept = folder  # type: ignore[attr-defined]
    return Path(folder.name)


def gcc(*words: object) -> None:
    done = subprocess.run(["gcc", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@cache
def program(name: str, *flags: str) -> Path:
    """A program of tests/programs, compiled with these flags besides."""
    out = built_here() / (name + "".join(flags).replace("/", "_").replace("=", "_"))
    gcc(*FLAGS, PROGRAMS / f"{name}.c", "-o", out, *flags, "-pthread")
    return out


@cache
def shared(name: str, *flags: str) -> Path:
    """The same as a library to preload or to load."""
    out = built_here() / f"{name}{''.join(flags).replace('/', '_').replace('=', '_')}.so"
    gcc(*FLAGS, "-fPIC", "-shared", PROGRAMS / f"{name}.c", "-o", out, *flags, "-pthread", "-ldl")
    return out


@cache
def generated() -> Path:
    folder = built_here() / "generated"
    folder.mkdir()
    for what, file in (
        ("enum", "calls_enum.h"),
        ("originals", "calls_originals.h"),
        ("wrappers", "calls_wrappers.c"),
        ("exports", "calls.map"),
    ):
        words = [sys.executable, TOP / "tools" / "calls.py", what, NATIVE / "calls.def"]
        made = subprocess.run(words, check=True, capture_output=True, text=True)
        (folder / file).write_text(made.stdout)
    return folder


@cache
def tracing(*flags: str) -> Path:
    """The library with the stage of trace/ alone."""
    out = built_here() / f"libpenstock-trace{''.join(flags)}.so"
    trace = HERE / "trace"
    includes = ["-I", trace, "-I", generated(), "-I", NATIVE]
    sources = [*sorted((NATIVE / "interpose").glob("*.c")), NATIVE / "interpose" / "vfork.S"]
    # The wrappers ask the recorder whether a call only needs counting; here it never does.
    sources += [NATIVE / "stages" / name for name in ("record.c", "slots.c", "process.c")]
    # Nor are DIRs anybody's but libc's.
    sources += [NATIVE / name for name in ("stages/dirs.c", "kernels/listing.c", "kernels/index.c")]
    objects = []
    for source in [*sources, generated() / "calls_wrappers.c", trace / "trace.c"]:
        objects.append(built_here() / f"trace{''.join(flags)}-{source.parent.name}-{source.name}.o")
        gcc(
            "-include",
            NATIVE / "compat.h",
            *FLAGS,
            *LIBRARY_FLAGS,
            *flags,
            *includes,
            "-c",
            source,
            "-o",
            objects[-1],
        )
    gcc("-shared", *objects, "-o", out, f"-Wl,--version-script,{generated()}/calls.map")
    return out


@dataclass(frozen=True)
class Seen:
    when: str
    op: str
    under: int
    does: int
    failed: bool
    error: int
    fd: int
    result: int
    asked: int
    offset: int
    epoch: int
    path: str
    path2: str


def seen(trace: Path) -> list[Seen]:
    lines = trace.read_text().splitlines() if trace.exists() else []
    calls = []
    for line in lines:
        word = line.split("\t")
        numbers = [int(w) for w in word[2:11]]
        calls.append(
            Seen(
                word[0],
                word[1],
                *numbers[:2],
                bool(numbers[2]),
                *numbers[3:],
                word[11],
                word[12],
            )
        )
    return calls


def environment(board: Path | None, library: Path = INSTALLED, **more: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "LD_"))}
    if board:
        env |= {"LD_PRELOAD": str(library), "PENSTOCK_BOARD": str(board)}
    return env | {"LC_ALL": "C", **more}


def run(
    words: Sequence[object],
    board: Path | None,
    library: Path = INSTALLED,
    cwd: Path | None = None,
    seconds: float = 60,
    **more: str,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words],
        env=environment(board, library, **more),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
