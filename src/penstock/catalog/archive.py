# SPDX-License-Identifier: Apache-2.0
"""Catalogs as tables: Parquet for keeping and for other programs, CSV, GUFI's traces, and SQL over them.

The archive is plain Parquet (zstd): any reader reads it, and `restore` makes a catalog of it again.

Invariants:
1. Paths and targets are bytes; times are whole seconds and nanoseconds apart: nothing is rounded, cut or refused.
2. A file gets its name when it is whole and on the disk.
3. What could not be read from a damaged catalog is told, not left out silently.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from penstock import _native
from penstock.base.errors import PenstockError, UsageError
from penstock.catalog import store
from penstock.catalog.reader import Catalog

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1 << 17
"""Rows of a group: while one is written the next is gathered."""
VERSION = 1
_KEY, _MANIFEST = b"penstock.catalog", b"penstock.manifest"


class Column(NamedTuple):
    """A column: its name here and in the kernel, the Arrow type, how it is encoded ("": by a dictionary), and how hard
    zstd tries.  Which is best was tried on /usr and on a million made-up files; benchmarks/catalog.py has the sums."""

    name: str
    source: str
    type: str
    encoding: str = ""
    level: int = 3


COLUMNS = (
    Column("path", "path", "binary", "DELTA_BYTE_ARRAY", 5),
    Column("mode", "mode", "uint32"),
    Column("size", "size", "uint64", "PLAIN", 1),
    Column("uid", "uid", "uint32"),
    Column("gid", "gid", "uint32"),
    Column("nlink", "nlink", "uint32"),
    Column("ino", "ino", "uint64", "DELTA_BINARY_PACKED"),
    Column("blocks", "blocks", "uint64"),
    Column("mtime_s", "mtime", "int64", "PLAIN", 5),
    Column("mtime_ns", "mtime_ns", "uint32", "PLAIN", 5),
    Column("ctime_s", "ctime", "int64", "PLAIN", 5),
    Column("ctime_ns", "ctime_ns", "uint32", "PLAIN", 5),
    Column("atime_s", "atime", "int64", "PLAIN", 5),
    Column("atime_ns", "atime_ns", "uint32", "PLAIN", 5),
    Column("target", "target", "binary"),
    Column("layout", "layout", "binary"),
    Column("sums", "sums", "binary"),
    Column("rdev", "rdev", "uint64"),
    Column("generation", "generation", "uint32", "PLAIN", 5),
    Column("learnt_ns", "learnt_ns", "int64", "PLAIN"),
    Column("flags", "flags", "uint16"),
    Column("error", "error", "uint32"),
    Column("folder", "folder", "uint32"),
)


def arrow() -> Any:
    """pyarrow, or a sentence."""
    try:
        import pyarrow as pa
    except ImportError as error:
        raise PenstockError("pyarrow is not installed; pip install 'penstock[catalog]'") from error
    return pa


def schema() -> "pa.Schema":
    pa = arrow()
    return pa.schema([(column.name, getattr(pa, column.type)()) for column in COLUMNS])


def _table(rows: int, columns: dict[str, bytes]) -> "pa.Table":
    pa = arrow()
    arrays = []
    for column in COLUMNS:
        data = pa.py_buffer(columns[column.source])
        kind = getattr(pa, column.type)()
        buffers = (
            [None, pa.py_buffer(columns[f"{column.source}_at"]), data]
            if column.type == "binary"
            else [None, data]
        )
        arrays.append(pa.Array.from_buffers(kind, rows, buffers))
    return pa.Table.from_arrays(arrays, schema=schema())


Damaged = list[tuple[bytes, int]]


def tables(catalog: Catalog, take: "Callable[[pa.Table], None]", path: str = "") -> Damaged:
    """Calls for each so many rows of a catalog, in path order."""
    found: Damaged = catalog.view.columns(path, CHUNK, lambda rows, columns: take(_table(rows, columns)))
    return found


def table(catalog: Catalog, path: str = "") -> "tuple[pa.Table, Damaged]":
    """All of it."""
    pa = arrow()
    found: list[Any] = []
    damaged = tables(catalog, found.append, path)
    return pa.concat_tables(found) if found else schema().empty_table(), damaged


@contextmanager
def beside(file: Path) -> Iterator[BinaryIO]:
    """A file that gets its name at the end."""
    try:
        fd, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    except OSError as error:
        raise PenstockError(f"{file}: {error.strerror}; name a place that can be written to") from error
    done = False
    try:
        with open(fd, "wb") as out:  # noqa: PTH123 - a descriptor
            yield out
            out.flush()
            os.fsync(out.fileno())
        umask = os.umask(0o777)
        os.umask(umask)
        Path(name).chmod(0o666 & ~umask)
        Path(name).rename(file)
        done = True
    except OSError as error:
        raise PenstockError(f"{file}: {error.strerror}; what was there before is as it was") from error
    finally:
        if not done:
            Path(name).unlink(missing_ok=True)


def write_parquet(catalog: Catalog, file: Path) -> Damaged:
    """The archive.  Its rows are in path order; the manifest is in its metadata."""
    arrow()
    import pyarrow.parquet as pq

    marks = {_KEY: str(VERSION).encode(), _MANIFEST: store.encode(catalog.manifest)}
    encodings = {column.name: column.encoding for column in COLUMNS if column.encoding}
    plain = [column.name for column in COLUMNS if not column.encoding]
    with (
        beside(file) as out,
        pq.ParquetWriter(
            out,
            schema(),
            compression="zstd",
            compression_level={column.name: column.level for column in COLUMNS},
            use_dictionary=plain,
            column_encoding=encodings,
            write_statistics=["mode", "size", "uid", "gid", "mtime_s"],
            store_schema=False,
        ) as writer,
        ThreadPoolExecutor(1) as beside_this,
    ):
        writer.add_key_value_metadata(marks)
        running: list[Future[None]] = []

        def take(some: "pa.Table") -> None:
            """Writes it while the next is gathered; no more than one waits."""
            for one in running:
                one.result()
            running[:] = [beside_this.submit(writer.write_table, some, CHUNK)]

        damaged = tables(catalog, take)
        for one in running:
            one.result()
        return damaged


def read_parquet(file: Path) -> "tuple[pa.Table, store.Manifest]":
    """The rows of an archive and the manifest it was made from."""
    pa = arrow()
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as held:
            marks = held.metadata.metadata or {}
            whole = held.read()
    except FileNotFoundError as error:
        raise PenstockError(f"{file}: no such archive") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise PenstockError(f"{file}: no whole Parquet file; export it anew") from error
    if marks.get(_KEY) != str(VERSION).encode():
        raise PenstockError(f"{file}: Parquet, but no archive of a catalog of version {VERSION}")
    try:
        return whole, store.decode(marks[_MANIFEST], str(file))
    except (KeyError, ValueError) as error:
        raise PenstockError(f"{file}: its manifest is damaged; export it anew") from error


_ENTRY_ORDER = ("mode", "ino", "nlink", "uid", "gid", "size", "blocks", "rdev")


def _not_of_another(folder: Path, held: store.Manifest | None, manifest: store.Manifest) -> None:
    """Refuses to write over the catalog of another tree."""
    if held is not None and held.root != manifest.root:
        raise PenstockError(
            f"{folder}: is the catalog of {os.fsdecode(held.root)}, the archive's tree is "
            f"{os.fsdecode(manifest.root)}; name another place with -o, or remove it"
        )


def restore(file: Path, folder: Path) -> store.Manifest:
    """A catalog out of an archive."""
    rows, manifest = read_parquet(file)
    store.prepare(folder)
    _not_of_another(folder, store.read(folder).manifest, manifest)
    batch, listings = _native.batch_new(), dict[bytes, list[tuple[bytes, Any, Any, Any, Any]]]()
    folders: dict[bytes, tuple[int, int]] = {}
    for some in rows.to_batches():
        columns = {name: some.column(name).to_pylist() for name in some.schema.names}
        for i, path in enumerate(columns["path"]):
            times = [
                columns[f"{t}_s"][i] * 10**9 + columns[f"{t}_ns"][i] for t in ("atime", "mtime", "ctime")
            ]
            entry = (
                *(columns[name][i] for name in _ENTRY_ORDER),
                *times,
                columns["generation"][i],
                0 if columns["folder"][i] else columns["learnt_ns"][i],
                columns["flags"][i],
                columns["error"][i],
            )
            parts = (
                entry,
                columns["target"][i] or None,
                columns["layout"][i] or None,
                columns["sums"][i] or None,
            )
            if columns["folder"][i]:
                folders[path] = (columns["folder"][i], columns["learnt_ns"][i])
            if path:
                head, _, name = path.rpartition(b"/")
                listings.setdefault(head, []).append((name, *parts))
            else:
                _native.batch_root(batch, b"", *parts)
    for path in sorted(listings.keys() | folders.keys()):
        for row in listings.get(path, []):
            _native.batch_add(batch, *row)
        _native.batch_close(batch, path, *folders.get(path, (0, 0)))
    part = store.put(folder, [batch])

    def change(held: store.Manifest | None) -> store.Manifest:
        import msgspec

        _not_of_another(folder, held, manifest)
        return msgspec.structs.replace(manifest, parts=(part,), building=())

    return store.commit(folder, change)


# Text


def write_csv(catalog: Catalog, out: Any) -> Damaged:
    """A header and a row an entry; paths that are not plain text are escaped as they are on the screen."""
    import csv

    from penstock.base.text import visible
    from penstock.catalog.find import letter_of

    writer = csv.writer(out, lineterminator="\n")
    names = (
        "type",
        "mode",
        "uid",
        "gid",
        "nlink",
        "ino",
        "size_bytes",
        "blocks",
        "mtime",
        "ctime",
        "atime",
        "target",
    )
    writer.writerow(("path", *names))

    def take(rows: int, columns: dict[str, bytes]) -> None:
        held = rows_of(rows, columns)
        for path, target, n in held:
            times = [
                f"{n[f'{t}time'] + n[f'{t}time_ns'] / 1e9:.9f}"
                if n[f"{t}time"] < 0
                else f"{n[f'{t}time']}.{n[f'{t}time_ns']:09d}"
                for t in "mca"
            ]
            figures = [n["uid"], n["gid"], n["nlink"], n["ino"], n["size"], n["blocks"]]
            writer.writerow(
                [
                    visible(path),
                    letter_of(n["mode"]),
                    f"{n['mode'] & 0o7777:04o}",
                    *figures,
                    *times,
                    visible(target),
                ]
            )

    found: Damaged = catalog.view.columns("", CHUNK, take)
    return found


_CASTS: dict[str, Any] = dict.fromkeys(
    ("mode", "nlink", "uid", "gid", "mtime_ns", "ctime_ns", "atime_ns"), "I"
)
_CASTS |= dict.fromkeys(("ino", "size", "blocks"), "Q") | dict.fromkeys(("mtime", "ctime", "atime"), "q")


def rows_of(rows: int, columns: dict[str, bytes]) -> Iterator[tuple[bytes, bytes, dict[str, int]]]:
    """Path, target and numbers of each row of the kernel's columns."""
    held = {name: memoryview(columns[name]).cast(letter) for name, letter in _CASTS.items()}
    path_at, target_at = (memoryview(columns[name]).cast("i") for name in ("path_at", "target_at"))
    for i in range(rows):
        path, target = (
            columns["path"][path_at[i] : path_at[i + 1]],
            columns["target"][target_at[i] : target_at[i + 1]],
        )
        yield path, target, {name: column[i] for name, column in held.items()}


