# SPDX-License-Identifier: Apache-2.0
"""What `penstock run --place` does before the program starts: from the history and the targets a plan, from the plan
a section of the job's boards.

Invariants:
1. It is over when its time is over: a process of its own does it, which is killed and not waited for.  Then new files
   go where the file system puts them, and why is said.
2. Nothing is planned for a file system without targets, nor while its metadata servers are busy.
3. What a plan puts on targets is in the ledger until the run has ended, so that the next plan counts it too.
"""

import contextlib
import errno
import json
import os
import pickle
import re
import select
import signal
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from penstock.base.errors import PenstockError
from penstock.base.settings import Settings
from penstock.control import tuner
from penstock.policy import guard
from penstock.policy.placing import contract, planning
from penstock.policy.placing import ledger as books
from penstock.policy.predicting import forecast
from penstock.policy.predicting.contract import Coming
from penstock.runs import board, collect, learned, merge, place_section
from penstock.runs.history import History
from penstock.targets import driver as drivers
from penstock.targets import lov, servers
from penstock.targets.mounts import Mount, mount_of, mounts

PLACEABLE = ("lustre", "ceph")
FOLDERS_MAX = 256
SERVERS_S = 0.25
READING_MAX_S = 600.0
LEDGER_S = 3600.0
_USABLE = {drivers.UP, drivers.UNKNOWN}


class Made(NamedTuple):
    """A plan for one file system, and what goes on the board."""

    mount: str
    plan: contract.Plan
    section: bytes
    left_out: int
    given: tuner.Given | None = None  # what the tuner did


Tune = Callable[
    [Sequence[contract.Expected], contract.Situation], tuple[list[contract.Expected], tuner.Given]
]


@dataclass(frozen=True)
class Prepared:
    """All that a start needs.  `notes` are sentences for the user."""

    made: tuple[Made, ...] = ()
    notes: tuple[str, ...] = ()

    def parts(self) -> list[tuple[int, int, bytes]]:
        """For the job's plan file."""
        return [(place_section.KIND, place_section.VERSION, one.section) for one in self.made]


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
    room_bytes: int = 1 << 20
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
    """Those that were named, else those that the run is expected to write to or stands in."""
    notes = []
    named = [mount_of(path) for path in wish.mounts]
    if not named:
        wanted = {str(Path.cwd()), *(os.fsdecode(_folder(e.match)) for e in wish.expected)}
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


def _holding(path: str, known: Sequence[Mount]) -> Mount | None:
    return next((m for m in known if m.point in ("/", path) or path.startswith(m.point + "/")), None)


def _folder(match: contract.Match) -> bytes:
    """The folder that all names of a match begin with."""
    return match.pieces[0].rpartition(b"/")[0] or b"/"


# -- what is known of targets --------------------------------------------------------------------------------


class _Reading(NamedTuple):
    """Sums of a target's bytes, remembered from run to run: two of them give a rate."""

    at_s: float
    bytes: Mapping[int, int]


def _remembered(path: Path) -> _Reading | None:
    try:
        held = json.loads(path.read_text())
        return _Reading(float(held["at_s"]), {int(k): int(v) for k, v in held["bytes"].items()})
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


def busy_shares(old: _Reading | None, new: _Reading, rate_bytes_per_s: float) -> dict[int, float]:
    """The share of each target's rate that was used between two readings; {} where they tell nothing."""
    over_s = new.at_s - old.at_s if old else 0.0
    if old is None or not 1.0 <= over_s <= READING_MAX_S:
        return {}
    moved = {t: new.bytes[t] - old.bytes[t] for t in new.bytes if t in old.bytes}
    return {t: min(b / over_s / rate_bytes_per_s, 1.0) for t, b in moved.items() if b >= 0}


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


def _read_now(driver: drivers.Driver, now_s: float) -> _Reading:
    rows = driver.load()
    return _Reading(
        now_s, {t: rows[t].read_bytes + rows[t].written_bytes for t in rows if rows[t].read_bytes >= 0}
    )


