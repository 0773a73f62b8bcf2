# SPDX-License-Identifier: Apache-2.0
"""The folder that a catalog is: immutable segments, and a manifest that says which of them hold.

    FILE/manifest-00000007      the newest number holds; written beside, then linked to a number nobody has
    FILE/<16 hex>.seg           segments (native/kernels/index.h)

Invariants:
1. A manifest or segment is never changed after it has its name; what replaces it has another.
2. A new manifest is made of the one before it, by whoever gets the next number; who loses reads again and repeats.
   (A number can be free again because its owner was overtaken; who gets such a one sees a higher that was not made of
   its own, and repeats too.)
   So many writers on many nodes need no lock, and a killed one leaves nothing but files that nobody names.
3. A reader takes the newest manifest that is whole, and begins again if a segment went away meanwhile.
4. Nothing is deleted that the newest manifest names.
"""

import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from penstock import _native
from penstock.base.errors import DeniedError, PenstockError, VersionError
from penstock.catalog.identity import Identity

MAGIC = b"PSCATMAN"
VERSION = 1
_NAME = re.compile(r"manifest-(\d{8,})")
_TRIES = 100
MADE_OF_MAX = 64


class Part(msgspec.Struct, frozen=True):
    """A segment: its file, and what its header says."""

    name: str
    id: int
    entries: int
    folders: int
    file_bytes: int
    first_ns: int
    last_ns: int


class Options(msgspec.Struct, frozen=True):
    """What a build was asked to do; `update` does the same."""

    one_file_system: bool = False
    lazy: bool = False
    layouts: bool = True
    excludes: tuple[bytes, ...] = ()


MERGED = "merged"


class Manifest(msgspec.Struct, frozen=True):
    """The state of a catalog.  `parts` are newest first; `building` are those of a build that is not done, which began
    over the parts `over`, and with them, where other parts stand meanwhile, what it was asked to do and where: those of
    the catalog when it is done.  `doubts` say why `update` has to look at everything: MERGED, or marks of helpers at
    work (catalog/marks.py), which these take away when they end."""

    root: bytes
    identity: Identity
    options: Options = Options()
    parts: tuple[Part, ...] = ()
    building: tuple[Part, ...] = ()
    built_ns: int = 0
    updated_ns: int = 0
    problems: int = 0
    moved: int = 0
    building_options: Options | None = None
    building_identity: Identity | None = None
    over: tuple[Part, ...] = ()
    doubts: tuple[str, ...] = ()
    made_of: tuple[int, ...] = ()
    """Of the newest manifests before it, and itself first: a number that no other has."""

    def is_built_as(self, options: Options, identity: Identity) -> bool:
        """Would a build that was asked for this go on with what is `building`?"""
        return (self.building_options or self.options, self.building_identity or self.identity) == (
            options,
            identity,
        )


def laid(held: Manifest, begin: tuple[Part, ...], new: tuple[Part, ...], instead: bool = False) -> Manifest:
    """With segments that were learnt while the catalog had the parts `begin`: they go right above these (`instead`: in
    their place), below what others have added since, which may be newer.  Where others have merged that with what was
    there, nobody can tell: they go on top (`instead`: stay alone), and the catalog is in doubt."""
    at = len(held.parts) - len(begin)
    if at >= 0 and held.parts[at:] == begin:
        parts = (*held.parts[:at], *new, *(() if instead else begin))
        return msgspec.structs.replace(held, parts=parts)
    doubts = tuple(dict.fromkeys((*held.doubts, MERGED)))
    return msgspec.structs.replace(held, parts=new if instead else (*new, *held.parts), doubts=doubts)


def encode(manifest: Manifest) -> bytes:
    body = msgspec.msgpack.encode(manifest)
    crc: int = _native.crc32c(body)
    return MAGIC + VERSION.to_bytes(2, "little") + crc.to_bytes(4, "little") + body


def decode(data: bytes, where: str) -> Manifest:
    """The manifest in bytes; VersionError for one of a newer version, ValueError for none."""
    if not data.startswith(MAGIC) or len(data) < 14:
        raise ValueError("no manifest")
    version = int.from_bytes(data[8:10], "little")
    if version != VERSION:
        raise VersionError(f"{where}: a catalog of version {version}; this Penstock reads version {VERSION}")
    if _native.crc32c(data[14:]) != int.from_bytes(data[10:14], "little"):
        raise ValueError("damaged")
    try:
        return msgspec.msgpack.decode(data[14:], type=Manifest)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


class Held(msgspec.Struct, frozen=True):
    """A manifest and its number; number 0: there is none yet."""

    number: int
    manifest: Manifest | None
    damaged: tuple[str, ...] = ()


def _numbers(folder: Path) -> list[int]:
    found = (_NAME.fullmatch(entry.name) for entry in os.scandir(folder))
    return sorted((int(match[1]) for match in found if match), reverse=True)


