# SPDX-License-Identifier: Apache-2.0
"""Building and updating: trees that are hard, killed builds, other users' folders, trees that change meanwhile."""

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Catalog
from penstock.base.errors import PenstockError, VersionError
from penstock.catalog import store
from penstock.catalog.build import build, shares
from penstock.catalog.check import Difference, check
from penstock.catalog.scanning import Limits
from penstock.catalog.update import should_merge, update
from penstock.cli import main
from tests.catalog.conftest import PENSTOCK, as_nobody, facts, penstock, plant, same, walked


def as_fresh(catalog: Path, tree: Path) -> None:
    """The catalog is what a walk of the tree says, name by name; folders' sizes and link counts aside."""
    cat = Catalog.open(catalog)
    top, paths = os.fsencode(tree), walked(tree)
    for path in paths:
        assert same(cat.stat(path), top + b"/" + path), path
    seen: list[bytes] = []
    cat.view.find(
        "", b"", 0, 9999, [(27, 0, 0, 0, 0, None)], 1, lambda w, row, t, path, d: seen.append(path) or True
    )
    assert sorted(seen) == sorted(paths)


def deep(root: Path, names: int) -> None:
    """A path much longer than PATH_MAX, made step by step."""
    fd = os.open(root, os.O_RDONLY)
    for i in range(names):
        name = f"{i:03}" + "d" * 200
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def test_k14_torture_tree(fast: Path) -> None:
    """Paths beyond PATH_MAX, names of 255 bytes, sockets, devices, times before 1970, holes, a thousand folders."""
    tree = fast / "tree"
    tree.mkdir()
    deep(tree, 40)
    (tree / ("n" * 255)).write_text("x")
    (tree / "old").touch()
    os.utime(tree / "old", (-(10**9), -(10**9)))
    with (tree / "hole").open("wb") as out:
        out.truncate(1 << 40)
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(os.path.relpath(tree / "socket"))  # short names only
    (tree / "dangling").symlink_to("x" * 4000)
    for i in range(1000):
        (tree / "many" / f"f{i}" / "sub").mkdir(parents=True)
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):
            os.mknod(tree / "null", 0o20666, os.makedev(1, 3))
    built = build(tree, fast / "set.cat")
    assert not built.outcome.problems
    cat = Catalog.open(fast / "set.cat")
    bottom = "/".join(f"{i:03}" + "d" * 200 for i in range(40)) + "/bottom"
    assert len(bottom) > 8000
    assert cat.stat(bottom).st_size == 0
    assert cat.stat("old").st_mtime_ns == -(10**18)
    assert cat.stat("hole").st_blocks < 100
    assert cat.readlink("dangling") == "x" * 4000
    if (tree / "null").exists():
        assert cat.stat("null").st_rdev == os.makedev(1, 3)
    top = os.fsencode(tree)
    for path in (path for path in walked(tree / "many")[1:]):
        assert same(cat.stat(b"many/" + path), top + b"/many/" + path)


def test_k14_few_descriptors(fast: Path) -> None:
    """Folders that wait do not eat all descriptors."""
    tree = fast / "tree"
    for i in range(300):
        (tree / f"a{i}" / "b" / "c").mkdir(parents=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (80, hard))
    try:
        built = build(tree, fast / "set.cat", limits=Limits(threads=4))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (built.outcome.problems, built.outcome.entries) == ([], 900)
    as_fresh(fast / "set.cat", tree)


def test_folders_of_others_are_told_and_status_is_3(fast: Path) -> None:
    """As nobody: what cannot be read is counted and named, the rest is there."""
    tree = plant(fast / "tree")
    (tree / "a").chmod(0o700)
    (tree / "ab").chmod(0o444)  # names, and nothing about them
    (fast / "out").mkdir(mode=0o777)
    (fast / "out").chmod(0o777)

    def built() -> None:
        words = ["catalog", "build", str(tree), "-o", str(fast / "out/set.cat"), "--json"]
        with (fast / "out/said").open("w") as out, contextlib.redirect_stdout(out):
            assert main(words) == 3

    as_nobody(built)
    said = json.loads((fast / "out/said").read_text())
    problems = {row["path"]: row["errno"] for row in said["problems"]}
    assert problems["a"] == 13
    assert sum(path.startswith("ab/") for path in problems) == 40
    cat = Catalog.open(fast / "out/set.cat")
    assert cat.folder("a").unreadable
    assert not cat.folder("a").complete
    assert cat.folder("a b").complete
    assert cat.stat("ab/file1").error == 13
    assert "could not be listed" in penstock("ls", fast / "out/set.cat", "a", status=3).stderr


