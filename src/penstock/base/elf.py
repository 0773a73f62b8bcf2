# SPDX-License-Identifier: Apache-2.0
"""What an ELF file says about itself: how it is linked, what it needs, who makes its system calls.

Invariants:
1. The file is hostile input: every offset is checked, every table has a maximum; damage gives ElfError,
   never more.
2. Only what is needed is read: headers, the dynamic section, its strings and symbol names, section names.
"""

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_TABLE = 4096  # program headers, sections, dynamic entries
MAX_SYMBOLS = 200_000
MAX_STRINGS_BYTES = 32 << 20
MAX_CODE_BYTES = 64 << 20

PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_FLAGS_1 = 1, 5, 6, 10, 0x6FFFFFFB
SHT_DYNSYM, SHF_EXECINSTR = 11, 4
DF_1_PIE = 0x08000000
MACHINES = {3: "i386", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv", 21: "ppc64", 22: "s390"}


class ElfError(Exception):
    """Not an ELF file, or a damaged one."""


@dataclass(frozen=True)
class Elf:
    """The facts about one file."""

    bits: int
    machine: str
    interpreter: str  # "" when the kernel alone starts it: static
    needed: list[str] = field(default_factory=list)
    undefined: frozenset[str] = frozenset()  # names that it wants from libraries
    sections: frozenset[str] = frozenset()
    direct_calls: int = 0  # system call instructions in its own code
    library: bool = False

    @property
    def static(self) -> bool:
        return not self.interpreter and not self.library

    @property
    def musl(self) -> bool:
        return "ld-musl" in self.interpreter or any(name.startswith("libc.musl") for name in self.needed)

    @property
    def go(self) -> bool:
        return any(name in self.sections for name in (".note.go.buildid", ".go.buildinfo", ".gopclntab"))


@dataclass(frozen=True)
class _Layout:
    """Where the fields stand, for one word size and byte order."""

    order: str
    wide: bool

    def header(self) -> struct.Struct:
        return struct.Struct(self.order + ("HHIQQQIHHHHHH" if self.wide else "HHIIIIIHHHHHH"))


class _File:
    """Checked reads of one open file."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = os.fstat(fd).st_size

    def at(self, offset: int, size: int) -> bytes:
        if offset < 0 or size < 0 or offset + size > self.size:
            raise ElfError("it is cut short or damaged")
        data = os.pread(self.fd, size, offset)
        if len(data) != size:
            raise ElfError("it is cut short or damaged")
        return data


@dataclass(frozen=True)
class _Part:
    """A program header or a section."""

    kind: int
    flags: int
    offset: int
    address: int
    size: int
    name: int = 0
    link: int = 0


def read(path: str | os.PathLike[str], code: bool = False) -> Elf:
    """The facts about a file; with `code` its system call instructions are counted too."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return _read(_File(fd), code)
    finally:
        os.close(fd)


def _read(file: _File, code: bool) -> Elf:
    if file.size < 20 or file.at(0, 4) != b"\x7fELF":
        raise ElfError("it is not an ELF file")
    ident = file.at(0, 16)
    if ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise ElfError("its header makes no sense")
    layout = _Layout("<" if ident[5] == 1 else ">", ident[4] == 2)
    form = layout.header()
    (kind, machine, _, _, ph_at, sh_at, _, _, ph_size, ph_count, sh_size, sh_count, names_at) = form.unpack(
        file.at(16, form.size)
    )
    if ph_count > MAX_TABLE or sh_count > MAX_TABLE:
        raise ElfError("its header makes no sense")
    segments = [_segment(file, layout, ph_at + i * ph_size) for i in range(ph_count)]
    sections = [_section(file, layout, sh_at + i * sh_size) for i in range(sh_count)] if sh_at else []
    interpreter = ""
    for part in segments:
        if part.kind == PT_INTERP:
            interpreter = _text(file.at(part.offset, min(part.size, 4096)), 0)
    tags = list(_dynamic(file, layout, segments))
    needed, undefined = _wants(file, layout, segments, sections, tags)
    pie = any(tag == DT_FLAGS_1 and value & DF_1_PIE for tag, value in tags)
    return Elf(
        bits=64 if layout.wide else 32,
        machine=MACHINES.get(machine, str(machine)),
        interpreter=interpreter,
        needed=needed,
        undefined=frozenset(undefined),
        sections=frozenset(_names(file, sections, names_at)),
        direct_calls=_direct_calls(file, sections, machine) if code else 0,
        library=kind == 3 and not interpreter and not pie,
    )


def _segment(file: _File, layout: _Layout, at: int) -> _Part:
    if layout.wide:
        kind, flags, offset, address, _, size = struct.unpack(layout.order + "IIQQQQ", file.at(at, 40))
    else:
        kind, offset, address, _, size, _, flags = struct.unpack(layout.order + "7I", file.at(at, 28))
    return _Part(kind, flags, offset, address, size)


def _section(file: _File, layout: _Layout, at: int) -> _Part:
    form = layout.order + ("IIQQQQI" if layout.wide else "7I")
    name, kind, flags, address, offset, size, link = struct.unpack(form, file.at(at, struct.calcsize(form)))
    return _Part(kind, flags, offset, address, size, name, link)


def _dynamic(file: _File, layout: _Layout, segments: list[_Part]) -> Iterator[tuple[int, int]]:
    word = struct.Struct(layout.order + ("qQ" if layout.wide else "iI"))
    for part in segments:
        if part.kind != PT_DYNAMIC:
            continue
        data = file.at(part.offset, min(part.size, MAX_TABLE * word.size))
        for at in range(0, len(data) - word.size + 1, word.size):
            tag, value = word.unpack_from(data, at)
            if tag == 0:
                return
            yield tag, value


def _wants(
    file: _File,
    layout: _Layout,
    segments: list[_Part],
    sections: list[_Part],
    tags: list[tuple[int, int]],
) -> tuple[list[str], set[str]]:
    """The libraries and the symbols it asks for."""
    found = dict(tags)
    if DT_STRTAB not in found:
        return [], set()
    strings_at = _file_offset(segments, found[DT_STRTAB])
    strings = file.at(strings_at, min(found.get(DT_STRSZ, 0), MAX_STRINGS_BYTES))
    needed = [_text(strings, value) for tag, value in tags if tag == DT_NEEDED]
    undefined = set()
    size = 24 if layout.wide else 16
    for part in sections:
        if part.kind != SHT_DYNSYM:
            continue
        data = file.at(part.offset, min(part.size, MAX_SYMBOLS * size))
        for at in range(size, len(data) - size + 1, size):
            name = struct.unpack_from(layout.order + "I", data, at)[0]
            index = struct.unpack_from(layout.order + "H", data, at + (6 if layout.wide else 14))[0]
            if index == 0:
                undefined.add(_text(strings, name))
    return needed, undefined


def _file_offset(segments: list[_Part], address: int) -> int:
    for part in segments:
        if part.kind == PT_LOAD and part.address <= address < part.address + part.size:
            return part.offset + address - part.address
    raise ElfError("its dynamic section points nowhere")


def _text(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at)
    return strings[at : end if end >= 0 else len(strings)].decode("utf-8", "replace")


def _names(file: _File, sections: list[_Part], names_at: int) -> list[str]:
    if names_at >= len(sections):
        return []
    table = sections[names_at]
    strings = file.at(table.offset, min(table.size, MAX_STRINGS_BYTES))
    return [_text(strings, part.name) for part in sections]


def _direct_calls(file: _File, sections: list[_Part], machine: int) -> int:
    """How often its own code holds the instruction that enters the kernel; data may look like one."""
    instruction = {62: b"\x0f\x05", 183: b"\x01\x00\x00\xd4"}.get(machine)
    if instruction is None:
        return 0
    count, left = 0, MAX_CODE_BYTES
    for part in sections:
        if part.flags & SHF_EXECINSTR and part.kind == 1 and left > 0:
            data = file.at(part.offset, min(part.size, left))
            left -= len(data)
            count += data.count(instruction)
    return count
