# SPDX-License-Identifier: Apache-2.0
"""The stage `limit` under real programs: who waits, who does not, what is charged, and what signals and kills do.

Ids like L09 are the traps that a test guards against: what went wrong in other programs of this kind.
Times are compared with what a rate asks for, from below; from above only where a wrong program would wait for ever.
"""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.runs import limits

META = limits.Bucket("metadata", 100, limits.operations_of(["metadata"]), burst_s=0)
DATA = limits.Bucket("data", 2**20, limits.operations_of(["data"]), bytes=True, burst_s=0)
FAST = 1e7


@dataclasses.dataclass
class Limited:
    """A board with limits, and programs under it."""

    under: object
    program: Path
    hold: limits.Hold

    @property
    def data(self) -> Path:
        return self.under.data  # type: ignore[attr-defined,no-any-return]

    def limit(self, *buckets: limits.Bucket, lease_s: float = 3600, **words: object) -> None:
        self.hold.apply(limits.spec(buckets, lease_s=lease_s, **words))  # type: ignore[arg-type]

    def start(self, deed: str, *words: object) -> "subprocess.Popen[str]":
        return self.under.start(self.program, deed, self.data, *words)  # type: ignore[attr-defined,no-any-return]

    def run(self, deed: str, *words: object) -> dict[str, float]:
        done = self.under.run(self.program, deed, self.data, *words)  # type: ignore[attr-defined]
        assert (done.returncode, done.stderr) == (0, "")
        rows = [line.split() for line in done.stdout.splitlines()]
        return {row[0]: float(row[1]) for row in rows if len(row) == 2}

    def held(self, name: str = "metadata") -> limits.Held:
        return next(row for row in self.hold.observe() if row.name == name)

    def until(self, claim: Callable[[], object], seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not claim():
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.fixture
def limited(under: object, program: Callable[..., Path]) -> Iterator[Limited]:
    with limits.Hold(under.folder) as hold:  # type: ignore[attr-defined]
        yield Limited(under, program("limited.c", "-ldl", "-lrt"), hold)


# ---- the rate ----


@pytest.mark.parametrize("processes", [1, 2, 16])
def test_processes_share_one_rate(limited: Limited, processes: int) -> None:
    """L02: the total of all processes, those that end and begin among them."""
    limited.limit(META)
    began = time.monotonic()
    started = [limited.start("calls", 64 // processes) for _ in range(processes)]
    for process in started:
        assert process.wait(timeout=60) == 0
    took = time.monotonic() - began
    held = limited.held()
    assert held.asked == 64
    assert took >= (64 - 1) / 100  # one call was saved up
    assert held.delayed >= 50


def test_threads_share_one_rate(limited: Limited) -> None:
    limited.limit(META)
    assert limited.run("four", 16)["all"] >= 63 / 100
    assert limited.held().asked == 64


def test_mean_rate_is_kept_under_load(limited: Limited) -> None:
    """L03: late wake-ups are made up for within the burst."""
    limited.limit(dataclasses.replace(META, rate=2000, burst_s=0.1))
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        took = limited.run("four", 1000)["all"]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert took >= (4000 - 200) / 2000
    assert took <= 3 * 4000 / 2000  # a wrong refill halves the rate at best


def test_a_limit_costs_nobody_who_stays_below_it(limited: Limited) -> None:
    limited.limit(dataclasses.replace(META, rate=FAST, burst_s=0.1))
    limited.run("four", 1000)
    held = limited.held()
    assert (held.asked, held.delayed, held.waited_s) == (4000, 0, 0)


def test_slow_rates_hold(limited: Limited) -> None:
    """L11: 3 calls at 2/s, one of them saved up."""
    limited.limit(dataclasses.replace(META, rate=2))
    assert limited.run("calls", 3)["all"] >= 0.99


def test_a_cost_above_the_burst_waits_in_proportion(limited: Limited) -> None:
    """L11: a write of 2 MiB at 4 MiB/s with a burst of nothing."""
    limited.limit(dataclasses.replace(DATA, rate=4 * 2**20))
    done = limited.under.python(  # type: ignore[attr-defined]
        "import os, time\nfd = os.open('f', os.O_CREAT | os.O_WRONLY)\nb = time.monotonic()\n"
        "os.write(fd, bytes(2 << 20))\nprint(time.monotonic() - b)"
    )
    assert float(done.stdout) >= 0.49


def test_rate_zero_blocks_and_a_raise_wakes(limited: Limited) -> None:
    """L04, L08, B04: another process's futex; the wait ends long before the second after which all look again."""
    limited.limit(dataclasses.replace(META, rate=0))
    process = limited.start("calls", 2)
    limited.until(lambda: limited.held().waiting == 1)
    assert limited.held().longest_s >= 0
    limited.hold.change(dataclasses.replace(META, rate=FAST), 3600)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "all" in out


def test_a_lowered_rate_holds_for_those_who_wait(limited: Limited) -> None:
    """L08: old tickets are worth what they are at the new rate."""
    limited.limit(dataclasses.replace(META, rate=1000))
    process = limited.start("four", 2500)
    limited.until(lambda: limited.held().waiting >= 1)
    limited.hold.change(dataclasses.replace(META, rate=0), 3600)
    time.sleep(0.05)  # who was on his way has passed
    before, until = limited.held().passed, time.monotonic() + 0.3
    while time.monotonic() < until:
        assert limited.held().passed <= before + 4
        time.sleep(0.01)
    limited.hold.change(dataclasses.replace(META, rate=FAST), 3600)
    assert process.wait(timeout=20) == 0


# ---- which calls ----


def test_only_files_under_control_are_charged(limited: Limited) -> None:
    """L14: pipes and what lies elsewhere pass."""
    limited.limit(dataclasses.replace(META, rate=1))
    assert limited.run("pipes", 500)["took"] < 60
    assert limited.held().asked == 0


def test_missing_names_are_charged_each_time_and_known_ones_are_not(limited: Limited) -> None:
    """L15"""
    limited.limit(dataclasses.replace(META, rate=FAST))
    (limited.data / "there").touch()
    look = "import os\nfor _ in range(50): os.path.exists('{}')"
    limited.under.python(look.format(limited.data / "no"))  # type: ignore[attr-defined]
    assert limited.held().asked == 50
    limited.under.python(look.format(limited.data / "there"))  # type: ignore[attr-defined]
    assert limited.held().asked == 51


def test_a_name_stays_known_when_the_second_ends(limited: Limited) -> None:
    """L15: the clock that is read before a call is ahead of the one read after it."""
    limited.limit(dataclasses.replace(META, rate=FAST))
    for i in range(20):
        (limited.data / str(i)).touch()
    look = """import os, time
end = int(time.monotonic()) + 1
while time.monotonic() < end: pass
for i in range(20): os.stat(str(i)), os.stat(str(i))"""
    limited.under.python(look)  # type: ignore[attr-defined]
    assert limited.held().asked == 20


def test_a_class_is_not_held_up_by_another(limited: Limited) -> None:
    """L13: renames go on while stats stand."""
    limited.limit(
        dataclasses.replace(META, name="stats", rate=0, operations=frozenset({"access", "stat"})),
        dataclasses.replace(META, name="renames", rate=FAST, operations=frozenset({"rename"})),
    )
    process = limited.start("four", 10)
    limited.until(lambda: limited.held("stats").waiting == 4)
    limited.under.python(
        "import os\nopen('a', 'w').close()\nfor _ in range(20): os.rename('a', 'b'); os.rename('b', 'a')"
    )  # type: ignore[attr-defined]
    assert limited.held("renames").asked >= 80
    process.kill()
    process.wait()


def test_a_path_holds_by_whole_components(limited: Limited) -> None:
    """I18"""
    for name in ("in", "inside"):
        (limited.data / name).mkdir()
    limited.limit(dataclasses.replace(META, rate=FAST, paths=(str(limited.data / "in"),)))
    text = "import os\nfor f in ('in/a', 'inside/a', 'in/b', 'c'): os.path.exists(os.path.abspath(f))"
    limited.under.python(text)  # type: ignore[attr-defined]
    assert limited.held().asked == 2


def test_bytes_are_those_that_were_moved(limited: Limited) -> None:
    """A read that meets the end gives back what it did not get; so does a write that fails."""
    limited.limit(dataclasses.replace(DATA, rate=1e12))
    text = """
import os
fd = os.open('f', os.O_CREAT | os.O_RDWR)
os.write(fd, bytes(1000))
os.pread(fd, 1 << 20, 0)
os.writev(fd, [bytes(10), bytes(20)])
with open('f', 'rb', buffering=0) as f: f.read(7)
"""
    limited.under.python(text)  # type: ignore[attr-defined]
    assert limited.held("data").asked == 1000 + 1000 + 30 + 7


@pytest.mark.parametrize("command", ["cp", "cat", "sendfile", "read"])
def test_who_asks_for_more_than_there_is_pays_for_what_there_was(limited: Limited, command: str) -> None:
    """cp asks for 8 EiB in one copy_file_range; others name a buffer that is far larger than the file."""
    size = 300_000
    (limited.data / "from").write_bytes(bytes(size))
    limited.limit(dataclasses.replace(DATA, rate=4 * 2**20))
    ask = "import os\nf = os.open('from', os.O_RDONLY)\nt = os.open('to', os.O_CREAT | os.O_WRONLY)\n"
    if command in ("cp", "cat"):
        line = {"cp": "cp from to", "cat": "cat from > to"}[command]
        assert limited.under.run("sh", "-c", line, cwd=limited.data).returncode == 0  # type: ignore[attr-defined]
    elif command == "sendfile":
        limited.under.python(ask + "while os.sendfile(t, f, None, 1 << 30): pass")  # type: ignore[attr-defined]
    else:
        limited.under.python(ask + "os.write(t, os.read(f, 1 << 30))")  # type: ignore[attr-defined]

    assert (limited.data / "to").stat().st_size == size
    assert size <= limited.held("data").asked <= 2 * size


@pytest.mark.parametrize(("deed", "entries"), [("walk", 11), ("scan", 12), ("glob", 10), ("tree", 12)])
def test_a_walk_costs_a_call_an_entry(limited: Limited, deed: str, entries: int) -> None:
    """nftw 10 and the folder; scandir also . and ..; fts the folder twice."""
    for i in range(10):
        (limited.data / f"f{i}").touch()
    limited.limit(dataclasses.replace(META, rate=FAST, operations=frozenset({"walk"})))
    limited.run(deed)
    assert entries <= limited.held().asked <= entries + 2  # what begins and ends it


def test_a_walk_waits(limited: Limited) -> None:
    for i in range(30):
        (limited.data / f"f{i}").touch()
    limited.limit(META)
    assert limited.run("walk")["all"] >= 29 / 100
    assert limited.run("tree")["all"] >= 25 / 100


# ---- what does not wait ----


def test_close_and_unlock_are_charged_and_do_not_wait(limited: Limited) -> None:
    """L16"""
    limited.limit(
        dataclasses.replace(META, rate=FAST), dataclasses.replace(META, name="all of it", rate=FAST)
    )
    slow = limits.Bucket("ends", 0, frozenset({"close", "lock"}), burst_s=0)
    limited.limit(slow)
    limited.run("closes", 20)
    assert limited.held("ends").asked == 22
    assert limited.held("ends").delayed == 0
    limited.limit(dataclasses.replace(slow, name="by name", rate=200, close_waits=True))
    assert limited.run("closes", 20)["all"] >= 20 / 200


def test_no_call_waits_longer_than_the_ceiling(limited: Limited) -> None:
    """L16"""
    limited.limit(dataclasses.replace(META, rate=0, ceiling_s=0.05))
    assert limited.run("calls", 3)["all"] >= 0.1
    assert limited.held().ceilings == 2  # the first was saved up


def test_the_loader_does_not_wait(limited: Limited, program: Callable[..., Path]) -> None:
    """I28, L28: dlopen holds a lock that all threads need."""
    source = Path(__file__).parent / "writers.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", source, "-o", limited.data / "loaded.so"], check=True)
    limited.limit(dataclasses.replace(META, rate=0.001, ceiling_s=0))
    assert limited.run("loads") == pytest.approx({"loaded": 1, "took": 0, "all": 0}, abs=60)


def test_python_keeps_its_other_threads_running(limited: Limited) -> None:
    """I28, L28"""
    limited.limit(dataclasses.replace(META, rate=5))
    text = """
import os, threading
turns = 0
done = threading.Event()
def work():
    for _ in range(4):
        os.path.exists(os.path.abspath('missing'))
    done.set()
thread = threading.Thread(target=work)
thread.start()
while not done.is_set():
    turns += 1
    done.wait(0.001)
print(turns)
"""
    assert int(limited.under.python(text).stdout) > 20  # type: ignore[attr-defined]


def test_a_vfork_child_and_its_exec_go_on(limited: Limited) -> None:
    limited.limit(dataclasses.replace(META, rate=0))
    assert limited.run("execs", 20)


def test_a_sealed_process_is_charged_and_does_not_wait(limited: Limited) -> None:
    """I23: a futex might be its death."""
    limited.limit(dataclasses.replace(META, rate=0, operations=frozenset({"access"})))
    text = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
class Filter(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]
class Program(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint16), ("filter", ctypes.POINTER(Filter))]
allow = (Filter * 1)(Filter(6, 0, 0, 0x7FFF0000))
libc.prctl(38, 1, 0, 0, 0)
assert libc.prctl(22, 2, ctypes.byref(Program(1, allow)), 0, 0) == 0
for _ in range(5):
    assert not os.access(os.path.abspath("missing"), os.F_OK)
