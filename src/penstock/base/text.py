# SPDX-License-Identifier: Apache-2.0
"""Text that programs chose, made safe to show: paths, arguments, names; and the words around counts."""

from collections.abc import Iterable


def visible(text: bytes | str) -> str:
    """Text that a program chose, safe to show: what is not UTF-8 or not visible stands as \\x.. or \\u....,
    a backslash as two."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(_visible(char) for char in text)


def _visible(char: str) -> str:
    code = ord(char)
    if char == "\\":
        return "\\\\"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if char.isprintable():
        return char
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def plural(count: int, word: str) -> str:
    """A count and its noun."""
    ending = "" if count == 1 else "es" if word.endswith("s") else "s"
    return f"{count:,} {word}{ending}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the known one that is most like it, if one is."""
    from difflib import get_close_matches

    found = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def cut(text: str, width: int) -> str:
    """Text no longer than so much; what goes, goes from the middle, and it shows."""
    if len(text) <= width:
        return text
    left = (width - 1) // 3
    return f"{text[:left]}…{text[len(text) - (width - 1 - left) :]}"