def test_k15_leaves_itself_and_what_is_excluded_out(tree: Path) -> None:
    penstock("build", tree, "-o", tree / "own.cat", "--exclude", "file1?", "--exclude", "/a/b/c")
    cat = Catalog.open(tree / "own.cat")
    names = cat.listdir("")
    assert "own.cat" not in names
    assert "file1" in names
    assert "file12" not in names
    assert not cat.exists("a/b/c")
    assert not cat.folder("").complete
    assert cat.folder("empty").complete


def test_k15_check_leaves_out_what_the_build_left_out(tree: Path) -> None:
    """Its own folder in the tree, and what was excluded, are no news; what is beside them is."""
    penstock("build", tree, "-o", tree / "a/own.cat", "--exclude", "file1?")
    assert penstock("check", tree / "a/own.cat", "--dry-run").stdout.startswith(f"{tree}/a/own.cat: 0 of ")
    (tree / "a/late").touch()
    said = penstock("check", tree / "a/own.cat").stdout.splitlines()
    assert sorted(said[:-1]) == ["a/late: is new", "a: ctime differs", "a: mtime differs"]
    cat = Catalog.open(tree / "a/own.cat")
    assert cat.exists("a/late")
    assert not cat.exists("a/file12")
    assert not cat.folder("a").complete
    assert not check(tree / "a/own.cat", mend=False).differences


def test_check_of_a_folders_own_attributes_keeps_what_is_below(tree: Path, fast: Path) -> None:
    build(tree, fast / "set.cat")
    (tree / "a").chmod(0o711)
    assert {it.what for it in check(fast / "set.cat").differences} == {"mode differs", "ctime differs"}
    as_fresh(fast / "set.cat", tree)


def test_k08_inode_used_again_is_another_file(tmp_path: Path) -> None:
    """Same name, inode, size and times of writing: only its birth tells, and checksums of the old one are not kept."""
    tree, catalog = plant(tmp_path / "tree"), tmp_path / "set.cat"
    file, was = tree / "a/file7", (tree / "a/file7").stat()
    build(tree, catalog)
    for _ in range(2000):
        file.unlink()
        file.write_bytes(b"y" * 700)
        if file.stat().st_ino == was.st_ino:
            break
    else:
        pytest.skip(f"no file system here gives an inode number twice: {tmp_path}")
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert Difference(b"a/file7", "is another file now") in check(catalog).differences
    as_fresh(catalog, tree)


def test_k15_access_times_stay(tree: Path, fast: Path) -> None:
    for folder in ("a", "ab"):
        os.utime(tree / folder, ns=(1, os.stat(tree / folder).st_mtime_ns))  # noqa: PTH116
    build(tree, fast / "set.cat")
    assert (tree / "a").stat().st_atime_ns == 1


@pytest.mark.parametrize("turn", range(3))
def test_killed_build_goes_on(fast: Path, turn: int) -> None:
    """kill -9 in the middle: the next one reads only what is missing, and all is there."""
    tree = fast / "tree"
    for i in range(60):
        (tree / f"d{i % 6}" / f"s{i}").mkdir(parents=True)
        for k in range(10):
            (tree / f"d{i % 6}" / f"s{i}" / f"f{k}").touch()
    command = [
        PENSTOCK,
        "catalog",
        "build",
        tree,
        "-o",
        fast / "set.cat",
        "-j",
        "2",
        "--rate",
        "400/s",
        "--checkpoint",
        "200ms",
    ]
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        end = time.monotonic() + 30
        while time.monotonic() < end and not _aside(fast / "set.cat", 1 + turn):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert "build was not finished" in penstock("ls", fast / "set.cat", status=1).stderr
    done = json.loads(penstock("build", tree, "-o", fast / "set.cat", "--json").stdout)
    assert done["resumed"]
    assert done["entries_read"] < 667
    as_fresh(fast / "set.cat", tree)
    held = store.read(fast / "set.cat").manifest
    assert held
    assert len(held.parts) == 1
    assert not held.building