def read(folder: Path) -> Held:
    """The newest manifest that is whole."""
    damaged: list[str] = []
    try:
        numbers = _numbers(folder)
    except FileNotFoundError:
        return Held(0, None)
    except NotADirectoryError as error:
        raise PenstockError(
            f"{folder}: no catalog; a catalog is a folder made by penstock catalog build"
        ) from error
    except PermissionError as error:
        raise DeniedError(f"{folder}: {error.strerror}; ask its owner") from error
    for number in numbers:
        name = f"manifest-{number:08d}"
        try:
            return Held(number, decode((folder / name).read_bytes(), str(folder)), tuple(damaged))
        except FileNotFoundError:
            return read(folder)  # replaced meanwhile
        except ValueError:
            damaged.append(name)
    return Held(max(numbers, default=0), None, tuple(damaged))


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def commit(folder: Path, change: Callable[[Manifest | None], Manifest]) -> Manifest:
    """A new manifest made of the newest, whoever else writes; segments that it does not name any more go."""
    for _ in range(_TRIES):
        held = read(folder)
        own_number, before = secrets.randbits(63), held.manifest.made_of if held.manifest else ()
        manifest = msgspec.structs.replace(
            change(held.manifest), made_of=(own_number, *before[: MADE_OF_MAX - 1])
        )
        beside = folder / f".manifest-{secrets.token_hex(8)}"
        try:
            with beside.open("xb") as out:
                out.write(encode(manifest))
                out.flush()
                os.fsync(out.fileno())
            own = folder / f"manifest-{held.number + 1:08d}"
            os.link(beside, own)
        except FileExistsError:
            continue  # somebody else was first
        except OSError as error:
            raise unwritten(folder, error) from error
        finally:
            with suppress(OSError):
                beside.unlink()
        if _numbers(folder)[0] > held.number + 1:
            own.unlink(missing_ok=True)
            newest = read(folder).manifest
            if newest is None or own_number not in newest.made_of:
                continue  # the number was free because others had it, and went on
        _sync(folder)
        _clean(folder, held, manifest)
        return manifest
    raise PenstockError(f"{folder}: other writers change this catalog without pause; try again")


def _clean(folder: Path, before: Held, now: Manifest) -> None:
    kept = {part.name for part in (*now.parts, *now.building)}
    old = before.manifest
    for part in (*old.parts, *old.building) if old else ():
        if part.name not in kept:
            (folder / part.name).unlink(missing_ok=True)
    for number in range(before.number, 0, -1):
        try:
            (folder / f"manifest-{number:08d}").unlink()
        except FileNotFoundError:
            break


def prepare(folder: Path) -> None:
    """The folder of a new catalog; one that holds something else is refused.  A catalog shows names in folders that
    others may not list: one that root makes is for root, until somebody opens it with chmod."""
    try:
        folder.mkdir(0o777 if os.geteuid() else 0o700, exist_ok=True)
        foreign = next((it.name for it in os.scandir(folder) if not _is_ours(it.name)), None)
    except FileExistsError as error:
        raise PenstockError(f"{folder}: is a file; name a folder that is to become the catalog") from error
    except FileNotFoundError as error:
        raise PenstockError(f"{folder}: its folder does not exist; make it first") from error
    except PermissionError as error:
        raise DeniedError(
            f"{folder}: {error.strerror}; name a place that you may write to with -o"
        ) from error
    if foreign is not None:
        raise PenstockError(
            f"{folder}: holds {foreign!r}, so it is no catalog; name an empty or a new folder"
        )


def _is_ours(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) or name.endswith(".seg") or name.startswith((".manifest-", ".part-"))


def put(folder: Path, batches: list[Any]) -> Part:
    """Writes a segment; nobody names it yet."""
    number = secrets.randbits(63)
    name = f"{number:016x}.seg"
    with _beside(folder, name) as out:
        head = _native.segment_write(out, batches, number, secrets.randbits(63))
    return Part(
        name,
        head["id"],
        head["entries"],
        head["folders"],
        head["file_bytes"],
        head["first_ns"],
        head["last_ns"],
    )


def unwritten(folder: Path, error: OSError) -> PenstockError:
    """What is said when a catalog could not be written."""
    kind = DeniedError if isinstance(error, PermissionError) else PenstockError
    return kind(f"{folder}: {error.strerror}; the catalog is as it was before")


@contextmanager
def _beside(folder: Path, name: str) -> Iterator[int]:
    """A file that gets its name when it is whole and on the disk."""
    beside = folder / f".part-{name}"
    try:
        fd = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise unwritten(folder, error) from error
    try:
        yield fd
        os.fsync(fd)
        beside.rename(folder / name)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise unwritten(folder, error) from error
        raise
    finally:
        os.close(fd)
