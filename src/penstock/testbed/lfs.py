# SPDX-License-Identifier: Apache-2.0
"""lfs for the testbed: getstripe, setstripe, df, osts, in the words of Lustre's.

lfs setstripe -c 4 -S 1M FILE
lfs setstripe -E 1M -c 1 -E -1 -c -1 FILE
lfs getstripe FILE
lfs df PATH
"""

import contextlib
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.base import units
from penstock.base.errors import PenstockError, UsageError
from penstock.targets import lov
from penstock.targets.driver import DEGRADED, INACTIVE, NO_CREATE, READ_ONLY, driver_for
from penstock.targets.lustre import O_LOV_DELAY_CREATE, Lustre
from penstock.testbed import lustre_text as text

SETSTRIPE = 0x4008669A
MARKS = {DEGRADED: "D", NO_CREATE: "N", READ_ONLY: "R", INACTIVE: "I"}


def _lustre(path: str) -> Lustre:
    driver = driver_for(path)
    if not isinstance(driver, Lustre):
        raise UsageError(f"{path}: not on Lustre or a testbed")
    return driver


# getstripe

QUICK: dict[str, Callable[[lov.Part], object]] = {
    "-c": lambda part: text.signed(part.stripe_count),
    "-S": lambda part: part.stripe_size_bytes,
    "-i": text.first_ost,
    "-p": lambda part: part.pool.decode(errors="replace"),
}
LONG = {
    "--stripe-count": "-c",
    "--stripe-size": "-S",
    "--stripe-index": "-i",
    "--pool": "-p",
    "--yaml": "-y",
    "--verbose": "-v",
    "--directory": "-d",
    "--recursive": "-r",
    "--ost": "-o",
    "--component-end": "-E",
    "--layout": "-L",
}


def getstripe(words: list[str]) -> int:
    asked = [LONG.get(word, word) for word in words if word.startswith("-")]
    paths = [word for word in words if not word.startswith("-")]
    unknown = set(asked) - {*QUICK, "-y", "-v", "-d", "-r"}
    if unknown or not paths:
        raise UsageError(
            f"getstripe: {'unknown option ' + ' '.join(sorted(unknown)) if unknown else 'no file named'}"
        )
    status = 0
    for path in paths:
        for name in _tree(path, "-d" in asked, "-r" in asked):
            try:
                sys.stdout.write("".join(f"{line}\n" for line in _stripe_lines(name, asked)))
            except OSError as error:
                print(f"lfs getstripe: {name}: {error.strerror}", file=sys.stderr)
                status = error.errno or 1
    return status


def _tree(path: str, only: bool, deep: bool) -> Iterator[str]:
    """The path; below a folder its entries too, as lfs does."""
    yield path
    if only or not os.path.isdir(path) or os.path.islink(path):  # noqa: PTH112, PTH114 - text stays as typed
        return
    with os.scandir(path) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _tree(entry.path, not deep, deep)
            elif entry.is_file(follow_symlinks=False):
                yield entry.path


def _stripe_lines(path: str, asked: list[str]) -> list[str]:
    folder = os.path.isdir(path)  # noqa: PTH112
    try:
        layout = lov.decode(os.getxattr(path, lov.XATTR))
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        return text.folder_lines(path, None) if folder else [f"{path} has no stripe info"]
    quick = [word for word in asked if word in QUICK]
    if quick:
        return [str(QUICK[word](layout.parts[-1])) for word in quick]
    if folder:
        return text.folder_lines(path, layout)
    return text.file_lines(path, layout, "-v" in asked, "-y" in asked)


# setstripe


def _count(word: str) -> int:
    value = int(word)
    if not -1 <= value <= 0xFFFF:
        raise UsageError(f"setstripe: bad stripe count {word}")
    return value & 0xFFFF


def _osts(word: str) -> list[int]:
    found: list[int] = []
    for piece in word.split(","):
        first, _, last = piece.partition("-")
        found += range(int(first), min(int(last or first), int(first) + 4096) + 1)
    return found


def parse_setstripe(words: list[str]) -> tuple[lov.Lov, list[str]]:
    """The template and the paths; each -E begins a component."""
    parts: list[lov.Part] = []
    part, ended, start = lov.Part(pattern=0), True, 0
    paths: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            paths.append(word)
            continue
        option = LONG.get(word, word)
        if option == "-d":
            part = lov.Part(pattern=0, stripe_count=0)
            continue
        value = next(rest, None)
        if value is None:
            raise UsageError(f"setstripe: {word} wants a value")
        if option == "-E":
            if not ended:
                parts.append(part)
                start = part.end_bytes
            end = lov.EOF if value in ("-1", "eof", "EOF") else units.parse_size(value)
            part, ended = lov.Part(pattern=0, start_bytes=start, end_bytes=end), False
        else:
            part = _with_option(part, option, value)
    if not ended:
        parts.append(part)
    return lov.Lov(composite=bool(parts), parts=tuple(parts) or (part,)), paths


