# SPDX-License-Identifier: Apache-2.0
"""A Darshan log as frames of the record: by the low-level readers of the package `darshan`, or from its parser's text.

What a record becomes: a file, or one file of one rank.  Records of rank -1 are shared by all: one row without a rank,
with the number of processes as its communicator, and the slowest rank's time as its time.  POSIX counts; where a
file has no POSIX record, STDIO does.  Lustre gives layouts: the widest component's count and size, and
the distinct targets of all of them.

Invariants:
1. A log that cannot be read raises BrokenError with a sentence; nothing of it is kept.
2. The run's id comes from the job's id and the log's bytes: the same log is the same run, wherever it lies.
3. A record with odd values (a bad target, a component without stripes, negative counts) costs that value only.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base.errors import PenstockError
from penstock.runs import record, segments

NODE = "darshan-import"
TEXT_HEAD = b"# darshan log version"
TARGETS_MAX = 1 << 16
Counters = Mapping[str, float]

_SIZES = (
    "0_100",
    "100_1K",
    "1K_10K",
    "10K_100K",
    "100K_1M",
    "1M_4M",
    "4M_10M",
    "10M_100M",
    "100M_1G",
    "1G_PLUS",
)
_READ_SIZES = tuple(f"SIZE_READ_{s}" for s in _SIZES)
_WRITE_SIZES = tuple(f"SIZE_WRITE_{s}" for s in _SIZES)
_SHORT = (
    *(
        "OPENS",
        "READS",
        "WRITES",
        "STATS",
        "SEEKS",
        "BYTES_READ",
        "BYTES_WRITTEN",
        "MAX_BYTE_READ",
        "MAX_BYTE_WRITTEN",
    ),
    *("SEQ_READS", "SEQ_WRITES", "CONSEC_READS", "CONSEC_WRITES", "RW_SWITCHES"),
    *(f"ACCESS{i}_{what}" for i in (1, 2, 3, 4) for what in ("ACCESS", "COUNT")),
)
_NAMES = {
    "POSIX": [(s, f"POSIX_{s}") for s in (*_SHORT, *_READ_SIZES, *_WRITE_SIZES)],
    "STDIO": [(s, f"STDIO_{s}") for s in _SHORT],
}
COUNT_MAX = 2**62


class BrokenError(PenstockError):
    """A log that cannot be read."""


class Packed(NamedTuple):
    """Counters as they came, until they are wanted: logs of thousands of files stay small."""

    names: Sequence[str]
    counters: Any
    times: Any

    def unpacked(self) -> Counters:
        return dict(zip(self.names, self.counters.tolist() + self.times.tolist(), strict=False))


@dataclass
class Raw:
    """What a log says, from either input."""

    job: int = 0
    uid: int = -1
    processes: int = 0
    start_ns: int = 0
    end_ns: int = 0
    exe: str = ""
    mounts: list[tuple[str, str]] = field(default_factory=list)  # path, type
    rows: list[tuple[str, str, int, "Counters | Packed"]] = field(default_factory=list)  # module, name, rank
    layouts: dict[str, record.Layout] = field(default_factory=dict)  # by name
    partial: list[str] = field(default_factory=list)  # modules that did not hold all


def hash_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def is_text(data: bytes) -> bool:
    return data.startswith(TEXT_HEAD)


def job_and_id(raw: Raw, digest: str) -> bytes:
    """The run's id."""
    return record.run_id(str(raw.job), "darshan", digest)


# -- the binary logs -----------------------------------------------------------------------------------------


