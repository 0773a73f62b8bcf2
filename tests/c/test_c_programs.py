# SPDX-License-Identifier: Apache-2.0
"""Every C program of this folder, plain, with ASan and UBSan, and with TSan: a test each.

A new file here is a new test; tools/c_programs.py says what it may tell about itself.
The programs under broken/ are wrong on purpose and show that the sanitizers are on.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tools"))
import c_programs  # noqa: E402

VENV = Path(sys.executable).parent
HERE = TOP / "tests" / "c"
SETUP = {
    "plain": [],
    "asan": ["-Db_sanitize=address,undefined", "-Dc_args=-fno-sanitize-recover=all -fno-omit-frame-pointer"],
    # It knows no fences; those that are linked here (of plans, which these programs do not read) may stay.
    "tsan": ["-Db_sanitize=thread", "-Dc_args=-Wno-error=tsan"],
}
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


def run(*command: object, seconds: int = 300) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    path = f"{VENV}:{os.environ['PATH']}"
    return subprocess.run(
        words,
        check=False,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, **ENVIRONMENT, "PATH": path},
    )


@cache
def build(variant: str) -> Path:
    """The folder of this variant's programs, set up anew when the list of programs changed."""
    folder = TOP / "build" / f"c-{variant}"
    listing = c_programs.listing(HERE, HERE / "broken")
    stamp = folder / "programs.txt"
    if not (stamp.exists() and stamp.read_text() == listing):
        options = ["-Dtest_programs=true", "-Dbuildtype=debugoptimized", "-Db_lundef=false", *SETUP[variant]]
        again = ["--reconfigure"] if (folder / "build.ninja").exists() else []
        done = run(VENV / "meson", "setup", *again, *options, folder, TOP)
        assert done.returncode == 0, done.stdout + done.stderr
        stamp.write_text(listing)
    done = run(VENV / "ninja", "-j2", "-k0", "-C", folder, "c-tests")
    assert done.returncode == 0, done.stdout
    return folder / "tests" / "c"


def start(variant: str, program: c_programs.Program) -> subprocess.CompletedProcess[str]:
    # TSan of gcc 12 cannot live with 32 bits of address randomisation.
    fixed = ["setarch", "-R"] if variant == "tsan" else []
    return run(*fixed, build(variant) / program.name, seconds=program.seconds)


CASES = [(p, v) for p in c_programs.programs(HERE) for v in SETUP if v not in p.not_under]


@pytest.mark.parametrize(("program", "variant"), CASES, ids=[f"{p.name}-{v}" for p, v in CASES])
def test_c_program(program: c_programs.Program, variant: str) -> None:
    done = start(variant, program)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("program", c_programs.programs(HERE / "broken"), ids=lambda p: p.name)
def test_sanitizer_notices_broken_program(program: c_programs.Program) -> None:
    assert program.caught_by
    for variant in program.caught_by:
        done = start(variant, program)
        assert done.returncode != 0
        assert "ERROR" in done.stderr or "runtime error" in done.stderr or "WARNING" in done.stderr
    assert start("plain", program).returncode == 0
