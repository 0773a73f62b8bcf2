# SPDX-License-Identifier: Apache-2.0
"""What `penstock run --place` does before the program starts: from the history and the targets a plan, from the plan
a section of the job's boards.

Invariants:
1. The program's start waits for it no longer than it may: a process of its own makes the plan (late.py).  What is not
   ready then is put onto the board of the running program; until there is a plan, new files go where the file system
   puts them, which is counted.
2. Nothing is planned for a file system without targets, nor while its metadata servers are busy.
3. What a plan puts on targets is in a ledger until the run has ended, so that the next plan counts it too: the site's
   where the node has an agent, else this user's own.  Who asked the site in vain takes two random choices.
"""

import contextlib
import errno
import json
import os
import re
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base.errors import PenstockError
from penstock.base.settings import Settings
from penstock.control import late, local, tuner
from penstock.policy import guard
from penstock.policy.placing import central, contract, planning
from penstock.policy.placing import ledger as books
from penstock.policy.predicting import forecast
from penstock.policy.predicting.contract import Coming
from penstock.runs import board, collect, learned, limits, merge, place_section
from penstock.runs.history import History
from penstock.targets import driver as drivers
from penstock.targets import lov, lustre, servers
from penstock.targets.mounts import TESTBED_TYPE, Mount, mount_of, mounts

PLACEABLE = ("lustre", "ceph")
_TYPES = (lustre.LUSTRE_TYPE, TESTBED_TYPE, "ceph", "fuse.ceph-fuse")
FOLDERS_MAX = 256
SERVERS_S, SERVERS_KNOWN_S = 0.25, 60.0
READING_MAX_S = 600.0
OWN_RUNS_MAX = 20
SCRIPTS_MAX = 20
WAITING_MAX = 2  # file systems that keep a spot for a plan that comes later
LATE_S = 30.0  # so long a plan may still come after the program's start
ASK_S = 6.0  # an agent answers before
LEDGER_S = 3600.0
_USABLE = {drivers.UP, drivers.UNKNOWN}


class Made(NamedTuple):
    """A plan for one file system, and what goes on the board."""

    mount: str
    plan: contract.Plan
    section: bytes
    left_out: int
    given: tuner.Given | None = None  # what the tuner did
    number: int = 0  # by which the plan is known, from run to ledger: when it was made, in ns


BOARD_ROOM_BYTES = 768 << 10  # that a board made for a run has for each plan
QUESTION_ROWS = 10_000
QUESTION_ROOM_BYTES = 160 << 10  # of a plan, so that it fits into a question to the agent
Say = Callable[["Prepared"], None]
Tune = Callable[
    [Sequence[contract.Expected], contract.Situation], tuple[list[contract.Expected], tuner.Given]
]


@dataclass(frozen=True)
class Prepared:
    """All that a start needs.  `notes` are sentences for the user."""

    made: tuple[Made, ...] = ()
    notes: tuple[str, ...] = ()
    without: tuple[tuple[str, int], ...] = ()  # mounts that have no plan, and why (place_section.WHY_*)
    waits: int = -1  # a descriptor: whoever still plans wants to hear there where the board is

    def sections(self) -> list[bytes]:
        now_ns = time.time_ns()
        nothing = [place_section.nothing(mount, why, now_ns) for mount, why in self.without]
        return [*(one.section for one in self.made), *nothing]

    def parts(self) -> list[tuple[int, int, bytes]]:
        """For the job's plan file."""
        return [(place_section.KIND, place_section.VERSION, data) for data in self.sections()]


@dataclass(frozen=True)
class Wish:
    """What is asked for: `expected` are the files that the next run is expected to create."""

    mounts: tuple[str, ...] = ()
    state_dir: str = ""
    settings: contract.PlanSettings = planning.DEFAULTS
    target_rate_bytes_per_s: float = 200 << 20
    may_override: bool = False
    anywhere: bool = False
    promise: bool = True
    tune: Tune | None = None
    choose_targets: bool = True  # False: only count and size are asked for, any balanced targets do
    room_bytes: int = BOARD_ROOM_BYTES
    busy_from: guard.GuardSettings = guard.DEFAULTS
    own_bytes: Callable[[str, float], Mapping[int, float]] | None = None  # by mount and since when
    detect: tuple[str, ...] = ()  # types of mounts that are concerned as long as nothing is expected
    expected: tuple[contract.Expected, ...] = field(default_factory=tuple)


# -- what is expected ----------------------------------------------------------------------------------------


def program_of(words: Sequence[str], known: Iterable[str]) -> str:
    """The program that a command runs, as the history calls it: the first word, behind launchers, that it knows."""
    names = set(known)
    for i in range(len(words)):
        doubt, name = merge.program_name(b"", [os.fsencode(word) for word in words[i:]])
        if doubt < 3 and name in names:
            return name
    return ""