class Reader:
    """The package's readers, loaded once a process."""

    def __init__(self) -> None:
        try:
            import darshan.backend.cffi_backend as backend
        except ImportError as error:
            raise PenstockError("Darshan logs need the package darshan; install penstock[darshan]") from error
        self.backend = backend
        self.names = {m: [*backend.counter_names(m), *backend.fcounter_names(m)] for m in ("POSIX", "STDIO")}
        self.parts = backend.counter_names("LUSTRE_COMP")

    def read(self, path: Path) -> Raw:
        b = self.backend
        log = b.log_open(os.fspath(path))
        if not bool(log["handle"]):
            raise BrokenError("it is no Darshan log, or cut short")
        try:
            return self._read(log)
        except (
            ValueError,
            KeyError,
            IndexError,
            OverflowError,
            TypeError,
            MemoryError,
            RuntimeError,
        ) as error:
            raise BrokenError(f"it holds what no Darshan writes ({type(error).__name__}: {error})") from error
        finally:
            b.log_close(log)

    def _read(self, log: Any) -> Raw:
        b = self.backend
        job = b.log_get_job(log)
        start_ns = int(job["start_time_sec"]) * 10**9 + int(job["start_time_nsec"])
        end_ns = int(job["end_time_sec"]) * 10**9 + int(job["end_time_nsec"])
        raw = Raw(int(job["jobid"]), int(job["uid"]), int(job["nprocs"]), start_ns, max(end_ns, start_ns))
        if raw.processes <= 0 or start_ns <= 0:
            raise BrokenError("it holds no job")
        raw.exe = b.log_get_exe(log)
        raw.mounts = [(str(path), str(kind)) for path, kind in b.log_get_mounts(log)]
        modules = b.log_get_modules(log)
        raw.partial = [name for name, about in modules.items() if about["partial_flag"]]
        names = b.log_get_name_records(log)
        for module, counters in self.names.items():
            if module not in modules:
                continue
            while (row := b.log_get_record(log, module)) is not None:
                name = str(names.get(row["id"], f"/unknown/{row['id']}"))
                raw.rows.append(
                    (module, name, row["rank"], Packed(counters, row["counters"], row["fcounters"]))
                )
        if "LUSTRE" in modules:
            while (row := b.log_get_record(log, "LUSTRE")) is not None:
                parts = [
                    (dict(zip(self.parts, part["counters"].tolist(), strict=False)), part["ost_ids"].tolist())
                    for part in row["components"]
                ]
                name = str(names.get(row["id"], ""))
                if found := layout_of(parts):
                    raw.layouts[name] = found
        return raw


def layout_of(parts: Sequence[tuple[Counters, list[int]]]) -> record.Layout | None:
    """The widest component's count and size, and the distinct targets of all."""
    best = (0, 0)
    targets: dict[int, None] = {}
    for counters, ids in parts:
        count, size = (
            int(counters.get("LUSTRE_COMP_STRIPE_COUNT", 0)),
            int(counters.get("LUSTRE_COMP_STRIPE_SIZE", 0)),
        )
        good = [t for t in ids if 0 <= t < TARGETS_MAX]
        if count > 0 and size > 0 and (good or not ids):
            best = max(best, (count, size))
        targets.update(dict.fromkeys(good))
    return record.Layout("lustre.lov", b"", best[0], best[1], list(targets)) if best[0] else None


# -- darshan-parser's text -----------------------------------------------------------------------------------

_HEADS = re.compile(r"# (exe|uid|jobid|start_time|end_time|nprocs): (.*)")
_MOUNT = re.compile(r"# mount entry:\s+(\S+)\s+(\S+)")


def read_text(data: bytes) -> Raw:
    """What darshan-parser printed of a log."""
    raw = Raw()
    heads: dict[str, str] = {}
    rows: dict[tuple[str, str, int], dict[str, float]] = {}
    lustre: dict[str, tuple[dict[str, float], list[int]]] = {}
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("#"):
            if match := _HEADS.match(line):
                heads[match[1]] = match[2]
            elif match := _MOUNT.match(line):
                raw.mounts.append((match[1], match[2]))
            elif "incomplete" in line.lower() and "module" in line.lower():
                raw.partial.append(line.strip("#* ").split()[0])
            continue
        words = line.split("\t")
        if len(words) < 6:
            continue
        module, rank, _, counter, value, name = words[:6]
        try:
            number = float(value)
            who = int(rank)
        except ValueError:
            continue
        if module == "LUSTRE":
            held = lustre.setdefault(name, ({}, []))
            if "OST_ID" in counter:
                held[1].append(int(number))
            else:
                held[0][counter.replace("LUSTRE_STRIPE", "LUSTRE_COMP_STRIPE").replace("COMP1_", "COMP_")] = (
                    number
                )
        elif module in ("POSIX", "STDIO"):
            rows.setdefault((module, name, who), {})[counter] = number
    try:
        raw.job, raw.uid, raw.processes = int(heads["jobid"]), int(heads["uid"]), int(heads["nprocs"])
        raw.start_ns = int(float(heads["start_time"]) * 1e9)
        raw.end_ns = max(int(float(heads["end_time"]) * 1e9), raw.start_ns)
    except (KeyError, ValueError, OverflowError) as error:
        raise BrokenError(f"the text of darshan-parser lacks its head ({error})") from error
    raw.exe = heads.get("exe", "")
    raw.rows = [(module, name, rank, values) for (module, name, rank), values in rows.items()]
    for name, (counters, ids) in lustre.items():
        if found := layout_of([(counters, ids)]):
            raw.layouts[name] = found
    return raw


# -- frames --------------------------------------------------------------------------------------------------


def _whole(value: float) -> int:
    """A count that a record can hold, whatever stands there."""
    return int(value) if 0 <= value <= COUNT_MAX else COUNT_MAX if value > 0 else 0


def _counts(values: Counters, module: str) -> dict[str, int]:
    get = values.get
    return {short: _whole(get(name, 0)) for short, name in _NAMES[module]}