def _with_option(part: lov.Part, option: str, value: str) -> lov.Part:
    if option == "-c":
        return part._replace(stripe_count=_count(value))
    if option == "-S":
        return part._replace(stripe_size_bytes=units.parse_size(value))
    if option == "-i":
        return part._replace(stripe_offset=int(value) & 0xFFFF)
    if option == "-p":
        return part._replace(magic=lov.V3, pool=value.encode())
    if option == "-o":
        wish = lov.template(0, part.stripe_size_bytes, _osts(value))
        table, count = wish.table, wish.stripe_count
        return part._replace(magic=lov.SPECIFIC, table=table, stripe_count=count, pattern=wish.pattern)
    if option == "-L" and value == "mdt":
        return part._replace(pattern=lov.MDT, stripe_size_bytes=part.end_bytes)
    raise UsageError(f"setstripe: unknown option {option} {value}")


def _apply(path: str, template: lov.Lov) -> None:
    """The calls that lfs makes: a delayed open, then the ioctl, or for components the attribute."""
    folder = os.path.isdir(path)  # noqa: PTH112
    flags = os.O_RDONLY | os.O_DIRECTORY if folder else os.O_WRONLY | os.O_CREAT
    fd = os.open(path, flags | O_LOV_DELAY_CREATE | os.O_CLOEXEC, 0o666)
    try:
        blob = lov.encode(template)
        if template.composite:
            os.setxattr(fd, lov.XATTR, blob)
            return
        try:
            fcntl.ioctl(fd, SETSTRIPE, bytearray(blob))
        except OSError as error:
            if error.errno != errno.ENOTTY:
                raise
            os.setxattr(fd, lov.XATTR, blob)
    finally:
        os.close(fd)


def setstripe(words: list[str]) -> int:
    template, paths = parse_setstripe(words)
    if not paths:
        raise UsageError("setstripe: no file named")
    status = 0
    for path in paths:
        try:
            _apply(path, template)
        except OSError as error:
            said = "stripe already set" if error.errno == errno.EEXIST else error.strerror
            print(f"lfs setstripe: setstripe error for '{path}': {said}", file=sys.stderr)
            status = error.errno or 1
    return status


# df, osts


def _number(folder: Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int((folder / name).read_text())
    return 0


def space(lustre: Lustre, inodes: bool) -> list[text.Space]:
    states = lustre.health()
    total, free, room = (
        ("filestotal", "filesfree", "filesfree") if inodes else ("kbytestotal", "kbytesfree", "kbytesavail")
    )
    rows = []
    for kind, group, mark in (("MDT", "mdc", "-mdc-"), ("OST", "osc", "-osc-")):
        for name, folder in _of_first_client(lustre, group, mark).items():
            number = int(name[-4:], 16)
            size = _number(folder, total)
            letter = MARKS.get(states.get(number, ""), "") if kind == "OST" else ""
            where = f"{lustre.mount.point}[{kind}:{number}]"
            used = size - _number(folder, free)
            rows.append(text.Space(f"{name}_UUID", where, size, used, _number(folder, room), letter))
    return rows


def _of_first_client(lustre: Lustre, group: str, mark: str) -> dict[str, Path]:
    """The folder of each target; every client of the testbed has one, and they say the same."""
    found: dict[str, Path] = {}
    for root in lustre.params.roots:
        for folder in sorted(root.glob(f"{group}/*{mark}*")):
            found.setdefault(folder.name.rpartition(mark)[0], folder)
    return found


def df(words: list[str]) -> int:
    paths = [word for word in words if not word.startswith("-")] or ["."]
    for path in paths:
        lustre = _lustre(path)
        print("\n".join(text.space_lines(space(lustre, "-i" in words), lustre.mount.point, "-i" in words)))
    return 0


def osts(words: list[str]) -> int:
    lustre = _lustre(words[0] if words else ".")
    states = lustre.health()
    print("OBDS:")
    for target in lustre.targets():
        state = "INACTIVE" if states.get(target.id) == INACTIVE else "ACTIVE"
        print(f"{target.id}: {target.name}_UUID {state}")
    return 0


VERBS = {"getstripe": getstripe, "setstripe": setstripe, "df": df, "osts": osts}


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if not words or words[0] not in VERBS:
        print(f"usage: lfs {'|'.join(VERBS)} ...\n{__doc__}", file=sys.stderr)
        return 1
    try:
        return VERBS[words[0]](words[1:])
    except (PenstockError, ValueError) as error:
        print(f"lfs {words[0]}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