def metadata_is_busy(driver: drivers.Driver) -> str:
    """Why nothing may be planned now, or nothing.  Where servers cannot be seen, nobody objects."""
    where = driver.servers()
    if not where:
        return ""
    before = {name: servers.read(proc) for name, proc in where.items()}
    time.sleep(SERVERS_S)
    now = [servers.between(name, before[name], servers.read(proc)) for name, proc in where.items()]
    decision, _ = servers.may_place(now, time.time(), guard.State())
    return "" if decision.allowed else decision.why


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

    def apply(self, e: contract.Expected) -> contract.Expected:
        """The file with what its folder asks for; a wish of the tuner yields to a folder's own default."""
        said = self.of(_folder(e.match))
        if said.kind == "left":
            return replace(e, composite=True)
        if said.kind != "plain":
            exact = e.match.exact and e.match not in self.tuned  # its folder is the one that was looked at
            return replace(e, stripe_count=0, stripe_size_bytes=0) if exact else e
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
    """The promises of this user's runs, beside the history; one process at a time.

    A run is known by when its plan was made, in ns; its agent leaves an empty file of that name when it has ended.
    """

    def __init__(self, state_dir: str) -> None:
        self.folder = Path(state_dir, "place")
        self.path = self.folder / "ledger.json"

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
                    {int(t): float(b) for t, b in row["bytes"].items()}, float(row["until_s"])
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
        rows = {run: {"bytes": dict(p.bytes), "until_s": p.expires_s} for run, p in held.runs.items()}
        write_whole(self.path, json.dumps({"schema_version": 1, "runs": rows}).encode())
        for run in self._ended():
            (self.folder / "ended" / run).unlink(missing_ok=True)

    def outstanding(self, now_s: float) -> dict[int, float]:
        """Bytes by target that runs were promised and have not ended to write."""
        return books.outstanding(self.read(now_s), now_s)

    def _ended(self) -> list[str]:
        try:
            return [path.name for path in (self.folder / "ended").iterdir()]
        except OSError:
            return []


# -- planning --------------------------------------------------------------------------------------------------


def plan_for(mount: Mount, driver: drivers.Driver, wish: Wish, ledger: books.Ledger, now_s: float) -> Made:
    """A plan for one file system, as it is now."""
    cache = Path(wish.state_dir, "place", f"{mount.point.strip('/').replace('/', '-')[-100:]}.reading.json")
    reading = _read_now(driver, now_s)
    busy = busy_shares(_remembered(cache), reading, wish.target_rate_bytes_per_s)
    with contextlib.suppress(OSError):
        write_whole(cache, json.dumps({"at_s": reading.at_s, "bytes": reading.bytes}).encode())
    pools = pools_of(driver)
    targets = targets_of(driver, pools, busy, wish.target_rate_bytes_per_s)
    below = os.fsencode(mount.point.rstrip("/")) + b"/"
    expected = [
        e for e in wish.expected if e.match.pieces[0].startswith(below) or below.startswith(e.match.pieces[0])
    ]
    dev = 0 if wish.anywhere else Path(mount.point).stat().st_dev
    place = place_section.Place(driver.kind, mount.point, dev, may_override=wish.may_override)
    given = None
    if driver.kind == "lustre":
        folders = Folders(mount.point)
        own = folders.root if folders.root.kind == "plain" else place_section.Default(stripes=1)
        able = {name: planning.spare([t for t in targets if name in t.pools]) for name in pools}
        place = place._replace(default_count=own.stripes or 1, default_size_bytes=own.size_bytes, pools=able)
        if wish.tune is not None:
            before = contract.Situation(mount.point, now_s, targets, _count(own.stripes or 1), own.size_bytes)
            expected, given = wish.tune(expected, before)
            folders.tuned = frozenset(e.match for e in expected) if given.applied else frozenset()
        expected = [folders.apply(e) for e in expected]
        place = place._replace(folders=folders.found)
    else:
        targets, place, expected = _for_ceph(driver, targets, pools, place, expected)
    situation = contract.Situation(
        mount.point, now_s, targets, _count(place.default_count), place.default_size_bytes
    )
    made = planning.plan(
        [e for e in expected if e.files], planning.with_ledger(situation, ledger), wish.settings
    )
    made = replace(made, entries=(*made.entries, *unforeseen(expected, made.small_bytes)))
    if not wish.choose_targets:
        made = without_targets(made)
    section = place_section.encode(made, place, wish.room_bytes)
    return Made(mount.point, made, section.data, section.left_out, given)


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
        target_rate_bytes_per_s=float(settings["place.target_rate"]),
        may_override=settings["place.components"],
    )


