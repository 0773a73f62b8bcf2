# SPDX-License-Identifier: Apache-2.0
"""penstock catalog ls, find, du, top: the words of the programs of those names."""

import argparse
import errno
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock.cli import _common
from penstock.cli._catalog.shown import human as human_size
from penstock.cli._catalog.shown import raw

if TYPE_CHECKING:
    from penstock.catalog.find import Names, Outside
    from penstock.catalog.reader import Catalog


def register(rows: Any) -> None:
    ls = rows.add_parser(
        "ls",
        help="names, as ls shows them",
        epilog="example: penstock catalog ls data.cat -l sub",
        add_help=False,
    )
    ls.add_argument("--help", action="help", help="show this help message and exit")
    ls.add_argument("file", metavar="FILE")
    ls.add_argument("paths", metavar="PATH", nargs="*")
    ls.add_argument("-l", action="store_true", help="with type, owner, size, time")
    ls.add_argument("-a", action="store_true", help="also names that begin with a dot")
    ls.add_argument("-R", action="store_true", help="folders in folders too")
    ls.add_argument("-d", action="store_true", help="folders themselves")
    ls.add_argument("-1", dest="one", action="store_true", help="a name a line (as without)")
    ls.add_argument("-A", dest="a", action="store_true", help="as -a")
    ls.add_argument("-i", action="store_true", help="with inode numbers")
    ls.add_argument("-n", action="store_true", help="as -l, with numbers of owners")
    ls.add_argument("-s", action="store_true", help="with the space used")
    ls.add_argument("-F", action="store_true", help="a letter for the type behind the name")
    ls.add_argument("-t", action="store_true", help="newest first")
    ls.add_argument("-S", action="store_true", help="largest first")
    ls.add_argument("-r", action="store_true", help="the other way round")
    ls.add_argument("-h", action="store_true", help="sizes for people")
    ls.add_argument("--layout", action="store_true", help="where the bytes lie")
    ls.add_argument("--json", action="store_true", help="one JSON document a line")
    ls.set_defaults(act=list_)
    _common.intermix(ls)
    find = rows.add_parser(
        "find", help="find's tests, and lfs find's",
        usage="penstock catalog find [--json] FILE [PATH...] [EXPRESSION]",
        epilog="tests: -name -iname -path -ipath -lname -type -size -blocks -mtime -mmin -ctime -atime "
        "-newer -newerXY -daystart -samefile -regex -iregex -regextype -xdev -depth "
        "-uid -gid -user -group -inum -links -perm -empty -stripe-count -stripe-size -ost -pool -component-count; "
        "-maxdepth -mindepth; ! -a -o ( ) ,; actions: -print -print0 -printf -ls -prune -quit; "
        "example: penstock catalog find data.cat -type f -size +1G -printf '%s %p\\n'",
    )  # fmt: skip
    find.add_argument("--json", action="store_true", help="one JSON document a line instead of paths")
    find.add_argument("file", metavar="FILE")
    find.add_argument("words", metavar="PATH, EXPRESSION", nargs=argparse.REMAINDER)
    find.set_defaults(act=find_)
    du = rows.add_parser(
        "du",
        help="space used, as du counts it",
        epilog="example: penstock catalog du data.cat -h -d 1",
        add_help=False,
    )
    du.add_argument("--help", action="help", help="show this help message and exit")
    du.add_argument("file", metavar="FILE")
    du.add_argument("paths", metavar="PATH", nargs="*")
    du.add_argument("-s", "--summarize", action="store_true", help="only the sum of each PATH")
    du.add_argument("-a", "--all", action="store_true", help="files too")
    du.add_argument("-d", "--max-depth", type=int, default=None, metavar="N", help="not deeper than this")
    du.add_argument("-b", "--bytes", action="store_true", help="sizes in bytes, not space used")
    du.add_argument("--apparent-size", action="store_true", help="sizes, not space used")
    du.add_argument("-h", "--human-readable", action="store_true", help="sizes for people")
    du.add_argument("-k", action="store_true", help="in KiB (as without)")
    du.add_argument("-x", action="store_true", help="not what lies on other file systems")
    du.add_argument("-m", action="store_true", help="in MiB")
    du.add_argument("-B", "--block-size", metavar="SIZE", help="in units of this size")
    du.add_argument(
        "-t", "--threshold", metavar="SIZE", help="only what is at least so large; -SIZE: at most"
    )
    du.add_argument("-l", "--count-links", action="store_true", help="count hard links each time")
    du.add_argument("-c", "--total", action="store_true", help="the sum of all too")
    du.add_argument("--si", action="store_true", help="sizes for people, in powers of 1000")
    du.add_argument(
        "-0", "--null", action="store_true", help="a NUL byte behind each name, and names as they are"
    )
    du.add_argument("--inodes", action="store_true", help="entries, not space")
    du.add_argument("--json", action="store_true", help="one JSON document a line")
    du.set_defaults(act=du_)
    _common.intermix(du)
    top = rows.add_parser(
        "top", help="who and what needs most room", epilog="example: penstock catalog top data.cat --by user"
    )
    top.add_argument("file", metavar="FILE")
    top.add_argument("path", metavar="PATH", nargs="?", default="")
    top.add_argument(
        "--by", choices=("file", "folder", "user", "group", "type", "ending", "age", "target"), default="file"
    )
    top.add_argument("-n", "--lines", type=int, default=10, metavar="N", help="how many (10)")
    top.add_argument("--json", action="store_true", help="as one JSON document")
    top.set_defaults(act=top_)


