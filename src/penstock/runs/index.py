# SPDX-License-Identifier: Apache-2.0
"""The index over a history: which frames make which run, and a summary of each.  SQLite, on local disk only.

Invariants:
1. The segments alone are the truth.  The index can be deleted at any time; brought up to date step by step or
   made from nothing, it gives the same answers.
2. Each row carries a checksum.  A database that is damaged, or of another schema, is made anew.
3. Whoever uses the database holds its lock file shared; whoever removes it holds the lock alone.
4. One transaction brings in one batch: frames, the runs they touch, and how far each segment was read.
5. It never lies on a file system that other nodes may share: WAL needs one kernel's shared memory.

Migration is making anew: the schema's number stands in the file's name and inside, and older files go.
"""

import fcntl
import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from penstock._native import crc32c
from penstock.base.errors import PenstockError
from penstock.runs import merge, record, segments
from penstock.targets import mounts

SCHEMA = 1
VERSION = SCHEMA * 1000 + record.VERSION
APPLICATION = 0x50535849  # "PSXI"
BATCH_BYTES = 16 * 1024 * 1024
LOCK_WAIT_S = 10.0
BUSY_WAIT_S = 60.0

# File systems of this node alone.  What is not named here may be shared with other nodes.
LOCAL = frozenset(
    ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "tmpfs", "ramfs", "overlay")
)

_TABLES = """
CREATE TABLE segments (name TEXT PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (run BLOB PRIMARY KEY, data BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE notes (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


class DamagedError(Exception):
    """The database is not what this module wrote."""


class OutdatedError(Exception):
    """The segments are not those that were indexed: some went, shrank or were exchanged."""


class Place(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Where a frame lies."""

    segment: str
    offset: int
    size_bytes: int
    kind: int
    node: str
    seq: int


class Seen(msgspec.Struct, array_like=True):
    """How far a segment was read, and what was passed over in it."""

    size_bytes: int = 0
    mtime_ns: int = 0
    next_offset: int = 0
    last: tuple[int, int, bytes] | None = None  # offset, size and run of its last frame
    damages: list[tuple[int, int, str]] = []
    newer: int = 0  # frames that only a newer Penstock can read
    unreadable: str = ""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A run: its summary and its frames."""

    summary: merge.Summary
    places: list[Place]


_row, _seen = msgspec.msgpack.Decoder(Row), msgspec.msgpack.Decoder(Seen)
Progress = Callable[[int, int], None]  # bytes done, bytes in all


def place_for(history: Path, wanted: Path) -> tuple[Path | None, str]:
    """The database's path (None: keep it in memory), and a remark when it is not where it was wanted."""
    key = hashlib.blake2b(os.fsencode(os.path.realpath(history)), digest_size=8).hexdigest()
    name = f"history-{key}-v{VERSION}.sqlite"
    kind = type_of(wanted)
    if kind in LOCAL and _private_folder(wanted):
        return wanted / name, ""
    why = "cannot be written" if kind in LOCAL else f"is on {kind or 'an unknown file system'}"
    advice = f"because {wanted} {why}; history.index_dir names a folder on a local disk"
    for base in ("/tmp", "/dev/shm"):
        folder = Path(base) / f"penstock-{os.getuid()}"
        if type_of(folder) in LOCAL and _private_folder(folder):
            return folder / name, f"the index of the history is kept in {folder} {advice}"
    return None, f"the index of the history is made anew each time {advice}"


def type_of(folder: Path) -> str:
    """The type of the file system that holds a folder, or would hold it; "" when that is not to be known."""
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return mounts.mount_of(folder).type
    except (PenstockError, OSError):
        return ""


