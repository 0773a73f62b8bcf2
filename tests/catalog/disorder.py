# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH108, PTH123, PTH211
"""A program that makes disorder in a folder: python disorder.py FOLDER SEED OPERATIONS PROCESSES THREADS.

Whatever the operating system refuses is passed over.
"""

import mmap
import os
import random
import sys
import threading
from contextlib import suppress

NAMES = ("a", "b", "c", "d\udcff", "e\n", "f" * 120)


def a_path(rng: random.Random) -> str:
    return "/".join(rng.choice(NAMES) for _ in range(rng.randint(1, 3)))


def write(rng: random.Random) -> None:
    flags = rng.choice(
        (
            os.O_WRONLY,
            os.O_RDWR | os.O_CREAT,
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
            os.O_WRONLY | os.O_APPEND,
        )
    )
    fd = os.open(a_path(rng), flags, 0o644)
    try:
        os.write(fd, b"x" * rng.randint(0, 5000))
        if rng.random() < 0.2:
            os.ftruncate(fd, rng.randint(0, 9000))
        if rng.random() < 0.1:
            os.fchmod(fd, 0o600)
        if rng.random() < 0.2:
            with mmap.mmap(fd, 4096) as there:
                there[0] = 65
        if rng.random() < 0.1:
            copy = os.dup(fd)
            os.write(copy, b"y")
            kept.append(copy)
    finally:
        if rng.random() < 0.9:
            os.close(fd)
        else:
            kept.append(fd)


def stream(rng: random.Random) -> None:
    with open(a_path(rng), rng.choice("wa")) as file:
        file.write("z" * rng.randint(0, 3000))


def by_child(rng: random.Random) -> None:
    """A child writes to what it inherited, and ends without closing."""
    fd = os.open(a_path(rng), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    pid = os.fork()
    if pid == 0:
        os.write(fd, b"from a child")
        os._exit(0)
    os.close(fd)
    os.waitpid(pid, 0)


def to_a_program(rng: random.Random) -> None:
    fd = os.open(a_path(rng), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    pid = os.posix_spawn(
        "/bin/echo", ["echo", "words"], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, fd, 1)]
    )
    os.close(fd)
    os.waitpid(pid, 0)


def times(rng: random.Random) -> None:
    os.utime(a_path(rng), ns=(1, rng.randint(1, 10**18)))


OPERATIONS = (
    (20, write),
    (6, stream),
    (3, by_child),
    (2, to_a_program),
    (10, lambda rng: os.mkdir(a_path(rng))),
    (8, lambda rng: os.rename(a_path(rng), a_path(rng))),
    (8, lambda rng: os.unlink(a_path(rng))),
    (3, lambda rng: os.rmdir(a_path(rng))),
    (5, lambda rng: os.link(a_path(rng), a_path(rng))),
    (3, lambda rng: os.symlink("to/nowhere", a_path(rng))),
    (3, lambda rng: os.chmod(a_path(rng), rng.choice((0o755, 0o700)))),
    (3, times),
    (3, lambda rng: os.truncate(a_path(rng), rng.randint(0, 5000))),
)
kept: list[int] = []


def work(seed: int, count: int) -> None:
    rng = random.Random(seed)
    weights, deeds = zip(*OPERATIONS, strict=True)
    for _ in range(count):
        with suppress(OSError, ValueError):
            rng.choices(deeds, weights)[0](rng)


def main() -> None:
    folder, seed, count, processes, threads = sys.argv[1], *map(int, sys.argv[2:6])
    os.chdir(folder)
    children = []
    for p in range(processes - 1):
        pid = os.fork()
        if pid == 0:
            work(seed * 1000 + p, count)
            os._exit(0)
        children.append(pid)
    others = [threading.Thread(target=work, args=(seed * 1000 + 500 + t, count)) for t in range(threads - 1)]
    for thread in others:
        thread.start()
    work(seed * 1000 + 999, count)
    for thread in others:
        thread.join()
    for pid in children:
        os.waitpid(pid, 0)


main()
