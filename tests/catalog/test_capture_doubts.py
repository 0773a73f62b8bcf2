# SPDX-License-Identifier: Apache-2.0
"""What a helper is not told, or told late, or two are told: the catalog is true, or an update makes it true."""

import os
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Catalog, _native
from penstock.base.errors import PenstockError
from penstock.catalog import capture, marks, serving, store, sums
from penstock.catalog.build import build
from penstock.catalog.capture import Follower
from penstock.catalog.events import DONE, FAILED, Event, Watch, What
from penstock.catalog.scanning import Scan, quiet
from penstock.catalog.update import add, merge, update
from tests.catalog.captured import PYTHON, Set, send, sets, wait_until
from tests.catalog.conftest import PENSTOCK, penstock

ENDED = (0, 0, 0, 0, 0, [])
"""The state of a ring on which nothing got lost."""


@pytest.fixture
def plain(fast: Path) -> Iterator[Set]:
    with sets() as make:
        yield make(fast / "set")


class Node:
    """A helper, and what the programs of its node tell it."""

    def __init__(self, it: Set) -> None:
        self.tree = it.tree
        self.helper = Follower(it.catalog, os.fsencode(it.tree))

    def tell(self, what: What, name: str, name2: str = "", flags: int = DONE, ino: int = 0) -> None:
        paths = [os.fsencode(self.tree / it) if it else b"" for it in (name, name2)]
        self.helper.round([Event(what, 0, 1, 1, 0, ino, *paths), Event(what, flags, 1, 1, 0, 0, b"", b"")])

    def mkdir(self, name: str) -> None:
        (self.tree / name).mkdir()
        self.tell(What.NAME, name)

    def write(self, name: str, text: str = "x") -> None:
        path = self.tree / name
        path.write_text(text)
        self.tell(What.OPEN, name)
        self.tell(What.CLOSE, name, ino=path.stat().st_ino)

    def rename(self, old: str, new: str) -> None:
        (self.tree / old).rename(self.tree / new)
        self.tell(What.RENAME, old, new)

    def flush(self) -> None:
        self.helper.flush()

    def end(self) -> None:
        self.helper.finish(ENDED)


# ---- two writers ----


@pytest.mark.parametrize("first", [0, 1])
def test_two_nodes_write_into_a_folder_that_one_of_them_made(plain: Set, first: int) -> None:
    plain.build()
    nodes = Node(plain), Node(plain)
    nodes[0].mkdir("out")
    nodes[0].write("out/a")
    nodes[1].write("out/b")
    nodes[first].flush()
    nodes[1 - first].flush()
    assert Catalog.open(plain.catalog).listdir("out") == ["a", "b"]
    nodes[0].end()
    nodes[1].end()
    plain.is_as_fresh()
    assert Catalog.open(plain.catalog).folder("out").complete