def opened(args: argparse.Namespace) -> "Catalog":
    from penstock.base import settings
    from penstock.base.text import visible
    from penstock.base.units import show_duration
    from penstock.catalog.reader import Catalog

    max_age_ns = settings.load()["catalog.max_age"]
    catalog = Catalog.open(args.file, max_age_s=max_age_ns / 1e9)
    for name in catalog.damaged:
        _common.note(
            f"{visible(args.file)}: {name} is damaged and left out; penstock catalog update --full makes it anew"
        )
    expired = catalog.expired_folders()
    if expired:
        _common.note(
            f"{visible(args.file)}: {expired} of its folders were learnt more than {show_duration(max_age_ns)} ago "
            "(catalog.max_age); penstock catalog update --full asks anew"
        )
    return catalog


def status_of(catalog: "Catalog", damaged: "list[tuple[bytes, int]]", starts: Iterable[str] = ("",)) -> int:
    """3: the answer is not whole.  `starts`: it is about all that lies there."""
    from penstock.base.text import visible

    for path, _ in damaged:
        _common.note(f"{visible(path) or '.'}: damaged in the catalog; penstock catalog check mends it")
    return 3 if unlisted(catalog, starts) or damaged or catalog.damaged else 0


def unlisted(catalog: "Catalog", starts: Iterable[str]) -> int:
    """Of how many folders names may be missing; one line says so."""
    from contextlib import suppress

    from penstock.base.text import visible

    count = 0
    for start in starts:
        with suppress(OSError):  # it is not there, or damaged: which is said anyway
            count += catalog.unlisted_folders(start)
    if count:
        file = visible(str(catalog.path))
        _common.note(
            f"{file}: {count} folders in the answer were not read whole, so names are missing; "
            f"penstock catalog update --full {file} reads them"
        )
    return count


def start_of(catalog: "Catalog", word: str) -> str:
    """A path as typed, as the catalog takes it: relative to the folder we are in, if that is in the tree."""
    from penstock.catalog.reader import OutsideError, within

    here = os.path.abspath(word)  # noqa: PTH100 - lexically
    root = catalog.root.rstrip("/") + "/"
    if f"{here}/".startswith(root):
        return here
    try:
        return root + os.fsdecode(within(here, catalog.manifest.root))
    except OutsideError:
        return word


def missing(catalog: "Catalog", error: OSError, word: str) -> int:
    """Says why there is no answer about a path, and gives the exit status."""
    from penstock.base.errors import PenstockError
    from penstock.base.text import visible
    from penstock.catalog.reader import DAMAGE, DAMAGED

    if isinstance(error, PenstockError | BrokenPipeError):
        raise error
    if error.filename is None:
        raise PenstockError(f"the answer cannot be written: {error.strerror}") from error
    if catalog.damaged and error.errno in (errno.ENODATA, errno.ENOENT):
        _common.note(f"{visible(word)}: not in what is whole of the catalog")
        return 3
    if error.errno == errno.ENODATA:
        _common.note(f"{visible(word)}: not known to the catalog; penstock catalog update --full reads it")
        return 3
    if error.errno in DAMAGE:
        _common.note(f"{visible(word)}: {DAMAGED}")
        return 3
    _common.note(f"{visible(word)}: {error.strerror or error}")
    return 1


def _names() -> "Names":
    from functools import cache

    from penstock.catalog.find import Names

    def named(lookup: str, module: str) -> Callable[[int], str]:
        @cache
        def name(number: int) -> str:
            import importlib

            try:
                return str(getattr(importlib.import_module(module), lookup)(number)[0])
            except KeyError:
                return str(number)

        return name

    return Names(named("getpwuid", "pwd"), named("getgrgid", "grp"))