"""
    limited.under.python(text)  # type: ignore[attr-defined]
    assert limited.held().delayed == 0


# ---- signals, jumps, cancellation, fork, kill ----


def test_a_handler_runs_at_once_and_nothing_is_interrupted(limited: Limited) -> None:
    """L12"""
    limited.limit(dataclasses.replace(META, rate=2))
    got = limited.run("signal")
    assert (got["result"], got["errno"]) == (-1, 2)  # ENOENT, no EINTR
    assert got["took"] >= 0.4
    assert got["handled"] < got["took"] - 0.1


def test_a_call_in_a_handler_passes_while_the_other_waits(limited: Limited) -> None:
    limited.limit(dataclasses.replace(META, rate=2))
    assert limited.run("handler")["handled"] < 0.4


def test_a_jump_out_of_a_wait_costs_one_call_and_is_forgotten(limited: Limited) -> None:
    """L09: the thread is limited as ever, and waiting places do not run out."""
    limited.limit(dataclasses.replace(META, rate=200))
    got = limited.run("jumps", 100)
    assert got["took"] >= 2 / 200
    assert limited.held().unplaced == 0


def test_a_cancelled_wait_holds_up_nobody(limited: Limited) -> None:
    """I06, L09"""
    limited.limit(dataclasses.replace(META, rate=100))
    limited.run("cancelled", 30)
    assert limited.held().waiting == 0


def test_a_thousand_forks_while_others_wait(limited: Limited) -> None:
    """I04, L09: no lock is held in a wait, so no child hangs."""
    limited.limit(dataclasses.replace(META, rate=2000))
    assert limited.run("forks", 1000)


def test_a_thousand_killed_waiters_cost_the_next_call_nothing(limited: Limited) -> None:
    """B01, L09: at 10 calls a second they had drawn a hundred seconds ahead; the agent gives that back."""
    limited.limit(dataclasses.replace(META, rate=10))
    process = limited.start("processes", 1000)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "all\n"
        limited.until(lambda: limited.held().waiting >= 950, seconds=60)
        assert limited.held().owed >= 900
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
    finally:
        process.kill()
        process.communicate(timeout=60)
    limited.until(lambda: limited.hold.give_back() == 0)
    assert limited.held().waiting == 0
    assert limited.held().owed <= 20  # who was killed before it was published, and who was due meanwhile
    assert limited.run("calls", 1)["all"] < 20


def test_a_waiter_of_another_pid_namespace_is_dead_when_it_is_silent(limited: Limited) -> None:
    """Its number says nothing here, where it may be somebody else's; alive, it looks once a second."""
    if os.geteuid():
        pytest.skip("needs root to unshare")
    limited.limit(dataclasses.replace(META, rate=0))
    under = limited.under
    inside = under.start("unshare", "-pf", "--kill-child", limited.program, "calls", limited.data, 2)  # type: ignore[attr-defined]
    limited.until(lambda: limited.held().waiting == 1)
    deadline = time.monotonic() + 7
    while time.monotonic() < deadline:  # longer than the silence that means death
        assert limited.hold.give_back() == 0
        time.sleep(0.1)
    assert limited.held().waiting == 1
    inside.kill()
    inside.wait()
    limited.until(limited.hold.give_back)
    assert limited.held().waiting == 0


