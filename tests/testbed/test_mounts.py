# SPDX-License-Identifier: Apache-2.0
"""Mounts: what is agreed with the kernel, what is told of bad wishes, and what clients do to each other."""

import contextlib
import errno
import fcntl
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from penstock.base.errors import BusyError, PenstockError, UsageError
from penstock.testbed import emulated

# FUSE's INIT flags by their bits.
FLAGS = {
    "async_read": 0, "posix_locks": 1, "atomic_o_trunc": 3, "big_writes": 5, "dont_mask": 6, "flock_locks": 10,
    "ioctl_dir": 11, "auto_inval_data": 12, "readdirplus": 13, "async_dio": 15, "writeback_cache": 16,
    "parallel_dirops": 18, "handle_killpriv": 19, "posix_acl": 20, "max_pages": 22, "handle_killpriv_v2": 28,
    "init_ext": 30, "direct_io_allow_mmap": 36,
}  # fmt: skip
COMMON = {
    "async_read", "posix_locks", "flock_locks", "async_dio", "parallel_dirops", "big_writes",
    "handle_killpriv_v2", "init_ext", "direct_io_allow_mmap", "max_pages",
}  # fmt: skip


def agreed(bed) -> set[str]:
    client = bed.status().clients[0]
    names = {name for name, bit in FLAGS.items() if client.agreed_flags >> bit & 1}
    offered = {name for name, bit in FLAGS.items() if client.offered_flags >> bit & 1}
    missing = COMMON - offered - {"max_pages"}
    return names | missing  # what this kernel never offered says nothing


def until(done, limit_s: float = 20.0) -> None:
    assert emulated._wait_until(lambda: bool(done()), limit_s)


@pytest.mark.parametrize(("caching", "more"), [("contention", set()), ("posix", {"auto_inval_data"})])
def test_what_is_agreed_with_the_kernel_is_pinned(make_testbed, caching, more):
    bed = make_testbed(caching=caching)
    (bed.path / "x").write_text("x")
    assert agreed(bed) == COMMON | more


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount fusectl")
def test_the_kernel_queues_nothing(testbed):
    with tempfile.TemporaryDirectory() as where:
        subprocess.run(["mount", "-t", "fusectl", "none", where], check=True, timeout=10)
        try:
            minor = os.minor(testbed.path.stat().st_dev)
            control = Path(where, str(minor))
            assert int((control / "max_background").read_text()) == 1024
            assert int((control / "congestion_threshold").read_text()) == 1024
        finally:
            subprocess.run(["umount", where], check=True, timeout=10)


def test_calls_of_one_client_in_one_folder_are_in_flight_together(make_testbed):
    """Else the kernel would queue and not the model."""
    bed = make_testbed(settings={"model": "on"})

    def waiting() -> int:
        rows = [
            row
            for row in bed.ask("prometheus").splitlines()
            if 'server_waiting{fs="pfs",server="mds0"' in row
        ]
        return int(rows[0].split()[-1])

    bed.path.stat()
    bed.ask("fail mds")
    threads = [threading.Thread(target=(bed.path / f"missing{i}").exists) for i in range(8)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: waiting() == 8)
    finally:
        bed.ask("heal mds")
        for thread in threads:
            thread.join(60)


def test_the_server_stands_outside_of_its_mounts(make_testbed, monkeypatch):
    """Else it would wait for itself: its folder, its log and what is preloaded into it are no file of its own."""
    monkeypatch.setenv("LD_PRELOAD", "")
    bed = make_testbed()
    monkeypatch.chdir(bed.path)
    pid = bed.status().pid
    assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
    assert b"LD_PRELOAD" not in Path(f"/proc/{pid}/environ").read_bytes()
    held = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    assert not [path for path in held if path.startswith(f"{bed.path}/")]
    assert os.statvfs(bed.path).f_blocks
    monkeypatch.chdir("/")


def test_the_mount_says_what_it_is(testbed):
    mine = next(m for m in emulated.mounts() if m.path == str(testbed.path))
    assert mine.folder == testbed.folder
    assert os.getxattr(testbed.path, "penstock.folder").decode() == testbed.folder
    other = testbed.more("node2")
    assert [os.getxattr(p, "penstock.client") for p in (testbed.path, other)] == [b"0", b"1"]
    emulated.unmount(testbed.path)
    assert [c.number for c in testbed.status().clients] == [1]
    assert testbed.more("node3")
    assert [c.number for c in testbed.status().clients] == [0, 1]


