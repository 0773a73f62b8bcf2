# SPDX-License-Identifier: Apache-2.0
"""The history: the index always answers as the segments do, whatever happens to either."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from penstock.base.errors import DeniedError, NothingMatchedError, UsageError
from penstock.base.settings import Settings, load
from penstock.runs import index, merge, record, segments
from penstock.runs.history import History
from tests.runs import made

ROOT = Path(__file__).parents[2]


def settings_of(state: Path, *words: str) -> Settings:
    return load(list(words), None, {"PENSTOCK_STATE_DIR": str(state), "HOME": str(state)}, "/nowhere")


def history_of(state: Path, *words: str, notes: list[str] | None = None) -> History:
    return History(settings_of(state, *words), [].append if notes is None else notes.append)


def fresh(state: Path) -> list[merge.Summary]:
    """What the segments say without any index that was there before."""
    base = index.Index(state / "history", None)
    base.sync()
    found = [row.summary for row in base.rows() if not row.summary.forgotten]
    base.close()
    return sorted(found, key=lambda s: (-s.start_ns, s.id))


def index_file(state: Path) -> Path:
    return next((state / "cache").glob("*.sqlite"))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A history of three runs."""
    for number in (1, 2, 3):
        made.put(tmp_path / "history", number, made.payloads(number))
    return tmp_path


Step = tuple[int, record.Payload]


@examples(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), made.PAYLOADS), max_size=8), st.data())
def test_step_by_step_is_as_from_nothing(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], data: st.DataObject
) -> None:
    """Looking after each append, or only at the end, gives the same list and the same runs."""
    state = tmp_path_factory.mktemp("s")
    for number, payload in steps:
        made.put(state / "history", number, [payload])
        if data.draw(st.booleans()):
            history_of(state)

    looked = history_of(state)

    assert looked.summaries == fresh(state)
    for summary in looked.summaries:
        frames = [p for n, p in steps if made.run_of(n).hex() == summary.id]
        assert looked.load(summary) == merge.merge(bytes.fromhex(summary.id), frames)


def test_newest_first(state: Path) -> None:
    assert [s.job for s in history_of(state).summaries] == ["4703", "4702", "4701"]


@pytest.mark.parametrize("harm", ["garbage", "cut", "flip", "older", "newer", "foreign", "empty", "gone"])
def test_a_harmed_index_is_made_anew(state: Path, harm: str) -> None:
    """The same answers as before, whatever happened to the database."""
    before = history_of(state).summaries
    path = index_file(state)
    data = path.read_bytes()
    if harm == "garbage":
        path.write_bytes(b"this is no database" * 1000)
    elif harm == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif harm == "flip":
        at = data.rindex(b"4702")
        path.write_bytes(data[:at] + b"9" + data[at + 1 :])
    elif harm in ("older", "newer"):
        subprocess.run(
            [sys.executable, "-c", f"import sqlite3; sqlite3.connect({str(path)!r}).execute("
             f"'PRAGMA user_version={index.VERSION + (1 if harm == 'newer' else -1)}')"],
            check=True, timeout=60,
        )  # fmt: skip
    elif harm == "foreign":
        path.unlink()
        code = f"import sqlite3; sqlite3.connect({str(path)!r}).execute('CREATE TABLE runs (x)')"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    elif harm == "empty":
        path.write_bytes(b"")
    else:
        shutil.rmtree(path.parent)

    looked = history_of(state)

    assert looked.summaries == before
    assert looked.load(looked.find("4702")) == merge.merge(made.run_of(2), made.payloads(2))


def test_older_schemas_files_go(state: Path) -> None:
    history_of(state)
    path = index_file(state)
    old = path.with_name(path.name.replace(f"-v{index.VERSION}", "-v7"))
    new = path.with_name(path.name.replace(f"-v{index.VERSION}", "-v999999"))
    old.touch()
    new.touch()
    path.unlink()

    history_of(state)

    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize("harm", ["gone", "cut", "exchanged", "all gone"])
