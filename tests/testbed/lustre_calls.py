# SPDX-License-Identifier: Apache-2.0
"""Lustre's calls as a program makes them; templates from text and layouts to text, in the words of
tests/c/lov_cases.def.

Written with struct and ctypes, not with the codec under test.
"""

import ast
import ctypes
import errno
import os
import pickle
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

V1, V3, SPEC, COMP = 0x0BD10BD0, 0x0BD30BD0, 0x0BD50BD0, 0x0BD60BD0
MAGICS = {"V1": V1, "V3": V3, "SPEC": SPEC}
NAMES = {number: name for name, number in MAGICS.items()}
EOF = 2**64 - 1
DELAY = os.O_NOCTTY | 0o20000
SETSTRIPE, SETSTRIPE_NEW = 0x4008669A, 0xC020669A
GETSTRIPE, GETSTRIPE_NEW = 0x4008669B, 0x8020669B
BY_NAME = 0xC0086915
XATTR = "lustre.lov"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]
_libc.mknod.argtypes = [ctypes.c_char_p, ctypes.c_uint, ctypes.c_ulong]


class Case(NamedTuple):
    kind: str
    row: int
    words: tuple[str, ...]


def cases() -> list[Case]:
    """The lines of the table that the C tests run too."""
    found = []
    text = (Path(__file__).parents[1] / "c/lov_cases.def").read_text(encoding="utf-8")
    for kind, row, rest in re.findall(r"^(\w+)_CASE\((\d+), (.*)\)$", text, re.MULTILINE):
        quoted = re.sub(r"^([A-Z_]+),", r'"\1",', rest)
        found.append(Case(kind, int(row), ast.literal_eval(f"({quoted})")))
    return found


# ---- text to bytes ----


def _number(text: str) -> int:
    if text == "EOF":
        return EOF
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1], 1)
    return int(text[:-1] if scale > 1 else text, 0) * scale


