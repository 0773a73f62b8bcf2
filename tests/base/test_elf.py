# SPDX-License-Identifier: Apache-2.0
"""What an ELF file says about itself, on files the compiler just made, and on damaged ones."""

import contextlib
import random
import subprocess
from pathlib import Path

import pytest

from penstock.base import elf

SOURCE = (
    '#include <stdio.h>\n#include <unistd.h>\nint main(void) { char b; return read(0, &b, 1) + puts(""); }\n'
)


def build(folder: Path, *flags: str, source: str = SOURCE) -> Path:
    (folder / "a.c").write_text(source)
    out = folder / "a.out"
    subprocess.run(["gcc", "-O1", *flags, str(folder / "a.c"), "-o", str(out)], check=True)
    return out


def test_a_dynamic_program_names_its_libraries_and_wishes(tmp_path: Path) -> None:
    found = elf.read(build(tmp_path))

    assert (found.bits, found.static, found.library) == (64, False, False)
    assert "libc.so.6" in found.needed
    assert {"read", "puts"} <= found.undefined
    assert not found.go
    assert not found.musl


@pytest.mark.parametrize("flag", ["-static", "-static-pie"])
def test_a_static_program_is_told_apart(tmp_path: Path, flag: str) -> None:
    found = elf.read(build(tmp_path, flag), code=True)

    assert found.static
    assert found.direct_calls > 10


def test_a_library_is_no_static_program(tmp_path: Path) -> None:
    found = elf.read(build(tmp_path, "-shared", "-fPIC"))

    assert found.library
    assert not found.static


def test_direct_system_calls_are_counted(tmp_path: Path) -> None:
    if elf.read("/bin/true").machine != "x86-64":
        pytest.skip("the source of this test is x86-64")
    source = 'int main(void) { long r; __asm__ volatile("syscall" : "=a"(r) : "a"(39)); return r < 0; }\n'

    assert elf.read(build(tmp_path, source=source), code=True).direct_calls == 1
    assert elf.read(build(tmp_path), code=True).direct_calls == 0


def test_text_is_no_elf_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("#!/bin/sh\necho hello to everybody\n")

    with pytest.raises(elf.ElfError, match="not an ELF"):
        elf.read(tmp_path / "text")


def test_damage_gives_elf_error_and_nothing_else(tmp_path: Path) -> None:
    whole = build(tmp_path).read_bytes()
    chance = random.Random(7)
    damaged = tmp_path / "damaged"
    for _ in range(400):
        data = bytearray(whole[: chance.randrange(len(whole))] if chance.random() < 0.3 else whole)
        for _ in range(chance.randrange(1, 30)):
            if data:
                data[chance.randrange(min(len(data), 0x400))] = chance.randrange(256)
        damaged.write_bytes(data)
        with contextlib.suppress(elf.ElfError):
            elf.read(damaged, code=True)