def _aside(folder: Path, parts: int) -> bool:
    if not folder.is_dir():
        return False
    held = store.read(folder).manifest
    return held is not None and len(held.building) >= parts


def test_rate_is_kept(tree: Path, fast: Path) -> None:
    """In a time T no more than rate x T, what 10 ms of it allow at once, and a call of each thread; a slow machine only
    makes T longer."""
    began = time.monotonic()
    built = build(tree, fast / "set.cat", limits=Limits(threads=8, rate_per_s=1000))
    took_s = time.monotonic() - began
    assert 290 < built.outcome.calls <= 1000 * took_s + 1000 * 0.01 + 8


def test_tree_that_changes_under_the_scan(fast: Path) -> None:
    """Names come, go and are renamed while it is read: nothing breaks, and an update afterwards makes it true."""
    tree, stop = fast / "tree", threading.Event()
    for i in range(60):
        (tree / f"d{i}").mkdir(parents=True)
        for k in range(30):
            (tree / f"d{i}" / f"f{k}").touch()

    def churn() -> None:
        draw = random.Random(1)
        while not stop.is_set():
            i, k = draw.randrange(60), draw.randrange(30)
            with contextlib.suppress(OSError):
                os.rename(tree / f"d{i}" / f"f{k}", tree / f"d{i}" / f"g{k}")  # noqa: PTH104
            with contextlib.suppress(OSError):
                os.rename(tree / f"d{i}", tree / f"e{i}")  # noqa: PTH104
                os.rename(tree / f"e{i}", tree / f"d{i}")  # noqa: PTH104

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        moved = 0
        for turn in range(3):
            moved += len(
                build(tree, fast / f"set{turn}.cat", limits=Limits(threads=4, rate_per_s=20000)).outcome.moved
            )
    finally:
        stop.set()
        thread.join()
    assert moved > 0
    for turn in range(3):
        update(fast / f"set{turn}.cat")
        as_fresh(fast / f"set{turn}.cat", tree)


@pytest.mark.root
def test_one_file_system(tree: Path, fast: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    script = (
        f"mount -t tmpfs none {tree}/empty && mkdir {tree}/empty/in && "
        f"{PENSTOCK} catalog build {tree} -x -o {fast}/x.cat && {PENSTOCK} catalog build {tree} -o {fast}/all.cat"
    )
    subprocess.run(["unshare", "-m", "bash", "-c", script], check=True, capture_output=True, timeout=60)
    one, two = Catalog.open(fast / "x.cat"), Catalog.open(fast / "all.cat")
    assert one.folder("empty").left_out
    assert not one.exists("empty/in")
    assert two.exists("empty/in")


# Changing, and updating


def changes(tree: Path, draw: random.Random) -> None:
    """Some of everything that people do to trees."""
    paths = [path for path in walked(tree) if path]
    for _ in range(draw.randrange(1, 12)):
        path = tree / os.fsdecode(draw.choice(paths))
        beside = path.with_name(path.name + f".{draw.randrange(9)}")
        with contextlib.suppress(OSError):
            what = draw.randrange(8)
            if what == 0:
                path.unlink()
            elif what == 1:
                path.rename(beside)
            elif what == 2:
                beside.mkdir()
                (beside / "in").touch()
            elif what == 3:
                beside.touch()
            elif what == 4:
                path.chmod(0o700)
            elif what == 5:
                shutil.rmtree(path)
            elif what == 6:
                path.rename(tree / f"moved{draw.randrange(5)}")
            else:
                beside.hardlink_to(path)


NAME = st.binary(min_size=1, max_size=12).filter(
    lambda name: not set(name) & set(b"/\0") and name not in (b".", b"..")
)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(NAME, min_size=1, max_size=4), max_size=20), st.integers(0, 2**32))
def test_catalog_equals_a_walk(fast: Path, paths: list[list[bytes]], seed: int) -> None:
    """Of random trees with names of any bytes: after a build, and after changes and an update in full."""
    top = Path(tempfile.mkdtemp(dir=fast))
    tree = top / "tree"
    tree.mkdir()
    for path in paths:
        with contextlib.suppress(OSError):
            os.makedirs(os.fsencode(tree) + b"/" + b"/".join(path[:-1]), exist_ok=True)  # noqa: PTH103 - bytes
            os.close(os.open(os.fsencode(tree) + b"/" + b"/".join(path), os.O_CREAT | os.O_WRONLY))
    build(tree, top / "set.cat")
    as_fresh(top / "set.cat", tree)
    draw = random.Random(seed)
    for _ in range(3):
        if len(walked(tree)) > 1:
            changes(tree, draw)
        update(top / "set.cat", full=True)
        as_fresh(top / "set.cat", tree)


