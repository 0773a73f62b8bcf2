# SPDX-License-Identifier: Apache-2.0
"""A board of the least kind, for tests of the interposer alone: written byte by byte as native/board/board.h says."""

import os
import re
import struct
import subprocess
import time
from functools import cache
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
HEADER = TOP / "native" / "board" / "board.h"
NOTHING, RECORD, MOUNT = 0, 1, 2
STAGES = {"serve": 1, "limit": 2, "place": 4, "forward": 8, "record": 16, "catalog": 32, "pass": 64}
CHUNKS = 512
FIELDS = """control_bytes usage_max_bytes usage_bytes nonce monotonic_offset_ns stages generation otherwise
    prefix_count prefixes chunk_count freed record_files_max record_sample_every run version head_bytes"""


@cache
def layout() -> dict[str, int]:
    """Sizes and offsets as the compiler sees them."""
    prints = "".join(
        f'printf("{f} %zu\\n", offsetof(struct penstock_control, {f}));\n' for f in FIELDS.split()
    )
    source = f"""
#include <stddef.h>
#include <stdio.h>
#include "{HEADER}"
int main(void) {{
{prints}
printf("control %zu\\n", sizeof(struct penstock_control));
printf("usage_nonce %zu\\n", offsetof(struct penstock_usage, nonce));
printf("lost %zu\\n", offsetof(struct penstock_usage, lost));
printf("all_chunks %zu\\n", (size_t)penstock_chunk_offset({CHUNKS}, {CHUNKS}));
return 0; }}
"""
    program = Path(f"/tmp/penstock-board-layout-{os.getpid()}")
    gcc = ["gcc", "-I", str(TOP / "native"), "-x", "c", "-", "-o", str(program)]
    subprocess.run(gcc, input=source, text=True, check=True)
    try:
        lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    finally:
        program.unlink()
    return {name: int(value) for name, value in (line.split() for line in lines)}


def constant(name: str) -> int:
    found = re.search(rf"\b{name}\s*=?\s*(0x[0-9a-f]+|\d+)", HEADER.read_text())
    assert found, name
    return int(found[1], 0)


def make(
    folder: Path,
    stages: tuple[str, ...] = ("pass",),
    prefixes: list[tuple[str, int, int]] | None = None,
    otherwise: int = RECORD,
) -> Path:
    """Makes control and usage in `folder`; prefixes are (path, UNDER bits, device or 0)."""
    at = layout()
    folder.mkdir(parents=True, exist_ok=True)
    control = bytearray(at["control"] + 4 * CHUNKS)
    nonce = os.urandom(16)

    def put(name: str, form: str, *values: object) -> None:
        struct.pack_into(form, control, at[name], *values)

    struct.pack_into("<Q", control, 0, constant("PENSTOCK_CONTROL_MAGIC"))
    put("version", "<I", constant("PENSTOCK_BOARD_VERSION"))
    put("head_bytes", "<I", at["control"])
    put("control_bytes", "<Q", len(control))
    put("usage_max_bytes", "<Q", at["all_chunks"])
    put("usage_bytes", "<Q", at["all_chunks"])
    put("nonce", "<16s", nonce)
    put("run", "<16s", os.urandom(16))
    put("monotonic_offset_ns", "<q", time.time_ns() - time.monotonic_ns())
    put("stages", "<I", sum(STAGES[s] for s in stages))
    put("record_files_max", "<I", 1024)
    put("record_sample_every", "<I", 16)
    put("otherwise", "<I", otherwise)
    put("prefix_count", "<I", len(prefixes or []))
    put("chunk_count", "<I", CHUNKS)
    for i, (path, under, dev) in enumerate(prefixes or []):
        name = os.fsencode(path)
        struct.pack_into("<QHB5x240s", control, at["prefixes"] + 256 * i, dev, len(name), under, name)
    (folder / "control").write_bytes(control)
    usage = bytearray(at["all_chunks"])
    struct.pack_into(
        "<QII", usage, 0, constant("PENSTOCK_USAGE_MAGIC"), constant("PENSTOCK_BOARD_VERSION"), 0
    )
    struct.pack_into("<16s", usage, at["usage_nonce"], nonce)
    (folder / "usage").write_bytes(usage)
    return folder


def change(folder: Path, name: str, form: str, *values: object) -> None:
    with (folder / "control").open("r+b") as file:
        file.seek(layout()[name])
        file.write(struct.pack(form, *values))


def lost(folder: Path) -> list[int]:
    return list(struct.unpack_from("<16Q", (folder / "usage").read_bytes(), layout()["lost"]))
