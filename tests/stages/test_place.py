# SPDX-License-Identifier: Apache-2.0
"""The stage `place` on a real mount: a plan made by hand on a board, and what programs' new files are like then.

The traps that a test stands for are named in it: P01 and the like.
"""

import contextlib
import os
import shutil
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from placing import Job, Seen, a_plan, exact, match, osts, place, stock
from stage_programs import compiled

from penstock import _native
from penstock.base.errors import VersionError
from penstock.policy.placing.contract import DIGITS, WORD, Action, Entry, Part
from penstock.runs import place_section
from penstock.runs.place_section import Default
from penstock.targets import lov

pytestmark = pytest.mark.root
MIB = 1 << 20
NOBODY = 65534
WRITE = "import sys; open(sys.argv[1], 'wb').write(b'x' * int(sys.argv[2]))"
WAYS = ["open", "open64", "openat", "openat64", "creat", "creat64", "excl", "trunc", "rdwr"]
STREAMS = ["fopenw", "fopen64w", "fopenwb", "fopenw+", "fopenwx", "fopenwe"]


@pytest.fixture
def job(testbed) -> Iterator[Job]:
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(a_job(testbed))


@contextlib.contextmanager
def a_job(bed) -> Iterator[Job]:
    folder = Path(f"/dev/shm/penstock-place-{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)
    try:
        yield Job(folder / "board", bed.path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def as_nobody(job: Job) -> dict[str, object]:
    """The board belongs to its job's user."""
    for path in (job.folder, *job.folder.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []}


def set_default(folder: Path, *targets: int, count: int = 0, size: int = 0, pool: str = "") -> None:
    part = lov.template(count, size, targets, pool)
    os.setxattr(folder, lov.XATTR, lov.encode(lov.Lov(parts=(part,))))


# -- where files come to lie ---------------------------------------------------------------------------------


def test_a_new_file_lies_where_the_plan_says(job):
    job.plan(place(exact(job.top / "out"), [3, 1], size=2 * MIB))
    job.python(WRITE, "out", 5_000_000)
    seen = Seen(job.top / "out")
    assert (seen.osts, seen.size) == ((3, 1), 2 * MIB)
    assert (job.top / "out").read_bytes() == b"x" * 5_000_000
    assert job.counts() == {"expected": 1, "placed": 1, "folders": 1}


@pytest.mark.parametrize("way", WAYS + STREAMS)
def test_whatever_call_creates_it(job, way):
    """P01, P02: one open, with the program's own flags and mode; F02: no bit of ours is left in them."""
    program = compiled("creates.c")
    job.plan(place(exact(job.top / "placed"), [2, 0]))
    done = job.run(program, way, "placed")
    alone = job.run(program, way, "alone", under=False)
    assert (done.returncode, done.stdout) == (0, alone.stdout)
    assert osts(job.top / "placed") == (2, 0)
    assert (job.top / "placed").read_text() == "a line\n"
    assert (job.top / "placed").stat().st_mode == (job.top / "alone").stat().st_mode


def test_a_name_is_found_whatever_way_it_is_written(job):
    (job.top / "a" / "b").mkdir(parents=True)
    job.plan(place(exact(job.top / "a" / "file"), [3]))
    job.python(
        """
import os
os.chdir('a/b')
at = os.open('..', os.O_RDONLY)
os.close(os.open('./../../a//./b/../file', os.O_CREAT | os.O_WRONLY))
os.rename('../file', '../one')
os.close(os.open('file', os.O_CREAT | os.O_WRONLY, dir_fd=at))
"""
    )
    assert [osts(job.top / "a" / name) for name in ("one", "file")] == [(3,), (3,)]


def test_patterns_state_values_or_none(job):
    run = job.top / "run7"
    run.mkdir()
    pieces = (job.top / "run", DIGITS, "/ckpt", DIGITS, ".", WORD)
    job.plan(
        place(match(*pieces, values=[None, b"12", None]), [1]),
        place(match(*pieces, values=[None, b"12", b"dat"]), [2]),
        place(match(*pieces, values=[None, None, None]), [3]),
    )
    for name, ost in (("ckpt0012.dat", 2), ("ckpt12.txt", 1), ("ckpt13.dat", 3)):
        job.python(WRITE, run / name, 10)
        assert osts(run / name) == (ost,), name
    job.python(WRITE, run / "ckpt12", 10)
    assert job.counts()["unexpected"] == 1


def test_a_name_that_matches_two_patterns_takes_the_more_exact_one(job):
    wide, narrow = match(job.top / "f", WORD), match(job.top / "f", WORD, ".", DIGITS, values=[None, b"1"])
    job.plan(place(wide, [0]), place(narrow, [1]), place(exact(job.top / "fx.1"), [2]))
    job.python(WRITE, "fx.1", 1)
    job.python(WRITE, "fy.1", 1)
    job.python(WRITE, "fz", 1)
    assert [osts(job.top / n) for n in ("fx.1", "fy.1", "fz")] == [(2,), (1,), (0,)]


def test_files_alike_take_turns(job):
    job.plan(place(match(job.top / "part", WORD), [0, 1], [1, 2], [2, 3], [3, 0]))
    job.python("for i in range(6): open(f'part{i}', 'w').write('x')")
    assert [osts(job.top / f"part{i}") for i in range(6)] == [(0, 1), (1, 2), (2, 3), (3, 0), (0, 1), (1, 2)]


def test_files_not_expected_take_spare_targets_and_keep_count_and_size(job):
    job.plan(spare=[3, 2, 1, 0])
    (job.top / "two").mkdir()
    set_default(job.top / "two", count=2, size=MIB)
    job.python("for i in range(8): open(f'f{i}', 'w').write('x'); open(f'two/f{i}', 'w').write('x')")
    ones = [osts(job.top / f"f{i}") for i in range(8)]
    twos = [osts(job.top / "two" / f"f{i}") for i in range(8)]
    assert {len(o) for o in ones} == {1} and {len(o) for o in twos} == {2}
    used = [sum(ost in o for o in ones + twos) for ost in range(4)]
    assert used == [6, 6, 6, 6]
    assert Seen(job.top / "two" / "f0").size == MIB
    assert job.counts() == {"unexpected": 16, "spare": 16, "folders": 2}


def test_what_the_plan_leaves_is_left(job):
    job.plan(stock(exact(job.top / "small")))
    job.python(WRITE, "small", 10)
    job.python(WRITE, "other", 10)
    counts = job.counts()
    assert (counts["planned_stock"], counts["no_targets"], "placed" in counts) == (1, 1, False)


def test_wide_layouts_and_components(make_testbed):
    bed = make_testbed(oss=4, osts=10)
    with a_job(bed) as job:
        row = tuple(reversed(range(40)))
        parts = (Part(MIB, 1, MIB, (7,)), Part(0, 4, 2 * MIB, (3, 9, 11, 1)))
        (job.top / "grown").mkdir()
        part = lov.template(1, MIB)
        default = lov.Lov(
            composite=True, parts=(part._replace(end_bytes=MIB), part._replace(start_bytes=MIB))
        )
        os.setxattr(job.top / "grown", lov.XATTR, lov.encode(default))
        job.plan(
            place(exact(job.top / "wide"), row),
            Entry(exact(job.top / "grown" / "comp"), Action.PLACE, 4, 2 * MIB, parts=parts),
            may_override=True,
        )
        job.python(WRITE, "wide", 100)
        job.python(WRITE, "grown/comp", 5 * MIB)
        assert osts(job.top / "wide") == row
        found = lov.decode(os.getxattr(job.top / "grown" / "comp", lov.XATTR))
        assert [p.osts for p in found.parts] == [(7,), (3, 9, 11, 1)]


# -- as without ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o22, 0o777, 0])
@pytest.mark.parametrize("mode", ["644", "444", "000", "600"])
def test_modes_are_the_programs_and_unwritable_files_are_placed_too(job, mode, umask):
    """P02.  Who may not write his new file sets its layout by the ioctl, whatever that answers."""
    job.plan(place(exact(job.top / "placed"), [3, 1]))
    program = compiled("creates.c")
    job.top.chmod(0o777)
    who = as_nobody(job)
    done = job.run(program, "excl", "placed", mode, umask=umask, **who)
    alone = job.run(program, "excl", "alone", mode, under=False, umask=umask, **who)
    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout) == (0, done.stdout)
    assert osts(job.top / "placed") == (3, 1)
    mine, other = (job.top / "placed").stat(), (job.top / "alone").stat()
    assert (mine.st_mode, mine.st_uid, mine.st_gid) == (other.st_mode, other.st_uid, other.st_gid)
    assert (job.top / "placed").read_text() == "a line\n"
    writable = int(mode, 8) & ~umask & 0o200
    assert job.counts().get("by_ioctl", 0) == (0 if writable else 1)


def test_a_setgid_folder_gives_its_group(job):
    folder = job.top / "group"
    folder.mkdir()
    os.chown(folder, 0, 1234)
    folder.chmod(0o2775)
    job.plan(place(exact(folder / "placed"), [1]))
    job.python(WRITE, "group/placed", 1)
    assert (folder / "placed").stat().st_gid == 1234
    assert osts(folder / "placed") == (1,)


def test_o_excl_fails_where_the_file_is_there(job):
    """P01: nobody makes the file before the program does."""
    job.plan(place(exact(job.top / "f"), [1]))
    program = compiled("creates.c")
    assert job.run(program, "excl", "f").returncode == 0
    again = job.run(program, "excl", "f")
    assert (again.returncode, again.stdout) == (1, "File exists\n")
    assert job.counts()["placed"] == 1


@pytest.mark.parametrize("way", ["open", "trunc", "creat", "fopenw", "rdwr"])
def test_existing_files_keep_their_layout(job, way):
    """P03, P11."""
    job.python(WRITE, "f", 100, under=False)
    before = osts(job.top / "f")
    other = [o for o in range(4) if o not in before][:2]
    job.plan(place(exact(job.top / "f"), other))
    assert job.run(compiled("creates.c"), way, "f").returncode == 0
    assert osts(job.top / "f") == before
    assert job.counts()["existed"] == 1


def test_append_path_tmpfile_and_folders_are_untouched(job):
    """P11."""
    job.plan(place(match(job.top / "x", WORD), [1, 2]))
    program = compiled("creates.c")
    for way in ("append", "fopena"):
        assert job.run(program, way, f"x{way}").returncode == 0
        assert Seen(job.top / f"x{way}").count == 1
    assert job.counts()["appended"] == 2
    (job.top / "xthere").write_text("")
    alone = job.run(program, "path", "xthere", under=False)
    assert job.run(program, "path", "xthere").stdout == alone.stdout
    text = """
import os
for flags in (os.O_TMPFILE | os.O_WRONLY, os.O_DIRECTORY | os.O_CREAT, os.O_RDONLY):
    try:
        os.open('.', flags)
        print('opened')
    except OSError as error:
        print(error.errno)
"""
    assert job.python(text) == job.python(text, under=False)
    assert "placed" not in job.counts()


def test_files_that_libc_opens_by_itself_are_counted(job):
    job.plan(place(match(job.top / "x", WORD), [1, 2]))
    job.python(
        "import ctypes; assert ctypes.CDLL(None).mkstemp(ctypes.create_string_buffer(b'xtXXXXXX')) > 0"
    )
    assert job.counts()["in_libc"] == 1


def test_a_link_out_of_the_mount_and_one_into_it(job, tmp_path):
    """The name tells before the call, the descriptor's device after it."""
    (job.top / "out").symlink_to(tmp_path)
    (tmp_path / "in").symlink_to(job.top)
    job.plan(place(match(job.top / "out/", WORD), [1, 2]), spare=[3])
    program = compiled("creates.c")
    done = job.run(program, "open", "out/f")
    alone = job.run(program, "open", "out/g", under=False)
    assert (done.returncode, done.stdout) == (0, alone.stdout)
    assert (tmp_path / "f").read_text() == "a line\n"
    assert job.run(program, "open", tmp_path / "in" / "h").returncode == 0
    assert "placed" not in job.counts()


LINKS = """
import os
for flags in (os.O_WRONLY, os.O_WRONLY | os.O_EXCL, os.O_RDWR | os.O_TRUNC):
    fd = os.open(f'link/f{flags}', os.O_CREAT | flags)
    assert os.getxattr(fd, 'lustre.lov')
    assert os.write(fd, b'some') == 4
    os.close(fd)
"""


@pytest.mark.parametrize("dev", ["said", "not said"])
def test_a_link_into_another_file_system_of_the_kind(make_testbed, dev):
    """What our flags left without objects has its default at once; no target of the plan means anything there."""
    one, other = make_testbed(), make_testbed(osts=3)
    (other.path / "d").mkdir()
    set_default(other.path / "d", count=3, size=2 * MIB)
    with a_job(one) as job:
        (job.top / "link").symlink_to(other.path / "d")
        entry = place(match(job.top / "link/f", DIGITS), [1, 2])
        job.plan(entry, spare=[1], **({} if dev == "said" else {"dev": 0}))
        job.python(LINKS)
        done = job.run("bash", "-c", "echo hello > link/bash")
        assert (done.returncode, done.stderr) == (0, "")
        assert (other.path / "d" / "bash").read_text() == "hello\n"
        made = sorted((other.path / "d").iterdir())
        assert len(made) == 4
        assert {(Seen(path).count, Seen(path).size) for path in made} == {(3, 2 * MIB)}
        counts = job.counts()
        assert (counts["expected"], counts["unexpected"], counts["elsewhere"]) == (3, 1, 4)
        assert not counts.keys() & {"placed", "spare", "rescued", "failed", "changing"}


# -- who wins -----------------------------------------------------------------------------------------------


def test_a_program_that_sets_layouts_itself_is_left_alone(job):
    """P08: its flags say so."""
    blob = lov.encode(lov.Lov(parts=(lov.template(0, MIB, (0, 2)),)))
    job.plan(place(exact(job.top / "f"), [1, 3]))
    job.python(
        f"""
import os
fd = os.open('f', os.O_CREAT | os.O_WRONLY | os.O_NOCTTY | 0o20000)
os.setxattr(fd, 'lustre.lov', {blob!r})
os.write(fd, b'mine')
"""
    )
    assert osts(job.top / "f") == (0, 2)
    assert job.counts()["of_program"] == 1


def test_a_plain_default_keeps_count_and_size(job):
    """P08: the folder's owner asked for three stripes of 2 MiB; the plan says where."""
    (job.top / "d").mkdir()
    set_default(job.top / "d", count=2, size=2 * MIB)
    job.plan(
        place(exact(job.top / "d" / "f"), [3, 0, 1], size=MIB),
        place(exact(job.top / "d" / "g"), [2]),
        spare=[1, 3],
    )
    job.python(WRITE, "d/f", 1)
    job.python(WRITE, "d/g", 1)
    f, g = Seen(job.top / "d" / "f"), Seen(job.top / "d" / "g")
    assert (f.osts, f.size) == ((3, 0), 2 * MIB)
    assert (g.count, g.size, set(g.osts)) == (2, 2 * MIB, {1, 3})


def test_a_pool_is_kept_and_its_targets_are_its_own(make_testbed):
    bed = make_testbed(settings={"model": "off", "pool.fast": "1,2"})
    with a_job(bed) as job:
        (job.top / "d").mkdir()
        (job.top / "e").mkdir()
        set_default(job.top / "d", count=1, size=MIB, pool="fast")
        set_default(job.top / "e", count=1, size=MIB, pool="slow")
        job.plan(spare=[0, 3], pools={"fast": [2, 1]})
        job.python("for i in range(4): open(f'd/f{i}', 'w').write('x')")
        job.python(WRITE, "e/f", 1)
        seen = [Seen(job.top / "d" / f"f{i}") for i in range(4)]
        assert [s.osts for s in seen] == [(2,), (1,), (2,), (1,)]
        assert {s.pool for s in seen} == {b"fast"}
        assert job.counts()["of_pool"] == 1


@pytest.mark.parametrize("kind", ["list", "components"])
def test_other_defaults_are_left(job, kind):
    """P08."""
    (job.top / "d").mkdir()
    if kind == "list":
        set_default(job.top / "d", 0, 1)
    else:
        part = lov.template(1, MIB)
        both = (part._replace(end_bytes=MIB), part._replace(start_bytes=MIB, stripe_count=2))
        os.setxattr(job.top / "d", lov.XATTR, lov.encode(lov.Lov(composite=True, parts=both)))
    job.plan(place(exact(job.top / "d" / "f"), [3, 2]), spare=[2])
    job.python(WRITE, "d/f", 100)
    job.python(WRITE, "d/g", 100)
    found = lov.decode(os.getxattr(job.top / "d" / "f", lov.XATTR)).parts
    assert len(found) == (1 if kind == "list" else 2)
    assert kind == "components" or found[0].osts == (0, 1)
    assert job.counts()["of_folder"] == 2


def test_a_default_that_the_job_sets_meanwhile_holds(job):
    """P08: `lfs setstripe` in the job's script, an attribute, an ioctl."""
    (job.top / "d").mkdir()
    job.plan(place(match(job.top / "d/f", WORD), [3]), spare=[1, 2, 3])
    part = lov.encode(lov.Lov(parts=(lov.template(2, MIB),)))
    job.python(
        """
import subprocess, sys
write = lambda name: open(name, 'w').write('x')
write('d/f1')
setting = "import os, sys; os.setxattr('d', 'lustre.lov', bytes.fromhex(sys.argv[1]))"
subprocess.run([sys.executable, '-c', setting, sys.argv[1]], check=True)
write('d/f2')
""",
        part.hex(),
    )
    assert (Seen(job.top / "d" / "f1").count, Seen(job.top / "d" / "f2").count) == (1, 2)


# -- refusals -----------------------------------------------------------------------------------------------

STATES = {
    "fill ost.2 99.95%": "refused_full",
    "set ost.2.inactive=on": "refused_inactive",
    "set ost.2.no_create=on": "refused_no_create",
}


@pytest.mark.parametrize("way", ["open", "fopenw", "excl"])
@pytest.mark.parametrize("state", STATES)
def test_a_refused_list_becomes_the_default(make_testbed, state, way):
    """P07: full, inactive, no-create; the program sees success."""
    bed = make_testbed(settings={"model": "off", "layout.space_age": "0s"})
    with a_job(bed) as job:
        (job.top / "d").mkdir()
        set_default(job.top / "d", count=2, size=MIB)
        job.plan(place(exact(job.top / "d" / "f"), [1, 2]))
        bed.ask(state)
        assert job.run(compiled("creates.c"), way, "d/f").returncode == 0
        seen = Seen(job.top / "d" / "f")
        assert (seen.count, seen.size, 2 in seen.osts) == (2, MIB, False)
        assert (job.top / "d" / "f").read_text() == "a line\n"
        counts = job.counts()
        assert (counts[STATES[state]], counts["defaulted"], "placed" in counts) == (1, 1, False)


def test_a_target_that_is_no_more(job):
    """It vanished between plan and create."""
    job.plan(place(exact(job.top / "f"), [1, 77]))
    job.python(WRITE, "f", 10)
    assert Seen(job.top / "f").count == 1
    assert job.counts()["refused_other"] == 1


def test_no_room_anywhere_is_what_it_is_without_us(make_testbed):
    bed = make_testbed(settings={"model": "off", "layout.space_age": "0s"})
    with a_job(bed) as job:
        job.plan(place(exact(job.top / "f"), [1, 2]))
        for ost in range(4):
            bed.ask(f"set ost.{ost}.inactive=on")
        program = compiled("creates.c")
        alone, done = job.run(program, "open", "g", under=False), job.run(program, "open", "f")
        assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
        assert done.returncode == 1


# -- others at the same file --------------------------------------------------------------------------------


def test_a_write_before_the_layout_stands_is_made_again(job):
    """Another process of the client holds the file open without a layout: EBADF, mended by the default."""
    job.plan(spare=[1])
    fd = os.open(job.top / "f", os.O_CREAT | os.O_WRONLY | os.O_NOCTTY | 0o20000)
    try:
        text = """
import os, sys
fd = os.open('f', os.O_WRONLY)
print(os.write(fd, b'one'), os.pwrite(fd, b'two', 3), os.writev(fd, [b'th', b'ree']))
"""
        alone = job.run(sys.executable, "-c", text, under=False)
        assert alone.returncode == 1 and "Bad file descriptor" in alone.stderr
        assert job.python(text) == "3 3 5\n"
    finally:
        os.close(fd)
    assert (job.top / "f").read_bytes() == b"onethree"
    assert job.counts() == {"rescued": 1}


def test_a_bad_descriptor_stays_one(job):
    job.plan(spare=[1])
    (job.top / "f").write_text("x")
    text = """
import errno, os
fd = os.open('f', os.O_RDONLY)
for number in (fd, 999, -1):
    try:
        os.write(number, b'x')
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    assert job.python(text) == "EBADF\n" * 3


RACE = """
import os, sys, time
top, rank, until = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
while time.time() < until:
    pass
for i in range(8):
    fd = os.open(f"{top}/shared{i}", os.O_CREAT | os.O_WRONLY)
    for _ in range(200):  # without us a write before the layout stands is EBADF
        try:
            os.pwrite(fd, bytes([rank]) * 4096, rank * 4096)
            break
        except OSError as error:
            assert sys.argv[4] == "alone" and error.errno == 9, error
            time.sleep(0.01)
    else:
        raise SystemExit("never writable")
    os.close(fd)
"""


def test_64_processes_of_which_half_run_without_us(job):
    """P03: one layout wins and all agree; every byte is there."""
    job.plan(*(place(exact(job.top / f"shared{i}"), [i % 4, (i + 1) % 4], size=65536) for i in range(8)))
    until = time.time() + 6
    ranks = [
        job.start(
            sys.executable,
            "-S",
            "-c",
            RACE,
            job.top,
            rank,
            until,
            "alone" if rank % 2 else "under",
            under=rank % 2 == 0,
        )
        for rank in range(64)
    ]
    said = [process.communicate(timeout=120)[1] for process in ranks]
    assert [p.returncode for p in ranks] == [0] * 64, "".join(said)
    for i in range(8):
        data = (job.top / f"shared{i}").read_bytes()
        assert data == b"".join(bytes([rank]) * 4096 for rank in range(64))
        assert osts(job.top / f"shared{i}") == (i % 4, (i + 1) % 4) or Seen(job.top / f"shared{i}").count == 1


# -- names and plans that are odd ----------------------------------------------------------------------------


def test_names_that_are_not_text_and_names_that_are_too_long(job):
    odd = b"\xff\xfe\n\x01 name"
    top = os.fsencode(job.top)
    deep = top + (b"/" + b"d" * 200) * 18
    job.plan(place(exact(os.fsdecode(top + b"/" + odd)), [2, 1]), spare=[0])
    job.python(
        f"""
import os
open({odd!r}, 'wb').write(b'x')
os.chdir({top!r})
for _ in range(18):
    os.mkdir(b'd' * 200); os.chdir(b'd' * 200)
os.close(os.open(b'deep', os.O_CREAT | os.O_WRONLY))
name = {deep!r} + b'/'
name += b'x' * (4095 - len(name))
try:
    os.open(name, os.O_CREAT | os.O_WRONLY)
except OSError as error:
    print(error.errno)
os.open({deep!r} + b'/there', os.O_CREAT | os.O_WRONLY)
"""
    )
    assert osts(top + b"/" + odd) == (2, 1)


def test_a_plan_of_another_version_or_file_system_is_no_plan(job, tmp_path):
    job.plan(place(exact(job.top / "f"), [2, 1]))
    good = bytearray(job.section)
    for at, value, why in ((0, 2, "another version"), (8, 9, "not known here")):
        bad = bytearray(good)
        struct.pack_into("<I", bad, at, value)
        assert why in _native.place_wrong(bytes(bad))
    job.plan(place(exact(job.top / "f"), [2, 1]), dev=12345)
    job.python(WRITE, "f", 10)
    assert Seen(job.top / "f").count == 1
    job.plan(place(exact(job.top / "g"), [2, 1]), mount="/somewhere/else")
    job.python(WRITE, "g", 10)
    assert job.counts() == {"linked": 1}
    with pytest.raises(VersionError):
        place_section.encode(replace(a_plan([]), version=2), place_section.Place("lustre", "/x"))


def test_a_board_without_room_for_the_plan(job):
    """What does not fit goes stock, or to spare targets, and is counted."""
    entries = [place(exact(job.top / f"f{i}"), [i % 4]) for i in range(1000)]
    section = place_section.encode(a_plan(entries, [0]), place_section.Place("lustre", str(job.top)), 8000)
    assert section.left_out and len(section.data) <= 8000
    assert _native.place_wrong(section.data) is None
    inside = [i for i in range(1000) if _native.place_find(section.data, os.fsencode(job.top / f"f{i}")) >= 0]
    assert inside == list(range(1000 - section.left_out))


# -- what it costs -------------------------------------------------------------------------------------------

MANY = """
import os, sys
flags = os.O_CREAT | os.O_WRONLY | (os.O_EXCL if sys.argv[3] == 'excl' else 0)
os.stat('.')
for i in range(int(sys.argv[2])):
    os.close(os.open(f"{sys.argv[1]}{i}", flags, 0o644))
"""


def counters(bed) -> dict[str, int]:
    """What the clients sent, once it no longer moves: a file's last request comes after close returned."""
    last: dict[str, int] = {}
    until = time.monotonic() + 20
    while time.monotonic() < until:
        rows = (line.split() for line in bed.ask("counters 0").splitlines())
        now = {name: int(count) for name, count in rows}
        if now == last:
            return now
        last = now
        time.sleep(0.05)
    raise AssertionError("the counters do not come to rest")


@pytest.mark.parametrize("way", ["plain", "excl"])
def test_a_placed_create_is_five_requests_against_two(make_testbed, way):
    """As on a real Lustre.  A folder that the plan's maker did not look at is one more, once a process."""
    bed = make_testbed(settings={"model": "count"})
    with a_job(bed) as job:
        entries = [place(match(job.top / name, DIGITS), [1, 2]) for name in ("placed", "there")]
        (job.top / "sub").mkdir()
        entries.append(place(match(job.top / "sub/placed", DIGITS), [1, 2]))
        job.plan(*entries, folders={os.fsencode(job.top): Default()})
        sent = []
        for name, under in (("stock", False), ("placed", True), ("sub/placed", True)):
            before = counters(bed)
            job.python(MANY, name, 20, way, under=under)
            after = counters(bed)
            sent.append({k: after[k] - before.get(k, 0) for k in after if after[k] != before.get(k, 0)})
        placed = {"enq:open": 40, "close": 40, "cancel": 20, "cb": 20}
        asked = sent[2].pop("enq:getattr", 0) + sent[2].pop("enq:layout", 0)
        assert sent == [{"enq:open": 20, "close": 20}, placed, placed]
        assert 1 <= asked <= 2  # the folder's name, and its default
