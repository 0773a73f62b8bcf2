# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501, PTH116, PTH118, PTH202, PTH208
"""`penstock run --serve`: programs get from the catalog what they would get from the file system, or ask it."""

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.catalog import serving
from penstock.catalog.build import build
from penstock.report import served
from tests.catalog.conftest import PENSTOCK, penstock, plant

SAID = re.compile(
    r"(\d+) calls were answered from the catalog \(stat (\d+), .*missing (\d+)\) and (\d+) listings?, (\d+) below it"
)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A home for records and the log."""
    return {
        **os.environ,
        "PENSTOCK_STATE_DIR": str(tmp_path / "state"),
        "PENSTOCK_LOG": str(tmp_path / "log"),
    }


class Ran:
    def __init__(self, done: "subprocess.CompletedProcess[bytes]") -> None:
        self.out, self.err, self.status = done.stdout, done.stderr.decode(errors="replace"), done.returncode
        said = SAID.search(self.err)
        counts = map(int, said.groups()) if said else [0] * 5
        self.served, self.stats, self.missing, self.listings, self.passed = counts


def serve(
    env: dict[str, str], cat: Path, *words: object, options: tuple[str, ...] = (), **more: object
) -> Ran:
    command = [str(PENSTOCK), "run", "-v", *options, "--serve", str(cat), "--", *map(str, words)]
    return Ran(subprocess.run(command, env=env, capture_output=True, timeout=120, check=False, **more))  # type: ignore[call-overload]


def python(env: dict[str, str], cat: Path, text: str, *words: object, **more: object) -> Ran:
    """A program in Python; it prints JSON."""
    ran = serve(env, cat, sys.executable, "-S", "-c", "import os, sys, json\n" + text, *words, **more)  # type: ignore[arg-type]
    assert ran.status == 0, ran.err
    return ran


def settle(root: Path, seconds: float) -> None:
    """Until what changed last lies longer back than a clock's tick: no change could hide."""
    newest = max(os.lstat(folder).st_ctime for folder, *_ in os.walk(root))
    while time.time() < newest + seconds:
        time.sleep(0.01)


@pytest.fixture
def cat(tree: Path, fast: Path) -> Path:
    settle(tree, 0.05)
    build(tree, fast / "set.cat")
    return fast / "set.cat"


WALK = """
import hashlib
for top, folders, files in os.walk(sys.argv[1]):
    folders.sort()
    print(top, sorted(files), [tuple(os.lstat(os.path.join(top, it)))[:7] for it in sorted(folders + files)])
"""
FORMAT = r"%p %y %s %i %m %n %b %k %U %G %D %T@ %C@ %l\0"


def tools(root: Path, other: Path) -> Iterator[list[str]]:
    yield ["find", str(root), "-printf", FORMAT]
    yield ["find", str(root), "-size", "+1k", "-newermt", "2001-01-01", "-print0"]
    yield ["find", "-L", str(root), "-type", "f", "-print0"]
    yield ["ls", "-lRna", "--time-style=full-iso", str(root)]
    yield ["du", "-abl", str(root)]
    yield ["du", "-s", str(root)]
    yield ["rsync", "-an", "--out-format=%i %n%L %l", f"{root}/", f"{other}/"]
    yield ["rsync", "-anc", "--delete", "--out-format=%i %n", f"{root}/", f"{other}/"]
    yield [sys.executable, "-S", "-c", "import os, sys\n" + WALK, str(root)]
    yield [sys.executable, "-S", "-c", "import os, sys\n" + BY_DESCRIPTORS, str(root)]


BY_DESCRIPTORS = """
for top, folders, files, fd in os.fwalk(sys.argv[1]):
    folders.sort()
    again = sorted((it.name, it.inode(), it.is_dir(), it.stat(follow_symlinks=False).st_size) for it in os.scandir(fd))
    print(top, sorted(files), sorted(os.listdir(fd)) == sorted(os.listdir(top)), again)
"""


def in_order(words: list[str], out: bytes) -> list[bytes]:
    """find and du say it in the order in which a folder lists its names, which means nothing."""
    end = b"\0" if words[0] == "find" else b"\n"
    return sorted(out.split(end)) if words[0] in ("find", "du") else out.split(end)


def same(env: dict[str, str], cat: Path, words: list[str]) -> Ran:
    """A command says the same with and without."""
    bare = subprocess.run(words, capture_output=True, timeout=60, check=False)
    ran = serve(env, cat, *words)
    assert in_order(words, ran.out) == in_order(words, bare.stdout), words
    assert ran.status == bare.returncode
    return ran


def same_tools(env: dict[str, str], cat: Path, root: Path, other: Path) -> Iterator[tuple[list[str], Ran]]:
    """All of them, each with and without."""
    other.mkdir()
    for words in tools(root, other):
        ran = same(env, cat, words)
        assert ran.served > 10, (words, ran.err)
        yield words, ran


def test_s04_tools_say_the_same_with_and_without(
    env: dict[str, str], cat: Path, tree: Path, fast: Path
) -> None:
    for words, ran in same_tools(env, cat, tree, fast / "other"):
        assert ran.listings >= 8, (words, ran.err)


