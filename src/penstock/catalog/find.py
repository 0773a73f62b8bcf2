# SPDX-License-Identifier: Apache-2.0
"""find's words, and lfs find's, as tests that the kernel evaluates (native/kernels/query.h).

    expression:  list   { , list }        list:  and { -o and }
    and:         not { [-a] not }         not:   [!] ( expression ) | test | action

Invariants:
1. Parsing is pure: the time, names of users and times of files come through `Outside`.
2. A word means what it means to GNU find; what would change anything (-delete, -exec) is refused.
3. Tests refer to earlier ones only; the last is the root.
"""

import re
import stat
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.base import units
from penstock.base.errors import UsageError


class Kind(IntEnum):
    """enum penstock_test_kind."""

    TRUE = 0
    AND = 1
    OR = 2
    COMMA = 3
    NOT = 4
    NAME = 5
    PATH = 6
    TARGET = 7
    TYPE = 8
    SIZE = 9
    BYTES_ON = 10
    MTIME = 11
    CTIME = 12
    ATIME = 13
    UID = 14
    GID = 15
    INODE = 16
    LINKS = 17
    PERM = 18
    EMPTY = 19
    STRIPES = 20
    STRIPE_BYTES = 21
    COMPONENTS = 22
    OST = 23
    POOL = 24
    PRUNE = 25
    PRINT = 26
    CALL = 27
    QUIT = 28
    REGEX = 29