def test_what_another_node_adds_while_a_folder_is_being_written_down_is_kept(
    plain: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing of the folder that was made and its segment."""
    plain.build()
    one, two = Node(plain), Node(plain)
    one.mkdir("out")
    one.write("out/a")
    put = Follower._put

    def late(helper: Follower) -> store.Part:
        if helper is one.helper and not (plain.tree / "out" / "b").exists():
            two.write("out/b")
            two.flush()
        return put(helper)

    monkeypatch.setattr(Follower, "_put", late)
    one.flush()
    plain.is_as_fresh()
    one.end()
    two.end()


@pytest.mark.parametrize("first", [0, 1])
def test_two_nodes_write_one_file(plain: Set, first: int) -> None:
    """Who looked last may be who writes first."""
    plain.build()
    nodes = Node(plain), Node(plain)
    nodes[0].write("shared", "x")
    nodes[1].write("shared", "xx")
    nodes[first].flush()
    nodes[1 - first].flush()
    plain.is_as_fresh()


def test_a_folder_is_renamed_here_and_written_into_there(plain: Set) -> None:
    (plain.tree / "old" / "in").mkdir(parents=True)
    (plain.tree / "old" / "in" / "file").write_text("x")
    plain.build()
    one, two = Node(plain), Node(plain)
    two.write("old/in/more")
    one.rename("old", "new")
    two.flush()
    one.flush()
    plain.is_as_fresh()


def disorder(it: Set, nodes: list[Node], rng: random.Random, steps: int) -> None:
    """What programs of several nodes may do to one tree; a node's helper may be late."""

    def some(kind: Callable[[Path], bool]) -> str:
        found = sorted(
            str(p.relative_to(it.tree)) for p in it.tree.rglob("*") if "set.cat" not in p.parts and kind(p)
        )
        return rng.choice(found) if found else ""

    for step in range(steps):
        node, act = rng.choice(nodes), rng.random()
        folder = rng.choice(["", some(Path.is_dir)])
        new = f"{folder}/{rng.randrange(6)}".lstrip("/")
        if act < 0.3 and not (it.tree / new).is_dir():
            node.write(new, "x" * step)
        elif act < 0.5 and not (it.tree / new).exists():
            node.mkdir(new)
        elif act < 0.6 and (gone := some(Path.is_file)):
            (it.tree / gone).unlink()
            node.tell(What.GONE, gone)
        elif (
            act < 0.75
            and (old := some(Path.exists))
            and not (it.tree / new).exists()
            and not new.startswith(f"{old}/")
        ):
            node.rename(old, new)
        elif act < 0.9:
            node.flush()


@pytest.mark.parametrize("seed", range(8))
def test_several_nodes_in_disorder(plain: Set, seed: int) -> None:
    rng = random.Random(seed)
    if seed % 2:
        disorder(plain, [Node(plain)], rng, 20)
        plain.build()
    nodes = [Node(plain) for _ in range(2 + seed % 3 // 2)]
    disorder(plain, nodes, rng, 80)
    for node in nodes:
        node.end()
    plain.is_as_fresh()


# ---- others write while a build or an update goes on ----


@pytest.fixture
def meanwhile(plain: Set, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Sets what happens once, when a scan has read all, and its segments are not in the catalog yet."""

    def arrange(act: Callable[[], None]) -> None:
        left, run = [act], Scan.run

        def then(scan: Scan, *more: Any) -> Any:
            outcome = run(scan, *more)
            while left:
                left.pop()()
            return outcome

        monkeypatch.setattr(Scan, "run", then)

    return arrange


def again(it: Set, how: str) -> None:
    if how == "build":
        build(it.tree, it.catalog, store.Options(excludes=capture.EXCLUDES))
    else:
        update(it.catalog, full=how == "full")


@pytest.mark.parametrize("how", ["update", "full", "build"])
@pytest.mark.parametrize("merged", [False, True])
def test_what_a_run_writes_meanwhile_is_kept(
    plain: Set,
    meanwhile: Callable[[Callable[[], None]], None],
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    merged: bool,
) -> None:
    (plain.tree / "d").mkdir()
    (plain.tree / "d" / "a").write_text("x")
    plain.build()
    (plain.tree / "d" / "b").write_text("not told")
    node = Node(plain)

    if not merged:
        monkeypatch.setattr("penstock.catalog.update.should_merge", lambda entries: False)

    def run() -> None:
        node.write("d/a", "xx")
        node.write("d/z")
        node.end()
        if merged:
            merge(plain.catalog)

    meanwhile(run)
    again(plain, how)
    held = store.read(plain.catalog).manifest
    assert held is not None
    if merged:  # nobody can tell any more what is newer: the next update looks at everything
        assert held.doubts == (store.MERGED,)
        update(plain.catalog)
    plain.is_as_fresh()
    held = store.read(plain.catalog).manifest
    assert held is not None and not held.doubts


def test_checksums_do_not_bring_old_attributes_back(plain: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        (plain.tree / name).write_text(name)
    plain.build()
    node, read, left = Node(plain), sums.read, ["a"]

    def late(path: bytes, *more: Any) -> Any:
        found = read(path, *more)
        while left:
            left.pop()
            node.write("a", "other")
            node.end()
        return found

    monkeypatch.setattr(sums, "read", late)
    assert sums.add(plain.catalog, "xxh3", quiet) == 2
    plain.is_as_fresh()
    assert Catalog.open(plain.catalog).sums("b")


# ---- what nobody told ----


def test_a_folder_that_was_there_is_not_taken_for_made_because_its_answer_got_lost(plain: Set) -> None:
    (plain.tree / "old").mkdir()
    (plain.tree / "old" / "file").write_text("x")
    node = Node(plain)
    path = os.fsencode(plain.tree / "old")
    node.helper.round([Event(What.NAME, 0, 1, 1, 0, 0, path, b"")])
    node.end()
    assert Catalog.open(plain.catalog).listdir("old") == ["file"]


def test_only_a_mkdir_that_is_known_to_have_succeeded_made_its_folder() -> None:
    for last in (
        None,
        Event(What.OPEN, DONE, 1, 1, 0, 0, b"/t/f", b""),
        Event(What.NAME, 0, 1, 1, 0, 0, b"/t/e", b""),
    ):
        watch = Watch()
        watch.feed(Event(What.NAME, 0, 1, 1, 0, 0, b"/t/d", b""))
        if last:
            watch.feed(last)
        else:
            watch.finish()
        taken = watch.take()
        assert b"/t/d" not in watch.made
        assert b"/t/d" in watch.whole.said and b"/t/d" in taken.look
    watch = Watch()
    watch.feed(Event(What.NAME, 0, 1, 1, 0, 0, b"/t/d", b""))
    watch.feed(Event(What.NAME, DONE | FAILED, 1, 1, 0, 0, b"", b""))
    assert not watch.made and not watch.whole.said


@pytest.mark.parametrize("many", [False, True])
def test_what_somebody_else_puts_into_a_folder_that_the_run_made_is_seen(
    plain: Set, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    if many:
        monkeypatch.setattr(capture, "LOOKS_MAX", 0)
    plain.build()
    node = Node(plain)
    node.mkdir("out")
    node.write("out/told")
    (plain.tree / "out" / "not told").mkdir()
    (plain.tree / "out" / "not told" / "deep").write_text("x")
    node.end()
    cat = Catalog.open(plain.catalog)
    assert cat.folder("out").complete and cat.fresh("out")
    plain.is_as_fresh()


def test_a_temporary_file_that_was_closed_and_deleted_is_no_reason_to_look_at_others(plain: Set) -> None:
    for i in range(50):
        (plain.tree / f"file{i}").write_text("x")
        os.link(plain.tree / f"file{i}", plain.tree / f"same{i}")
    plain.build()
    node = Node(plain)
    node.write("temporary")
    (plain.tree / "temporary").unlink()
    node.tell(What.GONE, "temporary")
    os.link(plain.tree / "file1", plain.tree / "passing")
    node.tell(What.NAME, "file1", "passing")
    (plain.tree / "passing").unlink()
    (plain.tree / "file1").write_text("xx")  # through a descriptor of "passing"
    node.tell(What.GONE, "passing")
    node.tell(What.CLOSE, "passing", ino=(plain.tree / "file1").stat().st_ino)
    before = node.helper.looked
    node.end()
    assert node.helper.looked - before < 20
    plain.is_as_fresh()


def test_deleted_before_it_is_closed(plain: Set) -> None:
    """A file without a name is none that may have others; one that has another is looked at by that."""
    for i in range(50):
        (plain.tree / f"file{i}").write_text("x")
        os.link(plain.tree / f"file{i}", plain.tree / f"same{i}")
    plain.build()
    text = """
import os
for name in ("temporary", "file7"):
    f = os.open(name, os.O_CREAT | os.O_WRONLY)
    os.unlink(name)
    os.write(f, b"more")
    os.close(f)
"""
    assert plain.run(PYTHON, "-c", text) == 0
    plain.is_as_fresh()
    assert int(plain.log.rpartition(" names were looked at")[0].rpartition(" ")[2]) < 40, plain.log


# ---- descriptors, long names, links ----


def test_a_forked_child_changes_a_file_by_a_descriptor_that_it_did_not_open(plain: Set) -> None:
    """After the helper has looked at it, because the parent closed it."""
    text = """
import os, time
made = {f"by_{act}": os.open(f"by_{act}", os.O_CREAT | os.O_RDWR) for act in ("size", "mode", "time", "room")}
if os.fork() == 0:
    while not os.path.exists("../go"):
        time.sleep(0.01)
    os.ftruncate(made["by_size"], 77)
    os.fchmod(made["by_mode"], 0o604)
    os.utime(made["by_time"], (9, 9))
    os.posix_fallocate(made["by_room"], 0, 5000)
    os._exit(0)
for f in made.values():
    os.close(f)
while not os.path.exists("../go"):
    os.mkdir("tick")
    os.rmdir("tick")
    time.sleep(0.05)
os.wait()
"""
    plain.build()
    process = plain.start(PYTHON, "-c", text)
    wait_until(lambda: Catalog.open(plain.catalog).exists("by_size"))
    (plain.tree.parent / "go").write_text("")
    assert process.wait(timeout=120) == 0
    plain.is_as_fresh()


def test_a_file_that_was_opened_by_a_system_calls_number(plain: Set) -> None:
    (plain.tree / "there").write_text("x")
    plain.build()
    text = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
openat, write = (257, 1) if os.uname().machine == "x86_64" else (56, 64)
for name in (b"there", b"new"):
    f = libc.syscall(ctypes.c_long(openat), -100, name, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    libc.syscall(ctypes.c_long(write), f, b"more", ctypes.c_long(4))
"""
    assert plain.run(PYTHON, "-c", text) == 0
    assert (plain.tree / "there").read_text() == "xmore"
    plain.is_as_fresh()


def test_names_too_long_to_be_told(plain: Set) -> None:
    deep = "/".join(["x" * 250] * 4)
    (plain.tree / deep / "there").mkdir(parents=True)
    plain.build()
    text = f"""
import os
os.chdir("{deep}")
for i in range(3):
    open(f"file{{i}}", "w").write("x")
os.rename("file1", "other")
os.chmod("file2", 0o600)
os.mkdir("made")
"""
    assert plain.run(PYTHON, "-c", text) == 0
    plain.is_as_fresh()
    plain.shell(f"mkdir short; cd {deep}; mv there {plain.tree}/near; mv {plain.tree}/short far")
    plain.is_as_fresh()


def test_changes_through_links(plain: Set, fast: Path) -> None:
    real = plain.tree / "real"
    (real / "below").mkdir(parents=True)
    for name in ("gone", "kept", "chmod", "append", "touched"):
        (real / name).write_text("x")
    (plain.tree / "link").symlink_to("real")
    (plain.tree / "file").symlink_to("real/append")
    (fast / "outside").symlink_to(plain.tree)
    plain.build()
    plain.shell(f"""
        echo new > link/new; mkdir link/made; echo deep > link/made/deep; rm link/gone; mv link/kept link/renamed
        mv link/below link/moved; chmod 600 link/chmod; echo more >> file; ln -s nowhere link/dangling
        echo out > {fast}/outside/out; chmod 640 {fast}/outside/file; touch -d 2001-01-01 file
        mkdir {fast}/outside/link/far; chmod 600 {fast}/outside/link/touched
    """)
    plain.is_as_fresh()
    plain.shell("rm link; mkdir link; echo x > link/real")
    plain.is_as_fresh()


def test_a_root_that_is_named_by_a_link(plain: Set, fast: Path) -> None:
    (plain.tree / "d").mkdir()
    (plain.tree / "d" / "old").write_text("x")
    (fast / "by").symlink_to(fast / "set")
    root = fast / "by" / "tree"
    build(root, plain.catalog)
    plain.shell(f"echo more >> d/old; cd {root}; echo x > new; mkdir e; echo y > {plain.tree}/e/f; mv d moved",
                PENSTOCK_CATALOG_ROOT=str(root))  # fmt: skip
    plain.is_as_fresh()


# ---- a helper that is killed ----


def test_update_looks_at_everything_after_a_helper_was_killed(plain: Set) -> None:
    (plain.tree / "d").mkdir()
    (plain.tree / "d" / "file").write_text("x")
    plain.build()
    process = plain.start("bash", "-c", "read go < go; echo more >> d/file; mkdir later; echo x > later/file")
    os.mkfifo(plain.tree / "go")
    wait_until(lambda: bool(doubts(plain)))
    for pid in plain.helpers():
        send(pid, signal.SIGKILL)
    (plain.tree / "go").write_text("go\n")
    assert process.wait(timeout=120) == 0
    assert doubts(plain)
    with pytest.raises(PenstockError, match="last word"):
        serving.prepare(plain.catalog)
    assert "penstock catalog update" in plain.log
    said = penstock("update", plain.catalog).stderr
    assert "everything is looked at" in said
    plain.is_as_fresh()
    assert not doubts(plain)


def test_a_catalog_that_was_built_elsewhere_knows_its_root(plain: Set, fast: Path) -> None:
    plain.catalog = fast / "elsewhere.cat"
    plain.build()
    plain.shell("mkdir out; echo x > out/new")
    assert Catalog.open(plain.catalog).listdir("out") == ["new"]
    plain.is_as_fresh()


def run_verbosely(it: Set, *command: object) -> "subprocess.Popen[str]":
    words = [str(w) for w in (PENSTOCK, "run", "-v", "--catalog", it.catalog, "--", *command)]
    return subprocess.Popen(words, env=it.env, cwd=it.tree, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("harm", ["nowhere", "file", "newer", "foreign"])
def test_a_catalog_that_cannot_be_kept_is_an_error_before_the_program_starts(
    plain: Set, fast: Path, harm: str
) -> None:
    if harm == "nowhere":
        plain.catalog = fast / "no" / "such" / "set.cat"
    elif harm == "file":
        plain.catalog.write_text("")
    else:
        plain.build()
    if harm == "newer":
        (manifest,) = plain.catalog.glob("manifest-*")
        data = manifest.read_bytes()
        manifest.write_bytes(data[:8] + b"\x09\x00" + data[10:])
    elif harm == "foreign":
        plain.catalog.rename(fast / "set.cat")
        plain.catalog = fast / "set.cat"
        plain.tree.rename(fast / "old")
        plain.tree.mkdir()
    with run_verbosely(plain, "touch", "ran") as process:
        said = process.communicate(timeout=120)[1]
    assert process.returncode == (13 if harm == "newer" else 1), said
    assert str(plain.catalog.parent) in said
    assert not (plain.tree / "ran").exists()


def test_a_run_says_at_its_end_that_its_helper_was_killed(plain: Set) -> None:
    plain.build()
    os.mkfifo(plain.tree / "go")
    with run_verbosely(plain, "bash", "-c", "read go < go") as process:
        wait_until(lambda: bool(doubts(plain)))
        for pid in plain.helpers():
            send(pid, signal.SIGKILL)
        (plain.tree / "go").write_text("go\n")
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 0
    assert f"the catalog {plain.catalog} may lack what this run wrote" in said


def doubts(it: Set) -> tuple[str, ...]:
    held = store.read(it.catalog).manifest
    return held.doubts if held else ()


def test_a_mark_stands_until_the_last_word_and_update_leaves_those_alone_that_work(plain: Set) -> None:
    plain.build()
    node = Node(plain)
    mine = node.helper.mark
    assert doubts(plain) == (mine,) and marks.is_at_work(mine) and not marks.lost((mine,))
    update(plain.catalog)
    assert doubts(plain) == (mine,)
    store.commit(plain.catalog, lambda held: marks.unmarked(held or pytest.fail(), mine))
    node.write("file")
    node.flush()
    assert doubts(plain) == (mine,)
    node.end()
    assert not doubts(plain)
    elsewhere = "00000000-0000-0000-0000-000000000000 1 1 1"
    assert marks.lost((mine, elsewhere, store.MERGED)) == {elsewhere, store.MERGED}
    boot, pid, began, word = mine.split()
    assert not marks.is_at_work(f"{boot} {pid} {began}1 {word}")


def test_update_goes_into_a_folder_of_which_only_some_names_are_known(plain: Set) -> None:
    """As one that came from elsewhere, and that the helper could not read any more."""
    plain.build()
    held = store.read(plain.catalog).manifest
    (plain.tree / "new" / "in").mkdir(parents=True)
    for name in ("told", "not told", "in/file"):
        (plain.tree / "new" / name).write_text("x")
    batch = _native.batch_new()
    _native.batch_add(batch, b"new", _native.entry_at(os.fsencode(plain.tree / "new")), None, None, None)
    _native.batch_close(batch, b"", 0, 1)
    _native.batch_add(
        batch, b"told", _native.entry_at(os.fsencode(plain.tree / "new" / "told")), None, None, None
    )
    _native.batch_close(batch, b"new", 0, 1)
    assert held
    add(plain.catalog, held.parts, (store.put(plain.catalog, [batch]),))
    assert not Catalog.open(plain.catalog).exists("new/not told")
    update(plain.catalog)
    plain.is_as_fresh()
    assert Catalog.open(plain.catalog).folder("new").complete