GIVES_BACK = """
import os, sys
from pathlib import Path
from penstock.runs import limits
hold = limits.Hold(Path(sys.argv[1]))
os.setgroups([]), os.setgid(61003), os.setuid(61003)
assert not os.path.exists(f"/proc/{sys.argv[2]}")
print(hold.give_back())
"""


def test_a_waiter_whom_proc_hides_is_not_dead(limited: Limited) -> None:
    """An agent's account where /proc is mounted with hidepid: only the kernel's word for death counts."""
    if os.geteuid():
        pytest.skip("needs root to mount /proc and to become another user")
    limited.limit(dataclasses.replace(META, rate=0))
    process = limited.start("calls", 2)
    limited.until(lambda: limited.held().waiting == 1)
    hidden = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    program = ["unshare", "-m", "sh", "-c", hidden, "sh", sys.executable, "-c", GIVES_BACK]
    command = [*program, limited.under.folder, str(process.pid)]  # type: ignore[attr-defined]

    def taken_back() -> int:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return int(done.stdout)

    assert taken_back() == 0
    assert limited.held().waiting == 1
    process.kill()
    process.wait()
    assert taken_back() == 1


def test_a_killed_waiter_without_an_agent_costs_its_one_call(limited: Limited) -> None:
    limited.limit(dataclasses.replace(META, rate=2))
    process = limited.start("calls", 100)
    limited.until(lambda: limited.held().waiting == 1)
    process.kill()
    process.wait()
    assert limited.run("calls", 1)["all"] < 20