QUITTING = 999
"""The number of the CALL that says: no further start."""
LEAST, MOST = -(2**63), 2**63 - 1
ALL_DEPTHS = 2**32 - 1
_TYPES = {
    "f": stat.S_IFREG,
    "d": stat.S_IFDIR,
    "l": stat.S_IFLNK,
    "b": stat.S_IFBLK,
    "c": stat.S_IFCHR,
    "p": stat.S_IFIFO,
    "s": stat.S_IFSOCK,
}
_SIZE_UNITS = {"c": 1, "w": 2, "b": 512, "k": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SECOND = 10**9


class Test(NamedTuple):
    kind: int
    a: int = 0
    b: int = 0
    low: int = 0
    high: int = 0
    text: bytes | None = None


class Outside(NamedTuple):
    """What parsing needs of the world."""

    now_ns: int
    uid: Callable[[str], int | None]
    gid: Callable[[str], int | None]
    time_ns: Callable[[str, str], int]
    """Of a file named by -newer: its time of that letter."""
    date_ns: Callable[[str], int]
    """Of a date in words, for -newermt."""
    tomorrow_ns: int
    """When the next day begins, for -daystart."""
    inode: Callable[[str], int]
    """Of a file named by -samefile."""


class Action(NamedTuple):
    """What the caller does at a CALL: "printf" with its format, or "ls"."""

    name: str
    text: str = ""


class Query(NamedTuple):
    tests: list[Test]
    actions: list[Action]
    depth_min: int
    depth_max: int
    one_mount: bool = False
    contents_first: bool = False


_FORBIDDEN = {"-delete", "-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprintf", "-fls", "-fprint0"}
_ALIASES = {
    "-wholename": "-path",
    "-iwholename": "-ipath",
    "-c": "-stripe-count",
    "-S": "-stripe-size",
    "-O": "-ost",
    "-o": "-o",
    "-or": "-o",
    "-and": "-a",
    "-not": "!",
    "-comp-count": "-component-count",
    "-gid": "-gid",
    "-maxdepth": "-maxdepth",
    "-D": "-maxdepth",
    "-0": "-print0",
    "-mount": "-xdev",
    "-newer": "-newermm",
    "-anewer": "-neweram",
    "-cnewer": "-newercm",
}
_PATTERNS = {
    "-name": (Kind.NAME, 0),
    "-iname": (Kind.NAME, 1),
    "-path": (Kind.PATH, 0),
    "-ipath": (Kind.PATH, 1),
}
_PATTERNS |= {"-lname": (Kind.TARGET, 0), "-ilname": (Kind.TARGET, 1)}
_NUMBERS = {
    "-uid": Kind.UID,
    "-gid": Kind.GID,
    "-inum": Kind.INODE,
    "-links": Kind.LINKS,
    "-stripe-count": Kind.STRIPES,
    "-component-count": Kind.COMPONENTS,
}
_DAYS = {"-mtime": Kind.MTIME, "-ctime": Kind.CTIME, "-atime": Kind.ATIME}
_MINUTES = {"-mmin": Kind.MTIME, "-cmin": Kind.CTIME, "-amin": Kind.ATIME}
_TIMES = {"a": Kind.ATIME, "c": Kind.CTIME, "m": Kind.MTIME}
_REGEX_TYPES = {"emacs": 0, "findutils-default": 0, "posix-extended": 1, "posix-egrep": 1, "egrep": 1}
_VALUED: tuple[str, ...] = (
    "-type",
    "-size",
    "-blocks",
    "-perm",
    "-user",
    "-group",
    "-stripe-size",
    "-ost",
    "-pool",
    "-printf",
)
_VALUED += ("-maxdepth", "-mindepth", "-regex", "-iregex", "-regextype", "-samefile")
_BARE = {"-empty": Kind.EMPTY, "-prune": Kind.PRUNE, "-true": Kind.TRUE}


def is_expression(word: str) -> bool:
    """Does the expression begin with this word, so that it is no path?"""
    return word.startswith("-") or word in ("(", "!", ")", ",")


class _Parser:
    def __init__(self, words: list[str], outside: Outside) -> None:
        self.words = words
        self.at = 0
        self.outside = outside
        self.tests: list[Test] = []
        self.actions: list[Action] = []
        self.acts = False
        self.depth_min, self.depth_max = 0, ALL_DEPTHS
        self.one_mount = self.contents_first = False
        self.now_ns = outside.now_ns
        self.extended = 0

    def add(
        self, kind: Kind, a: int = 0, b: int = 0, low: int = 0, high: int = 0, text: str | None = None
    ) -> int:
        held = None if text is None else text.encode("utf-8", "surrogateescape")
        self.tests.append(Test(int(kind), a, b, *_kept(low, high), held))
        return len(self.tests) - 1

    def peek(self) -> str:
        word = self.words[self.at] if self.at < len(self.words) else ""
        plain = word[1:] if word.startswith("--") and len(word) > 3 else word
        return _ALIASES.get(plain, plain)

    def take(self) -> str:
        word = self.peek()
        self.at += 1
        return word

    def argument(self, word: str) -> str:
        if self.at >= len(self.words):
            raise UsageError(f"{word}: needs a value")
        self.at += 1
        return self.words[self.at - 1]

    def comma(self) -> int:
        left = self.either()
        while self.peek() == ",":
            self.take()
            left = self.add(Kind.COMMA, left, self.either())
        return left

    def either(self) -> int:
        left = self.both()
        while self.peek() == "-o":
            self.take()
            left = self.add(Kind.OR, left, self.both())
        return left

    def both(self) -> int:
        left = self.one()
        while self.peek() not in ("", "-o", ")", ","):
            if self.peek() == "-a":
                self.take()
            left = self.add(Kind.AND, left, self.one())
        return left

    def one(self) -> int:
        word = self.take()
        if word == "!":
            return self.add(Kind.NOT, self.one())
        if word == "(":
            inside = self.comma()
            if self.take() != ")":
                raise UsageError("a ( without its ); in a shell write \\( and \\)")
            return inside
        if not word or word == ")":
            raise UsageError(
                "the expression ends where a test should be" if not word else "a ) without its ("
            )
        return self.test(word)

    def test(self, word: str) -> int:
        if word in _FORBIDDEN:
            raise UsageError(f"{word}: a catalog only looks; use -print0 and xargs -0")
        if word in _BARE:
            return self.add(_BARE[word])
        if word == "-false":
            return self.add(Kind.NOT, self.add(Kind.TRUE))
        if word == "-quit":
            return self.add(Kind.AND, self.add(Kind.CALL, QUITTING), self.add(Kind.QUIT))
        if word in ("-print", "-print0"):
            self.acts = True
            return self.add(Kind.PRINT, 0 if word == "-print0" else 10)
        if word == "-ls":
            return self.action(Action("ls"))
        if word == "-xdev":
            self.one_mount = True
            return self.add(Kind.TRUE)
        if word == "-depth":
            self.contents_first = True
            return self.add(Kind.TRUE)
        if word == "-daystart":
            self.now_ns = self.outside.tomorrow_ns
            return self.add(Kind.TRUE)
        newer = re.fullmatch(r"-newer([acm])([acmt])", word)
        if not (newer or word in _VALUED or any(word in it for it in (_PATTERNS, _NUMBERS, _DAYS, _MINUTES))):
            raise UsageError(f"{word}: no such test; see penstock catalog find --help")
        value = self.argument(word)
        if newer:
            of = self.outside.date_ns(value) if newer[2] == "t" else self.outside.time_ns(value, newer[2])
            return self.add(_TIMES[newer[1]], low=of + 1, high=MOST)
        if word == "-printf":
            return self.action(Action("printf", value))
        if word in _PATTERNS:
            kind, fold = _PATTERNS[word]
            return self.add(kind, low=fold, text=value)
        if word == "-pool":
            return self.add(Kind.POOL, text=value)
        return self.valued(word, value)

    def action(self, action: Action) -> int:
        self.acts = True
        self.actions.append(action)
        return self.add(Kind.CALL, len(self.actions) - 1)

    def valued(self, word: str, value: str) -> int:
        if word in ("-maxdepth", "-mindepth"):
            if not value.isdecimal():
                raise UsageError(f"{word} {value}: a whole number is needed")
            setattr(self, "depth_max" if word == "-maxdepth" else "depth_min", int(value))
            return self.add(Kind.TRUE)
        if word in _NUMBERS:
            return self.add(_NUMBERS[word], 0, 0, *compared(word, value))
        if word in _DAYS:
            return self.add(_DAYS[word], 0, 0, *days(word, value, self.now_ns))
        if word in _MINUTES:
            return self.add(_MINUTES[word], 0, 0, *minutes(word, value, self.now_ns))
        special = {
            "-type": self.type,
            "-size": self.size,
            "-blocks": lambda v: self.add(Kind.BYTES_ON, 512, 0, *compared(word, v)),
            "-perm": lambda v: self.add(Kind.PERM, *permissions(v)),
            "-user": lambda v: self.owner(Kind.UID, word, v, self.outside.uid),
            "-group": lambda v: self.owner(Kind.GID, word, v, self.outside.gid),
            "-regex": lambda v: self.add(Kind.REGEX, low=0, high=self.extended, text=v),
            "-iregex": lambda v: self.add(Kind.REGEX, low=1, high=self.extended, text=v),
            "-regextype": self.regextype,
            "-samefile": lambda v: self.add(Kind.INODE, 0, 0, *compared(word, str(self.outside.inode(v)))),
            "-stripe-size": self.stripe_size,
            "-ost": self.osts,
        }[word]
        return special(value)

    def regextype(self, value: str) -> int:
        if value not in _REGEX_TYPES:
            raise UsageError(f"-regextype {value}: types are {', '.join(_REGEX_TYPES)}")
        self.extended = _REGEX_TYPES[value]
        return self.add(Kind.TRUE)

    def type(self, value: str) -> int:
        bits = 0
        for letter in value.split(","):
            if letter not in _TYPES:
                raise UsageError(f"-type {value}: types are {', '.join(_TYPES)}")
            bits |= 1 << (_TYPES[letter] >> 12)
        return self.add(Kind.TYPE, low=bits)

    def size(self, value: str) -> int:
        unit = _SIZE_UNITS.get(value[-1:])
        number = value[:-1] if unit else value
        return self.add(Kind.SIZE, unit or 512, 0, *compared("-size", number))

    def stripe_size(self, value: str) -> int:
        sign = value[:1] if value[:1] in "+-" else ""
        size = units.parse_size(value.removeprefix(sign))
        return self.add(Kind.STRIPE_BYTES, 0, 0, *compared("-stripe-size", f"{sign}{size}"))

    def osts(self, value: str) -> int:
        """One of a list, as 3,5,7-9."""
        found = -1
        for word in value.split(","):
            first, _, last = word.partition("-")
            if not first.isdecimal() or (last and not last.isdecimal()):
                raise UsageError(f"-ost {value}: targets are written like 3,5,7-9")
            test = self.add(Kind.OST, low=int(first), high=int(last or first))
            found = test if found < 0 else self.add(Kind.OR, found, test)
        return found

    def owner(self, kind: Kind, word: str, value: str, number_of: Callable[[str], int | None]) -> int:
        number = number_of(value)
        if number is None:
            if not value.isdecimal():
                raise UsageError(f"{word} {value}: nobody has that name here")
            number = int(value)
        return self.add(kind, low=number, high=number)


def compared(word: str, value: str) -> tuple[int, int]:
    """`+n`, `-n` and `n` as the numbers that fit."""
    match = re.fullmatch(r"([+-]?)(\d+)", value)
    if match is None:
        raise UsageError(f"{word} {value}: write a number, with + for more or - for less in front")
    number = int(match[2])
    return {"+": (number + 1, MOST), "-": (LEAST, number - 1), "": (number, number)}[match[1]]


def _kept(low: int, high: int) -> tuple[int, int]:
    """As the kernel's numbers can hold them."""
    return min(max(low, LEAST), MOST), max(min(high, MOST), LEAST)


def days(word: str, value: str, now_ns: int) -> tuple[int, int]:
    """Whole days of age: a time's bounds, nanoseconds."""
    compared(word, value)
    day = 86400 * _SECOND
    number = int(value.lstrip("+-"))
    if value[0] == "+":
        return _kept(LEAST, now_ns - (number + 1) * day)
    if value[0] == "-":
        return _kept(now_ns - number * day + 1, MOST)
    return _kept(now_ns - (number + 1) * day + 1, now_ns - number * day)


def minutes(word: str, value: str, now_ns: int) -> tuple[int, int]:
    """Minutes of age, begun ones counted."""
    compared(word, value)
    number = int(value.lstrip("+-"))
    then = now_ns - number * 60 * _SECOND
    if value[0] == "+":
        return _kept(LEAST, then - 1)
    if value[0] == "-":
        return _kept(then + 1, MOST)
    return _kept(then, then + 60 * _SECOND - 1)


_WHO = {"u": 0o4700, "g": 0o2070, "o": 0o1007}
_BITS = {"r": 0o444, "w": 0o222, "x": 0o111, "s": 0o6000, "t": 0o1000}


def permissions(value: str) -> tuple[int, int, int]:
    """`644`, `-u+w`, `/222`: how they are compared, 0, and the bits."""
    how = {"-": 1, "/": 2}.get(value[:1], 0)
    text = value[1:] if how else value
    if re.fullmatch(r"[0-7]{1,5}", text):
        return how, 0, int(text, 8)
    bits = 0
    for clause in text.split(","):
        match = re.fullmatch(r"([ugoa]*)([=+-])([rwxst]*)", clause)
        if match is None:
            raise UsageError(f"-perm {value}: write bits like 644, -022, /u+w")
        who = "ugo" if not match[1] or "a" in match[1] else match[1]
        mask = sum(_WHO[letter] for letter in set(who))
        chosen = sum(_BITS[letter] for letter in set(match[3])) & mask
        bits = (
            bits & ~mask | chosen if match[2] == "=" else bits | chosen if match[2] == "+" else bits & ~chosen
        )
    return how, 0, bits


def parse(words: list[str], outside: Outside) -> Query:
    """An expression; an empty one prints all."""
    parser = _Parser(words, outside)
    if words:
        root = parser.comma()
        if parser.at < len(words):
            raise UsageError(f"{words[parser.at]}: not expected here")
    else:
        root = parser.add(Kind.TRUE)
    if not parser.acts:
        parser.add(Kind.AND, root, parser.add(Kind.PRINT, 10))
    return Query(
        parser.tests,
        parser.actions,
        parser.depth_min,
        parser.depth_max,
        parser.one_mount,
        parser.contents_first,
    )


# -printf

_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "0": "\0",
    "\\": "\\",
    "a": "\a",
    "r": "\r",
    "f": "\f",
    "v": "\v",
    "b": "\b",
}
_LETTERS = {v: k for k, v in _TYPES.items()}