def program_called(history: History, words: Sequence[str]) -> str:
    """The program that this command started lately, under whatever name: a script's runs are called after what is
    busiest in them.  The same words, else the same first one, where that is no mere starter."""
    asked = [os.fsencode(word) for word in words]
    doubt, name = merge.program_name(b"", asked)
    alike = ""
    for summary in history.summaries[:SCRIPTS_MAX]:
        called = history.load(summary).begin.argv
        if called == asked:
            return summary.program
        same = called[:1] == asked[:1] and merge.program_name(b"", called) == (doubt, name)
        if not alike and doubt < 3 and same:
            alike = summary.program
    return alike


def expected_of(
    history: History, program: str, ranks: int = 0, job: str = ""
) -> tuple[contract.Expected, ...]:
    """The files that the next run of a program is expected to create, with the stripes that they had last time."""
    loaded = [history.load(s) for s in learned.teachers(learned.runs_of(history, program))]
    if not loaded:
        return ()
    found = forecast.learn_anew([learned.files_of(run) for run in loaded])
    expected = forecast.to_place(found.expected(Coming(ranks, os.fsencode(job))))
    if tuner.given_to(history.settings.state_dir, loaded[-1]):
        return tuple(expected)  # what they had was the tuner's choice for that run, not their folder's
    had = {
        row.path: (row.layout.stripe_count, row.layout.stripe_bytes)
        for node in loaded[-1].nodes
        for row in node.files
        if row.layout is not None and row.layout.stripe_count > 0
    }
    return tuple(with_stripes(expected, had))


_CLASSES = {contract.DIGITS: rb"[0-9]+", contract.LETTERS: rb"[A-Za-z]+", contract.WORD: rb"[0-9A-Za-z]+"}


def with_stripes(
    expected: Iterable[contract.Expected], had: Mapping[bytes, tuple[int, int]]
) -> Iterator[contract.Expected]:
    """Where all files of a pattern had the same count and size of stripes, those are expected again.

    Their folder, which may not be there yet, will have the same default; it has the last word (WISH in board/place.h).
    """
    known: dict[tuple[bytes, ...], tuple[int, int]] = {}
    for e in expected:
        pieces = e.match.pieces
        if pieces not in known:
            pattern = re.compile(b"".join(_CLASSES.get(p) or re.escape(p) for p in pieces))
            seen = {row for path, row in had.items() if pattern.fullmatch(path)}
            known[pieces] = seen.pop() if len(seen) == 1 else (0, 0)
        count, size = known[pieces]
        yield replace(e, stripe_count=count, stripe_size_bytes=size) if count and not e.stripe_count else e


# -- file systems ------------------------------------------------------------------------------------------


def file_systems(wish: Wish) -> tuple[list[tuple[Mount, drivers.Driver]], list[str]]:
    """Those that were named, else those that the run is expected to write to or stands in; of a program that nothing is
    known of all that are detected."""
    notes = []
    named = [mount_of(path) for path in wish.mounts]
    if not named:
        wanted = {str(Path.cwd()), *(os.fsdecode(_seen_in(e)) for e in wish.expected)}
        wanted |= set() if wish.expected else set(expected_mounts((), wish.detect))
        here = sorted(mounts(), key=lambda m: -len(m.point))
        named = list({_holding(path, here) for path in wanted} - {None})  # type: ignore[arg-type]
    found = []
    for mount in sorted(set(named), key=lambda m: m.point):
        driver = drivers.driver_for(mount.point)
        if driver.kind in PLACEABLE:
            found.append((mount, driver))
        elif wish.mounts:
            notes.append(f"{mount.point} ({mount.type}) has no targets: nothing can be placed there")
    if not found and not notes:
        notes.append("no file system with targets is concerned: nothing can be placed (--mount names one)")
    return found, notes


def may_have_targets(mount: Mount) -> bool:
    """By its type alone: nothing is asked."""
    return mount.type in _TYPES


def identity(mount: Mount) -> str:
    """A file system's name that is the same on all nodes: what is mounted, wherever in it that begins."""
    server, sep, path = mount.source.partition(":/")
    return f"{mount.type}:{server}{sep}{path.partition('/')[0] if sep else ''}"


def expected_mounts(named: Sequence[str], types: Sequence[str]) -> list[str]:
    """Where plans may come for a program that starts without one: what was named, else where it stands, and what is
    detected by its type.  Asks nothing of a file system: it may not answer now."""
    known = sorted(mounts(), key=lambda m: -len(m.point))
    if named:
        return list(dict.fromkeys(_expected_mount(path, known) for path in named))[:WAITING_MAX]
    here = _holding(str(Path.cwd()), known)
    found = [*([here] if here is not None else []), *(m for m in known if m.type in types)]
    return list(dict.fromkeys(m.point for m in found if may_have_targets(m)))[:WAITING_MAX]


