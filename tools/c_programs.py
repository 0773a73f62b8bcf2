# SPDX-License-Identifier: Apache-2.0
"""The C programs of a folder, and what each says of itself in comment lines before its first #include.

    // uses: board/board.c kernels/layout.c    sources of native/ that it is linked with, besides the kernels
    // flags: -DSMALL=1                        for the compiler
    // not under: tsan (why)                   a sanitizer it cannot run with
    // caught by: asan                         it is wrong on purpose: that sanitizer must say so
    // seconds: 120                            how long it may take (60)

As a program it prints a line a program for meson: name;path;source,source;flag,flag
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Program:
    path: Path
    uses: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    not_under: list[str] = field(default_factory=list)
    caught_by: list[str] = field(default_factory=list)
    seconds: int = 60

    @property
    def name(self) -> str:
        return self.path.stem


def read(path: Path) -> Program:
    said: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if line.startswith("#include"):
            break
        key, colon, value = line.removeprefix("//").partition(":")
        if line.startswith("// ") and colon:
            said.setdefault(key.strip(), []).extend(value.split("(")[0].split())
    return Program(
        path=path,
        uses=said.get("uses", []),
        flags=said.get("flags", []),
        not_under=said.get("not under", []),
        caught_by=said.get("caught by", []),
        seconds=int(said.get("seconds", ["60"])[0]),
    )


def programs(folder: Path) -> list[Program]:
    return [read(path) for path in sorted(folder.glob("*.c"))]


def listing(*folders: Path) -> str:
    """What meson is told; a build folder is set up anew when this changes."""
    return "".join(
        f"{p.name};{p.path.name};{','.join(p.uses)};{','.join(p.flags)}\n"
        for folder in folders
        for p in programs(folder)
    )


if __name__ == "__main__":
    print(listing(Path(sys.argv[1])), end="")