# ---- when nobody holds it ----


@pytest.mark.parametrize(("word", "passes"), [("hold", False), ("open", True), ("rate", True)])
def test_what_holds_when_the_lease_is_over(limited: Limited, word: str, passes: bool) -> None:
    """C02"""
    bucket = dataclasses.replace(META, rate=0, on_lost=word, lost_rate=FAST if word == "rate" else 0)
    limited.limit(bucket, lease_s=0.3)
    process = limited.start("calls", 3)
    if passes:
        assert process.wait(timeout=20) == 0
        return
    limited.until(lambda: limited.held().lease_s < -0.2)
    assert process.poll() is None
    assert limited.held().waiting == 1
    process.kill()
    process.wait()


def test_a_shadow_counts_and_delays_nobody(limited: Limited) -> None:
    limited.limit(dataclasses.replace(META, rate=1, shadow=True))
    limited.run("calls", 100)
    held = limited.held()
    assert (held.asked, held.waiting) == (100, 0)
    assert held.delayed >= 90
    limited.hold.change(dataclasses.replace(META, rate=FAST), 3600)
    limited.run("calls", 10)


def test_an_open_limit_counts_all_and_holds_nobody(limited: Limited) -> None:
    limited.limit(dataclasses.replace(META, rate=0, open=True))
    limited.run("calls", 200)
    assert limited.held().asked == 200
    assert limited.held().delayed == 0