def test_segments_that_change_are_noticed(state: Path, harm: str) -> None:
    """A segment that went, shrank or was exchanged leaves no stale run behind."""
    history_of(state)
    path = next(segments.segments(state / "history"))
    if harm == "gone":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    elif harm == "exchanged":
        path.write_bytes(b"".join(segments.pack(made.run_of(9), p) for p in made.payloads(9) * 4))
    else:
        shutil.rmtree(state / "history")

    looked = history_of(state)

    assert looked.summaries == fresh(state)
    for summary in looked.summaries:
        looked.load(summary)


def test_damage_behind_the_index_is_found_on_use(state: Path) -> None:
    """A frame that was indexed and is then damaged in place: the run is read without it, and that is said."""
    history_of(state)
    path = state / "history" / "n2" / next(segments.segments(state / "history")).name
    info = path.stat()
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    notes: list[str] = []

    looked = history_of(state, notes=notes)
    run = looked.load(looked.find("4701"))

    assert run.node_names == ["n1"]
    assert [s for s in fresh(state) if s.job == "4701"] == [merge.summarize(run)]
    assert any("damaged bytes" in note and str(path) in note for note in [*notes, *_notes_of(state)])


def _notes_of(state: Path) -> list[str]:
    notes: list[str] = []
    history_of(state, notes=notes)
    return notes


def test_damage_is_named_and_passed_over(state: Path) -> None:
    path = next(segments.segments(state / "history"))
    with path.open("ab") as file:
        file.write(b"PSF1" + b"\xff" * 40)
    made.put(state / "history", 4, made.payloads(4))

    notes = _notes_of(state)

    assert [s.job for s in history_of(state).summaries] == ["4704", "4703", "4702", "4701"]
    assert len(notes) == 1
    assert notes[0].startswith("44 damaged bytes of the history were passed over")


def test_frames_of_another_schema_are_named(state: Path) -> None:
    """A newer version's frames, unknown kinds and payloads that are none cost only themselves."""
    path = next(segments.segments(state / "history"))
    mark = record.encode(record.Mark(node="n1"))
    deep = b"\x81\xa1x" + b"\x91" * 10_000 + b"\xc0"
    with path.open("ab") as file:
        for version, kind, data in ((99, 2, mark), (1, 77, mark), (1, 2, b"\x93no map"), (1, 2, deep)):
            rest = segments._REST.pack(version, kind, made.run_of(5))
            crc = segments.crc32c(data, segments.crc32c(rest))
            file.write(segments._HEAD.pack(segments.MAGIC, len(data), crc) + rest + data)

    notes = _notes_of(state)

    assert len(history_of(state).summaries) == 3
    assert "damaged bytes" in notes[0]
    assert notes[1].startswith("1 records are of a newer Penstock")


def test_find(state: Path) -> None:
    looked = history_of(state)
    whole = made.run_of(2).hex()

    assert looked.find(None).job == "4703"
    assert looked.find("4702").id == looked.find(whole[:8]).id == looked.find(whole.upper()).id == whole
    with pytest.raises(NothingMatchedError, match="penstock runs lists them"):
        looked.find("nothing")
    with pytest.raises(UsageError, match="the start of 3 runs"):
        looked.find("")
    with pytest.raises(NothingMatchedError, match="penstock run -- "):
        history_of(state / "empty").find(None)


def test_last_run_is_this_users(state: Path) -> None:
    other = [made.begin(8, uid=os.getuid() + 1, user="bob"), *made.payloads(8)[1:]]
    made.put(state / "history", 8, other)

    assert history_of(state).find(None).job == "4703"


def test_of_a_jobs_runs_the_last_is_taken_and_it_is_said(state: Path) -> None:
    made.put(state / "history", 7, [made.begin(7, job="4701", step="1")])
    notes: list[str] = []

    found = history_of(state, notes=notes).find("4701")

    assert found.id == made.run_of(7).hex()
    assert notes == [f"job 4701 has 2 runs, this is the last; others: {made.run_of(1).hex()[:8]}"]
    assert history_of(state).find("4701.1").id == found.id


def test_a_forgotten_run_is_gone(state: Path) -> None:
    looked = history_of(state)
    looked.forget(looked.find("4702"))

    assert [s.job for s in history_of(state).summaries] == ["4703", "4701"]
    assert fresh(state) == history_of(state).summaries


