# SPDX-License-Identifier: Apache-2.0
"""Segments of a catalog: looking up, damage, little memory; by the extension's own functions."""

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock import _native

BLOCK = 1024
WHOLE, PAGED = 1 << 40, 0


def elsewhere(path: object, root: bytes) -> bytes:
    raise LookupError(path)


def scanned(root: Path, **options: Any) -> list[Any]:
    """The batches of a scan of a tree."""
    scan = _native.scan_open(os.fsencode(root), 2, 16, False, False, 0.0, None, [], 0, 0)
    _native.scan_push(scan, b"")
    while not _native.scan_wait(scan, 100):
        pass
    return _native.scan_take(scan)


def written(file: Path, batches: list[Any]) -> dict[str, int]:
    with file.open("w+b") as out:
        return _native.segment_write(out.fileno(), batches, 7, 11)


def opened(file: Path, root: Path, resident: int = WHOLE) -> Any:
    with file.open("rb") as held:
        return _native.View((_native.segment_open(held.fileno(), resident),), os.fsencode(root), elsewhere)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Folders in folders, names with any bytes."""
    root = tmp_path / "tree"
    for folder in ("", "a", "a/b", "a b", "ab", "a/b/c"):
        (root / folder).mkdir(parents=True)
        for i in range(40):
            (root / folder / f"file{i}").write_bytes(b"x" * i)
    (root / "a" / "new\nline").write_text("")
    (Path(os.fsdecode(os.fsencode(root) + b"/a/\xff\xfe#?"))).write_text("bytes")
    (root / "link").symlink_to("a/b/c/file1")
    os.link(root / "a/file3", root / "hard")
    return root


def walked(root: Path) -> list[bytes]:
    """Every path below a root, relative to it."""
    found, top = [b""], os.fsencode(root)
    for folder, folders, files in os.walk(top):
        found += [(folder + b"/" + name)[len(top) + 1 :] for name in folders + files]
    return found


def same(entry: Any, path: bytes) -> bool:
    """Is an entry what lstat says?"""
    said = os.lstat(path)
    names = ("mode", "ino", "nlink", "uid", "gid", "size", "blocks", "mtime_ns", "ctime_ns")
    return all(getattr(entry, f"st_{name}") == getattr(said, f"st_{name}") for name in names)


@pytest.mark.parametrize("resident", [WHOLE, PAGED])
def test_every_path_is_found_and_no_other(tree: Path, tmp_path: Path, resident: int) -> None:
    head = written(tmp_path / "seg", scanned(tree))
    view = opened(tmp_path / "seg", tree, resident)
    paths = walked(tree)

    assert head["entries"] == len(paths)
    for path in paths:
        assert same(view.stat(path), os.fsencode(tree) + b"/" + path), path
    for path in (b"a/file40", b"a/b/c/d", b"file", b"file1/x", b"a/b/c/file1/x", b"link/x", b"A", b"new"):
        with pytest.raises(FileNotFoundError):
            view.stat(path)


def test_paths_are_tidied_and_kept_inside(tree: Path, tmp_path: Path) -> None:
    written(tmp_path / "seg", scanned(tree))
    view = opened(tmp_path / "seg", tree)

    held = view.stat("a/b/file1")
    for path in (f"{tree}/a/b/file1", "a//b/./file1/", "./a/../a/b/file1", tree / "a/b/file1"):
        assert view.stat(path) == held
    for path in ("..", "/", f"{tree}x", f"{tree}/../tree2", "a/../../x"):
        with pytest.raises(LookupError):
            view.stat(path)


def test_a_folder_is_listed_in_order(tree: Path, tmp_path: Path) -> None:
    written(tmp_path / "seg", scanned(tree))
    view = opened(tmp_path / "seg", tree)
    for folder in (b"", b"a", b"a b", b"a/b/c"):
        names = [name for name, *_ in view.list(folder)]
        assert names == sorted(os.fsencode(it.name) for it in (tree / os.fsdecode(folder)).iterdir())
        assert view.folder(folder)[0] == 1


def test_k11_damage_is_an_error_wherever_it_is(tree: Path, tmp_path: Path) -> None:
    """Each block in turn is changed: what is read is right, or an error; never something else."""
    file = tmp_path / "seg"
    written(file, scanned(tree))
    whole = file.read_bytes()
    paths = walked(tree)
    truth = {path: opened(file, tree).stat(path) for path in paths}
    for block in range(len(whole) // BLOCK + 1):
        at = min(block * BLOCK + 500, len(whole) - 1)
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            view = opened(file, tree, WHOLE if block % 2 else PAGED)
        except OSError as error:
            assert error.errno == errno.EBADMSG
            continue
        for path in paths[block % 3 :: 3]:
            try:
                assert view.stat(path) == truth[path]
            except OSError as error:
                assert error.errno == errno.EBADMSG


@pytest.mark.parametrize("resident", [WHOLE, PAGED])
def test_k11_file_cut_or_changed_under_a_reader(tree: Path, tmp_path: Path, resident: int) -> None:
    """A reader that has it open gets errors, and no signal."""
    file = tmp_path / "seg"
    written(file, scanned(tree))
    view = opened(file, tree, resident)
    held = view.stat("a/file1")
    os.truncate(file, BLOCK * 3)
    for path in walked(tree):
        try:
            view.stat(path)
        except OSError as error:
            assert error.errno in (errno.EBADMSG, errno.EIO)
    if resident:
        assert view.stat("a/file1") == held


def test_sealed_copy_needs_no_file(tree: Path, tmp_path: Path) -> None:
    import fcntl

    written(tmp_path / "seg", scanned(tree))
    fd = os.memfd_create("seg", os.MFD_ALLOW_SEALING)
    os.write(fd, (tmp_path / "seg").read_bytes())
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    view = _native.View((_native.segment_open(fd, PAGED),), os.fsencode(tree), elsewhere)
    os.close(fd)
    assert same(view.stat("a/file1"), os.fsencode(tree / "a/file1"))


@pytest.mark.parametrize(
    ("bytes_", "code"),
    [(b"", errno.EINVAL), (b"x" * 5000, errno.EINVAL), (b"PSCATSEG\x63" + b"\0" * 5000, errno.EPROTO)],
)
def test_foreign_and_newer_files(tmp_path: Path, bytes_: bytes, code: int) -> None:
    (tmp_path / "seg").write_bytes(bytes_)
    with pytest.raises(OSError) as refused, (tmp_path / "seg").open("rb") as held:
        _native.segment_open(held.fileno(), WHOLE)
    assert refused.value.errno == code


def test_many_threads_look_up_at_once(tree: Path, tmp_path: Path) -> None:
    written(tmp_path / "seg", scanned(tree))
    paths = walked(tree)
    truth = {path: opened(tmp_path / "seg", tree).stat(path) for path in paths}
    view = opened(tmp_path / "seg", tree)
    wrong: list[bytes] = []

    def look(turn: int) -> None:
        wrong.extend(path for path in paths[turn:] + paths[:turn] if view.stat(path) != truth[path])

    threads = [threading.Thread(target=look, args=(turn * 20,)) for turn in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


ENTRY = (0o100644, 5, 1, 0, 0, 10, 8, 0, 1, 2, 3, 0, 0, 0, 0)


def made(file: Path, folders: dict[bytes, tuple[int, dict[bytes, tuple[int, ...]]]], learnt: int = 1) -> None:
    """A segment of folders: their flags, and their names' entries."""
    batch = _native.batch_new()
    for path, (flags, names) in folders.items():
        for name, entry in names.items():
            _native.batch_add(batch, name, entry, None, None, None)
        _native.batch_close(batch, path, flags, learnt)
    written(file, [batch])