def _expected_mount(path: str, known: Sequence[Mount]) -> str:
    """The mount by the name alone; of a link, which only the file system could follow, the name."""
    whole = os.path.normpath(Path(path).absolute())
    mount = _holding(whole, known)
    return mount.point if mount is not None and may_have_targets(mount) else whole


def _holding(path: str, known: Sequence[Mount]) -> Mount | None:
    return next((m for m in known if m.point in ("/", path) or path.startswith(m.point + "/")), None)


def _folder(match: contract.Match) -> bytes:
    """The folder that all names of a match begin with."""
    return match.pieces[0].rpartition(b"/")[0] or b"/"


def _seen_in(e: contract.Expected) -> bytes:
    """The folder that such a file had last time; not known: what all its names begin with."""
    return e.like.rpartition(b"/")[0] or b"/" if e.like else _folder(e.match)


def under(match: contract.Match, top: bytes) -> contract.Match | None:
    """The match as its names below a folder read, with that folder (`/scratch1/`) as text instead of the marks that
    stand for parts of it; None: none lies there."""
    rest, values = top, iter(match.values)
    for at, piece in enumerate(match.pieces):
        if piece not in _CLASSES:
            if piece.startswith(rest):
                pieces = (top + piece[len(rest) :], *match.pieces[at + 1 :])
                return contract.Match(pieces, tuple(values))
            if not rest.startswith(piece):
                return None
            rest = rest[len(piece) :]
            continue
        stated, text = next(values), re.match(_CLASSES[piece], rest)
        if text is None or (stated is not None and stated != _value(piece, text[0])):
            return None
        rest = rest[text.end() :]
    return None


def _value(mark: bytes, text: bytes) -> bytes:
    """A mark's text as `values` have it."""
    return (text.lstrip(b"0") or b"0") if mark == contract.DIGITS else text


# -- what is known of targets --------------------------------------------------------------------------------


class Reading(NamedTuple):
    """Sums of a target's bytes, remembered from run to run: two of them give a rate."""

    at_s: float
    bytes: Mapping[int, int]