def test_fifteen_osts_and_forty_mounts(make_testbed):
    bed = make_testbed(oss=3, osts=5)
    paths = [bed.more(f"n{i}") for i in range(39)]
    (bed.path / "x").write_text("seen by all")
    assert {(p / "x").read_text() for p in paths} == {"seen by all"}
    assert len(bed.status().clients) == 40


def test_deep_folders_and_odd_names(make_testbed, tmp_path):
    deep = tmp_path / ("deep" * 20) / ("deeper" * 20) / "with blank, comma and \\ back"
    deep.mkdir(parents=True)
    emulated.up(deep / "pfs", None, settings={"model": "off"})
    try:
        (deep / "pfs" / "x").write_text("x")
        assert emulated.folder_of(deep / "pfs" / "x") == str(deep / "pfs.testbed")
        assert emulated.status(str(deep / "pfs.testbed")).running
    finally:
        emulated.down(str(deep / "pfs.testbed"), purge=True)
    assert list(deep.iterdir()) == []


# Bad wishes


def test_bad_wishes_are_each_one_sentence(testbed, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    up = emulated.up
    with pytest.raises(UsageError, match="full is not empty; choose"):
        up(tmp_path / "full")
    with pytest.raises(UsageError, match="file is not a folder; choose"):
        up(tmp_path / "file")
    with pytest.raises(BusyError, match="a testbed already runs on"):
        up(testbed.path)
    with pytest.raises(BusyError, match="a testbed is mounted there; stop it"):
        emulated.mount_more(testbed.folder, testbed.path)
    with pytest.raises(UsageError, match="--oss 0: from 1 to 2048"):
        up(tmp_path / "a", emulated.Shape(oss=0))
    with pytest.raises(UsageError, match="4000 OSTs; at most 2048"):
        up(tmp_path / "a", emulated.Shape(oss=40, osts=100))
    with pytest.raises(UsageError, match="1 to 8 letters and digits"):
        up(tmp_path / "a", emulated.Shape(fsname="much too long"))
    with pytest.raises(PenstockError, match=r"layout\.nonsense=1 is not one"):
        up(tmp_path / "b", settings={"layout.nonsense": "1"})
    with pytest.raises(PenstockError, match=r"pool\.p=9 is not one"):
        up(tmp_path / "b", settings={"pool.p": "9"})
    with pytest.raises(PenstockError, match=r"layout\.stripe_size 100000 is no multiple of 65536"):
        up(tmp_path / "b", settings={"layout.stripe_size": "100000"})
    assert not os.path.ismount(tmp_path / "b")
    (tmp_path / "c.testbed").mkdir()
    (tmp_path / "c.testbed" / "mine").touch()
    with pytest.raises(UsageError, match="is not empty and no testbed"):
        up(tmp_path / "c")
    with pytest.raises(UsageError, match="no testbed is there"):
        emulated.find(str(tmp_path / "c2"))
    testbed.stop()
    with pytest.raises(UsageError, match="holds a testbed of 2 × 2 OSTs"):
        up(testbed.path, emulated.Shape(oss=3, osts=3))
    with pytest.raises(PenstockError, match="is not running; penstock testbed up"):
        testbed.ask("status")
    testbed.start()
    for words in ("set nonsense=1", "fail ost.99", "fill ost.99 95%", "fill ost.0 much"):
        with pytest.raises(UsageError):
            testbed.ask(words)
    monkeypatch.setattr(emulated, "_program", lambda: None)
    with pytest.raises(PenstockError, match="made without libfuse 3"):
        up(tmp_path / "d")


def test_refused_wishes_leave_nothing_behind(tmp_path):
    """So that the next try, with better words, is not refused for what the first one left."""
    for shape, settings in ((None, {"mds.threads": "0"}), (emulated.Shape(1, 0, 1), {})):
        with pytest.raises(UsageError):
            emulated.up(tmp_path / "pfs", shape, settings=settings)
        assert list(tmp_path.iterdir()) == []


def test_commands_need_no_answer_of_the_mds(make_testbed):
    bed = make_testbed(settings={"model": "on"})
    bed.ask("fail mds")
    for words in (("testbed", "status", "--dir"), ("targets",), ("testbed", "down", "--dir")):
        command = [str(Path(sys.executable).with_name("penstock")), *words, str(bed.path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, cwd="/")
        assert words[-1] != "targets" or "pfs-OST0003" in done.stdout
        assert words[1:2] != ("status",) or "mds.0 does not answer" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_nobody_stops_somebody_elses(make_testbed):
    """Not by leaving --dir out, and not by naming it."""
    bed = make_testbed()
    code = """
import os, sys
from penstock.cli import main
main(["testbed", "down", "--dir", "/nowhere"])  # loads all that the user may not read
os.setgid(65534); os.setuid(65534)
os.environ["PWD"] = "/"
print(main(["testbed", "down"]), main(["testbed", "down", "--dir", sys.argv[1]]), flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(bed.path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr.count("\n") == 3, done.stderr
    _, unnamed, named = done.stderr.splitlines()
    assert done.stdout == "2 12\n"
    assert "no testbed of yours is mounted" in unnamed
    assert "belongs to somebody else" in named
    assert bed.status().running


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_who_may_not_use_fuse_or_the_folder_is_told(tmp_path):
    code = """
import fcntl, json, os, selectors, shutil, socket, subprocess, sys
from penstock.testbed import emulated
os.setgid(65534); os.setuid(65534)
try:
    emulated.up(sys.argv[1])
except Exception as error:
    print(type(error).__name__, error)
"""
    tmp_path.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.startswith(("PenstockError you may not use /dev/fuse", "DeniedError")), done.stderr


def test_a_busy_mount_is_not_unmounted_unless_forced(testbed):
    other = testbed.more("node2")
    fd = os.open(other / "x", os.O_RDWR | os.O_CREAT)
    with pytest.raises(BusyError, match="is in use"):
        emulated.unmount(other)
    emulated.unmount(other, force=True)
    assert not os.path.ismount(other)
    os.close(fd)
    until(lambda: len(testbed.status().clients) == 1)


def test_down_with_open_files_ends_and_the_next_start_is_right(testbed):
    fd = os.open(testbed.path / "x", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"kept")
    testbed.stop()
    with pytest.raises(OSError):
        os.pread(fd, 4, 0)
    with contextlib.suppress(OSError):
        os.close(fd)
    testbed.start()
    assert (testbed.path / "x").read_bytes() == b"kept"


def test_the_control_socket_bears_nonsense_and_is_for_the_owner(testbed):
    for line in ("", "x" * 9000, "mount", "mount relative", "set", "\x00\xff", "mounted "):
        with pytest.raises(PenstockError):
            if testbed.ask(line) == "no":
                raise PenstockError("an answer")
    assert (Path(testbed.folder) / "run").stat().st_mode & 0o777 == 0o700
    assert testbed.store.stat().st_mode & 0o777 == 0o700
    assert testbed.status().running


def test_the_command_as_a_user_types_it(tmp_path):
    penstock = str(Path(sys.executable).parent / "penstock")

    def run(*words: str, status: int = 0) -> str:
        done = subprocess.run(
            [penstock, "testbed", *words], capture_output=True, text=True, timeout=60, check=False, cwd="/"
        )
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    at = str(tmp_path / "pfs")
    try:
        shown = run("up", "--mds", "1", "--oss", "3", "--osts", "5", "--dir", at, "--model", "off")
        assert "15 OSTs on 3 OSS, 1 MDT" in shown
        assert f"penstock testbed down --dir {at}" in shown
        run("mount", str(tmp_path / "two"), "--dir", at)
        state = json.loads(run("status", "--dir", at, "--json"))
        assert [m["path"] for m in state["mounts"]] == [at, str(tmp_path / "two")]
        run("umount", str(tmp_path / "two"))
        for words in (
            ("set", "ost.7.slowdown=10", "mds.pause=2s"),
            ("fail", "ost.3"),
            ("fill", "ost.4", "95%"),
        ):
            assert run(*words, "--dir", at) == ""
        said = run("status", "--dir", at)
        for line in (
            "ost.7 needs 10 times as long",
            "ost.3 is dead",
            "ost.4 is filled to 95 %",
            "mds.0 is paused",
        ):
            assert f"trouble   {line}" in said
        rows = json.loads(
            subprocess.run(
                [penstock, "targets", at, "--json"], capture_output=True, check=True, timeout=60
            ).stdout
        )["targets"]
        assert [row["state"] for row in rows] == ["up"] * 3 + ["down"] + ["up"] * 11  # at once
        assert rows[4]["free_bytes"] < 0.06 * rows[4]["size_bytes"]
        run("heal", "all", "--dir", at)
        assert "trouble" not in run("status", "--dir", at)
        assert run("up", "--dir", at, status=11).count("\n") == 1
    finally:
        run("down", "--dir", at, "--purge")
    assert list(tmp_path.iterdir()) in ([tmp_path / "two"], [])
    assert "no testbed is there" in run("status", "--dir", at, status=2)


# Between clients


def test_locks_hold_between_clients_and_go_with_their_owner(testbed):
    other = testbed.more("node2")
    with (testbed.path / "x").open("w") as a, (other / "x").open("r+") as b:
        fcntl.lockf(a, fcntl.LOCK_EX, 100, 0)
        with pytest.raises(BlockingIOError):
            fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 50)
        fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 100)
        fcntl.lockf(a, fcntl.LOCK_UN, 20, 40)  # a hole in the middle
        fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 20, 40)
        with pytest.raises(BlockingIOError):
            fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 39)
        fcntl.flock(a, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError):
            fcntl.flock(b, fcntl.LOCK_SH | fcntl.LOCK_NB)
        got = threading.Event()
        waiter = threading.Thread(target=lambda: (fcntl.flock(b, fcntl.LOCK_EX), got.set()))
        waiter.start()
        a.close()
        assert got.wait(20)
        waiter.join()
        fcntl.lockf(b, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_waiter_for_a_lock_dies_at_once_and_leaves_nothing(testbed):
    other = testbed.more("node2")
    code = (
        "import fcntl,sys; f=open(sys.argv[1],'r+'); print('waits', flush=True); fcntl.{}(f, fcntl.LOCK_EX)"
    )
    with (testbed.path / "x").open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX)
        fcntl.flock(held, fcntl.LOCK_EX)
        for how in ("lockf", "flock"):
            child = subprocess.Popen(
                [sys.executable, "-c", code.format(how), str(other / "x")], stdout=subprocess.PIPE
            )
            assert child.stdout and child.stdout.readline() == b"waits\n"
            time.sleep(0.05)
            child.send_signal(signal.SIGKILL)
            assert child.wait(10) == -signal.SIGKILL
            child.stdout.close()
    with (other / "x").open("r+") as mine:
        fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_circle_of_waiters_is_refused_to_one_of_them(testbed):
    clients = [testbed.path, testbed.more("node2")]
    (testbed.path / "x").write_bytes(b"12")
    code = """
import fcntl, sys
f, mine = open(sys.argv[1], "r+"), int(sys.argv[2])
fcntl.lockf(f, fcntl.LOCK_EX, 1, mine); print("has", flush=True); sys.stdin.readline()
try:
    fcntl.lockf(f, fcntl.LOCK_EX, 1, 1 - mine)
    print("got")
except OSError as error:
    print(error.errno)
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(c / "x"), str(i)], **pipes)
        for i, c in enumerate(clients)
    ]
    assert [child.stdout.readline() for child in children] == ["has\n"] * 2
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    said = sorted(child.communicate(timeout=20)[0].strip() for child in children)
    assert said == [str(errno.EDEADLK), "got"]