def folder(ino: int, flags: int = 0) -> tuple[int, ...]:
    return (0o40755, ino, *ENTRY[2:13], flags, 0)


def entry(ino: int, flags: int = 0) -> tuple[int, ...]:
    return (ENTRY[0], ino, *ENTRY[2:13], flags, 0)


GONE, PLACE, COMPLETE = 1, 2, 1


@pytest.fixture
def merged(tmp_path: Path) -> Any:
    """Two segments: the newer knows of `a` all, of `b` that it is gone, that `c` is another, of `d/y` something."""
    made(
        tmp_path / "old",
        {
            b"": (
                COMPLETE,
                {b"a": folder(1), b"b": folder(2), b"c": folder(3), b"d": folder(4), b"z": entry(9)},
            ),
            b"a": (COMPLETE, {b"x": entry(11), b"y": folder(12)}),
            b"a/y": (COMPLETE, {b"deep": entry(13)}),
            b"b": (COMPLETE, {b"x": entry(21)}),
            b"c": (COMPLETE, {b"x": entry(31)}),
            b"d": (COMPLETE, {b"x": entry(41), b"y": entry(42)}),
        },
    )
    made(
        tmp_path / "new",
        {
            b"": (0, {b"b": folder(2, GONE), b"c": folder(33)}),
            b"a": (COMPLETE, {b"x": entry(111), b"new": entry(112)}),
            b"d": (0, {b"y": entry(142)}),
        },
        2,
    )
    segments = []
    for name in ("new", "old"):
        with (tmp_path / name).open("rb") as held:
            segments.append(_native.segment_open(held.fileno(), WHOLE))
    return _native.View(tuple(segments), b"/r", elsewhere)


@pytest.mark.parametrize(
    ("path", "ino"),
    [
        *(("a/x", 111), ("a/new", 112), ("a/y", 0), ("a/y/deep", 0), ("b", 0), ("b/x", 0), ("c", 33)),
        *(("c/x", 0), ("d/x", 41), ("d/y", 142), ("z", 9), ("d", 4), ("q", 0)),
    ],
)
def test_k05_newer_segments_hold(merged: Any, path: str, ino: int) -> None:
    if ino:
        assert merged.stat(path).st_ino == ino
    else:
        with pytest.raises(FileNotFoundError):
            merged.stat(path)


def test_merged_walk_says_what_looking_up_says(merged: Any, tmp_path: Path) -> None:
    found: dict[bytes, int] = {}

    def take(which: int, row: Any, target: Any, path: bytes, depth: int) -> bool:
        found[path] = row[1].st_ino
        return True

    with pytest.raises(OSError, match="No data"):
        merged.stat("")
    for top in (b"a", b"c", b"d", b"z"):
        merged.find(top, top, 0, 99, [(27, 0, 0, 0, 0, None)], 1, take)
    assert found == {b"a": 1, b"a/new": 112, b"a/x": 111, b"c": 33, b"d": 4, b"d/x": 41, b"d/y": 142, b"z": 9}