class Shown(NamedTuple):
    """An entry that an action is for."""

    path: bytes
    rest: bytes
    """The path below the start."""
    depth: int
    entry: Any
    target: bytes | None


def _strftime(letter: str, time_ns: int) -> str:
    import time

    seconds, ns = divmod(time_ns, _SECOND)
    if letter == "@":
        return f"{seconds}.{ns:09d}0"
    if letter == "+":
        return time.strftime("%Y-%m-%d+%H:%M:%S", time.localtime(seconds)) + f".{ns:09d}0"
    return time.strftime(f"%{letter}", time.localtime(seconds)) + (f".{ns:09d}0" if letter in "STX" else "")


def _ctime(time_ns: int) -> str:
    import time

    seconds, ns = divmod(time_ns, _SECOND)
    local = time.localtime(seconds)
    return time.strftime("%a %b %e %H:%M:%S", local) + f".{ns:09d}0 " + time.strftime("%Y", local)


class Names(NamedTuple):
    """Names of users and groups by their numbers."""

    user: Callable[[int], str]
    group: Callable[[int], str]


def _directive(letter: str, it: Shown, names: Names) -> bytes:
    e = it.entry
    if letter in "pPfhl":
        head, slash, last = it.path.rpartition(b"/")
        return {
            "p": it.path,
            "P": it.rest,
            "f": last or b"/" if slash else it.path,
            "h": head if slash else b".",
            "l": it.target or b"",
        }[letter]
    said: Callable[[], Any] | None = {
        "s": lambda: e.st_size,
        "b": lambda: e.st_blocks,
        "k": lambda: (e.st_blocks + 1) // 2,
        "m": lambda: f"{stat.S_IMODE(e.st_mode):o}",
        "M": lambda: stat.filemode(e.st_mode),
        "u": lambda: names.user(e.st_uid),
        "U": lambda: e.st_uid,
        "g": lambda: names.group(e.st_gid),
        "G": lambda: e.st_gid,
        "n": lambda: e.st_nlink,
        "i": lambda: e.st_ino,
        "d": lambda: it.depth,
        "y": lambda: _LETTERS.get(stat.S_IFMT(e.st_mode), "U"),
        "t": lambda: _ctime(e.st_mtime_ns),
        "a": lambda: _ctime(e.st_atime_ns),
        "c": lambda: _ctime(e.st_ctime_ns),
    }.get(letter)
    if said is None:
        raise UsageError(f"-printf: %{letter} is not known")
    return str(said()).encode("utf-8", "surrogateescape")


