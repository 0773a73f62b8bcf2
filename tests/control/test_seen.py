# SPDX-License-Identifier: Apache-2.0
"""What is told of programs that a preloaded library cannot see, or only in part."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.base import elf
from penstock.control import seen

HERE = elf.read("/bin/true").machine
PLAIN = {"bits": 64, "machine": HERE, "interpreter": "/lib64/ld-linux-x86-64.so.2", "needed": ["libc.so.6"]}


def levels(**changes: object) -> list[tuple[str, str]]:
    facts = seen.Facts("/x/app", elf=elf.Elf(**{**PLAIN, **changes}))
    return [(f.level, f.text) for f in seen.judge(facts, HERE)]


def test_an_ordinary_program_is_seen() -> None:
    assert [level for level, _ in levels()] == ["ok"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"interpreter": "", "needed": []}, "statically linked"),
        ({"interpreter": "/lib/ld-musl-x86_64.so.1", "needed": []}, "musl"),
        ({"sections": frozenset([".note.go.buildid"])}, "Go program"),
        ({"bits": 32}, "32 bits"),
    ],
)
def test_a_blind_spot_is_a_failure_with_its_reason(changes: dict[str, object], word: str) -> None:
    ((level, text),) = levels(**changes)

    assert level == "fail"
    assert word in text


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"needed": ["liburing.so.2", "libc.so.6"]}, "io_uring"),
        ({"undefined": frozenset(["syscall"])}, "syscall()"),
        ({"direct_calls": 3}, "3 system call instructions"),
        ({"needed": ["libasan.so.8"]}, "AddressSanitizer"),
    ],
)
def test_a_partial_view_is_a_warning(changes: dict[str, object], word: str) -> None:
    ((level, text),) = levels(**changes)

    assert level == "warn"
    assert word in text


def test_a_setuid_program_is_not_seen(tmp_path: Path) -> None:
    copy = tmp_path / "true"
    shutil.copy("/bin/true", copy)
    copy.chmod(0o4755)

    (finding,) = seen.judge(seen.facts_of(str(copy)), HERE)

    assert finding.level == "fail"
    assert "setuid" in finding.text


def test_scripts_lead_to_their_interpreters(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/usr/bin/env bash\ntrue\n")
    script.chmod(0o755)

    assert seen.programs_of([str(script)]) == [str(script), shutil.which("bash")]


def test_launchers_lead_to_their_program() -> None:
    assert seen.programs_of(["env", "-i", "A=1", "true"])[-1] == shutil.which("true")


@pytest.mark.parametrize(
    ("words", "level"),
    [
        (["srun", "./app"], "warn"),
        (["apptainer", "exec", "x.sif", "app"], "warn"),
        (["sudo", "app"], "fail"),
        (["ssh", "host", "app"], "fail"),
    ],
)
def test_the_words_alone_tell_of_launchers(words: list[str], level: str) -> None:
    assert [f.level for f in seen.judge_command(words)] == [level]


def test_a_program_named_like_a_launcher_behind_the_program_is_no_launcher() -> None:
    assert seen.judge_command(["./app", "ssh"]) == []


def test_a_watch_sees_children_and_whether_the_library_is_in_them() -> None:
    command = "import subprocess, sys; subprocess.run(['cat'])"
    process = subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE)
    watch = seen.Watch(process.pid, library="libc.so.6")
    try:
        while not any(os.path.basename(w.exe).startswith("cat") for w in watch.seen.values()):  # noqa: PTH119
            assert process.poll() is None
            watch.look()
    finally:
        process.communicate(b"")

    assert len({w.pid for w in watch.seen.values()}) == 2
    assert any(w.preloaded for w in watch.seen.values())


def test_a_file_that_is_no_program_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x7fELF")

    assert [f.level for f in seen.judge(seen.facts_of(str(tmp_path / "x")), HERE)] == ["warn"]
