# SPDX-License-Identifier: Apache-2.0
"""writers FOLDER PROCESSES BYTES SHARED GROWTH: so many processes write at once, then read back what another wrote.

Prints the seconds from the first one's begin to the last one's end as JSON.
"""

import json
import os
import sys
import time

BLOCK = 262144


def bytes_of(rank: int, size: int, growth: float) -> int:
    return int(size * (1 + growth * rank))


def write(path: str, at: int, size: int) -> None:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    block = b"x" * BLOCK
    for done in range(0, size, BLOCK):
        os.pwrite(fd, block[: min(BLOCK, size - done)], at + done)
    os.fsync(fd)
    os.close(fd)


def read(path: str, at: int, size: int) -> None:
    fd = os.open(path, os.O_RDONLY)
    for done in range(0, size, BLOCK):
        if len(os.pread(fd, min(BLOCK, size - done), at + done)) == 0:
            raise SystemExit(f"{path} ends early")
    os.close(fd)


def together(processes: int, work) -> float:  # type: ignore[no-untyped-def]
    """Seconds until all have done it; all begin at once."""
    reader, writer = os.pipe()
    children = []
    for rank in range(processes):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)
            work(rank)
            os._exit(0)
        children.append(child)
    began = time.monotonic()
    os.close(writer)
    os.close(reader)
    if any(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children):
        raise SystemExit("a writer failed")
    return time.monotonic() - began


def main() -> None:
    folder, processes, size, shared, growth = sys.argv[1], *map(float, sys.argv[2:6])
    count, size = int(processes), int(size)

    def place(rank: int) -> tuple[str, int, int]:
        if shared:
            return f"{folder}/shared", rank * size, size
        return f"{folder}/part{rank:05d}", 0, bytes_of(rank, size, growth)

    write_s = together(count, lambda rank: write(*place(rank)))
    read_s = together(count, lambda rank: read(*place((rank + 1) % count)))
    whole = sum(place(rank)[2] for rank in range(count))
    print(json.dumps({"write_s": write_s, "read_s": read_s, "bytes": whole}))


main()