def prepare(
    settings: Settings,
    words: Sequence[str],
    mounts_named: Sequence[str],
    anywhere: bool = False,
    place: bool = True,
    tune: bool = False,
) -> Prepared:
    """A plan for a command that is about to start, within the time that it may take.  `anywhere`: also for other
    nodes, where the mount's device has another number."""

    def work() -> Prepared:
        remarks: list[str] = []
        history = History(settings, remarks.append)
        program = program_of(words, (s.program for s in history.summaries))
        job = os.environ.get("SLURM_JOB_ID", "")
        wish = wish_of(settings, mounts_named)
        expected = expected_of(history, program, job=job) if program else ()
        said = tuner.words(tuner.path_of(settings.state_dir), remarks.append)
        mode = tuner.mode_of(settings, program, said)

        def layouts(
            expected: Sequence[contract.Expected], now: contract.Situation
        ) -> tuple[list[contract.Expected], tuner.Given]:
            return tuner.apply(history, settings, program, expected, now, tune)

        wanted = layouts if tune or mode != "observe" else None
        made = make(replace(wish, expected=expected, anywhere=anywhere, tune=wanted, choose_targets=place))
        advice = [f"tune advises {text}" for text in map(advised, made.made) if text]
        return Prepared(made.made, (*remarks, *made.notes, *(advice if mode == "advise" else ())))

    return within(work, settings["place.wait"] / 1e9)


def advised(one: Made) -> str:
    """What the tuner would have given, where it gave nothing."""
    if one.given is None or one.given.applied:
        return ""
    return "; ".join(f"{count} x {size >> 10} KiB: {why}" for count, size, why in one.given.layouts if count)


def make(wish: Wish, now_s: float | None = None) -> Prepared:
    """Plans for all file systems that are concerned, promised in the ledger."""
    now_s = time.time() if now_s is None else now_s
    found, notes = file_systems(wish)
    ledger = LedgerFile(wish.state_dir)
    made = []
    for mount, driver in found:
        why = metadata_is_busy(driver)
        if why:
            notes.append(f"nothing is placed on {mount.point}: {why}")
            continue
        with ledger.locked():
            held = ledger.read(now_s)
            one = plan_for(mount, driver, wish, held, now_s)
            if wish.promise:
                run = str(int(one.plan.made_s * 1e9))
                ledger.write(books.promise(held, run, one.plan.promises, now_s, LEDGER_S))
                if one.given is not None:
                    tuner.remember(Path(wish.state_dir), int(run), one.given)
        made.append(one)
        if one.left_out:
            notes.append(f"{one.left_out} entries of the plan for {mount.point} did not fit on the board")
    return Prepared(tuple(made), tuple(notes))


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
    for path in collect.boards(settings):
        with contextlib.suppress(PenstockError, OSError):
            head = board.control(path)
            if any(s.kind == place_section.KIND for s in head.sections):
                counts = {name: n for name, n in board.placed(path).items() if n}
                section = next(s for s in head.sections if s.kind == place_section.KIND)
                made_ns = place_section.made_ns(path / "control", section.offset_bytes)
                found.append(Shown(path.name[:32], "", True, {"plan_ns": made_ns, **counts}))
    return found


# -- in a process of its own -----------------------------------------------------------------------------------


def within(work: Callable[[], Prepared], seconds: float) -> Prepared:
    """What `work` gives, made in another process; when the time is over, nothing and why."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with contextlib.suppress(BaseException), os.fdopen(writer, "wb") as pipe:
            pipe.write(pickle.dumps(_tried(work)))
        os._exit(0)
    os.close(writer)
    data, until_s = b"", time.monotonic() + seconds
    while True:
        left_s = until_s - time.monotonic()
        ready = left_s > 0 and select.select([reader], [], [], left_s)[0]
        part = os.read(reader, 1 << 20) if ready else b""
        data += part
        if not part:
            break
    os.close(reader)
    over = time.monotonic() >= until_s
    if over:
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, os.WNOHANG if over else 0)
    try:
        held = pickle.loads(data)
        assert isinstance(held, Prepared)
        return held
    except Exception:
        why = f"was not ready in {seconds:g} s" if over else "could not be made"
        return Prepared(notes=(f"the plan {why}: new files go where the file system puts them",))


def _tried(work: Callable[[], Prepared]) -> Prepared:
    """Whatever goes wrong, the program is to start; what it was is said."""
    try:
        return work()
    except Exception as error:
        said = str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        return Prepared(
            notes=(f"no plan could be made ({said}): new files go where the file system puts them",)
        )
