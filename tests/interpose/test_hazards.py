# SPDX-License-Identifier: Apache-2.0
"""What preloaded libraries are known to break, tried on programs that do it: docs/reference/traps.md lists it.

A program is run alone and with the library; what it says must be the same.  Some are run under a library whose
only stage tells what it sees.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import board
import library

PYTHON = Path(sys.executable).resolve()


class Place:
    """A board, a folder for a program's files, and what the tracing stage saw there."""

    def __init__(self, top: Path) -> None:
        self.folder = top / "files"
        self.folder.mkdir()
        self.board = board.make(top / "board", ("pass", "record"))
        self.trace = top / "trace"

    def run(self, *words: object, **more: str) -> "subprocess.CompletedProcess[str]":
        """Under the installed library, with all its stages."""
        return library.run(words, self.board, cwd=self.folder, seconds=120, **more)

    def traced(self, *words: object, **more: str) -> list[library.Seen]:
        """What was seen of the files in the folder."""
        more |= {"PENSTOCK_TRACE": str(self.trace)}
        done = library.run(words, self.board, library.tracing(), self.folder, 120, **more)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        self.said = done.stdout
        return [s for s in library.seen(self.trace) if s.path.startswith(f"{self.folder}/")]

    def python(self, text: str, **more: str) -> list[library.Seen]:
        return self.traced(PYTHON, "-I", "-S", "-c", text, **more)

    def of(self, calls: Sequence[library.Seen], name: str) -> list[str]:
        return [s.op for s in calls if s.path == f"{self.folder}/{name}"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def alone(*words: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return library.run(words, None, cwd=cwd, seconds=120)


# ---- processes ----


def test_i01_a_child_that_closes_everything_leaves_its_parents_books(place: Place) -> None:
    """Python's subprocess: vfork, dup2, close_range."""
    calls = place.python(
        "import os, subprocess\n"
        "f = os.open('a', os.O_CREAT | os.O_WRONLY)\n"
        "for _ in range(20): subprocess.run(['/bin/true'], close_fds=True, stdin=subprocess.DEVNULL)\n"
        "os.write(f, b'12345')\n"
    )
    assert [(s.op, s.result) for s in calls if s.path == f"{place.folder}/a" and s.op == "write"] == [
        ("write", 5)
    ]


def test_i01_i02_vfork_children_on_their_parents_stack(place: Place) -> None:
    """Compiled with and without optimisation, 200 times each."""
    for flag in ("-O0", "-O2"):
        words = [library.program("hazards", flag, "-fstack-protector-all"), "vforks", place.folder]
        calls = place.traced(*words)
        assert place.said == "200 vforks\n"
        assert place.of(calls, "kept").count("write") == 200
        assert place.of(calls, "other") == ["open"]  # what the children did with it is nobody's
        place.trace.unlink()


def test_i03_every_kind_of_child_is_a_process_of_its_own(place: Place) -> None:
    """fork, _Fork and a bare clone: none runs the handlers of pthread_atfork but the first."""
    calls = place.traced(library.program("hazards"), "processes", place.folder)
    epochs = {Path(s.path).name: s.epoch for s in calls if s.op == "write"}
    assert epochs == {"parent": 0, "fork": 1, "_Fork": 1, "clone": 1, "parent2": 0}


def test_i04_fork_while_threads_are_in_wrappers(place: Place) -> None:
    """1,000 times."""
    done = place.run(library.program("hazards"), "forks", place.folder)
    assert (done.stdout, done.stderr, done.returncode) == ("1000 forks\n", "", 0)
    assert (place.folder / "forked").stat().st_size == 1000


# ---- signals, cancellation ----


def test_i05_signal_handlers_use_files_inside_of_calls(place: Place) -> None:
    done = place.run(library.program("hazards"), "handlers", place.folder)
    assert (done.stdout, done.stderr, done.returncode) == ("500 signals\n", "", 0)


def test_i05_a_thread_that_jumped_out_of_calls_is_still_seen(place: Place) -> None:
    calls = place.traced(library.program("hazards"), "longjmps", place.folder)
    assert place.said == "300 jumps\n"
    assert place.of(calls, "after") == ["open", "write"]


def test_i06_threads_are_cancelled_inside_of_calls(place: Place) -> None:
    calls = place.traced(library.program("hazards"), "cancels", place.folder)
    assert place.said == "300 cancelled\n"
    assert place.of(calls, "after") == ["open", "write"]


# ---- before main, after main, beside others ----


@pytest.mark.parametrize("first", [True, False], ids=["before us", "after us"])
def test_i07_an_allocator_that_opens_files_under_its_lock(first: bool, place: Place) -> None:
    other = library.shared("odd_malloc", "-fno-builtin")
    both = [str(other), str(library.INSTALLED)]
    text = (
        "import threading as t; open('a', 'w').write('12'); u = t.Thread(target=open, args=('a',)); u.start()"
    )
    words = [PYTHON, "-I", "-S", "-c", text + "; print('fine')"]
    done = place.run(*words, LD_PRELOAD=":".join(both if first else reversed(both)))
    assert (done.stdout, done.stderr, done.returncode) == ("fine\n", "", 0)


JEMALLOC = Path("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")


@pytest.mark.parametrize("first", [True, False], ids=["before us", "after us"])
def test_i07_jemalloc(first: bool, place: Place) -> None:
    assert JEMALLOC.exists(), "make setup installs libjemalloc2"
    both = [str(JEMALLOC), str(library.INSTALLED)]
    text = "open('a', 'w').write('12'); print(open('a').read())"
    words = [PYTHON, "-I", "-S", "-c", text]
    done = place.run(*words, LD_PRELOAD=":".join(both if first else reversed(both)))
    assert (done.stdout, done.stderr, done.returncode) == ("12\n", "", 0)


@pytest.mark.parametrize("first", [True, False], ids=["before us", "after us"])
def test_i08_i25_calls_of_another_library_before_and_after_ours(first: bool, place: Place) -> None:
    """Its constructor comes before ours, its destructor after ours; and it wraps what we wrap."""
    both = [str(library.shared("early_late")), str(library.tracing())]
    words = [library.program("writes_a_file"), place.folder / "a"]
    preload = ":".join(both if first else reversed(both))
    calls = place.traced(*words, LD_PRELOAD=preload, EARLY_LATE=str(place.folder))
    assert sorted(p.name for p in place.folder.iterdir()) == ["a", "early", "later", "wrapped"]
    assert {(place.folder / name).read_text() for name in ("early", "later")} == {"early", "later"}
    assert place.of(calls, "a") == ["open", "write"]
    assert "open" in place.of(calls, "later")


def test_i08_what_stdio_writes_at_exit_is_written(place: Place) -> None:
    place.python(
        "import ctypes; f = open('a', 'w'); f.write('kept')\n"
        "c = ctypes.CDLL(None); c.fopen.restype = ctypes.c_void_p\n"
        "c.fputs(b'late', ctypes.c_void_p(c.fopen(b'b', b'w')))\n"
    )
    assert (place.folder / "a").read_text() == "kept"
    assert (place.folder / "b").read_text() == "late"


def test_i25_other_tools_go_on_working(place: Place) -> None:
    """stdbuf preloads a library of its own; so does fakeroot."""
    done = place.run("stdbuf", "-oL", "/bin/sh", "-c", "echo $LD_PRELOAD; echo 1 > a")
    assert (done.returncode, done.stderr) == (0, "")
    assert "libstdbuf.so" in done.stdout
    assert str(library.INSTALLED) in done.stdout


def test_i26_other_namespaces_of_the_loader(place: Place) -> None:
    """A libc of its own (dlmopen) is not seen; what it opened and we write to is."""
    calls = place.traced(library.program("hazards", "-ldl"), "namespaces", place.folder)
    assert place.of(calls, "other") == ["write"]


def test_i26_address_sanitizer_stays_first(place: Place) -> None:
    made = library.program("writes_a_file", "-fsanitize=address")
    done = place.run(made, place.folder / "a", ASAN_OPTIONS="verify_asan_link_order=0")
    assert (done.returncode, done.stderr) == (0, "")
    assert (place.folder / "a").read_text() == "12345"


def test_i27_nothing_is_said(place: Place) -> None:
    """Neither with a good board nor with any other; see also tests/stages/test_faults.py."""
    for path in (place.board, place.folder / "none", Path("/dev/null"), Path("relative")):
        done = library.run(["cat", "/etc/hostname"], path)
        assert (done.stdout, done.stderr) == (Path("/etc/hostname").read_text(), "")


# ---- descriptors ----


def test_i09_locks_stay_when_the_library_looks_at_a_locked_file(place: Place) -> None:
    """It opens and closes no file of the program's."""
    done = place.run(
        PYTHON,
        "-c",
        "import fcntl, os, subprocess, sys\n"
        "f = open('a', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)\n"
        "os.stat('a'); os.access('a', 4); os.chmod('a', 0o600); os.truncate('a', 3); os.rename('a', 'b')\n"
        "g = os.dup(f.fileno()); os.fstat(g); f.write('x'); f.flush(); os.fsync(g)\n"
        "os.listdir('.'); os.getxattr('b', 'user.x') if 0 else None\n"
        'other = \'import fcntl; fcntl.lockf(open("b", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)\'\n'
        "print(subprocess.run([sys.executable, '-c', other], stderr=subprocess.DEVNULL).returncode)\n",
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


CLOSES = """
import json, os
before = sorted(os.listdir('/proc/self/fd'))
os.closerange(3, 1 << 20)
files = [os.open(f'{n}', os.O_CREAT | os.O_RDWR) for n in range(20)]
for n, f in enumerate(files): os.write(f, str(n).encode())
os.mkdir('d'); os.listdir('d'); os.stat('d'); open('d/x', 'w').close()
print(json.dumps([before, files, [os.pread(f, 9, 0).decode() for f in files]]))
"""


def test_i10_no_descriptor_of_ours_is_there_to_be_closed(place: Place, tmp_path: Path) -> None:
    """A program closes all it does not know and gets their numbers; also where hardly any are allowed."""
    other = tmp_path / "alone"
    other.mkdir()
    limited = ["bash", "-c", 'ulimit -n 32; exec "$@"', "bash", PYTHON, "-I", "-S", "-c", CLOSES]
    expected = alone(*limited, cwd=other)
    done = place.run(*limited, PENSTOCK_LOG=str(tmp_path / "log"))
    assert (done.stdout, done.stderr) == (expected.stdout, expected.stderr)
    assert json.loads(done.stdout)[2] == [str(n) for n in range(20)]


def test_i16_descriptors_that_no_open_gave(place: Place) -> None:
    """Copies of every kind, FILEs made of them, those that came through a socket or from exec."""
    calls = place.python(
        "import fcntl, os, socket, subprocess, sys\n"
        "def f(name): return os.open(name, os.O_CREAT | os.O_WRONLY)\n"
        "os.write(os.dup(f('dup')), b'1')\n"
        "os.write(os.dup2(f('dup2'), 90), b'1')\n"
        "os.write(os.dup2(f('dup3'), 91, inheritable=False), b'1')\n"
        "a = f('dupfd'); os.write(fcntl.fcntl(a, fcntl.F_DUPFD, 50), b'1'); os.write(a, b'1')\n"
        "os.write(fcntl.fcntl(f('cloexec'), fcntl.F_DUPFD_CLOEXEC, 60), b'1')\n"
        "a, b = socket.socketpair(); g = f('rights'); socket.send_fds(a, [b'x'], [g]); os.close(g)\n"
        "os.write(socket.recv_fds(b, 1, 1)[1][0], b'1')\n"
        "g = f('inherited'); os.set_inheritable(g, True)\n"
        "code = f'import os; os.write({g}, b\"1\")'\n"
        "subprocess.run([sys.executable, '-I', '-S', '-c', code], close_fds=False)\n"
    )
    written = {Path(s.path).name: 0 for s in calls}
    for s in calls:
        written[Path(s.path).name] += s.op == "write"
    assert written == dict.fromkeys(("dup", "dup2", "dup3", "cloexec", "rights", "inherited"), 1) | {
        "dupfd": 2
    }


def test_i17_a_recycled_number_means_the_new_file(place: Place) -> None:
    """Also 0 to 2, also after a close that failed, also by names of close that nobody wraps."""
    calls = place.python(
        "import ctypes, os\n"
        "def f(name): return os.open(name, os.O_CREAT | os.O_WRONLY)\n"
        "a = f('one'); os.close(a); b = f('two'); assert a == b; os.write(b, b'1')\n"
        "ctypes.CDLL(None).syscall(3, b); c = f('three'); assert b == c; os.write(c, b'1')\n"
        "os.closerange(c, c + 1); d = f('four'); assert c == d; os.write(d, b'1')\n"
        "try: os.close(12345)\n"
        "except OSError: pass\n"
        "os.close(0); e = f('zero'); assert e == 0; os.write(e, b'1'); os.write(0, b'1')\n"
    )
    written = [Path(s.path).name for s in calls if s.op == "write"]
    assert written == ["two", "three", "four", "zero", "zero"]


# ---- names, flags, errno ----


ONCE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.fopen.restype = libc.opendir.restype = ctypes.c_void_p
buffer = ctypes.create_string_buffer(4096)
at = -100
def name(what):
    open(what, 'w').close(); os.unlink(what)
    return what.encode()
for what in ('stat', 'lstat', 'stat64', 'lstat64'):
    f = getattr(libc, what); f(b'once-' + what.encode(), buffer)
for what in ('__xstat', '__lxstat', '__xstat64', '__lxstat64'):
    getattr(libc, what)(1, b'once-' + what.encode(), buffer)
libc.fstatat(at, b'once-fstatat', buffer, 0)
libc.statx(at, b'once-statx', 0, 0xfff, buffer)
libc.open(b'once-open', 0); libc.open64(b'once-open64', 0); libc.openat(at, b'once-openat', 0)
libc.fopen(b'once-fopen', b'r'); libc.fopen64(b'once-fopen64', b'r'); libc.opendir(b'once-opendir')
libc.access(b'once-access', 0); libc.unlink(b'once-unlink'); libc.rmdir(b'once-rmdir'); libc.remove(b'once-remove')
libc.creat(b'once-creat', 0o600)
libc.truncate(b'once-truncate', 0); libc.chmod(b'once-chmod', 0); libc.utimes(b'once-utimes', None)
"""


def test_i13_one_call_of_the_program_is_seen_once(place: Place) -> None:
    """Whichever name it has, and whatever libc does within it."""
    calls = place.python(ONCE)
    count: dict[str, int] = {}
    for s in calls:
        name = Path(s.path).name
        if name.startswith("once-"):
            count[name] = count.get(name, 0) + 1
    assert len(count) >= 20
    assert {name: n for name, n in count.items() if n != 1} == {}


def test_i14_a_mode_is_passed_on_where_flags_ask_for_one(place: Place) -> None:
    """O_TMPFILE has the bit of O_DIRECTORY."""
    text = (
        "import ctypes, os\n"
        "os.umask(0)\n"
        "d = os.open('.', os.O_DIRECTORY)\n"
        "try: print(oct(os.fstat(os.open('.', os.O_TMPFILE | os.O_RDWR, 0o641)).st_mode))\n"
        "except OSError as e: print(e)\n"
        "print(oct(os.fstat(os.open('a', os.O_CREAT | os.O_RDWR, 0o642)).st_mode))\n"
    )
    words = [PYTHON, "-I", "-S", "-c", text]
    expected = alone(*words, cwd=place.folder)
    (place.folder / "a").unlink()
    done = place.run(*words)
    assert (done.stdout, done.stderr) == (expected.stdout, "")
    assert "0o100642" in done.stdout


NAMES = r"""
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
m = mmap.mmap(-1, 8192)
at = ctypes.addressof(ctypes.c_char.from_buffer(m))
m[:] = b"/" * 8192
libc.munmap(ctypes.c_void_p(at + 4096), 4096)
names = [b"caf\xe9", b"a\nb", b"x" * 255, b"x" * 256, b"./" * 2000 + b"y", b"/" * 5000, b"d/" * 2048, b"", b"."]
pointers = [None, ctypes.c_void_p(1), ctypes.c_void_p(-1), ctypes.c_void_p(at + 4095)]
buffer = ctypes.create_string_buffer(4096)
calls = {"open": 0o100, "access": 0, "stat": buffer, "mkdir": 0o700, "unlink": 0, "chdir": 0, "rename": b"other"}
for name in [*names, *pointers]:
    for call, second in calls.items():
        ctypes.set_errno(77)
        result = getattr(libc, call)(name, second, 0o600)
        print(str(name)[:10], call, min(result, 0), ctypes.get_errno())
        os.chdir(os.environ["HERE"])
"""


def test_i19_names_of_any_bytes(place: Place) -> None:
    """Odd, too long, unreadable: as the kernel says."""
    words = [PYTHON, "-I", "-S", "-c", NAMES]
    folder = place.folder / "work"
    said = []
    for on in (None, place.board):
        folder.mkdir()
        done = library.run(words, on, cwd=folder, HERE=str(folder))
        assert (done.returncode, done.stderr) == (0, "")
        said.append((done.stdout, sorted(os.fsencode(p) for p in folder.iterdir())))
        subprocess.run(["rm", "-r", folder], check=True)
    assert said[1][0].splitlines() == said[0][0].splitlines()
    assert said[1][1] == said[0][1]
    assert said[0][0].count("\n") == 91


@pytest.mark.parametrize("how", ["strict", "filter"])
def test_i23_a_program_that_seals_itself_is_not_killed(how: str, place: Place) -> None:
    """After seccomp nothing is asked of the kernel but what the program asks."""
    done = place.run(library.program("hazards"), how, place.folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sealed\n", "")


def test_b11_the_control_page_cannot_be_written_by_programs(place: Place) -> None:
    done = place.run("cat", "/proc/self/maps")
    rights = [line.split()[1] for line in done.stdout.splitlines() if line.endswith("board/control")]
    assert rights == ["r--s"]


def test_i20_more_descriptors_than_the_table_has(place: Place) -> None:
    """A program with more open files than are kept: they work, and are counted as not followed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 70_000:
        text = "import fcntl, os; print(os.write(fcntl.fcntl(os.open('a', 66), fcntl.F_DUPFD, 4000), b'12'))"
    else:
        text = (
            "import fcntl, os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (70000, 70000))\n"
            "print(os.write(fcntl.fcntl(os.open('a', 66), fcntl.F_DUPFD, 66000), b'12'))"
        )
    done = place.run(PYTHON, "-I", "-S", "-c", text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