FIELDS = """
def ask(path, follow):
    try:
        st = os.stat(path, follow_symlinks=follow)
        return [getattr(st, it) for it in sorted(dir(st)) if it.startswith("st_") and "atime" not in it]
    except OSError as error:
        return error.errno
def link(path):
    try:
        return os.readlink(path)
    except OSError as error:
        return error.errno
found = []
for path in json.load(open(sys.argv[1])):
    found.append([path, ask(path, False), ask(path, True), link(path)]
        + [os.access(path, mode, effective_ids=e, follow_symlinks=f)
            for mode in range(8) for e in (False, True) for f in (False, True)])
print(json.dumps(found))
"""


def odd_paths(tree: Path) -> list[str]:
    """Every name, in ways that mean the same or something else; and names that are not there."""
    names = [os.path.relpath(os.path.join(top, it), tree) for top, a, b in os.walk(tree) for it in a + b]
    found = [
        str(tree),
        f"{tree}/",
        "/",
        f"{tree}/..",
        "",
        f"{tree}x",
        f"{tree}/" + "n" * 300,
        f"{tree}/.snapshot",
    ]
    for name in names:
        found += [f"{tree}/{name}{end}" for end in ("", "/", "/.", "/..", "/none", "none")]
        found += [
            f"{tree}//{name}",
            f"{tree}/./{name}",
            f"{tree}/../{tree.name}/{name}",
            f"{tree}/link/{name}",
        ]
    return found


def test_s06_every_way_of_asking_gives_the_same(
    env: dict[str, str], cat: Path, tree: Path, fast: Path
) -> None:
    """Field by field, errno by errno: trailing slashes, `..`, links in the middle, names that are not there."""
    (tree / "down").symlink_to("a")
    (tree / "loop").symlink_to("loop")
    settle(tree, 0.05)
    build(tree, fast / "two.cat")
    (fast / "paths").write_text(json.dumps(odd_paths(tree)))
    words = [sys.executable, "-S", "-c", "import os, sys, json\n" + FIELDS, str(fast / "paths")]
    bare = subprocess.run(words, capture_output=True, timeout=60, check=True)
    ran = serve(env, fast / "two.cat", *words)
    assert json.loads(ran.out) == json.loads(bare.stdout)
    assert ran.served > 1000
    assert ran.missing > 100


def test_s06_negative_answers_only_where_every_name_is_known(
    env: dict[str, str], tree: Path, fast: Path
) -> None:
    """A folder of which names were left out says nothing of what is missing."""
    from penstock.catalog.store import Options

    settle(tree, 0.05)
    build(tree, fast / "set.cat", options=Options(excludes=(b"file1*",)))
    ask = "print(json.dumps([os.path.exists(it) for it in sys.argv[1:]]))"
    ran = python(env, fast / "set.cat", ask, tree / "a/file10", tree / "a/none")
    assert json.loads(ran.out) == [True, False]
    assert ran.missing == 0


NOISE = "os.mkdir(t + '/site-packages'); os.symlink(p, t + '/site-packages/to'); "
# Where we stand then has a name of more than 1,024 bytes.
LONG = "os.chdir(t); [(os.mkdir('d' * 250), os.chdir('d' * 250)) for i in range(6)]; "
TRUNCATE = {"x86_64": "76", "aarch64": "45"}[platform.machine()]
# No rule that forbids anything: but nobody can know that.
SEAL = """os.chdir(os.path.dirname(p) + '/..'); import ctypes, struct; libc = ctypes.CDLL(None)
    ok = ctypes.create_string_buffer(struct.pack('<HBBI', 6, 0, 0, 0x7fff0000))
    rules = ctypes.create_string_buffer(struct.pack('<HxxxxxxQ', 1, ctypes.addressof(ok)))
    assert not libc.prctl(38, 1, 0, 0, 0) and not libc.prctl(22, 2, rules, 0, 0)
    """