def write_gufi(catalog: Catalog, out: BinaryIO) -> tuple[int, int]:
    """A trace for gufi_trace2index: each folder's line, then those of what is in it but folders.

    Names that hold the delimiter or a newline cannot be written in that form: how many; and folders unread.
    """
    import stat

    from penstock.catalog.build import each_folder

    top = catalog.manifest.root.rstrip(b"/").rpartition(b"/")[2] or b"root"
    left = unread = 0

    def put(path: bytes, entry: Any, target: bytes, parent: int) -> None:
        nonlocal left
        name = top + b"/" + path if path else top
        if b"\x1e" in name or b"\n" in name or b"\x1e" in target or b"\n" in target:
            left += 1
            return
        kind = b"d" if stat.S_ISDIR(entry.st_mode) else b"l" if stat.S_ISLNK(entry.st_mode) else b"f"
        times = [value // 10**9 for value in (entry.st_atime_ns, entry.st_mtime_ns, entry.st_ctime_ns)]
        numbers = [
            entry.st_ino,
            entry.st_mode,
            entry.st_nlink,
            entry.st_uid,
            entry.st_gid,
            entry.st_size,
            4096,
            entry.st_blocks,
            *times,
        ]
        rest = [target, b"", b"0", b"0", b"0", b"0", b"0", b"", b"", b"%d" % parent]
        out.write(b"\x1e".join([name, kind, *(b"%d" % number for number in numbers), *rest]) + b"\x1e\n")

    def folder(path: bytes, entry: Any, flags: int) -> None:
        nonlocal unread
        put(path, entry, b"", 0 if not path else catalog.stat(path.rpartition(b"/")[0]).st_ino)
        try:
            names = catalog.view.list(path)
        except OSError:
            unread += 1
            return
        for name, it, *_ in names:
            if stat.S_ISDIR(it.st_mode):
                continue
            whole = path + b"/" + name if path else name
            put(
                whole,
                it,
                catalog.view.part(whole, 1) or b"" if stat.S_ISLNK(it.st_mode) else b"",
                entry.st_ino,
            )

    unread += len(each_folder(catalog.view, folder))
    return left, unread


# SQL

_VIEW = """
create view files as select
 path, path_bytes, case mode & 61440 when 32768 then 'f' when 16384 then 'd' when 40960 then 'l' when 24576 then 'b'
  when 8192 then 'c' when 4096 then 'p' when 49152 then 's' else 'U' end as type,
 mode & 4095 as mode, size, blocks, blocks * 512 as disk_bytes, uid, gid, nlink, ino,
 case when abs(mtime_s) < 8000000000
  then make_timestamp(mtime_s * 1000000 + mtime_ns // 1000) end as mtime,
 case when abs(ctime_s) < 8000000000
  then make_timestamp(ctime_s * 1000000 + ctime_ns // 1000) end as ctime,
 case when abs(atime_s) < 8000000000
  then make_timestamp(atime_s * 1000000 + atime_ns // 1000) end as atime,
 mtime_s, mtime_ns, ctime_s, ctime_ns, atime_s, atime_ns, target, layout, flags, error
from entries
"""


def _texts(column: Any) -> Any:
    """Paths as text; bytes that are none escaped as on the screen."""
    pa = arrow()
    from penstock.base.text import visible

    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.chunked_array([pa.array([visible(path) for path in column.to_pylist()], pa.string())])


def query(catalog: Catalog, text: str) -> tuple[list[str], list[tuple[Any, ...]], Damaged]:
    """SQL over the table `files`: names of columns, rows, and what could not be read."""
    pa = arrow()
    try:
        import duckdb
    except ImportError as error:
        raise PenstockError("duckdb is not installed; pip install 'penstock[catalog]'") from error
    whole, damaged = table(catalog)
    whole = whole.append_column("path_bytes", whole.column("path"))
    at = whole.schema.get_field_index("path")
    whole = whole.set_column(at, pa.field("path", pa.string()), _texts(whole.column("path")))
    with tempfile.TemporaryDirectory(prefix="penstock-sql-") as spill, duckdb.connect() as db:
        db.execute(f"set temp_directory = '{spill}'")
        db.register("entries", whole)
        db.execute(_VIEW)
        try:
            found = db.execute(text)
            if found is None:
                raise UsageError(
                    "sql: there is no statement; the table is `files`, as in select count(*) from files"
                )
            names = [column[0] for column in found.description or []]
            return names, found.fetchall() if names else [], damaged
        except duckdb.Error as error:
            raise PenstockError(
                f"sql: {str(error).splitlines()[0]}; the table is `files`, see describe files"
            ) from error