_FORMAT = re.compile(
    r"\\(.)|%([-#0 +]*\d*(?:\.\d+)?)([TAC])(.)|%([-#0 +]*\d*(?:\.\d+)?)(.)|([^\\%]+)", re.DOTALL
)


def printf(text: str, it: Shown, names: Names) -> bytes:
    """The format filled in for one entry."""
    out = []
    for match in _FORMAT.finditer(text):
        escape, wide_time, which, how, wide, letter, plain = match.groups()
        if plain is not None:
            out.append(plain.encode("utf-8", "surrogateescape"))
        elif escape is not None:
            out.append(_ESCAPES.get(escape, f"\\{escape}").encode())
        elif which:
            time_ns = {"T": it.entry.st_mtime_ns, "A": it.entry.st_atime_ns, "C": it.entry.st_ctime_ns}[which]
            out.append(_padded(_strftime(how, time_ns).encode(), wide_time))
        elif letter == "%":
            out.append(b"%")
        else:
            out.append(_padded(_directive(letter, it, names), wide))
    return b"".join(out)


def _padded(text: bytes, wide: str) -> bytes:
    width = int(re.sub(r"\D", "", wide.partition(".")[0]) or 0)
    return text.ljust(width) if wide.startswith("-") else text.rjust(width)


def letter_of(mode: int) -> str:
    """f, d, l, ...; U: not known."""
    return _LETTERS.get(stat.S_IFMT(mode), "U")