def test_limits_that_are_taken_away_let_everybody_go(limited: Limited) -> None:
    limited.limit(dataclasses.replace(META, rate=0))
    process = limited.start("four", 5)
    limited.until(lambda: limited.held().waiting == 4)
    limited.limit()
    assert process.wait(timeout=20) == 0


def test_a_limit_begins_anew_where_another_was(limited: Limited) -> None:
    """What one owed, waited and was asked is not the next one's."""
    limited.limit(dataclasses.replace(META, name="first", rate=1000))
    limited.run("calls", 500)
    assert limited.held("first").delayed > 100
    limited.limit()
    limited.limit(dataclasses.replace(META, name="second", rate=0.01))
    begun = limited.held("second")
    limited.run("calls", 1)  # saved up; else it waits for all that the first one let pass
    held = limited.held("second")

    assert begun.number == held.number == 0
    assert (begun.asked, begun.delayed, begun.waited_s, begun.owed) == (0, 0, 0, 0)
    assert (held.asked, held.delayed) == (1, 0)


def test_wild_words_delay_nobody_for_ever(limited: Limited) -> None:
    """B11: a job may write what it likes into its own words."""
    limited.limit(dataclasses.replace(META, rate=1000))
    at = next_words(limited)
    with (limited.under.folder / "usage").open("r+b") as file:  # type: ignore[attr-defined]
        for value in (2**62, 2**63, 2**64 - 1, 12345678901234):
            file.seek(at)
            file.write(value.to_bytes(8, "little"))
            file.flush()
            assert limited.run("calls", 3)["all"] < 30