def row_json(path: bytes | str, entry: Any) -> dict[str, Any]:
    """An entry for machines."""
    from penstock.base.text import visible
    from penstock.catalog.find import letter_of

    return {
        "path": visible(path),
        "type": letter_of(entry.st_mode),
        "mode": f"{entry.st_mode & 0o7777:04o}",
        "size_bytes": entry.st_size,
        "blocks": entry.st_blocks,
        "uid": entry.st_uid,
        "gid": entry.st_gid,
        "nlink": entry.st_nlink,
        "ino": entry.st_ino,
        "atime_ns": entry.st_atime_ns,
        "mtime_ns": entry.st_mtime_ns,
        "ctime_ns": entry.st_ctime_ns,
    }


def _line(document: dict[str, Any]) -> None:
    import json

    print(json.dumps(document))


def long_line(name: str, entry: Any, names: "Names", human: bool) -> str:
    """A line of ls -l."""
    import stat

    when = time.localtime(entry.st_mtime_ns // 10**9)
    recent = 0 <= time.time() - entry.st_mtime_ns / 1e9 < 15778476
    shown = time.strftime("%b %e %H:%M" if recent else "%b %e  %Y", when)
    size = human_size(entry.st_size) if human else str(entry.st_size)
    if stat.S_ISCHR(entry.st_mode) or stat.S_ISBLK(entry.st_mode):
        size = f"{os.major(entry.st_rdev)}, {os.minor(entry.st_rdev)}"
    owner, group = names.user(entry.st_uid), names.group(entry.st_gid)
    return (
        f"{stat.filemode(entry.st_mode)} {entry.st_nlink:>3} {owner:<8} {group:<8} {size:>10} {shown} {name}"
    )


def list_(args: argparse.Namespace) -> int:
    from penstock.base.text import visible

    catalog, names, status = opened(args), _names(), 0
    if args.n:
        args.l, names = True, names._replace(user=str, group=str)
    args.name = os.fsdecode if raw() else visible
    damaged: list[tuple[bytes, int]] = []
    many = len(args.paths) > 1 or args.R
    for word in args.paths or [""]:
        start = start_of(catalog, word)
        try:
            shown = _list_one(args, catalog, start, word, names, many)
        except OSError as error:
            status = missing(catalog, error, word or catalog.root)
            continue
        damaged += shown.damaged
        if not shown.complete and not args.json:
            _common.note(f"{visible(word or catalog.root)}: not every name is known; {shown.why}")
            status = status or 3
    return status or status_of(catalog, damaged, ())


class Shown:
    """Whether all that was listed is known to be all there is."""

    def __init__(self) -> None:
        self.complete = True
        self.why = ""
        self.damaged: list[tuple[bytes, int]] = []


def in_order(rows: list[Any], newest: bool, largest: bool, other_way: bool) -> list[Any]:
    """As ls -t, -S and -r sort; else by name."""
    if newest:
        rows = sorted(rows, key=lambda row: -row.entry.st_mtime_ns)
    elif largest:
        rows = sorted(rows, key=lambda row: -row.entry.st_size)
    return rows[::-1] if other_way else rows


def size_on_disk(blocks: int, human: bool) -> str:
    return human_size(blocks * 512) if human else str((blocks + 1) // 2)


def mark_of(mode: int) -> str:
    """What ls -F puts behind a name."""
    from penstock.catalog.find import letter_of

    return {"d": "/", "l": "@", "p": "|", "s": "="}.get(letter_of(mode), "*" if mode & 0o111 else "")


def _list_one(
    args: argparse.Namespace, catalog: "Catalog", start: str, word: str, names: "Names", many: bool
) -> Shown:
    import stat

    from penstock.catalog.reader import DAMAGE, Row

    shown = Shown()
    entry = catalog.stat(start)
    if args.d or not stat.S_ISDIR(entry.st_mode):
        _show_rows(args, catalog, [(start, Row(word or catalog.root, entry, None))], names)
        return shown
    todo = [start]
    while todo:
        here = todo.pop()
        folder = catalog.folder(here)
        if not folder.complete:
            shown.complete = False
            shown.why = (
                "it could not be listed" if folder.unreadable else "names were left out or not read yet"
            )
        try:
            rows = [row for row in catalog.scandir(here) if args.a or not row.name.startswith(".")]
            rows = in_order(rows, args.t, args.S, args.r)
        except OSError as error:
            if error.errno not in DAMAGE:
                raise
            shown.damaged.append((os.fsencode(here or catalog.root), error.errno))
            continue
        if many and not args.json:
            print(f"{args.name((word or catalog.root) + here[len(start) :])}:")
        if args.s and not args.json:
            print(f"total {size_on_disk(sum(row.entry.st_blocks for row in rows), args.h)}")
        under = f"{here.rstrip('/')}/" if here else ""
        _show_rows(args, catalog, [(f"{under}{row.name}", row) for row in rows], names)
        if args.R:
            todo += [f"{under}{row.name}" for row in reversed(rows) if row.folder]
        if todo and not args.json:
            print()
    return shown


def _show_rows(
    args: argparse.Namespace, catalog: "Catalog", rows: list[tuple[str, Any]], names: "Names"
) -> None:
    import stat

    from penstock.cli.layout import as_json, describe

    for path, row in rows:
        layout = catalog.layout(path) if args.layout else None
        if args.json:
            _line({**row_json(path, row.entry), **({"layout": as_json(layout)} if layout else {})})
            continue
        name = args.name(row.name)
        if args.F and not (args.l and stat.S_ISLNK(row.entry.st_mode)):
            name += mark_of(row.entry.st_mode)
        if args.l and stat.S_ISLNK(row.entry.st_mode):
            name += f" -> {args.name(catalog.readlink(path))}"
        if args.i:
            print(row.entry.st_ino, end=" ")
        if args.s:
            print(size_on_disk(row.entry.st_blocks, args.h), end=" ")
        print(
            long_line(name, row.entry, names, args.h)
            if args.l
            else name
            if layout is None
            else "\n".join(describe(path, layout))
        )


# find


def _outside() -> "Outside":
    import datetime
    import grp
    import pwd

    from penstock.base.errors import UsageError
    from penstock.catalog.find import Outside

    def number(lookup: Callable[[str], Any], name: str) -> int | None:
        try:
            return int(lookup(name)[2])
        except KeyError:
            return None

    def facts(path: str) -> os.stat_result:
        try:
            return os.lstat(path)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; a file to compare with is needed") from error

    def date_ns(text: str) -> int:
        if re.fullmatch(r"@\d+", text):
            return int(text[1:]) * 10**9
        try:
            return int(datetime.datetime.fromisoformat(text).timestamp() * 10**9)
        except ValueError as error:
            raise UsageError(f"-newermt {text}: write a date like 2026-11-01 or 2026-11-01T12:00") from error

    return Outside(
        time.time_ns(),
        lambda n: number(pwd.getpwnam, n),
        lambda n: number(grp.getgrnam, n),
        lambda path, letter: int(getattr(facts(path), f"st_{letter}time_ns")),
        date_ns,
        int(time.mktime((*time.localtime()[:2], time.localtime()[2] + 1, 0, 0, 0, 0, 0, -1))) * 10**9,
        lambda path: facts(path).st_ino,
    )


def find_(args: argparse.Namespace) -> int:
    from penstock.base.errors import UsageError
    from penstock.base.text import visible
    from penstock.catalog import find

    words = list(args.words)
    if "--json" in words:
        args.json = True
        words.remove("--json")
    paths = []
    while words and not find.is_expression(words[0]):
        paths.append(words.pop(0))
    query = find.parse(words, _outside())
    catalog, names, status = opened(args), _names(), 0
    shown = args.json or sys.stdout.isatty()
    tests = query.tests
    if shown:  # names for eyes and machines, not as they are
        tests = [
            t._replace(kind=int(find.Kind.CALL), a=1000 + t.a) if t.kind == find.Kind.PRINT else t
            for t in tests
        ]

    quitting = False

    def act(which: int, row: Any, target: bytes | None, rest: bytes, depth: int) -> bool:
        nonlocal quitting
        path, entry = row[0], row[1]
        if which == find.QUITTING:
            quitting = True
        elif which >= 1000:
            _line(row_json(path, entry)) if args.json else print(visible(path))
        elif query.actions[which].name == "ls":
            print(
                f"{entry.st_ino:>9} {(entry.st_blocks + 1) // 2:>6} {long_line(visible(path), entry, names, False)}"
            )
        else:
            it = find.Shown(path, rest, depth, entry, target)
            sys.stdout.flush()
            sys.stdout.buffer.write(find.printf(query.actions[which].text, it, names))
        return True

    damaged: list[tuple[bytes, int]] = []
    starts = [start_of(catalog, word) for word in paths or [catalog.root]]
    for word, start in zip(paths or [catalog.root], starts, strict=True):
        sys.stdout.flush()
        try:
            damaged += catalog.view.find(
                start,
                os.fsencode(word),
                query.depth_min,
                query.depth_max,
                tests,
                sys.stdout.fileno(),
                act,
                query.one_mount,
                query.contents_first,
            )
        except ValueError as error:  # of a -regex
            raise UsageError(str(error)) from error
        except OSError as error:
            status = missing(catalog, error, word)
        if quitting:
            break
    sys.stdout.flush()
    return status or status_of(catalog, damaged, starts)


# du


def du_(args: argparse.Namespace) -> int:
    from penstock import _native
    from penstock.base.errors import UsageError
    from penstock.base.text import visible
    from penstock.base.units import parse_size
    from penstock.cli._catalog.shown import scaled

    catalog, status, total = opened(args), 0, 0
    end = "\0" if args.null else "\n"
    said = str if raw() or args.null else visible
    seen = _native.seen_new() if len(args.paths) > 1 else None
    depth = 0 if args.summarize else 2**32 - 1 if args.max_depth is None else args.max_depth
    apparent = args.bytes or args.apparent_size
    damaged: list[tuple[bytes, int]] = []
    unit = parse_size(args.block_size) if args.block_size else 1 << 20 if args.m else 0
    if args.block_size and unit <= 0:
        raise UsageError(f"-B {args.block_size}: a size of at least 1 is needed")
    below = (args.threshold or "").startswith("-")
    threshold = parse_size(args.threshold.removeprefix("-")) if args.threshold else None
    if threshold is not None and below:
        threshold = -threshold

    def amount(blocks: int, size: int, entries: int) -> int:
        return entries if args.inodes else size if apparent else blocks * 512

    def shown(value: int) -> str:
        if (args.human_readable or args.si) and not args.inodes:
            return human_size(value, 1000 if args.si else 1024)
        return str(value) if args.inodes or (args.bytes and not unit) else scaled(value, unit or 1024)

    def is_wanted(value: int) -> bool:
        return threshold is None or (value <= -threshold if threshold < 0 else value >= threshold)

    for word in args.paths or [catalog.root]:
        start = start_of(catalog, word)
        try:
            rows, bad = catalog.view.du(start, depth, args.all, args.count_links, seen, args.x)
            skip = len(inside(catalog, start))
        except OSError as error:
            status = missing(catalog, error, word)
            continue
        damaged += bad
        for _, path, blocks, size, entries in rows:
            if not is_wanted(amount(blocks, size, entries)):
                continue
            rest = os.fsdecode(path[skip:]).lstrip("/")
            name = f"{word.rstrip('/')}/{rest}" if rest else word
            if args.json:
                _line(
                    {
                        "path": visible(name),
                        "disk_bytes": blocks * 512,
                        "size_bytes": size,
                        "entries": entries,
                    }
                )
            else:
                print(f"{shown(amount(blocks, size, entries))}\t{said(name)}", end=end)
        total += amount(*rows[-1][2:]) if rows else 0
    if args.total and not args.json:
        print(f"{shown(total)}\ttotal", end=end)
    return status or status_of(catalog, damaged, [start_of(catalog, it) for it in args.paths or [""]])


def inside(catalog: "Catalog", start: str) -> bytes:
    """A path relative to the root, tidied."""
    rest = os.fsencode(start)
    if rest.startswith(b"/"):
        rest = rest[len(catalog.manifest.root) :]
    normal = os.path.normpath(rest.strip(b"/")) if rest.strip(b"/") else b""
    return b"" if normal == b"." else normal


def top_(args: argparse.Namespace) -> int:
    from penstock.base.text import visible
    from penstock.base.units import show_count, show_size
    from penstock.catalog import top

    catalog = opened(args)
    rows, damaged = top.top(
        catalog, start_of(catalog, args.path) if args.path else "", args.by, args.lines, time.time_ns()
    )
    names = _names()
    naming = {"user": names.user, "group": names.group}.get(args.by)
    shown = [(naming(int(row.what)) if naming else visible(row.what), row) for row in rows]
    if args.json:
        documents = [
            {args.by: name, "files": row.files, "disk_bytes": row.disk_bytes, "size_bytes": row.size_bytes}
            for name, row in shown
        ]
        _common.print_json({"schema_version": 1, "by": args.by, "rows": documents})
    else:
        print(f"{'ON DISK':>10} {'SIZE':>10} {'FILES':>8}  {args.by.upper()}")
        for name, row in shown:
            print(
                f"{show_size(row.disk_bytes):>10} {show_size(row.size_bytes):>10} {show_count(row.files):>8}  {name}"
            )
    return status_of(catalog, damaged, [start_of(catalog, args.path) if args.path else ""])