CHANGES = {
    "write": "open(p, 'a').write('more')",
    "truncate": "os.truncate(p, 1)",
    "chmod": "os.chmod(p, 0o600)",
    "utime": "os.utime(p, (1, 1))",
    "unlink": "os.unlink(p)",
    "rename": "os.rename(p, p + 'x')",
    "replace": "open(p + 'y', 'w').write('new'); os.replace(p + 'y', p)",
    "link": "os.link(p, p + 'z')",
    "through a link": "os.symlink(os.path.dirname(p), t + '/alias'); open(t + '/alias/' + os.path.basename(p), 'a').write('m')",
    "link to the file": "os.symlink(p, t + '/to'); os.chmod(t + '/to', 0o640)",
    "unlink by alias": "os.symlink(os.path.dirname(p), t + '/alias'); os.unlink(t + '/alias/' + os.path.basename(p))",
    "descriptor": "f = os.open(p, os.O_RDONLY); os.fchmod(f, 0o604)",
    "folder above": "os.rename(os.path.dirname(p), os.path.dirname(p) + '2')",
    "folder's rights": "os.chmod(os.path.dirname(p), 0o700)",
    "rename by folders": "d = os.open(os.path.dirname(p), os.O_RDONLY); os.chdir(t); os.rename(t + '/../tree/a/file1', 'file7', dst_dir_fd=d)",
    "up from a link": "os.symlink(os.path.dirname(p) + '/c', t + '/deep'); os.unlink(t + '/deep/../file7')",
    "up from a link in the tree": "top = p[:-len('/a/b/file7')]; os.symlink(top + '/a/b/c', top + '/ab/x'); os.unlink(top + '/ab/x/../file7')",
    "by its descriptor's name": "f = os.open(p, os.O_RDONLY); open(f'/proc/self/fd/{f}', 'a').write('m')",
    "link by its descriptor's name": "f = os.open(p, os.O_RDONLY); os.link(f'/proc/self/fd/{f}', p + 'z', src_dir_fd=f)",
    "by a name that nobody records": NOISE + "open(t + '/site-packages/to', 'a').write('more')",
    "rights by such a name": NOISE + "os.fchmod(os.open(t + '/site-packages/to', os.O_RDONLY), 0o604)",
    "rights by its descriptor's name": "f = os.open(p, os.O_RDONLY); os.chmod(f'/proc/self/fd/{f}', 0o604)",
    "long name": LONG + "os.symlink(os.path.dirname(p), 'alias'); open('alias/file7', 'a').write('m')",
    "long name, unlink": LONG + "os.symlink(os.path.dirname(p), 'alias'); os.unlink('alias/file7')",
    "sealed": SEAL + "os.truncate('b/file7', 3)",
    "sealed, open": SEAL + "os.write(os.open('b/file7', os.O_WRONLY | os.O_APPEND), b'more')",
    "system call": "import ctypes; assert not ctypes.CDLL(None).syscall(TRUNCATE, os.fsencode(p), 3)",
}
SEEN = """
p, t = sys.argv[1], sys.argv[2]
def look():
    try:
        st = os.stat(p)
        return [st.st_size, st.st_mode, st.st_nlink, st.st_mtime_ns, st.st_ctime_ns]
    except OSError as error:
        return error.errno
ready, go = os.pipe(), os.pipe()
before = look()
child = os.fork()
if not child:
    os.read(go[0], 1)
    CHANGE
    os.write(ready[1], b"x")
    os._exit(0)
os.write(go[1], b"x")
os.close(ready[1])
assert os.read(ready[0], 1)
print(json.dumps([before, look(), os.path.exists(os.path.dirname(p))]))
os.waitpid(child, 0)
"""


@pytest.mark.parametrize("change", CHANGES, ids=[it.replace(" ", "-") for it in CHANGES])
def test_s01_a_change_by_another_process_is_seen_at_once(
    env: dict[str, str], cat: Path, tree: Path, fast: Path, change: str
) -> None:
    path, elsewhere = tree / "a/b/file7", fast / "elsewhere"
    elsewhere.mkdir()
    before = os.stat(path)
    ran = python(
        env, cat, SEEN.replace("CHANGE", CHANGES[change].replace("TRUNCATE", TRUNCATE)), path, elsewhere
    )
    first, then, _ = json.loads(ran.out)
    assert first == [before.st_size, before.st_mode, before.st_nlink, before.st_mtime_ns, before.st_ctime_ns]
    assert ran.stats >= 1
    try:
        now = os.stat(path)
        assert then == [now.st_size, now.st_mode, now.st_nlink, now.st_mtime_ns, now.st_ctime_ns]
    except OSError as error:
        assert then == error.errno
    assert change == "folder's rights" or then != first


@pytest.fixture(scope="session")
def nested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs") / "nested"
    source = Path(__file__).with_name("nested.c")
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", source, "-o", made], check=True)
    return made


@pytest.mark.parametrize("way", ["handler", "vfork", "number", "handler-cut", "vfork-cut"])
def test_s01_a_change_where_no_stage_looks_ends_the_answers(
    env: dict[str, str], cat: Path, tree: Path, fast: Path, nested: Path, way: str
) -> None:
    os.mkfifo(fast / "fifo")
    ran = serve(env, cat, nested, way, tree / "a/file7", fast / "fifo")
    assert ran.status == 0, ran.err
    before, after = map(int, ran.out.split())
    assert (before, ran.stats) == (700, 1)
    assert after == os.path.getsize(tree / "a/file7") != before


def test_s01_marks_that_fill_their_table_end_in_fewer_answers_never_in_wrong_ones(
    env: dict[str, str], cat: Path, tree: Path
) -> None:
    """More folders change than there are bits; the names need not even be there."""
    text = """
def look(): return [os.lstat(it).st_size for it in paths]
top = sys.argv[1]
paths = [f"{top}/{folder}/file{i}" for folder in ("a", "a/b", "a b", "ab", ".dot") for i in range(40)]
first = look()
open(paths[47], "a").write("more")
found = []
for i in range(30):
    for k in range(1000):
        try: os.chmod(f"{top}/none{i}-{k}", 0)
        except FileNotFoundError: pass
    found.append(look()[47])
print(json.dumps([first == look()[:47] + first[47:48] + look()[48:], look() == [os.stat(os.open(it, os.O_PATH)).st_size for it in paths], found]))
"""
    ran = python(env, cat, text, tree)
    same, true, found = json.loads(ran.out)
    assert same
    assert true
    assert found == [704] * 30
    assert 199 <= ran.stats < 33 * 199  # one has another name besides
    assert ran.passed > 200


