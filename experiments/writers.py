# SPDX-License-Identifier: Apache-2.0
"""writers FOLDER KIND PROCESSES BYTES GROWTH ROUNDS READ: so many processes write at once, then read back what another
wrote.

KIND says who writes what where; BYTES is what each process writes in a round, and ROUNDS how often it does that, over
the same files.

    own         a file each, from its begin to its end
    random      a file each, its blocks in any order
    shared      one file, a contiguous part each
    vpic        one file, as VPIC-IO writes particles: eight variables, of each a contiguous part for each rank
    gcrm        one file, as GCRM-IO writes cells: many small records, of each a part for each rank
    vorpal      one file, as VORPAL-IO writes a grid: ranks' rows in turn, so that each writes strided pieces

If the environment names a file in WRITERS_GO, they begin when it is there.
Prints the seconds from the first one's begin to the last one's end as JSON.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator

BLOCK = 262144
PARTS = {"shared": 1, "vpic": 8, "gcrm": 32}  # a shared file is so many arrays, one after the other
ROW = 65536  # of a grid
OWN = ("own", "random")
Piece = tuple[int, int]  # offset, bytes


def bytes_of(rank: int, size: int, growth: float) -> int:
    return int(size * (1 + growth * rank))


def shared_pieces(kind: str, rank: int, processes: int, size: int) -> Iterator[Piece]:
    """The parts of a shared file that a rank writes; those of all ranks cover it without a gap."""
    parts = max(size // ROW, 1) if kind == "vorpal" else PARTS[kind]
    for part in range(parts):
        begin, end = part * size // parts, (part + 1) * size // parts
        yield begin * processes + rank * (end - begin), end - begin


def blocks(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The same in requests of at most BLOCK bytes."""
    for at, size in pieces:
        for done in range(0, size, BLOCK):
            yield at + done, min(BLOCK, size - done)


def requests(kind: str, rank: int, processes: int, size: int) -> list[Piece]:
    """Offsets and bytes of what a rank writes, in its order."""
    if kind not in OWN:
        return list(blocks(shared_pieces(kind, rank, processes, size)))
    found = list(blocks(iter([(0, size)])))
    if kind == "random":
        random.Random(rank).shuffle(found)
    return found


def write(path: str, pieces: list[Piece]) -> None:
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    block = b"x" * BLOCK
    for at, size in pieces:
        os.pwrite(fd, block[:size], at)
    os.fsync(fd)
    os.close(fd)


def read(path: str, pieces: list[Piece]) -> None:
    fd = os.open(path, os.O_RDONLY)
    for at, size in pieces:
        if len(os.pread(fd, size, at)) == 0:
            raise SystemExit(f"{path} ends early")
    os.close(fd)


def together(processes: int, work: Callable[[int], None]) -> float:
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
    folder, kind = sys.argv[1:3]
    processes, size, growth, rounds, reads = (float(word) for word in sys.argv[3:8])
    count, times = int(processes), range(int(rounds))

    def bytes_by(rank: int) -> int:
        return bytes_of(rank, int(size), growth) if kind in OWN else int(size)

    def file(rank: int) -> str:
        return f"{folder}/part{rank:05d}" if kind in OWN else f"{folder}/shared"

    def each(rank: int, what: Callable[[str, list[Piece]], None]) -> None:
        pieces = requests(kind, rank, count, bytes_by(rank))
        for _ in times:
            what(file(rank), pieces)

    while (go := os.environ.get("WRITERS_GO")) and not os.path.exists(go):  # noqa: PTH110
        time.sleep(0.01)
    write_s = together(count, lambda rank: each(rank, write))
    read_s = together(count, lambda rank: each((rank + 1) % count, read)) if reads else 0.0
    whole = len(times) * sum(map(bytes_by, range(count)))
    print(json.dumps({"write_s": write_s, "read_s": read_s, "bytes": whole}))


if __name__ == "__main__":
    main()
