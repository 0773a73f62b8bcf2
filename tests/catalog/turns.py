# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLW0108, PTH101, PTH102, PTH104, PTH106, PTH108, PTH113, PTH115, PTH116, PTH119, PTH120, PTH123, PTH208, PTH211
"""turns.py ROOT SEED COUNT: changes and questions about a tree by three processes in turn; prints what each got.

What depends on where and when (inodes, times, orders) is left out, so that two trees with the same names give the same.
"""

import json
import os
import random
import sys

FOLDERS = ["", "a", "a/b", "a/b/c", "a b", "ab", "empty", ".dot", "new", "a/new", "moved"]
FILES = ["file1", "file2", "file9", "none", "fresh", "link", "to", "b", "c", "new"]
HANDS = 3


def seen(st: os.stat_result) -> list[int]:
    return [st.st_mode, 0 if st.st_mode & 0o40000 else st.st_size, 0 if st.st_mode & 0o40000 else st.st_nlink]


def grow(path: str) -> None:
    with open(path, "a") as file:
        file.write("more")


def folder_of(path: str) -> int:
    return os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)


def by_folder(change: str, path: str, other: str) -> None:
    """The same through descriptors of folders."""
    one, two = folder_of(path), folder_of(other)
    try:
        names = os.path.basename(path), os.path.basename(other)
        if change == "rename":
            os.rename(*names, src_dir_fd=one, dst_dir_fd=two)
        else:
            os.unlink(names[0], dir_fd=one)
    finally:
        os.close(one)
        os.close(two)


DOES = {
    "stat": lambda p, o: seen(os.stat(p)),
    "lstat": lambda p, o: seen(os.lstat(p)),
    "access": lambda p, o: [os.access(p, mode) for mode in range(8)],
    "readlink": lambda p, o: os.path.basename(os.readlink(p)),
    "list": lambda p, o: sorted(os.listdir(p)),
    "scan": lambda p, o: sorted([it.name, it.is_dir(follow_symlinks=False)] for it in os.scandir(p)),
    "walk": lambda p, o: sorted(len(names) + len(files) for _, names, files in os.walk(p)),
    "grow": lambda p, o: grow(p),
    "truncate": lambda p, o: os.truncate(p, 3),
    "unlink": lambda p, o: os.unlink(p),
    "mkdir": lambda p, o: os.mkdir(p),
    "rmdir": lambda p, o: os.rmdir(p),
    "chmod": lambda p, o: os.chmod(p, 0o640 if os.path.isfile(p) else 0o750),
    "rename": lambda p, o: os.rename(p, o),
    "link": lambda p, o: os.link(p, o),
    "symlink": lambda p, o: os.symlink(os.path.basename(p), o),
    "rename by folders": lambda p, o: by_folder("rename", p, o),
    "unlink by folder": lambda p, o: by_folder("unlink", p, o),
}
ASKS = ("stat", "lstat", "access", "readlink", "list", "scan", "walk")


def one(root: str, op: str, path: str, other: str) -> object:
    try:
        return DOES[op](f"{root}/{path}", f"{root}/{other}")
    except OSError as error:
        return -(error.errno or 0)


def hand(root: str, orders: int, answers: int) -> None:
    with os.fdopen(orders) as lines, os.fdopen(answers, "w") as out:
        for line in lines:
            print(json.dumps(one(root, *json.loads(line))), file=out, flush=True)


def main() -> None:
    root, rng, count = sys.argv[1], random.Random(int(sys.argv[2])), int(sys.argv[3])
    rate, hands = rng.choice((0.02, 0.05, 0.2)), []
    for _ in range(HANDS):
        orders, answers = os.pipe(), os.pipe()
        if not os.fork():
            os.close(orders[1])
            for other in hands:
                other[0].close()
            hand(root, orders[0], answers[1])
            os._exit(0)
        os.close(orders[0])
        os.close(answers[1])
        hands.append((os.fdopen(orders[1], "w"), os.fdopen(answers[0])))

    def path() -> str:
        names = [it for it in (rng.choice(FOLDERS), rng.choice([*FILES, ""])) if it]
        return "/".join(names)

    for _ in range(count):
        op = rng.choice(ASKS if rng.random() > rate else tuple(DOES))
        order = [op, path(), path()]
        to, back = rng.choice(hands)
        print(json.dumps(order), file=to, flush=True)
        print(json.dumps(order), back.readline().strip())


main()