def _private_folder(folder: Path) -> bool:
    """Make a folder that nobody else can write; False when that is not to be had."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        info = folder.lstat()
    except OSError:
        return False
    own = info.st_uid == os.getuid() and info.st_mode & 0o22 == 0
    return own and folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


class Index:
    """An open database; `history` is the folder of segments."""

    def __init__(self, history: Path, path: Path | None) -> None:
        self.history, self.path = history, path
        self.made_anew = False
        self.trouble = "another process holds it"  # why it is in memory although a path was given
        self._lock: int | None = None
        self._base = self._open()

    # -- the database --------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        """Connect under the shared lock; what is not right is removed under the exclusive one."""
        if self.path is None:
            self.made_anew = True
            return self._create(":memory:")
        self._lock = os.open(
            f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        if self._wait(fcntl.LOCK_SH) and self.path.exists():
            with suppress(DamagedError, sqlite3.DatabaseError):
                return self._connect()
        if self._wait(fcntl.LOCK_EX):
            if self.path.exists():  # somebody else may have mended it while this one waited
                with suppress(DamagedError, sqlite3.DatabaseError):
                    return self._shared(self._connect())
            self._remove()
            try:
                self.made_anew = True
                return self._shared(self._create(os.fspath(self.path)))
            except sqlite3.DatabaseError as error:
                self.trouble = str(error)
        os.close(self._lock)
        self._lock = self.path = None
        return self._open()

    def _shared(self, base: sqlite3.Connection) -> sqlite3.Connection:
        self._wait(fcntl.LOCK_SH)
        return base

    def _wait(self, how: int) -> bool:
        assert self._lock is not None
        deadline = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(self._lock, how | fcntl.LOCK_NB)
                return True
            except OSError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.01)

    def _remove(self) -> None:
        """This database and those of older schemas."""
        assert self.path is not None
        stem = self.path.name.rpartition("-v")[0]
        for old in self.path.parent.glob(f"{stem}-v*.sqlite*"):
            number = old.name.rpartition("-v")[2].partition(".")[0]
            if number.isdigit() and int(number) <= VERSION and not old.name.endswith(".lock"):
                old.unlink(missing_ok=True)

    def _connect(self) -> sqlite3.Connection:
        base = sqlite3.connect(str(self.path), timeout=BUSY_WAIT_S, isolation_level=None)
        try:
            numbers = [
                base.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            ]
            if numbers != [APPLICATION, VERSION]:
                raise DamagedError(f"it is of schema {numbers}")
            if base.execute("PRAGMA journal_mode=WAL").fetchone()[0] != "wal":
                raise DamagedError("it cannot be shared between processes")
            base.execute("PRAGMA synchronous=NORMAL")
            base.execute("SELECT count(*) FROM segments").fetchone()
            return base
        except BaseException:
            base.close()
            raise

    def _create(self, path: str) -> sqlite3.Connection:
        base = sqlite3.connect(path, timeout=BUSY_WAIT_S, isolation_level=None)
        try:
            if path != ":memory:":
                Path(path).chmod(0o600)
                base.execute("PRAGMA journal_mode=WAL")
            base.execute("PRAGMA synchronous=NORMAL")
            base.executescript(
                f"BEGIN; {_TABLES} PRAGMA application_id={APPLICATION};PRAGMA user_version={VERSION}; COMMIT;"
            )
            return base
        except BaseException:
            base.close()
            raise

    def close(self) -> None:
        self._base.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def discard(self) -> None:
        """Close and remove the database: it is damaged.  The next to open makes it anew."""
        self._base.close()
        if self._lock is not None:
            if self.path is not None and self._wait(fcntl.LOCK_EX):
                self._remove()
            self.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error):
                self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    # -- rows ----------------------------------------------------------------------------------------------

    def _put(self, table: str, key_name: str, key: str | bytes, value: object) -> None:
        data = msgspec.msgpack.encode(value)
        self._base.execute(
            f"INSERT OR REPLACE INTO {table} ({key_name}, data, crc) VALUES (?, ?, ?)",
            (key, data, _check(key, data)),
        )

    def _rows(self, query: str, *values: object) -> Iterator[tuple[str | bytes, bytes]]:
        for key, data, crc in self._base.execute(query, values):
            if not isinstance(data, bytes) or _check(key, data) != crc:
                raise DamagedError("a row does not check")
            yield key, data

    def row(self, run: bytes) -> Row | None:
        """One run."""
        for _, data in self._rows("SELECT run, data, crc FROM runs WHERE run = ?", run):
            return _row.decode(data)
        return None

    def rows(self) -> Iterator[Row]:
        """All runs, in no order."""
        for _, data in self._rows("SELECT run, data, crc FROM runs"):
            yield _row.decode(data)

    def seen(self) -> dict[str, Seen]:
        """All segments that were read."""
        rows = self._rows("SELECT name, data, crc FROM segments")
        return {str(name): _seen.decode(data) for name, data in rows}

    def note(self, name: str) -> int:
        """A number that was left here; 0 when there is none."""
        found = self._base.execute("SELECT value FROM notes WHERE name = ?", (name,)).fetchone()
        return int(found[0]) if found else 0

    def set_note(self, name: str, value: int) -> None:
        self._base.execute("INSERT OR REPLACE INTO notes VALUES (?, ?)", (name, value))

    # -- bringing it up to date ----------------------------------------------------------------------------

    def sync(self, progress: Progress | None = None) -> None:
        """Read what was appended since; from nothing when segments went or were exchanged."""
        try:
            self._advance(progress)
        except OutdatedError:
            self.clear()
            self._advance(progress)

    def clear(self) -> None:
        """Forget all that was read: the next `sync` reads everything."""
        with self._transaction():
            self._base.execute("DELETE FROM runs")
            self._base.execute("DELETE FROM segments")

    def _advance(self, progress: Progress | None) -> None:
        seen = self.seen()  # before the names: another process may add a segment meanwhile
        names = [f"{path.parent.name}/{path.name}" for path in segments.segments(self.history)]
        if not seen.keys() <= set(names):
            raise OutdatedError
        todo = [name for name in names if self._changed(name, seen.get(name))]
        total = sum(_size(self.history / name) for name in todo)
        done = 0
        while todo:
            batch = 0
            with self._transaction():
                touched: dict[bytes, dict[Place, record.Payload]] = {}
                while todo and batch < BATCH_BYTES:
                    read, finished = self._read_on(todo[0], touched)
                    batch += read
                    if finished:
                        todo.pop(0)
                for run, found in touched.items():
                    self._update_run(run, found)
            done += batch
            if progress is not None:
                progress(done, total)

    def _changed(self, name: str, seen: Seen | None) -> bool:
        try:
            info = (self.history / name).stat()
        except FileNotFoundError as error:
            raise OutdatedError from error
        return (
            seen is None
            or bool(seen.unreadable)
            or (info.st_size, info.st_mtime_ns)
            != (
                seen.size_bytes,
                seen.mtime_ns,
            )
        )

    def _read_on(self, name: str, touched: dict[bytes, dict[Place, record.Payload]]) -> tuple[int, bool]:
        """Read a batch of one segment; how many bytes, and whether that was all."""
        path = self.history / name
        rows = list(self._rows("SELECT name, data, crc FROM segments WHERE name = ?", name))
        seen = _seen.decode(rows[0][1]) if rows else Seen()
        before = seen.next_offset
        try:
            info = path.stat()
            if info.st_size < before or not self._last_holds(path, seen.last):
                raise OutdatedError
            found = segments.read_some(path, before, BATCH_BYTES)
        except FileNotFoundError as error:
            raise OutdatedError from error
        except OSError as error:
            self._put("segments", "name", name, Seen(unreadable=error.strerror or "error"))
            return 0, True
        seen.unreadable = ""
        seen.damages += [(d.offset, d.size_bytes, d.why) for d in found.damages]
        for frame in found.frames:
            size = segments.HEADER_BYTES + len(frame.payload)
            seen.last = (frame.offset, size, frame.run)
            if frame.version > record.VERSION:
                seen.newer += 1
                continue
            try:
                payload = frame.decode()
            except ValueError:
                seen.damages.append((frame.offset, size, "not of this schema"))
                continue
            seq = payload.seq if isinstance(payload, record.Node) else 0
            place = Place(name, frame.offset, size, frame.kind, payload.node, seq)
            touched.setdefault(frame.run, {})[place] = payload
        finished = found.next_offset == before or found.next_offset >= info.st_size
        seen.next_offset = found.next_offset
        if finished:
            seen.size_bytes, seen.mtime_ns = info.st_size, info.st_mtime_ns
        self._put("segments", "name", name, seen)
        return max(found.next_offset - before, 4096), finished

    def _last_holds(self, path: Path, last: tuple[int, int, bytes] | None) -> bool:
        if last is None:
            return True
        frame = segments.read_frame(path, last[0], last[1])
        return frame is not None and frame.run == last[2]

    def _update_run(self, run: bytes, found: dict[Place, record.Payload]) -> None:
        row = self.row(run)
        places = holding([*(row.places if row else []), *found])
        payloads = [found[p] if p in found else self.payload(run, p) for p in places]
        summary = merge.summarize(merge.merge(run, payloads))
        self._put("runs", "run", run, Row(summary, places))

    def payload(self, run: bytes, place: Place) -> record.Payload:
        """What lies at a place; OutdatedError when it does not any more."""
        path = self.history / place.segment
        try:
            frame = segments.read_frame(path, place.offset, place.size_bytes)
        except OSError as error:
            raise OutdatedError from error
        if frame is None or frame.run != run or frame.kind != place.kind:
            raise OutdatedError
        return frame.decode()


def holding(places: list[Place]) -> list[Place]:
    """The places without those of node frames that later ones replaced; pure, in a stable order."""
    newest: dict[str, int] = {}
    for place in places:
        if place.kind == record.Kind.NODE:
            newest[place.node] = max(place.seq, newest.get(place.node, place.seq))
    return sorted({p for p in places if p.kind != record.Kind.NODE or p.seq == newest[p.node]})


def _check(key: object, data: bytes) -> int:
    raw = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogateescape")
    return int(crc32c(data, crc32c(raw)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