def test_modes_follow_the_setting(state: Path) -> None:
    """history.readers = group opens folders and segments to the group, and back."""

    def modes() -> set[int]:
        paths = [state / "history", *(state / "history").rglob("*")]
        return {p.stat().st_mode & 0o777 for p in paths}

    assert modes() == {0o700, 0o600}
    history_of(state, "history.readers=group")
    assert modes() == {0o750, 0o640}
    history_of(state)
    assert modes() == {0o700, 0o600}


def test_index_is_private(state: Path) -> None:
    history_of(state)

    assert {p.stat().st_mode & 0o077 for p in (state / "cache").iterdir()} == {0}


def test_unreadable_history_is_one_sentence(state: Path) -> None:
    shutil.rmtree(state / "history")
    (state / "history").write_text("a file")

    with pytest.raises(DeniedError, match="cannot be read"):
        history_of(state)


@pytest.fixture
def spare(state: Path) -> Iterator[Path]:
    """Where the index goes when its own place is of no use; cleaned up."""
    path, remark = index.place_for(state / "history", Path("/proc/self"))
    assert path is not None
    assert "is on proc" in remark
    yield path
    for left in path.parent.glob(path.name + "*"):
        left.unlink()


@pytest.mark.parametrize("place", ["a file", "/proc/self"])
def test_index_that_cannot_lie_there_falls_back(state: Path, spare: Path, place: str) -> None:
    """No folder, or no file system of this node alone: another place, said when made there."""
    if place == "a file":
        place = str(state / "file")
        Path(place).write_text("")
    notes: list[str] = []

    looked = history_of(state, f"history.index_dir={place}", notes=notes)

    assert len(looked.summaries) == 3
    assert spare.exists()
    assert [("history.index_dir names a folder on a local disk" in note) for note in notes] == [True]
    notes.clear()
    assert history_of(state, f"history.index_dir={place}", notes=notes).summaries == looked.summaries
    assert notes == []


@pytest.mark.root
def test_full_disk_falls_back_to_memory(state: Path, tmp_path: Path) -> None:
    """No room for the index on a real full disk: it is made in memory, in one sentence."""
    if os.getuid():
        pytest.skip("mounting a small tmpfs needs root")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k,mode=700", "tmpfs", place], check=True, timeout=30)
    try:
        (place / "ballast").write_bytes(b"x" * 4096)
        notes: list[str] = []
        looked = history_of(state, f"history.index_dir={place}", notes=notes)
    finally:
        subprocess.run(["umount", place], check=True, timeout=30)

    assert len(looked.summaries) == 3
    assert len(notes) == 1
    assert "memory" in notes[0]


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from penstock.runs import segments, record
from tests.runs import made
job, count = int(sys.argv[3]), int(sys.argv[4])
print("ready", flush=True)
for n in range(count):
    run = record.run_id(str(job), "0", str(n))
    frames = [made.begin(job, job=str(job), step=str(n)), made.node("n1", [0, 1], job), made.end(job)]
    segments.append(Path(sys.argv[2]), "n1", [segments.pack(run, p) for p in frames])
    print(n, flush=True)