def _fields(words: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def _plain(text: str) -> bytes:
    words = text.split()
    kind = next(word for word in words if word in MAGICS)
    field = _fields(words)
    osts = [_number(word) for word in field["list"].split(",")] if "list" in field else []
    number = {key: _number(value) for key, value in field.items() if key in ("magic", "p", "s", "c", "o")}
    magic = number.get("magic", MAGICS[kind])
    if "swap" in words:
        magic = int.from_bytes(magic.to_bytes(4, "little"), "big")
    count = number.get("c", len(osts) if kind == "SPEC" else 0) & 0xFFFF
    blob = struct.pack(
        "=IIQQIHH", magic, number.get("p", 0), 0, 0, number.get("s", 0), count, number.get("o", 0xFFFF)
    )
    if kind != "V1":
        blob += struct.pack("=16s", field.get("pool", "").encode())
    numbered = (0x300000400, 7) if "ids" in words else (0, 0)
    return blob + b"".join(struct.pack("=QIIII", *numbered, 0, 0, ost) for ost in osts)


def _composite(text: str) -> bytes:
    head, *parts = text.split("|")
    field = {key: _number(value) for key, value in _fields(head.split()).items()}
    entries, bodies = b"", b""
    for part in parts:
        words = part.split()
        start, end = next(word for word in words if "-" in word and "=" not in word).split("-")
        body = _plain(part)
        own = {key: _number(value) for key, value in _fields(words).items() if key in ("id", "f")}
        at = 32 + 48 * len(parts) + len(bodies)
        entries += struct.pack(
            "=IIQQIIIQ4s",
            own.get("id", 0),
            own.get("f", 0),
            _number(start),
            _number(end),
            at,
            len(body),
            0,
            0,
            b"",
        )
        bodies += body
    size = 32 + len(entries) + len(bodies)
    head_bytes = struct.pack(
        "=IIIHHH14s", COMP, field.get("n", size), 0, 0, field.get("e", len(parts)), field.get("m", 0), b""
    )
    return head_bytes + entries + bodies


def template(text: str) -> bytes:
    blob = _composite(text) if text.startswith("COMP") else _plain(text)
    size = _fields(text.partition("|")[0].split()).get("size")
    return blob if size is None else blob[: int(size)].ljust(int(size), b"\0")


# ---- bytes to text ----


def _say_plain(blob: bytes, size: str = "") -> str:
    magic, pattern, _, _, stripe, count, _ = struct.unpack_from("=IIQQIHH", blob)
    header = 32 if magic == V1 else 48
    name = blob[32:48].rstrip(b"\0").decode() if header == 48 else ""
    pool = f"pool={name} " if name else ""
    osts = ",".join(str(struct.unpack_from("=I", blob, at + 20)[0]) for at in range(header, len(blob), 24))
    return f"{NAMES[magic]} {size}{pool}p={pattern:#x} s={stripe} c={count} ({osts})"


def text_of(blob: bytes) -> str:
    if struct.unpack_from("=I", blob)[0] != COMP:
        return _say_plain(blob, f"n={len(blob)} ")
    _, size, gen, flags, count, mirrors = struct.unpack_from("=IIIHHH", blob)
    said = f"COMP n={size} g={gen} st={flags} m={mirrors}"
    for i in range(count):
        ident, flags, start, end, at, length = struct.unpack_from("=IIQQII", blob, 32 + 48 * i)
        until = "EOF" if end == EOF else end
        said += f" | {ident:#x} {flags:#x} {start}-{until} {_say_plain(blob[at : at + length])}"
    return said


def osts_of(blob: bytes) -> list[int]:
    """Of a plain layout."""
    header = 32 if struct.unpack_from("=I", blob)[0] == V1 else 48
    return [struct.unpack_from("=I", blob, at + 20)[0] for at in range(header, len(blob), 24)]


# ---- calls ----


def name_of(error: OSError) -> str:
    if error.errno == errno.EOPNOTSUPP:
        return "EOPNOTSUPP"  # ENOTSUP is the same number
    return errno.errorcode[error.errno or 0]


def said(call: Callable[..., Any], *args: Any) -> Any:
    """What the call gives, or the name of its error."""
    try:
        return call(*args)
    except OSError as error:
        return name_of(error)


def ioctl(fd: int, number: int, payload: bytes, room: int = 65536) -> bytes:
    """The caller's buffer afterwards: the payload, zeros behind it, and what the call wrote over both."""
    buffer = ctypes.create_string_buffer(payload, max(room, len(payload)))
    if _libc.ioctl(fd, number, buffer) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return buffer.raw


def ioctl_null(fd: int, number: int) -> None:
    if _libc.ioctl(fd, number, None) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def set_layout(where: Path | int, text: str, flags: int = 0) -> None:
    os.setxattr(where, XATTR, template(text), flags)


def stripe(fd: int, text: str, number: int = SETSTRIPE) -> bytes:
    return ioctl(fd, number, template(text))


def get(where: Path | int) -> str:
    return text_of(os.getxattr(where, XATTR))


def whole(buffer: bytes) -> bytes:
    """The layout that a GETSTRIPE buffer holds."""
    magic, size = struct.unpack_from("=II", buffer)
    if magic == COMP:
        return buffer[:size]
    header = 32 if magic == V1 else 48
    return buffer[: header + 24 * struct.unpack_from("=H", buffer, 28)[0]]


def getstripe(fd: int, head: bytes = b"") -> bytes:
    return ioctl(fd, GETSTRIPE, head)


def has_layout(where: Path | int) -> bool:
    return bool(said(os.getxattr, where, XATTR) != "ENODATA")


def mknod(path: Path, mode: int = 0o644) -> Path:
    os.mknod(path, 0o100000 | mode)
    return path


def as_user(function: Callable[..., Any], *args: Any, uid: int = 1000) -> Any:
    """What the function gives, or the name of its error, in a process of that user without capabilities."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            result = said(function, *args)
            os.write(writer, pickle.dumps(result))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    assert answer, "the call ended its process"
    return pickle.loads(answer)