def test_appends_of_several_clients_never_overlap(testbed):
    clients = [testbed.path, testbed.more("n1"), testbed.more("n2")]
    code = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for i in range(200): os.write(fd, (sys.argv[2] * 99 + "\\n").encode())
"""
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(c / "log"), str(i)]) for i, c in enumerate(clients)
    ]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    lines = (testbed.path / "log").read_text().splitlines()
    assert sorted(lines) == sorted([str(i) * 99 for i in range(3)] * 200)


def test_many_writers_of_one_file_through_several_mounts(make_testbed):
    bed = make_testbed(settings={"model": "off", "layout.stripe_size": "65536", "layout.stripe_count": "4"})
    clients = [bed.path, bed.more("n1"), bed.more("n2"), bed.more("n3")]
    code = """
import os, sys
fd, me = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), int(sys.argv[2])
for i in range(me, 400, 4): os.pwrite(fd, bytes([i % 251]) * 10_007, i * 10_007)
"""
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(c / "f"), str(i)]) for i, c in enumerate(clients)
    ]
    assert [child.wait(60) for child in children] == [0] * 4
    assert (bed.path / "f").read_bytes() == b"".join(bytes([i % 251]) * 10_007 for i in range(400))


def test_a_shared_mapping_sees_what_was_written_before_opening(make_testbed):
    bed = make_testbed(caching="posix")
    other = bed.more("node2")
    (bed.path / "x").write_bytes(b"a" * 10_000)
    with (other / "x").open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        assert view[:3] == b"aaa"
        view[5000:5003] = b"new"
        view.flush()
    assert (bed.path / "x").read_bytes()[5000:5003] == b"new"
    with (other / "x").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        assert view[5000:5003] == b"new"


def test_privileges_go_at_writing_and_changing_owner(testbed):
    path = testbed.path / "x"
    path.write_bytes(b"x")
    path.chmod(0o6755)
    os.chown(path, 0, 1)
    assert path.stat().st_mode & 0o7777 == 0o755
    os.chown(path, 65534, 65534)
    path.chmod(0o6755)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setgid(65534)
            os.setuid(65534)
            fd = os.open(path, os.O_WRONLY)
            os.write(fd, b"y")
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert path.stat().st_mode & 0o7777 == 0o755


def test_no_extra_call_for_each_write(testbed):
    """The kernel would ask for security.capability at every write, had the server not said that it drops it itself."""
    fd = os.open(testbed.path / "x", os.O_WRONLY | os.O_CREAT)
    pid = testbed.status().pid
    tracer = subprocess.Popen(
        ["strace", "-f", "-c", "-e", "trace=writev", "-p", str(pid)], stderr=subprocess.PIPE, text=True
    )
    assert tracer.stderr and "attached" in tracer.stderr.readline()
    for i in range(100):
        os.pwrite(fd, b"x" * 100, i * 100)
    os.close(fd)
    tracer.send_signal(signal.SIGINT)
    report = tracer.communicate(timeout=20)[1]
    answers = next(int(line.split()[3]) for line in report.splitlines() if line.endswith(" writev"))
    assert 100 <= answers <= 110


def test_names_that_clients_make_and_take_at_once(testbed):
    clients = [testbed.path, testbed.more("n1"), testbed.more("n2"), testbed.more("n3")]
    code = """
