# SPDX-License-Identifier: Apache-2.0
"""What is preloaded, and the launcher, compile for aarch64 without a warning, where a cross compiler is there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
NATIVE = TOP / "native"
COMPILER = "aarch64-linux-gnu-gcc"
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden"]
LIBRARY = ["-include", NATIVE / "compat.h", "-U_FORTIFY_SOURCE", "-fno-delete-null-pointer-checks"]
LIBRARY += ["-ftls-model=initial-exec", "-Wno-nonnull-compare", "-Wno-deprecated-declarations"]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("aarch64")
    made = {
        "enum": "calls_enum.h",
        "originals": "calls_originals.h",
        "wrappers": "calls_wrappers.c",
        "exports": "map",
    }
    for what, name in made.items():
        words = [sys.executable, TOP / "tools/calls.py", what, NATIVE / "calls.def"]
        (folder / name).write_bytes(subprocess.run(words, check=True, capture_output=True).stdout)
    return folder


def compiled(folder: Path, sources: list[Path], *flags: object) -> list[Path]:
    if not shutil.which(COMPILER):
        pytest.skip(f"{COMPILER} is missing: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
    objects = []
    for source in sources:
        objects.append(folder / f"{source.parent.name}-{source.name}.o")
        words = [COMPILER, *FLAGS, *flags, "-I", NATIVE, "-I", folder, "-c", source, "-o", objects[-1]]
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return objects


def test_library(generated: Path) -> None:
    listed = re.findall(r"'(\.\./\w+/\w+\.c)'", (NATIVE / "interpose/meson.build").read_text())
    sources = [
        *(NATIVE / "interpose").glob("*.c"),
        *((NATIVE / "interpose" / name).resolve() for name in listed),
    ]
    sources += [NATIVE / "interpose/vfork.S", generated / "calls_wrappers.c"]
    objects = compiled(generated, sorted(sources), *LIBRARY)
    made = generated / "libpenstock.so"
    words = [
        COMPILER,
        "-shared",
        *objects,
        "-o",
        made,
        f"-Wl,--version-script,{generated}/map",
        "-Wl,--no-undefined",
    ]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_launcher(generated: Path) -> None:
    sources = [p for name in ("launch", "board", "kernels") for p in (NATIVE / name).glob("*.c")]
    compiled(generated, sorted(sources), '-DPENSTOCK_VERSION="0"')