VIEWS = {
    "setfsuid": "libc.setfsuid(61001)",
    "setfsgid": "libc.setfsgid(61001)",
    "chroot": "os.chroot('/')",
    "unshare": "libc.unshare(0x10000000) and sys.exit(9)",
    "unshare a mount namespace": "libc.unshare(0x20000) and sys.exit(9)",
    "by number": "libc.syscall(NUMBER, 0x20000) and sys.exit(9)",
}


@pytest.mark.root
@pytest.mark.parametrize("view", VIEWS, ids=[it.replace(" ", "-") for it in VIEWS])
def test_s03_another_view_is_not_answered(env: dict[str, str], cat: Path, tree: Path, view: str) -> None:
    """Nor what such a process starts, where that sees the same; others are, until it changes something."""
    text = """
import ctypes, subprocess
libc, p = ctypes.CDLL(None), sys.argv[1] + "/a/file"
os.lstat(p + "1")
child = os.fork()
if not child:
    VIEW
    os.lstat(p + "2"), os.lstat(p + "3")
    os.truncate(p + "4", 1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(json.dumps([os.lstat(p + "4").st_size, os.lstat(sys.argv[1] + "/a/b/file4").st_size]))
"""
    number = {"x86_64": "272", "aarch64": "97"}[platform.machine()]
    if view.startswith("setfs"):
        for folder in (tree, tree / "a"):
            folder.chmod(0o777)
        (tree / "a/file4").chmod(0o666)
        settle(tree, 0.05)
        build(tree, cat.with_name("open.cat"))
        cat = cat.with_name("open.cat")
    ran = python(env, cat, text.replace("VIEW", VIEWS[view].replace("NUMBER", number)), tree)
    assert json.loads(ran.out) == [1, 400]
    assert ran.stats == 1


@pytest.mark.root
def test_s03_a_program_in_another_namespace_is_not_answered(
    env: dict[str, str], cat: Path, tree: Path
) -> None:
    ran = serve(
        env,
        cat,
        "unshare",
        "--mount",
        "--propagation",
        "unchanged",
        "find",
        tree / "a/file4",
        "-printf",
        "%s",
    )
    assert (ran.out, ran.served) == (b"400", 0)
    ran = serve(env, cat, "find", tree / "a/file4", "-printf", "%s")
    assert ran.out == b"400"
    assert ran.stats > 0


@pytest.mark.root
def test_s01_a_change_where_the_tree_is_mounted_too_ends_the_answers(
    env: dict[str, str], cat: Path, tree: Path, fast: Path
) -> None:
    other = fast / "other"
    other.mkdir()
    subprocess.run(["mount", "--bind", tree / "a", other], check=True)
    try:
        text = """
look = lambda: [os.lstat(sys.argv[1] + it).st_size for it in ("/a/b/file4", "/a/b/file5")]
before = look()
open(sys.argv[2] + "/../outside", "w").write("no matter")
again = look()
open(sys.argv[2] + "/b/file4", "a").write("more")
print(json.dumps([before, again, look()]))
"""
        ran = python(env, cat, text, tree, other)
    finally:
        subprocess.run(["umount", other], check=True)
    assert json.loads(ran.out) == [[400, 500], [400, 500], [404, 500]]
    assert ran.stats == 4


def test_where_else_a_tree_can_be_seen() -> None:
    def mounts(*rows: str) -> list[bytes]:
        return [f"1 0 8:{row} rw - ext4 /dev/sda rw".encode() for row in rows]

    def seen(*rows: str, root: str = "/pfs/set") -> list[bytes]:
        return serving.aliases(mounts(*rows), root.encode(), os.makedev(8, 1))

    assert seen("1 / /pfs") == []
    assert seen("1 / /", "1 / /pfs") == [b"/set"]
    assert seen("1 / /pfs", "2 / /other", "1 /set /here") == [b"/here"]
    assert seen("1 / /pfs", "1 /set/a /part", "1 /sets /no", "1 /out /no2") == [b"/part"]
    assert seen("1 /scratch /pfs", r"1 / /a\040b") == [b"/a b/scratch/set"]
    assert seen("1 / /pfs", "1 /set/a /pfs/set/twice") == []
    assert seen("2 / /pfs") == []


@pytest.mark.root
def test_a_mount_ends_the_answers(env: dict[str, str], cat: Path, tree: Path) -> None:
    """What lies below it is another file then."""
    text = """
import subprocess
p = sys.argv[1] + "/a"
assert os.path.exists(p + "/file1")
subprocess.run(["mount", "-t", "tmpfs", "none", p], check=True)
there = os.path.exists(p + "/file1")
subprocess.run(["umount", p], check=True)
print(json.dumps([there, os.path.exists(p + "/file1")]))
"""
    ran = python(env, cat, text, tree)
    assert json.loads(ran.out) == [False, True]
    assert ran.stats == 1