def _ns(values: Counters, name: str) -> int:
    seconds = values.get(name, 0.0)
    return int(seconds * 1e9) if 0 < seconds < 1e9 else 0


def _times(values: Counters, prefix: str, shared: bool) -> tuple[int, int, int]:
    """Reading, writing, metadata; of a shared record so that they add up to the slowest rank's."""
    own = tuple(_ns(values, f"{prefix}_F_{kind}_TIME") for kind in ("READ", "WRITE", "META"))
    slowest, total = _ns(values, f"{prefix}_F_SLOWEST_RANK_TIME"), sum(own)
    if shared and slowest and total:
        own = tuple(part * slowest // total for part in own)
    return own[0], own[1], own[2]


def _filesystem(name: str, mounts: list[tuple[str, str]]) -> str:
    best = ""
    kind = ""
    for path, found in mounts:
        inside = name == path or name.startswith(path.rstrip("/") + "/")
        if inside and len(path) >= len(best):
            best, kind = path, found
    return kind


def _file(module: str, name: str, rank: int, v: Counters, raw: Raw) -> record.File:
    shared = rank < 0
    read_ns, write_ns, meta_ns = _times(v, module, shared)
    c = _counts(v, module)
    first = _ns(v, f"{module}_F_OPEN_START_TIMESTAMP")
    last = max(_ns(v, f"{module}_F_CLOSE_END_TIMESTAMP"), _ns(v, f"{module}_F_WRITE_END_TIMESTAMP"), first)
    common = [(c[f"ACCESS{i}_ACCESS"], c[f"ACCESS{i}_COUNT"]) for i in (1, 2, 3, 4)]
    highest = max(c["MAX_BYTE_WRITTEN"], c["MAX_BYTE_READ"])
    posix = module == "POSIX"
    return record.File(
        path=name.encode("utf-8", "surrogateescape"),
        process=0,
        pid=max(rank, 0) + 1,
        rank=rank,
        opens=c["OPENS"],
        reads=c["READS"],
        writes=c["WRITES"],
        metas=c["STATS"] + c["SEEKS"],
        bytes_read=c["BYTES_READ"],
        bytes_written=c["BYTES_WRITTEN"],
        common_sizes=[pair for pair in common if pair[1]],
        read_sizes=[c[s] for s in _READ_SIZES] if posix else [],
        write_sizes=[c[s] for s in _WRITE_SIZES] if posix else [],
        reads_sequential=c["SEQ_READS"],
        writes_sequential=c["SEQ_WRITES"],
        reads_consecutive=c["CONSEC_READS"],
        writes_consecutive=c["CONSEC_WRITES"],
        switches=c["RW_SWITCHES"],
        first_ns=raw.start_ns + first,
        last_ns=raw.start_ns + last,
        read_ns=read_ns,
        write_ns=write_ns,
        meta_ns=meta_ns,
        read_sampled=int(read_ns > 0),
        write_sampled=int(write_ns > 0),
        meta_sampled=int(meta_ns > 0),
        highest_offset=highest + 1 if highest else 0,
        mpi_ranks=raw.processes if shared else 0,
        filesystem=_filesystem(name, raw.mounts),
        layout=raw.layouts.get(name),
    )


def _argv(exe: str) -> list[bytes]:
    try:
        words = shlex.split(exe)
    except ValueError:
        words = exe.split()
    return [word.encode("utf-8", "surrogateescape") for word in words]


def frames(raw: Raw, run: bytes) -> bytes:
    """The run as frames, ready to be appended."""
    argv = _argv(raw.exe)
    posix = {(name, rank) for module, name, rank, _ in raw.rows if module == "POSIX"}
    files = [
        _file(module, name, rank, v.unpacked() if isinstance(v, Packed) else v, raw)
        for module, name, rank, v in raw.rows
        if (module == "POSIX" or (name, rank) not in posix) and not name.startswith("<")
    ]
    reasons = [
        record.Reason("table_full", 0, f"Darshan's module {name} did not hold all") for name in raw.partial
    ]
    process = record.Process(
        pid=1,
        start_ns=raw.start_ns,
        end_ns=raw.end_ns,
        exe=argv[0] if argv else b"",
        argv=argv,
        mpi_largest=raw.processes,
    )
    begin = record.Begin(
        job=str(raw.job),
        job_source="darshan",
        node=NODE,
        uid=raw.uid,
        argv=argv,
        start_ns=raw.start_ns,
        launcher="import darshan",
    )
    node = record.Node(NODE, 1, raw.end_ns, True, [process], [], files, None, reasons)
    end = record.End(NODE, None, 0, raw.end_ns)  # Darshan does not know how it ended
    return b"".join(segments.pack(run, payload) for payload in (begin, node, end))