def next_words(limited: Limited) -> int:
    """Where bucket 0's word lies in usage: by what a call changes there."""
    usage = limited.under.folder / "usage"  # type: ignore[attr-defined]
    before = usage.read_bytes()
    limited.run("calls", 1)
    after = usage.read_bytes()
    size = len(before) // 128 * 128
    changed = [
        at
        for at in range(0, size, 128)
        if before[at : at + 128] != after[at : at + 128]
        and before[at + 8 : at + 128] == after[at + 8 : at + 128]
    ]
    known = [at for at in changed if int.from_bytes(after[at : at + 8], "little") >= 1024]
    assert known
    return known[0]


def test_damaged_limits_on_the_board_harm_no_program(limited: Limited) -> None:
    """B02, B09, DESIGN 4: control is hostile input too."""
    control = limited.under.folder / "control"  # type: ignore[attr-defined]
    limited.limit(dataclasses.replace(META, rate=FAST, paths=(str(limited.data),)), DATA)
    good = control.read_bytes()
    start = good.index(b"metadata\0")
    import random

    rng = random.Random(5)
    for turn in range(25):
        data = bytearray(good)
        for _ in range(200):
            # in rules, names and lines; rates are left, so that nobody waits for what was asked for
            data[rng.randrange(start - 34000, start + 60)] = rng.randrange(256)
        control.write_bytes(data)
        done = limited.under.run("/bin/ls", "-la", limited.data, env={"turn": str(turn)})  # type: ignore[attr-defined]
        assert done.returncode == 0
    control.write_bytes(good)


def test_a_board_without_limits_costs_nothing_to_believe(limited: Limited) -> None:
    """A control whose section is cut off or lies elsewhere: programs run without limits."""
    control = limited.under.folder / "control"  # type: ignore[attr-defined]
    limited.limit(dataclasses.replace(META, rate=0))
    shutil.copy(control, limited.data / "copy")
    with control.open("r+b") as file:
        data = bytearray(file.read())
        at = data.index((1).to_bytes(4, "little") + (1).to_bytes(4, "little"), 16384)
        for offset in (8, 16):
            data[at + offset : at + offset + 8] = (2**63).to_bytes(8, "little")
        file.seek(0)
        file.write(data)
    assert limited.run("calls", 5)["all"] < 20