def test_s01_only_the_folder_that_changed_is_given_up(env: dict[str, str], cat: Path, tree: Path) -> None:
    ran = python(
        env, cat, "open(sys.argv[1] + '/a/new', 'w')\n"
        "for i in range(100): os.stat(sys.argv[1] + '/a/b/file1'); os.stat(sys.argv[1] + '/a/file1')",
        tree,
    )  # fmt: skip
    assert ran.stats == 100
    assert ran.passed >= 100


@pytest.mark.parametrize("seed", range(6))
def test_s01_whatever_a_job_does_to_a_served_tree_it_sees_what_is_there(
    env: dict[str, str], cat: Path, tree: Path, fast: Path, seed: int
) -> None:
    """The same changes and questions, by three processes, on a tree that is not served, give the same answers."""
    words = [sys.executable, "-S", str(Path(__file__).with_name("turns.py"))]
    bare_words = [*words, str(plant(fast / "copy")), str(seed), "400"]
    bare = subprocess.run(bare_words, capture_output=True, timeout=60, check=True)
    ran = serve(env, cat, *words, tree, seed, 400)
    assert ran.status == 0, ran.err
    said, expected = ran.out.splitlines(), bare.stdout.splitlines()
    assert [pair for pair in zip(said, expected, strict=True) if pair[0] != pair[1]] == []
    assert ran.served > 0


def test_s01_what_the_program_inherits_for_writing_is_not_answered(
    env: dict[str, str], cat: Path, tree: Path
) -> None:
    """Where its output goes grows without a call that is seen."""
    with (tree / "a/file5").open("ab") as out:
        command = [str(PENSTOCK), "run", "--serve", str(cat), "--", sys.executable, "-S", "-c",
                   "import os, sys; os.write(1, b'x' * 100); sys.stderr.write(str(os.stat(sys.argv[1]).st_size))",
                   str(tree / "a/file5")]  # fmt: skip
        done = subprocess.run(command, env=env, stdout=out, stderr=subprocess.PIPE, timeout=60, check=True)
    assert done.stderr.decode().endswith(str(500 + 100))


def test_s02_removing_a_tree_leaves_nothing(env: dict[str, str], cat: Path, tree: Path) -> None:
    """Listings are the file system's own, and what rm asks about is gone when it says so."""
    ran = serve(env, cat, "rm", "-r", tree / "a")
    assert (ran.status, ran.out) == (0, b"")
    assert not (tree / "a").exists()


@pytest.fixture(scope="session")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs") / "listing_ways"
    source = Path(__file__).with_name("listing_ways.c")
    flags = ["-O1", "-Wall", "-Werror", "-Wno-deprecated-declarations", "-pthread"]
    subprocess.run(["gcc", *flags, source, "-o", made], check=True)
    return made


@pytest.mark.parametrize("folder", ["a", "empty", "."])
def test_s05_every_way_of_listing_gives_the_same(
    env: dict[str, str], cat: Path, tree: Path, fast: Path, ways: Path, folder: str
) -> None:
    """readdir and its family, on DIRs that libc opened; libc's own walks; what reads beside them."""
    (fast / "to").symlink_to(tree / folder)
    words = [str(ways), str(tree / folder), str(fast / "to")]
    bare = subprocess.run(words, capture_output=True, timeout=60, check=True)
    settle(tree, 0.05)
    build(tree, fast / "two.cat")
    ran = serve(env, fast / "two.cat", *words)
    assert ran.out.decode(errors="replace").splitlines() == bare.stdout.decode(errors="replace").splitlines()
    assert ran.listings > 100


def test_s02_a_folder_that_others_changed_is_listed_by_the_file_system(
    env: dict[str, str], cat: Path, tree: Path
) -> None:
    """Also one that changed after the run began, by somebody of whom nothing is seen."""
    text = """
def names(): return sorted(os.listdir(sys.argv[1]))
found = [len(names())]
print(json.dumps(found), flush=True)
sys.stdin.readline()
print(json.dumps(names()))
"""
    command = [str(PENSTOCK), "run", "-v", "--serve", str(cat), "--", sys.executable, "-S", "-c",
               "import os, sys, json\n" + text, str(tree / "a")]  # fmt: skip
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=env, text=True, **pipes) as run:  # type: ignore[call-overload]
        assert json.loads(run.stdout.readline()) == [len(os.listdir(tree / "a"))]
        (tree / "a/late").write_text("late")
        out, err = run.communicate("\n", timeout=60)
    assert json.loads(out) == sorted(os.listdir(tree / "a"))
    assert " and 1 listings, " in err


def test_s02_a_listing_that_began_ends_whatever_is_removed_meanwhile(
    env: dict[str, str], cat: Path, tree: Path
) -> None:
    text = """
before, seen = set(os.listdir(sys.argv[1])), []
for entry in os.scandir(sys.argv[1]):
    seen.append(entry.name)
    if entry.is_file(): os.unlink(entry.path)
print(json.dumps([len(seen), len(set(seen)), set(seen) == before, sorted(os.listdir(sys.argv[1]))]))
"""
    ran = python(env, cat, text, tree / "a")
    count, different, same, left = json.loads(ran.out)
    assert (count, different, same, left) == (43, 43, True, ["b"])
    assert ran.listings == 2


