# SPDX-License-Identifier: Apache-2.0
"""Which file a call means: by whole components of its path before the call, by the device of its descriptor after."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import board
import library

PYTHON = Path(sys.executable).resolve()


def look(top: Path, rules: list[tuple[str, int, int]], script: str) -> list[tuple[str, str]]:
    """What the script's opens, writes and stats meant: (operation, path below `top`), of what is under control."""
    on = board.make(top.with_name(f"{top.name}-board"), ("pass",), rules, board.NOTHING)
    trace = top.with_name(f"{top.name}-trace")
    trace.unlink(missing_ok=True)
    words = [PYTHON, "-I", "-S", "-c", "import os, sys, threading\n" + script, str(top)]
    done = library.run(words, on, library.tracing(), cwd=top, PENSTOCK_TRACE=str(trace))
    assert (done.returncode, done.stderr) == (0, "")
    return [(s.op, str(Path(s.path).relative_to(top))) for s in library.seen(trace) if s.path != "-"]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """pfs is under control; what lies beside it has names like it."""
    found = tmp_path / "top"
    for name in ("pfs/d", "pfs_backup", "home/pfs", "other"):
        (found / name).mkdir(parents=True)
    return found


def names(found: list[tuple[str, str]], op: str = "open") -> list[str]:
    return [path for o, path in found if o == op]


def test_i18_prefixes_are_whole_components(top: Path) -> None:
    script = (
        "for p in ('pfs/a', 'pfs_backup/b', 'home/pfs/c', 'pf', 'pfs.x', 'pfs/d/e'): open(p, 'w').close()"
    )
    absolute = script.replace("open(p", "open(sys.argv[1] + '/' + p")
    rules = [(str(top / "pfs"), board.RECORD, 0)]
    for text in (script, absolute):
        assert names(look(top, rules, text)) == ["pfs/a", "pfs/d/e"]


FORMS = {
    "relative": "open('pfs/a', 'w')",
    "dots": "open('./other/..//pfs/./d/../a', 'w')",
    "absolute with dots": "open(sys.argv[1] + '/other/../pfs/a', 'w')",
    "chdir": "os.chdir('pfs'); open('a', 'w')",
    "chdir and up": "os.chdir('pfs/d'); open('../a', 'w')",
    "fchdir": "f = os.open('pfs', os.O_RDONLY); os.fchdir(f); open('a', 'w')",
    "dirfd of the folder": "f = os.open('pfs', os.O_RDONLY); os.open('a', os.O_CREAT, dir_fd=f)",
    "dirfd above": "f = os.open('.', os.O_RDONLY); os.open('pfs/a', os.O_CREAT, dir_fd=f)",
    "dirfd below": "f = os.open('pfs/d', os.O_RDONLY); os.open('../a', os.O_CREAT, dir_fd=f)",
    "absolute, dirfd elsewhere": "f = os.open('other', 0); os.open(sys.argv[1] + '/pfs/a', os.O_CREAT, dir_fd=f)",
    "chdir in a thread": "t = threading.Thread(target=os.chdir, args=('pfs',)); t.start(); t.join(); open('a', 'w')",
    "chdir back": "os.chdir('other'); open('x', 'w'); os.chdir('..'); os.chdir('pfs'); open('a', 'w')",
    "after fork": "os.chdir('pfs')\nif os.fork() == 0:\n    open('a', 'w').close(); os._exit(0)\nos.wait()",
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_i18_every_way_to_name_a_file(text: str, top: Path) -> None:
    found = look(top, [(str(top / "pfs"), board.RECORD, 0)], text)
    assert [path for path in names(found) if path.startswith("pfs/a")] == ["pfs/a"]
    assert all(path.startswith("pfs") for _, path in found)


@pytest.mark.parametrize("text", ["open('other/a', 'w')", "os.chdir('pfs'); open('../other/a', 'w')"])
def test_i18_what_is_elsewhere_is_not_seen(text: str, top: Path) -> None:
    assert names(look(top, [(str(top / "pfs"), board.RECORD, 0)], text)) == []


def test_a_rule_inside_another_knows_better(top: Path) -> None:
    """The longest prefix wins; a name alone means a component anywhere (site-packages)."""
    rules = [(str(top / "pfs"), board.RECORD, 0), (str(top / "pfs/d"), board.NOTHING, 0)]
    rules.append(("skipped", board.NOTHING, 0))
    script = "os.mkdir('pfs/skipped')\nfor p in ('pfs/a', 'pfs/d/b', 'pfs/skipped/c', 'pfs/e'): open(p, 'w').close()"
    assert names(look(top, rules, script)) == ["pfs/a", "pfs/e"]


def test_i16_by_descriptor(top: Path) -> None:
    """What came by exec or a socket is named by the kernel."""
    rules = [(str(top / "pfs"), board.RECORD, 0)]
    outside = os.open(top / "other/x", os.O_CREAT | os.O_WRONLY)
    inside = os.open(top / "pfs/y", os.O_CREAT | os.O_WRONLY)
    on = board.make(top.with_name("board"), ("pass",), rules, board.NOTHING)
    trace = top.with_name("trace")
    script = f"import os; os.write({outside}, b'1'); os.write({inside}, b'1')"
    env = library.environment(on, library.tracing(), PENSTOCK_TRACE=str(trace))
    words = [str(PYTHON), "-I", "-S", "-c", script]
    subprocess.run(words, env=env, pass_fds=(outside, inside), check=True)
    os.close(outside)
    os.close(inside)
    assert [(s.op, s.path) for s in library.seen(trace)] == [("write", str(top / "pfs/y"))]


# ---- mounts: the device decides ----


@pytest.fixture
def mounted(top: Path) -> Iterator[Path]:
    """pfs is a mount of its own, with a second name (a bind mount) at home/pfs."""
    if os.geteuid():
        pytest.skip("needs root to mount")
    pfs, again = top / "pfs", top / "home/pfs"
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "penstock-test", pfs], check=True)
    try:
        subprocess.run(["mount", "--bind", pfs, again], check=True)
        (top / "link").symlink_to("pfs")
        (top / "to-a").symlink_to("pfs/a")
        (pfs / "out").symlink_to("../other")
        yield top
    finally:
        for point in (again, pfs):
            subprocess.run(["umount", "-l", point], check=False)


@pytest.mark.root
@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("pfs/a", True),
        ("link/a", True),  # a symlink on the way
        ("to-a", True),  # and at the end
        ("home/pfs/a", True),  # another mount of the same file system
        ("pfs/out/b", False),  # a symlink that leads away
        ("pfs/../other/c", False),
        ("other/c", False),
    ],
)
def test_i18_the_device_of_the_descriptor_decides(path: str, seen: bool, mounted: Path) -> None:
    rules = [(str(mounted / "pfs"), board.MOUNT, (mounted / "pfs").stat().st_dev)]
    script = f"f = os.open({path!r}, os.O_CREAT | os.O_WRONLY); os.write(f, b'1')"
    found = look(mounted, rules, script)
    assert [op for op, _ in found] == (["open", "write"] if seen else [])
