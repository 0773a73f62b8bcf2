# SPDX-License-Identifier: Apache-2.0
"""What a library or program asks of the system it runs on: python tools/elf_needs.py FILE...

For each file: the libraries it needs, the newest glibc among its symbols' versions, and what it exports.
The words come from readelf (binutils come with gcc).
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

Version = tuple[int, ...]


@dataclass(frozen=True)
class Elf:
    libraries: list[str]
    undefined: dict[str, Version]  # symbols that come from glibc, and the version asked for
    weak: set[str]  # of them, those that may be missing
    exported: list[str]
    interpreter: str  # "" for a library and for a static program
    sections: str

    def newer_than(self, version: Version) -> dict[str, Version]:
        return {name: needs for name, needs in self.undefined.items() if needs > version}


def readelf(*words: str) -> str:
    command = ["readelf", "-W", *words]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    ).stdout


def read(path: Path) -> Elf:
    undefined: dict[str, Version] = {}
    weak, exported = set(), []
    for line in readelf("--dyn-syms", str(path)).splitlines():
        word = line.split()
        if len(word) < 8 or not re.fullmatch(r"\d+:", word[0]) or word[4] == "LOCAL":
            continue
        name, _, version = word[7].replace("@@", "@").partition("@")
        if word[6] != "UND":
            exported.append(name)
            continue
        if word[4] == "WEAK":
            weak.add(name)
        if version.startswith("GLIBC_"):
            undefined[name] = tuple(int(part) for part in re.findall(r"\d+", version))
    return Elf(
        libraries=re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", str(path))),
        undefined=undefined,
        weak=weak,
        exported=sorted(exported),
        interpreter="".join(
            re.findall(r"program interpreter: (.*)\]", readelf("--program-headers", str(path)))
        ),
        sections=readelf("--sections", str(path)),
    )


def main() -> int:
    for name in sys.argv[1:]:
        elf = read(Path(name))
        newest = ".".join(map(str, max(elf.undefined.values(), default=(0,))))
        needs = ", ".join(elf.libraries) or "no library"
        print(f"{name}: glibc {newest}; needs {needs}; exports {len(elf.exported)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