"""


def start_writer(state: Path, job: int, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(ROOT), str(state / "history"), str(job), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_eight_jobs_at_once_lose_nothing(tmp_path: Path) -> None:
    """Eight writers of one node while two readers look; one writer is killed in the middle of its appends.
    All that a writer was told is there, nothing is damaged, and step by step is as from nothing."""
    writers = [start_writer(tmp_path, job, 40) for job in range(7)]
    victim = start_writer(tmp_path, 7, 100_000)
    told = 0
    try:
        assert victim.stdout is not None
        for line in victim.stdout:
            if line.strip() == "30":
                victim.send_signal(signal.SIGKILL)
                break
        for line in victim.stdout:
            told = int(line)
        while any(writer.poll() is None for writer in writers):
            history_of(tmp_path)
            time.sleep(0.05)
        assert [writer.wait(60) for writer in writers] == [0] * 7
    finally:
        for process in [*writers, victim]:
            process.kill()
            process.communicate()

    looked = history_of(tmp_path)
    steps: dict[str, set[int]] = {}
    for summary in looked.summaries:
        steps.setdefault(summary.job, set()).add(int(summary.step))

    assert [steps[str(job)] for job in range(7)] == [set(range(40))] * 7
    assert set(range(max(told, 30) + 1)) <= steps["7"]
    assert looked.summaries == fresh(tmp_path)


def test_processes_share_a_new_index(state: Path) -> None:
    """Many at once, from nothing: each gets all runs."""
    command = [str(Path(sys.executable).parent / "penstock"), "runs", "--json"]
    env = {"PENSTOCK_STATE_DIR": str(state), "HOME": str(state), "PATH": "/usr/bin:/bin"}
    at_once = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    answers = [process.communicate(timeout=60) for process in at_once]

    assert set(answers) == {answers[0]}
    assert '"4703"' in answers[0][0]
    assert answers[0][1] == ""


@pytest.fixture
def open_state() -> Iterator[Path]:
    """A history of three runs where other users may come."""
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as name:
        for number in (1, 2, 3):
            made.put(Path(name) / "history", number, made.payloads(number))
        yield Path(name)


# Once as root, so that all modules are there: their folder may be closed to others.
AS_NOBODY = """
import contextlib, io, os, sys
from penstock.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["runs", "--set", "state_dir=" + os.environ["PENSTOCK_STATE_DIR"] + "/first", *sys.argv[1:]])
    main(["runs", "--set", "history.dir=/proc/1/mem"])
sys.stderr.flush()
os.setgroups([])
os.setresuid(65534, 65534, 65534)
sys.exit(main(["runs"]))
"""


@pytest.mark.root
@pytest.mark.parametrize(
    ("closed", "status", "sentence"),
    [
        (
            "history",
            12,
            "penstock runs: the history {state}/history cannot be read (Permission denied); mend",
        ),
        ("history/n2", 0, "penstock: 1 file of the history cannot be read, first {state}/history/n2/"),
        (
            "cache",
            0,
            "penstock: the index of the history is kept in /tmp/penstock-65534 because {state}/cache",
        ),
    ],
)
def test_rights_that_are_missing_are_named(open_state: Path, closed: str, status: int, sentence: str) -> None:
    """Another user's closed folders: one sentence each, and what can be read is."""
    if os.getuid():
        pytest.skip("becoming another user needs root")
    state = open_state
    (state / "cache").mkdir()
    for path in [state, *state.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    os.chown(state / "cache", 65534, 65534)
    if closed == "history/n2":
        next((state / closed).iterdir()).chmod(0)
    else:
        (state / closed).chmod(0o700)
        os.chown(state / closed, 0, 0)
    env = {"PENSTOCK_STATE_DIR": str(state), "HOME": str(state), "PATH": "/usr/bin:/bin"}
    try:
        shown = subprocess.run(
            [sys.executable, "-c", AS_NOBODY],
            capture_output=True, text=True, env=env, timeout=60, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree("/tmp/penstock-65534", ignore_errors=True)

    said = shown.stderr.splitlines()[2:]  # the first two are root's
    assert shown.returncode == status
    assert len(shown.stdout.splitlines()) == (0 if status else 4)
    assert [line.startswith(sentence.format(state=state)) for line in said] == [True]


def test_counters_gone_wild_cost_nothing_but_themselves(tmp_path: Path) -> None:
    """A stray write on the board may count anything: the history stays readable."""
    most = 2**64 - 1
    wild = dict.fromkeys(
        ("opens", "reads", "bytes_read", "bytes_written", "first_ns", "last_ns", "files"), most
    )
    files = [made.file(b"/a", 0, 0, 0, kind=kind, **wild) for kind in (0, 0, 1)]
    node = record.Node(node="n1", seq=most, time_ns=most, files=files, overflow={"files": most})
    made.put(tmp_path / "history", 1, [made.begin(1, start_ns=most, expected_ranks=most), node, node])
    made.put(tmp_path / "history", 2, made.payloads(2))

    looked = history_of(tmp_path)

    assert {s.job for s in looked.summaries} == {"4701", "4702"}
    assert looked.load(looked.find("4701")).nodes == (node,)
    assert looked.summaries == fresh(tmp_path)