@pytest.mark.parametrize("seed", range(12))
def test_update_finds_names_that_changed(tree: Path, fast: Path, seed: int) -> None:
    """Names and inodes are those of a walk; attributes of files changed in place may be old, and a check mends them."""
    draw = random.Random(seed)
    build(tree, fast / "set.cat")
    for _ in range(3):
        changes(tree, draw)
        update(fast / "set.cat")
        cat = Catalog.open(fast / "set.cat")
        seen: dict[bytes, int] = {}
        cat.view.find(
            "", b"", 0, 9999, [(27, 0, 0, 0, 0, None)], 1,
            lambda w, row, t, path, d, seen=seen: seen.update({path: row[1].st_ino}) or True,
        )  # fmt: skip
        top = os.fsencode(tree)
        assert seen == {path: os.lstat(top + b"/" + path).st_ino for path in walked(tree)}
    check(fast / "set.cat")
    assert not check(fast / "set.cat").differences
    cat = Catalog.open(fast / "set.cat")
    for path in walked(tree):
        st_ = os.lstat(top + b"/" + path)
        if not os.path.isdir(top + b"/" + path):  # noqa: PTH112
            assert facts(cat.stat(path)) == facts(st_), path


def test_k16_change_within_a_clock_tick_is_found(fast: Path) -> None:
    """A name that changes right after the folder was read: its times may be the same, and yet it is asked for."""
    tree = fast / "tree"
    tree.mkdir()
    for turn in range(12):
        (tree / "one").write_text("x")
        update(fast / "set.cat") if turn else build(tree, fast / "set.cat")
        (tree / "one").unlink()
        (tree / f"two{turn}").touch()
        update(fast / "set.cat")
        as_fresh(fast / "set.cat", tree)


def test_update_asks_only_where_something_changed(fast: Path) -> None:
    tree = fast / "tree"
    for i in range(50):
        (tree / f"d{i}").mkdir(parents=True)
        for k in range(20):
            (tree / f"d{i}" / f"f{k}").touch()
    build(tree, fast / "set.cat")
    (tree / "d7" / "new").touch()
    done = update(fast / "set.cat", tick_ns=0)
    assert done.calls < 51 + 15
    assert done.folders == 1
    as_fresh(fast / "set.cat", tree)


def test_segments_are_merged_when_they_are_many() -> None:
    assert not should_merge((5, 5, 100))
    assert should_merge((30, 30, 100))
    assert should_merge((1,) * 9)
    assert not should_merge((100,))
    assert not should_merge(())


# Writers and readers at once; damage


def test_readers_see_a_whole_state_while_a_writer_writes(tree: Path, fast: Path) -> None:
    build(tree, fast / "set.cat")
    stop, wrong = threading.Event(), list[str]()

    def read() -> None:
        while not stop.is_set():
            cat = Catalog.open(fast / "set.cat")
            numbers = {int(name[1:]) for name in cat.listdir("empty")}
            if numbers != set(range(len(numbers))):
                wrong.append(str(numbers))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in readers:
        thread.start()
    try:
        for turn in range(25):
            (tree / "empty" / f"n{turn}").touch()
            update(fast / "set.cat")
    finally:
        stop.set()
        for thread in readers:
            thread.join()
    assert not wrong
    assert len(Catalog.open(fast / "set.cat").listdir("empty")) == 25