def test_listings_that_the_file_system_gives_otherwise_are_its_own(
    env: dict[str, str], cat: Path, tree: Path
) -> None:
    top = os.lstat(tree)
    names = [(b".", top.st_ino, 4), (b"..", 1, 4), (b"a", 7, 8)]
    expected = {name: (inode, kind) for name, inode, kind in names}
    assert serving.is_listed(names, expected)
    assert serving.is_listed([(name, inode, 0) for name, inode, _ in names], expected)
    assert not serving.is_listed(names[:2], expected)
    assert not serving.is_listed([*names, (b"b", 8, 8)], expected)
    assert not serving.is_listed([*names[:2], (b"a", 8, 8)], expected)
    assert not serving.is_listed([*names[:2], (b"a", 7, 10)], expected)


@pytest.mark.parametrize("harm", ["inode", "refused"])
def test_a_tree_that_lists_otherwise_is_served_without_listings(
    cat: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """Some network file systems give a listing inodes of its own."""
    plain = serving._names

    def names(folder: bytes) -> list[tuple[bytes, int, int]]:
        return [] if harm == "refused" else [(n, i + 1, k) for n, i, k in plain(folder)]

    def flags() -> int:
        made = serving.prepare(cat)
        _, image, segment, *_ = serving._SECTION.unpack(made.section)
        flags = serving._IMAGE.unpack(os.pread(image, serving._IMAGE.size, 0))[2]
        os.close(image)
        os.close(segment)
        return int(flags)

    assert flags() & serving._LISTINGS
    monkeypatch.setattr(serving, "_names", names)
    assert not flags() & serving._LISTINGS


def test_listings_of_a_catalog_of_several_parts(env: dict[str, str], cat: Path, tree: Path) -> None:
    """Names that went and came since the first."""
    (tree / "a/file9").unlink()
    (tree / "a/b/c").rename(tree / "a/moved")
    (tree / "ab/new").write_text("new")
    (tree / "empty").rmdir()
    settle(tree, 0.05)
    penstock("update", cat)
    text = "print(json.dumps(sorted((a, sorted(b), sorted(c)) for a, b, c in os.walk(sys.argv[1]))))"
    ran = python(env, cat, text, tree)
    walked = sorted((a, sorted(b), sorted(c)) for a, b, c in os.walk(tree))
    assert json.loads(ran.out) == json.loads(json.dumps(walked))
    assert ran.listings == 7


def test_mount_points_are_listed_by_the_file_system() -> None:
    known = serving.Known(b"a", None, 1, 0)
    assert serving.flags_of(known, frozenset(), frozenset()) == 3
    assert serving.flags_of(known, frozenset(), frozenset({b"a"})) == 1
    assert serving.flags_of(known, frozenset({b"a"}), frozenset()) == 0


def test_folders_that_changed_since_are_not_answered(env: dict[str, str], cat: Path, tree: Path) -> None:
    (tree / "a/late").write_text("late")
    ran = python(
        env,
        cat,
        "print(json.dumps([os.path.getsize(sys.argv[1] + it) for it in ('/a/late', '/a b/file3')]))",
        tree,
    )
    assert json.loads(ran.out) == [4, 300]
    assert ran.stats == 1
    assert "of 8 folders" in ran.err


def test_answers_older_than_max_age_are_not_given(env: dict[str, str], cat: Path, tree: Path) -> None:
    settle(tree, 2.5)
    ran = python(env, cat, "os.stat(sys.argv[1])", tree / "a/file1", options=("--set", "catalog.max_age=1s"))
    assert ran.served == 0
    assert ran.passed >= 1


@pytest.mark.parametrize("harm", ["damage", "ruin", "shorten", "none", "foreign", "newer"])
def test_a_catalog_that_cannot_be_used_serves_nothing(
    env: dict[str, str], cat: Path, tree: Path, fast: Path, harm: str
) -> None:
    """The program runs as ever; one line in the log says why."""
    segment, manifest = next(cat.glob("*.seg")), next(cat.glob("manifest-*"))
    held = segment.read_bytes()
    if harm == "damage":
        segment.write_bytes(held[: len(held) // 2] + b"\xa5" * 64 + held[len(held) // 2 + 64 :])
    elif harm == "ruin":
        segment.write_bytes(held[:1024] + bytes(1024) + held[2048:])  # the root's own row
    elif harm == "shorten":
        segment.write_bytes(held[:3000])
    elif harm == "none":
        cat = fast / "no.cat"
    elif harm == "foreign":
        tree.rename(fast / "old")
        plant(tree)
    else:
        data = manifest.read_bytes()
        manifest.write_bytes(data[:8] + b"\x09\x00" + data[10:])
    ran = python(env, cat, "print(os.path.getsize(sys.argv[1]))", tree / "a/file3")
    assert (ran.out, ran.served) == (b"300\n", 0)
    log = Path(env["PENSTOCK_LOG"]).read_text().splitlines()
    assert len(log) == 1
    assert "nothing is answered from the catalog" in log[0]


def test_a_program_without_the_holder_runs_as_ever(env: dict[str, str], cat: Path, tree: Path) -> None:
    """penstock-run is killed, and with it goes what new programs would open."""
    text = """
import signal, subprocess, time
os.kill(os.getppid(), signal.SIGKILL)
while os.getppid() == int(sys.argv[2]): time.sleep(0.01)
print(os.path.getsize(sys.argv[1]), subprocess.run(["stat", "-c", "%s", sys.argv[1]], capture_output=True).stdout, flush=True)
"""
    command = [str(PENSTOCK), "run", "--serve", str(cat), "--", sys.executable, "-S", "-c", "import os, sys\n" + text,
               str(tree / "a/file3"), "0"]  # fmt: skip
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as run:
        assert run.stdout
        assert run.stdout.readline() == b"300 b'300\\n'\n"
        run.wait(timeout=30)


def test_bad_addresses_are_the_kernels_to_refuse(env: dict[str, str], cat: Path, tree: Path) -> None:
    text = """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
p = os.fsencode(sys.argv[1])
room = mmap.mmap(-1, 4096, prot=mmap.PROT_READ)
found = []
for at in (8, -1):
    for call in (lambda: libc.lstat(p, ctypes.c_void_p(at)), lambda: libc.readlink(p + b"/../../link", ctypes.c_void_p(at), 99)):
        found.append([call(), ctypes.get_errno()])
print(json.dumps(found))
"""
    ran = python(env, cat, text, tree / "a/file3")
    assert json.loads(ran.out)[0] == [-1, 14]


# ---- other users ----


@pytest.mark.root
def test_s03_another_user_learns_no_more_than_he_may_search(
    env: dict[str, str], tree: Path, fast: Path
) -> None:
    """The catalog is root's; who gave up root's rights asks the file system wherever the mode does not let him pass."""
    (tree / "a/b").chmod(0o750)
    os.chown(tree / "a/b", 0, 61009)
    settle(tree, 0.05)
    build(tree, fast / "set.cat")
    text = """
def ask(path):
    try: return os.lstat(path).st_size
    except OSError as error: return error.errno
found = []
for uid, groups in ((61001, []), (61001, [61009])):
    told = os.pipe()
    if not os.fork():
        os.setgroups(groups); os.setgid(uid); os.setuid(uid)
        os.write(told[1], json.dumps([ask(sys.argv[1] + it) for it in ("/a/file4", "/a/b/file4", "/a/b/none")]).encode())
        os._exit(0)
    os.wait()
    found.append(json.loads(os.read(told[0], 999)))
print(json.dumps(found))
"""
    ran = python(env, fast / "set.cat", text, tree)
    assert json.loads(ran.out) == [[400, 13, 13], [400, 400, 2]]
    assert (ran.stats, ran.missing) == (3, 1)


@pytest.mark.root
def test_s03_rights_beyond_the_mode_are_the_file_systems(env: dict[str, str], tree: Path, fast: Path) -> None:
    """A list of rights that shuts one user out, while the mode lets all pass."""
    acl = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little") + rights.to_bytes(2, "little") + who.to_bytes(4, "little")
        for tag, rights, who in ((1, 7, 0xFFFFFFFF), (2, 0, 61001), (4, 5, 0xFFFFFFFF), (16, 7, 0xFFFFFFFF), (32, 5, 0xFFFFFFFF))
    )  # fmt: skip
    os.setxattr(tree / "a/b", "system.posix_acl_access", acl)
    settle(tree, 0.05)
    build(tree, fast / "set.cat")
    text = """
os.setgroups([]); os.setgid(61001); os.setuid(61001)
try: print(os.lstat(sys.argv[1]).st_size)
except OSError as error: print(error.errno)
"""
    assert python(env, fast / "set.cat", text, tree / "a/b/file3").out == b"13\n"


# ---- the emulated file system ----


@pytest.mark.root
def test_served_calls_never_reach_the_emulated_servers(
    env: dict[str, str], make_testbed: Callable[..., object], fast: Path
) -> None:
    bed = make_testbed(oss=2, osts=4, settings={"model": "count"})
    for i in range(10):
        (bed.path / f"d{i}").mkdir()  # type: ignore[attr-defined]
        for k in range(20):
            (bed.path / f"d{i}/f{k}").write_bytes(b"x" * k)  # type: ignore[attr-defined]
    root: Path = bed.path  # type: ignore[attr-defined]
    settle(root, 2.1)
    build(root, fast / "set.cat")
    text = """
import os, sys
for i in range(10):
    for k in range(20):
        path = f"{sys.argv[1]}/d{i}/f{k}"
        assert os.lstat(path).st_size == k
        assert not os.path.exists(path + "none")
        assert len(os.getxattr(path, "lustre.lov")) > 30
"""

    (fast / "none").mkdir()
    no_catalog = fast / "none.cat"
    build(fast / "none", no_catalog)

    def requests(*words: object, catalog: Path = fast / "set.cat") -> dict[str, int]:
        bed.ask("flush")  # type: ignore[attr-defined]
        bed.counters()  # type: ignore[attr-defined]
        bed.ask("drop")  # type: ignore[attr-defined]
        with bed.counted(0) as got:  # type: ignore[attr-defined]
            ran = serve(env, catalog, *words)
            assert ran.status == 0, ran.err
        said.append(ran)
        return dict(got)

    said: list[Ran] = []
    nothing = requests("true")
    asked = requests(sys.executable, "-S", "-c", text, root)
    assert said[-1].served == 600
    assert said[-1].passed == 0
    more = {name: count - nothing.get(name, 0) for name, count in asked.items()}
    assert sum(max(it, 0) for it in more.values()) <= 3, more
    walk = [
        sys.executable,
        "-S",
        "-c",
        "import os, sys; print(sum(len(c) for a, b, c in os.walk(sys.argv[1])))",
    ]
    asked = requests(*walk, root)
    assert (said[-1].out, said[-1].listings) == (b"200\n", 11)
    # What the run's begin lists to see whether inodes are the same, and no more.
    assert asked["readpage"] == nothing["readpage"] <= 9, (asked, nothing)
    assert asked["enq:readdir"] == nothing["enq:readdir"]
    without = requests(*walk, root, catalog=no_catalog)
    assert without["readpage"] >= 11
    for words, ran in same_tools(env, fast / "set.cat", root, fast / "other"):
        assert ran.listings >= 11, words


# ---- what is said of it ----


def test_the_record_says_what_was_served(env: dict[str, str], cat: Path, tree: Path) -> None:
    text = """
for i in range(3): os.lstat(sys.argv[1] + "/a/file1")
os.path.exists(sys.argv[1] + "/a/none"), os.stat(sys.argv[1] + "/hard"), os.access(sys.argv[1] + "/a", os.R_OK)
"""
    ran = python(env, cat, text, tree)
    assert (ran.stats, ran.missing, ran.passed) == (3, 1, 1)

    def report(*words: str) -> str:
        done = subprocess.run(
            [PENSTOCK, "report", *words], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert json.loads(report("--json"))["served"] == {"stat": 3, "access": 1, "missing": 1, "passed": 1}
    assert (
        "served    5 calls answered from the catalog: 3 stat, 1 access, 1 of names that are not there\n"
        "          1 more below its root went to the file system\n"
    ) in report()
    report("--html", str(cat.with_name("page.html")))
    assert "from a catalog" in cat.with_name("page.html").read_text()


def test_the_record_says_when_answers_ended(env: dict[str, str], cat: Path, tree: Path, nested: Path) -> None:
    ran = serve(env, cat, nested, "number", tree / "a/file7", "-")
    assert "; answers ended with a change" in ran.err
    done = subprocess.run([PENSTOCK, "report"], env=env, capture_output=True, text=True, check=True)
    assert "answers ended with a change of which nobody could tell where it was\n" in done.stdout


def test_what_was_served_in_words() -> None:
    assert served.lines({}) == []
    assert served.lines({"stat": 1, "listings": 1200, "marks": 7}) == [
        "1 call answered from the catalog: 1 stat",
        "1,200 folders listed from it",
    ]
    assert served.lines({"passed": 3}) == [
        "0 calls answered from the catalog",
        "3 more below its root went to the file system",
    ]


# ---- deciding ----


def test_a_folder_that_changed_within_a_tick_of_being_learnt_is_not_fresh(tree: Path) -> None:
    now = os.lstat(tree)
    known = serving.Known(b"", now, 1, now.st_ctime_ns + 100)
    assert serving.is_fresh(known, now, now.st_dev, 99)
    assert not serving.is_fresh(known, now, now.st_dev, 100)
    assert not serving.is_fresh(known, now, now.st_dev + 1, 0)


def test_folders_above_that_shut_somebody_out_are_kept() -> None:
    pad = (0o777, 0, 0)
    assert serving.above_of([(0o755, 1, 1), (0o700, 2, 3), (0o711, 4, 4)]) == [(0o700, 2, 3), *[pad] * 11]
    assert serving.above_of([]) == [pad] * 12
    assert serving.above_of([(0o700, 2, 3)] * 13) is None


@pytest.mark.root
def test_s03_folders_above_let_pass_by_their_mode_or_are_asked(
    env: dict[str, str], tree: Path, fast: Path
) -> None:
    """fast is 0700 and root's: root is answered without asking; another one learns nothing."""
    fast.chmod(0o700)
    settle(tree, 0.05)
    build(tree, fast / "set.cat")
    text = """
def ask(name):
    try: return os.lstat(sys.argv[1] + name).st_size
    except OSError as error: return error.errno
found = [ask("/a/file4"), ask("/a/none")]
os.setgroups([]); os.setgid(61001); os.setuid(61001)
print(json.dumps(found + [ask("/a/file4"), ask("/a/none")]))
"""
    ran = python(env, fast / "set.cat", text, tree)
    assert json.loads(ran.out) == [400, 2, 13, 13]
    assert (ran.stats, ran.missing, ran.passed) == (1, 1, 2)


def test_sizes_that_differ_are_not_known() -> None:
    assert [serving.one_size(it) for it in ((), (4096,), (4096, 4096), (4096, 512))] == [0, 4096, 4096, 0]