import errno, os, random, sys
top, dice = sys.argv[1], random.Random(sys.argv[2])
def attempt(call, *args):
    try:
        return call(*args)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY):
            raise
for i in range(400):
    a, b = (f"{top}/{dice.choice('abc')}" for _ in range(2))
    attempt(dice.choice([
        lambda: os.close(os.open(a, os.O_RDWR | os.O_CREAT)),
        lambda: os.unlink(a),
        lambda: os.rename(a, b),
        lambda: os.link(a, b),
        lambda: os.mkdir(a + "d"),
        lambda: os.rmdir(a + "d"),
        lambda: os.close(os.open(a + "d/x", os.O_RDWR | os.O_CREAT)),
        lambda: os.unlink(a + "d/x"),
        lambda: os.rename(a + "d/x", b),
        lambda: os.stat(a),
        lambda: os.listdir(top),
    ]))
"""
    children = [subprocess.Popen([sys.executable, "-c", code, str(c), str(i)]) for i, c in enumerate(clients)]
    assert [child.wait(60) for child in children] == [0] * 4
    subprocess.run(["rm", "-rf", *map(str, testbed.path.iterdir())], check=True, timeout=20)
    assert testbed.path.stat().st_nlink == 2
    until(lambda: testbed.status().inodes == 1)
    assert [f for ost in testbed.store.glob("ost*") for f in ost.iterdir()] == []