def test_k13_many_writers_lose_nothing(tree: Path, fast: Path) -> None:
    """Each commit is made of the one before it, whoever made that."""
    build(tree, fast / "set.cat")

    def add(writer: int) -> None:
        for turn in range(10):
            mark = store.Part(f"{writer}-{turn}", 0, 0, 0, 0, 0, 0)
            store.commit(fast / "set.cat", lambda held, mark=mark: _with(held, mark))  # type: ignore[misc]

    threads = [threading.Thread(target=add, args=(writer,)) for writer in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = store.read(fast / "set.cat").manifest
    assert held
    assert len({part.name for part in held.building}) == 60


def _with(held: store.Manifest | None, part: store.Part) -> store.Manifest:
    import msgspec

    assert held
    return msgspec.structs.replace(held, building=(part, *held.building))


def test_k10_no_space_leaves_the_old_catalog_whole(tree: Path, fast: Path) -> None:
    """A file may not grow beyond what fits: the build fails with a sentence, and what was there answers."""
    build(tree, fast / "set.cat")
    before = sorted(os.listdir(fast / "set.cat"))  # noqa: PTH208
    script = f"ulimit -f 4; trap '' XFSZ; exec {PENSTOCK} catalog build {tree} -o {fast}/set.cat"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "penstock catalog: " in done.stderr
    assert "Traceback" not in done.stderr
    as_fresh(fast / "set.cat", tree)
    assert [name for name in sorted(os.listdir(fast / "set.cat")) if name.endswith(".seg")] == [  # noqa: PTH208
        name for name in before if name.endswith(".seg")
    ]


def test_update_of_a_damaged_catalog_names_it_and_the_remedy(tree: Path, fast: Path) -> None:
    """Wherever three bytes are flipped: it does not say that all is well."""
    file = fast / "set.cat"
    build(tree, file)
    (segment,) = file.glob("*.seg")
    held = segment.read_bytes()
    for at in range(1100, len(held), len(held) // 8):
        segment.write_bytes(held[:at] + bytes(255 - it for it in held[at : at + 3]) + held[at + 3 :])
        said = penstock("update", file, status=3).stderr
        assert segment.name in said and f"update --full {file}" in said
    penstock("update", file, "--full")
    assert not Catalog.open(file).damaged_blocks()
    as_fresh(file, tree)


def test_damaged_catalogs_are_named_and_mended(tree: Path, fast: Path) -> None:
    file = fast / "set.cat"
    build(tree, file)
    (segment,) = file.glob("*.seg")
    whole = segment.read_bytes()
    middle = len(whole) // 3
    segment.write_bytes(
        whole[:middle] + bytes(byte ^ 255 for byte in whole[middle : middle + 2000]) + whole[middle + 2000 :]
    )
    done = penstock("find", file, "-type", "f", status=3)
    assert "damaged" in done.stderr
    assert 0 < len(done.stdout.splitlines()) < 284
    assert penstock("check", file).stdout.splitlines()[-1].endswith("mended")
    as_fresh(file, tree)
    (segment,) = file.glob("*.seg")
    os.truncate(segment, 5000)
    assert (
        "is damaged" in penstock("ls", file, status=3).stderr
        or "damaged and left out" in penstock("ls", file, status=3).stderr
    )
    penstock("update", file, "--full")
    as_fresh(file, tree)
    (manifest,) = file.glob("manifest-*")
    manifest.write_bytes(manifest.read_bytes()[:-3])
    assert "damaged" in penstock("ls", file, status=1).stderr


def test_newer_and_foreign_catalogs(tree: Path, fast: Path) -> None:
    file = fast / "set.cat"
    build(tree, file)
    (manifest,) = file.glob("manifest-*")
    data = manifest.read_bytes()
    manifest.write_bytes(data[:8] + (9).to_bytes(2, "little") + data[10:])
    with pytest.raises(VersionError, match="version 9"):
        Catalog.open(file)
    assert penstock("ls", file, status=13).stderr
    manifest.write_bytes(data)
    held = store.read(file).manifest
    assert held
    import msgspec

    other = msgspec.structs.replace(held.identity, fsid=12345, root_ino=held.identity.root_ino)
    store.commit(file, lambda now: msgspec.structs.replace(held, identity=other))
    assert "another file system" in penstock("update", file, status=1).stderr
    with pytest.raises(PenstockError, match="another file system"):
        Catalog.open(file, check=True)


def test_work_is_dealt_out() -> None:
    assert shares([b"a", b"b", b"c"], 2) == [[b"a", b"c"], [b"b"]]
    assert shares([b"a"], 4) == [[b"a"]]
    assert shares([], 4) == []