def _remembered(path: Path) -> Reading | None:
    try:
        held = json.loads(path.read_text())
        return Reading(float(held["at_s"]), {int(k): int(v) for k, v in held["bytes"].items()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_whole(path: Path, data: bytes) -> None:
    """Beside, synced, renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)


def busy_shares(
    old: Reading | None, new: Reading, rate_bytes_per_s: float, own: Mapping[int, float] | None = None
) -> dict[int, float]:
    """The share of each target's rate that others used between two readings; {} where they tell nothing.  `own`: bytes
    that runs of this user moved meanwhile, which are over now."""
    over_s = new.at_s - old.at_s if old else 0.0
    if old is None or not 1.0 <= over_s <= READING_MAX_S:
        return {}
    moved = {t: new.bytes[t] - old.bytes[t] for t in new.bytes if t in old.bytes}
    mine = own or {}
    return {
        t: min(max(b - mine.get(t, 0.0), 0.0) / over_s / rate_bytes_per_s, 1.0)
        for t, b in moved.items()
        if b >= 0
    }


def own_bytes(history: History, mount: str, since_s: float) -> dict[int, float]:
    """What ended runs of the history moved on each target of a file system since then; evenly over a file's targets."""
    below = os.fsencode(mount.rstrip("/")) + b"/"
    found: dict[int, float] = {}
    for summary in history.summaries[:OWN_RUNS_MAX]:
        if not summary.ended or summary.start_ns < since_s * 1e9:
            continue
        for row in (row for node in history.load(summary).nodes for row in node.files):
            targets = row.layout.targets if row.layout is not None and row.path.startswith(below) else ()
            for target in targets:
                moved = max(row.bytes_written, 0) + max(row.bytes_read, 0)
                found[target] = found.get(target, 0.0) + moved / len(targets)
    return found


def targets_of(
    driver: drivers.Driver,
    pools: Mapping[str, Iterable[int]],
    busy: Mapping[int, float],
    rate_bytes_per_s: float,
) -> list[contract.Target]:
    """The targets as a planner sees them."""
    states = driver.health()
    member = {name: frozenset(ids) for name, ids in pools.items()}
    return [
        contract.Target(
            t.id,
            t.server,
            float(t.size_bytes),
            float(t.free_bytes),
            rate_bytes_per_s,
            busy.get(t.id, 0.0),
            usable=states.get(t.id, drivers.UNKNOWN) in _USABLE,
            why_not="" if states.get(t.id, drivers.UNKNOWN) in _USABLE else states[t.id],
            pools=frozenset(name for name, ids in member.items() if t.id in ids),
        )
        for t in driver.targets()
    ]


def read_now(driver: drivers.Driver, now_s: float) -> Reading:
    rows = driver.load()
    return Reading(
        now_s, {t: rows[t].read_bytes + rows[t].written_bytes for t in rows if rows[t].read_bytes >= 0}
    )


def metadata_is_busy(
    driver: drivers.Driver, cache: Path, settings: guard.GuardSettings = guard.DEFAULTS
) -> str:
    """Why nothing may be planned now, or nothing.  Where servers cannot be seen, nobody objects.  What was read for the
    last plan is remembered: processors' shares need two readings, and the program waits."""
    where = driver.servers()
    if not where:
        return ""
    before = _remembered_servers(cache, set(where))
    if before is None:
        before = {name: servers.read(proc) for name, proc in where.items()}
        time.sleep(SERVERS_S)
    after = {name: servers.read(proc) for name, proc in where.items()}
    with contextlib.suppress(OSError):
        write_whole(cache, json.dumps({name: text._asdict() for name, text in after.items()}).encode())
    now = [servers.between(name, before[name], after[name]) for name in where]
    decision, _ = servers.may_place(now, time.time(), guard.State(), settings)
    return "" if decision.allowed else decision.why


def _remembered_servers(path: Path, names: set[str]) -> dict[str, servers.Texts] | None:
    try:
        held = {str(name): servers.Texts(**row) for name, row in json.loads(path.read_text()).items()}
        ages_s = [time.time() - text.at_s for text in held.values()]
        good = set(held) == names and all(SERVERS_S <= age_s <= SERVERS_KNOWN_S for age_s in ages_s)
        for name, text in held.items():
            servers.between(name, text, text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, PenstockError):
        return None
    return held if good else None


# -- what folders say ------------------------------------------------------------------------------------------


def read_default(path: bytes) -> place_section.Default | None:
    """A folder's default as Lustre gives it; None: it cannot be read."""
    try:
        blob = os.getxattr(path, lov.XATTR)
    except OSError as error:
        return place_section.Default() if error.errno == errno.ENODATA else None
    try:
        found = lov.decode(blob)
    except OSError:
        return place_section.Default("left")
    part = found.parts[0]
    if (
        found.composite
        or part.magic == lov.SPECIFIC
        or part.pattern & ~lov.RAID0
        or part.stripe_offset != lov.ANY
    ):
        return place_section.Default("left")
    pool = part.pool.decode("utf-8", "replace")
    return place_section.Default("plain", part.stripe_count, part.stripe_size_bytes, pool)


class Folders:
    """Defaults of the folders that expected files lie in; the root's own is the file system's."""

    def __init__(self, mount: str, tuned: Container[contract.Match] = ()) -> None:
        self.mount, self.tuned = os.fsencode(mount), tuned
        self.root = read_default(self.mount) or place_section.Default()
        self.found: dict[bytes, place_section.Default] = {}
        self._composite: dict[bytes, bool] = {}

    def of(self, path: bytes) -> place_section.Default:
        """Of a folder, or of the nearest one above it that is there: what it would inherit."""
        below = path.startswith(self.mount.rstrip(b"/") + b"/") or path == self.mount
        while below and path not in self.found and len(path) > len(self.mount):
            said = read_default(path) if len(self.found) < FOLDERS_MAX else None
            if said is not None:
                self.found[path] = self._plain(said)
                break
            path = path.rpartition(b"/")[0]
        return self.found.get(path, self._plain(self.root))

    def _plain(self, said: place_section.Default) -> place_section.Default:
        """What says the same as the root says nothing of its own."""
        return (
            place_section.Default() if said == self.root and said.kind == "plain" and not said.pool else said
        )

    def _asked(self, match: contract.Match) -> bool:
        """Is what holds for its folder known?  A pattern's folder may be one that is not there yet."""
        folder = _folder(match)
        one = not any(b"/" in piece for piece in match.pieces[1:])
        return match.exact or (one and (folder in self.found or folder == self.mount))

    def apply(self, e: contract.Expected) -> contract.Expected:
        """The file with what its folder asks for; a wish of the tuner yields to a folder's own default."""
        said = self.of(_folder(e.match))
        if said.kind == "left":
            return replace(e, composite=True)
        if said.kind != "plain":
            asked = self._asked(e.match) and e.match not in self.tuned
            return replace(e, stripe_count=0, stripe_size_bytes=0) if asked else e
        count = _count(said.stripes)
        return replace(e, stripe_count=count, stripe_size_bytes=said.size_bytes, pool=said.pool)


def pools_of(driver: drivers.Driver) -> dict[str, list[int]]:
    """The targets of each pool, where a client can see them."""
    if driver.kind == "ceph":
        return {name: sorted(ids) for name, ids in driver.pools.items() if ids}  # type: ignore[attr-defined]
    texts = driver.params.read(f"lov.{driver.fs}-clilov-*.pools.*")  # type: ignore[attr-defined]
    found = {}
    for name, text in texts.items():
        found[name.rpartition(".")[2]] = [int(n, 16) for n in re.findall(r"-OST([0-9a-fA-F]{4})_UUID", text)]
    return found


# -- the ledger ----------------------------------------------------------------------------------------------


class LedgerFile:
    """The promises of this user's runs on one file system, beside the history; one process at a time.

    A run is known by when its plan was made, in ns; its agent leaves an empty file of that name when it has ended.
    """

    def __init__(self, state_dir: str, mount: str) -> None:
        self.folder = Path(state_dir, "place")
        self.path = self.folder / f"{_as_name(mount)}.ledger.json"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        import fcntl

        (self.folder / "ended").mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def read(self, now_s: float) -> books.Ledger:
        """What is promised still: without runs that have ended, and those whose time is over."""
        held = books.Ledger(heard_s=now_s)
        try:
            rows = json.loads(self.path.read_text())["runs"]
            runs = {
                str(run): books.Promise(
                    {int(t): float(b) for t, b in row["bytes"].items()},
                    float(row["until_s"]),
                    {int(t): float(b) for t, b in row.get("free", {}).items()},
                    {int(t): float(b) for t, b in row.get("written", {}).items()},
                )
                for run, row in rows.items()
            }
            held = books.Ledger(runs, now_s)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # a damaged ledger promises nothing: the next write mends it
        for run in self._ended():
            held = books.close(held, run)
        return books.expire(held, now_s)

    def write(self, held: books.Ledger) -> None:
        rows = {
            run: {
                "bytes": dict(p.bytes),
                "until_s": p.expires_s,
                "free": dict(p.free),
                "written": dict(p.written),
            }
            for run, p in held.runs.items()
        }
        write_whole(self.path, json.dumps({"schema_version": 1, "runs": rows}).encode())
        self._forget_ended()

    def outstanding(self, now_s: float) -> dict[int, float]:
        """Bytes by target that runs were promised and have not ended to write."""
        return books.outstanding(self.read(now_s), now_s)

    def end(self, number: int) -> None:
        """The run of a plan is over, or will never be."""
        folder = self.folder / "ended"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / str(number)).touch()

    def _forget_ended(self) -> None:
        """Those that no ledger here can name any more."""
        old_ns = time.time_ns() - int((LEDGER_S + 60) * 1e9)
        for run in self._ended():
            if not run.isdecimal() or int(run) < old_ns:
                (self.folder / "ended" / run).unlink(missing_ok=True)

    def _ended(self) -> list[str]:
        try:
            return [path.name for path in (self.folder / "ended").iterdir()]
        except OSError:
            return []


def outstanding(state_dir: str, now_s: float) -> dict[str, dict[int, float]]:
    """By file system what this user's runs were promised here."""
    found = {}
    for path in sorted(Path(state_dir, "place").glob("*.ledger.json")):
        name = path.name.removesuffix(".ledger.json")
        held = LedgerFile(state_dir, name).outstanding(now_s)
        if held:
            found[name] = held
    return found


def _as_name(mount: str) -> str:
    """A mount as a part of a file's name."""
    return mount.strip("/").replace("/", "-")[-100:] or "root"


# -- planning --------------------------------------------------------------------------------------------------


class Looked(NamedTuple):
    """A file system as a plan is made for it, and the files that are expected there."""

    mount: Mount
    place: place_section.Place
    expected: list[contract.Expected]
    situation: contract.Situation
    given: tuner.Given | None
    notes: tuple[str, ...] = ()

    @property
    def known(self) -> list[contract.Expected]:
        return [e for e in self.expected if e.files]


def look(mount: Mount, driver: drivers.Driver, wish: Wish, now_s: float) -> Looked:
    """The targets, folders and expected files of one file system, as they are now."""
    cache = Path(wish.state_dir, "place", f"{_as_name(mount.point)}.reading.json")
    reading = read_now(driver, now_s)
    before = _remembered(cache)
    own = wish.own_bytes(mount.point, before.at_s) if wish.own_bytes and before else {}
    busy = busy_shares(before, reading, wish.target_rate_bytes_per_s, own)
    with contextlib.suppress(OSError):
        write_whole(cache, json.dumps({"at_s": reading.at_s, "bytes": reading.bytes}).encode())
    pools = pools_of(driver)
    targets = targets_of(driver, pools, busy, wish.target_rate_bytes_per_s)
    below = os.fsencode(mount.point.rstrip("/")) + b"/"
    found_here = [(e, under(e.match, below)) for e in wish.expected]
    expected = [replace(e, match=match) for e, match in found_here if match is not None]
    dev = 0 if wish.anywhere else Path(mount.point).stat().st_dev
    place = place_section.Place(driver.kind, mount.point, dev, may_override=wish.may_override)
    given: tuner.Given | None = None
    notes: tuple[str, ...] = ()
    if driver.kind == "lustre":
        folders = Folders(mount.point)
        own_default = folders.root if folders.root.kind == "plain" else place_section.Default(stripes=1)
        able = {name: planning.spare([t for t in targets if name in t.pools]) for name in pools}
        place = place._replace(
            default_count=own_default.stripes or 1, default_size_bytes=own_default.size_bytes, pools=able
        )
        if wish.tune is not None:
            count = _count(own_default.stripes or 1)
            before_it = contract.Situation(mount.point, now_s, targets, count, own_default.size_bytes)
            expected, given = wish.tune(expected, before_it)
            folders.tuned = frozenset(e.match for e in expected) if given.applied else frozenset()
        expected = [folders.apply(e) for e in expected]
        place = place._replace(folders=folders.found)
    else:
        targets, place, expected = _for_ceph(driver, targets, pools, place, expected)
        if wish.tune is not None:
            notes = (
                f"stripe counts and sizes are not tuned on {mount.point} (CephFS): files go whole to one OSD's pool",
            )
    situation = contract.Situation(
        mount.point, now_s, targets, _count(place.default_count), place.default_size_bytes
    )
    return Looked(mount, place, expected, situation, given, notes)


def made_of(
    looked: Looked, wish: Wish, number: int, ledger: books.Ledger | None, given: planning.Given | None = None
) -> Made:
    """The plan, by a ledger, by two random choices without one, or with the targets that a site's planner gave."""
    situation = planning.with_ledger(looked.situation, ledger)
    made = planning.plan(looked.known, situation, wish.settings, given)
    made = replace(made, entries=(*made.entries, *unforeseen(looked.expected, made.small_bytes)))
    if not wish.choose_targets:
        made = without_targets(made)
    place = looked.place._replace(number=number)
    section = place_section.encode(made, place, wish.room_bytes)
    return Made(looked.mount.point, made, section.data, section.left_out, looked.given, number)


def without_targets(made: contract.Plan) -> contract.Plan:
    """The plan with count and size alone: targets come from the spare list, nothing is promised.  Layouts wider than
    a board's lists keep theirs."""
    entries = [
        replace(e, turns=()) if e.stripe_count <= place_section.STRIPES_MAX else e for e in made.entries
    ]
    return replace(made, entries=tuple(entries), promises={})


def unforeseen(expected: Iterable[contract.Expected], small_bytes: float) -> list[contract.Entry]:
    """Entries for names that may come, nobody knows how often: nothing is promised, their targets are spare ones."""
    found = []
    for e in expected:
        if e.files:
            continue
        small = e.bytes < small_bytes or e.composite or e.append
        action = contract.Action.STOCK if small else contract.Action.PLACE
        why = "may come; left to the file system" if small else "may come; targets from the spare list"
        found.append(contract.Entry(e.match, action, files=0, bytes_each=e.bytes, pool=e.pool, why=why))
    return found


def _count(count: int) -> int:
    return -1 if count == lov.ALL else count


def _for_ceph(
    driver: drivers.Driver,
    targets: list[contract.Target],
    pools: Mapping[str, Sequence[int]],
    place: place_section.Place,
    expected: Iterable[contract.Expected],
) -> tuple[list[contract.Target], place_section.Place, list[contract.Expected]]:
    """Pools of one OSD each stand for it; a file goes to one of them whole."""
    data = [name for fs in driver.cluster.ask("fs ls") for name in fs["data_pools"]]  # type: ignore[attr-defined]
    single = {name: ids for name, ids in pools.items() if len(ids) == 1 and name in data}
    reached = {ids[0] for ids in single.values()}
    default = data[0] if data else ""
    with contextlib.suppress(PenstockError):
        default = driver.layout(place.mount).components[0].pool
    whole = [replace(e, stripe_count=1, stripe_size_bytes=0, pool="") for e in expected]
    kept = [t for t in targets if t.id in reached]
    return kept, place._replace(pools=single, default_pool=default), whole


def wish_of(settings: Settings, mounts_named: Sequence[str] = ()) -> Wish:
    """What the settings ask for."""
    small = settings["place.small"]
    return Wish(
        mounts=tuple(mounts_named) or tuple(settings["run.mounts"]),
        state_dir=str(settings.state_dir),
        settings=replace(
            planning.DEFAULTS,
            allocator=settings["place.allocator"],
            small_bytes=float(small) if small else -1.0,
            parts=settings["place.components"],
        ),
        busy_from=guard.GuardSettings(settings["place.mds_cpu"], settings["place.mds_memory"]),
        target_rate_bytes_per_s=float(settings["place.target_rate"]),
        may_override=settings["place.components"],
    )


def central_settings(settings: Settings) -> central.CentralSettings:
    """What a site's planner decides by."""
    return central.CentralSettings(
        allocator=settings["place.allocator"],
        target_rate_bytes_per_s=float(settings["place.target_rate"]),
        busy_from=guard.GuardSettings(settings["place.mds_cpu"], settings["place.mds_memory"]),
    )


def prepare(
    settings: Settings,
    words: Sequence[str],
    mounts_named: Sequence[str],
    anywhere: bool = False,
    place: bool = True,
    tune: bool = False,
) -> Prepared:
    """A plan for a command that is about to start, or what holds until there is one.  `anywhere`: also for other
    nodes, where the mount's device has another number; nobody waits for that one's start."""
    site = "" if anywhere else site_agent(settings)

    def work(say: Say) -> Prepared:
        remarks: list[str] = []
        history = History(settings, remarks.append)
        program = program_of(words, (s.program for s in history.summaries)) or program_called(history, words)
        job = os.environ.get("SLURM_JOB_ID", "")
        expected = expected_of(history, program, job=job) if program else ()
        said = tuner.words(tuner.path_of(settings.state_dir), remarks.append)
        mode = tuner.mode_of(settings, program, said)
        if not place and not tune and mode != "apply":
            return Prepared()

        wish = replace(
            wish_of(settings, mounts_named),
            expected=expected,
            anywhere=anywhere,
            tune=tune_of(history, settings, program, tune) if tune or mode != "observe" else None,
            choose_targets=place,
            own_bytes=lambda mount, since_s: own_bytes(history, mount, since_s),
            detect=tuple(settings["run.detect"]),
            room_bytes=QUESTION_ROOM_BYTES if site else BOARD_ROOM_BYTES,
        )
        found = make_by_site(wish, site, say) if site else make(wish)
        advice = [f"tune advises {text}" for text in map(advised, found.made) if text]
        said_of = (
            found.notes if place or tune or found.made else ()
        )  # who asked for nothing need not hear of nothing
        notes = (*remarks, *said_of, *(advice if mode == "advise" else ()))
        return replace(found, notes=notes)

    seconds = LATE_S if anywhere else settings["place.wait"] / 1e9
    found = late.within(work, seconds, LATE_S, not anywhere, settings.state_dir)
    if found.waits >= 0 and not found.made:
        mounts_expected = expected_mounts(
            tuple(mounts_named) or tuple(settings["run.mounts"]), settings["run.detect"]
        )
        waiting = tuple((mount, place_section.WHY_LATE) for mount in mounts_expected)
        return replace(found, without=waiting)
    return found


def tune_of(history: History, settings: Settings, program: str, always: bool) -> Tune:
    """The tuner for a program's next run; `always`: whatever its mode."""

    def layouts(
        expected: Sequence[contract.Expected], now: contract.Situation
    ) -> tuple[list[contract.Expected], tuner.Given]:
        return tuner.apply(history, settings, program, expected, now, always)

    return layouts


def site_agent(settings: Settings) -> str:
    """The socket of the node's agent, if there is one."""
    socket = local.find(settings["agent.socket"])
    return socket if Path(socket).exists() else ""


def advised(one: Made) -> str:
    """What the tuner would have given, where it gave nothing."""
    if one.given is None or one.given.applied:
        return ""
    return "; ".join(f"{count} x {size >> 10} KiB: {why}" for count, size, why in one.given.layouts if count)


def make(wish: Wish, now_s: float | None = None) -> Prepared:
    """Plans for all file systems that are concerned, promised in this user's ledger.  One that fails takes no plan from
    the others; where all do, it is an error."""
    now_s = time.time() if now_s is None else now_s
    found, notes = file_systems(wish)
    made, without, failed = [], [], []
    for number, (mount, driver) in enumerate(found, int(now_s * 1e9)):
        try:
            why = metadata_is_busy(driver, _servers_cache(wish, mount), wish.busy_from)
            if why:
                notes.append(f"nothing is placed on {mount.point}: {why}")
                without.append((mount.point, place_section.WHY_BUSY))
                continue
            one, more = _promised(mount, driver, wish, number, now_s)
        except (PenstockError, OSError) as error:
            notes.append(f"nothing is placed on {mount.point}: {error}")
            without.append((mount.point, place_section.WHY_FAILED))
            failed.append(error)
            continue
        made.append(one)
        notes += [*more, *_left_out(one)]
    if failed and len(failed) == len(found):
        raise failed[0]
    return Prepared(tuple(made), tuple(notes), tuple(without))


def _promised(
    mount: Mount, driver: drivers.Driver, wish: Wish, number: int, now_s: float
) -> tuple[Made, tuple[str, ...]]:
    """One file system's plan, in the ledger last of all, and notes."""
    ledger = LedgerFile(wish.state_dir, mount.point)
    with ledger.locked():
        held = ledger.read(now_s)
        looked = look(mount, driver, wish, now_s)
        free = {t.id: t.free_bytes for t in looked.situation.targets}
        held = books.look(held, free)
        one = made_of(looked, wish, number, held)
        if wish.promise:
            _remember_given(wish, one)
            ledger.write(books.promise(held, str(number), one.plan.promises, now_s, LEDGER_S, free))
    return one, looked.notes


def close_plans_of(file: Path, state_dir: Path) -> None:
    """A plan file is about to be written anew: what was promised to the plans that it holds is over."""
    try:
        parts = limits.plan_parts(file.read_bytes())
    except OSError:
        return
    heads = [place_section.head_of(data) for kind, _, data in parts if kind == place_section.KIND]
    for head in heads:
        if head is not None and head.driver:
            LedgerFile(str(state_dir), head.mount).end(head.made_ns)


def _servers_cache(wish: Wish, mount: Mount) -> Path:
    return Path(wish.state_dir, "place", f"{_as_name(mount.point)}.servers.json")


def _left_out(one: Made) -> list[str]:
    if not one.left_out:
        return []
    return [f"{one.left_out} entries of the plan for {one.mount} did not fit on the board"]


def _remember_given(wish: Wish, one: Made) -> None:
    if one.given is not None:
        tuner.remember(Path(wish.state_dir), one.number, one.given)


def make_by_site(wish: Wish, socket: str, say: Say) -> Prepared:
    """The same with targets from the site's planner.  Until it answers, by two random choices and without a ledger."""
    now_s = time.time()
    found, notes = file_systems(wish)
    looked = []
    without = []
    for mount, driver in found:
        try:
            why = metadata_is_busy(driver, _servers_cache(wish, mount), wish.busy_from)
            if not why:
                looked.append(look(mount, driver, wish, now_s))
                notes += looked[-1].notes
                continue
            because = place_section.WHY_BUSY
        except (PenstockError, OSError) as error:
            why, because = str(error), place_section.WHY_FAILED
        notes.append(f"nothing is placed on {mount.point}: {why}")
        without.append((mount.point, because))
    alone = [
        made_of(one, wish, number, None) for number, one in enumerate(looked, time.time_ns() - len(looked))
    ]
    say(Prepared(tuple(alone), tuple(notes), tuple(without)))
    made = []
    for one, instead in zip(looked, alone, strict=True):
        try:
            made.append(asked_of_site(one, wish, socket))
        except PenstockError as error:
            notes.append(f"no plan of the site for {one.mount.point} ({error}): two random choices hold")
            made.append(instead)
        _remember_given(wish, made[-1])
        notes += _left_out(made[-1])
    return Prepared(tuple(made), tuple(notes), tuple(without))


def asked_of_site(looked: Looked, wish: Wish, socket: str) -> Made:
    """The plan with targets that the controller chose; whatever does not fit is an error."""
    from penstock.control import planner

    wanted = planning.asked(looked.known, looked.situation, wish.settings)
    if sum(len(one.files) for one in wanted) > QUESTION_ROWS:
        raise PenstockError(f"more than {QUESTION_ROWS} different files are more than one question holds")
    columns = planner.wanted_columns(wanted)
    pools = "/".join(columns.pop("pools"))
    words = {name: data.hex() for name, data in columns.items()}
    name = identity(looked.mount)
    answer = local.ask(socket, ASK_S, op="allot", file_system=name, pools=pools, **words)
    if answer.get("why"):
        raise PenstockError(answer["why"])
    try:
        number = int(answer["number"])
        given = planner.given_of(
            {key: bytes.fromhex(answer[key]) for key in ("width", "target", "spare", "promised", "amount")},
            wanted,
        )
    except (KeyError, ValueError) as error:
        raise PenstockError("the agent's answer is of another version") from error
    wrong = planning.unfit(given, wanted, looked.situation)
    if wrong:
        raise PenstockError(f"the controller's plan is not used: {wrong}")
    return made_of(looked, wish, number, None, given)


# -- what became of plans ------------------------------------------------------------------------------------


class Shown(NamedTuple):
    """A run with a plan; `counts` are those of its board or its record."""

    run: str
    program: str
    running: bool
    counts: Mapping[str, int]


def running(settings: Settings) -> list[Shown]:
    """The boards of this user on this node that hold a plan."""
    found = []
    own = {path: path.name[:32] for path in collect.boards(settings)}
    site = {Path(name): runs[-1] for name, runs in of_site(settings)["boards"].items()}  # one a job
    for path, run in (own | site).items():
        with contextlib.suppress(PenstockError, OSError):
            head = board.control(path)
            spots = place_section.heads(
                path / "control", [(s.kind, s.offset_bytes) for s in head.sections if s.kind]
            )
            if spots:
                counts = {name: n for name, n in board.placed(path).items() if n}
                made_ns = max((spot.made_ns for spot in spots if spot.driver), default=0)
                why = max((1 + spot.why for spot in spots if not spot.driver), default=0)
                more = {**({"plan_ns": made_ns} if made_ns else {}), **({"why_none": why} if why else {})}
                found.append(Shown(run, "", True, {**more, **counts}))
    return found


def of_site(settings: Settings) -> dict[str, Any]:
    """What the node's agent knows of this user's plans; empty without one."""
    socket = site_agent(settings)
    with contextlib.suppress(PenstockError, ValueError, KeyError):
        if socket:
            found: dict[str, Any] = json.loads(local.ask(socket, op="plans")["json"])
            return found
    return {"plans": [], "boards": {}}
