# SPDX-License-Identifier: Apache-2.0
"""What Penstock does, shown on an emulated parallel file system: make demo.

tools/demo.py             all steps; ends with a page to look at
tools/demo.py record      one step, by a part of its name

A step is a file tools/demo/NN-name.md, read like a guide: its prose is printed, the commands of its console blocks are
run in bash, in one folder on the testbed, one after the other.  In them PFS is the testbed's mount, DEMO the folder of
the steps, PAGES where pages go.

Invariants:
1. Each command ends with status 0, else the demo stops there and fails.
2. Nothing is left behind but PAGES: no mount, process, shared memory or file, also after Ctrl-C and SIGTERM; what a
   killed demo left is taken away by the next one.
3. Nothing of the user's is read or changed: home, history, boards are the demo's own.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

TOP = Path(__file__).resolve().parent.parent
STEPS = TOP / "tools" / "demo"
PENSTOCK = Path(sys.executable).with_name("penstock")
PREFIX = "penstock-demo-"
NEEDS_S = 120  # a command that takes longer hangs


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """A step's parts in order: ("prose", paragraph) and ("command", line)."""
    for part in re.split(r"(^```console\n.*?^```$)", text, flags=re.DOTALL | re.MULTILINE):
        if part.startswith("```"):
            yield from (("command", line) for line in re.findall(r"^\$ (.*)$", part, re.MULTILINE))
        else:
            yield from (("prose", p.strip()) for p in part.split("\n\n") if p.strip())


class Demo:
    """Places of one demo, and what happens in them."""

    def __init__(self, pages: Path) -> None:
        self.pages = pages
        self.folder = Path(tempfile.gettempdir()) / f"{PREFIX}{os.getpid()}"
        self.mount = self.folder / "pfs"
        self.boards = boards_of(self.folder)
        self.running: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        held = {
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "XDG_RUNTIME_DIR": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "TERM": os.environ.get("TERM", "dumb"),
            "PENSTOCK_STATE_DIR": str(self.folder / "state"),
            "PENSTOCK_BOARD_DIR": str(self.boards),
            "PFS": str(self.mount),
            "DEMO": str(STEPS),
            "PAGES": str(self.pages),
            # Open MPI: more ranks than cores, also as root.
            "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        return held | {k: os.environ[k] for k in ("COLUMNS", "NO_COLOR") if k in os.environ}

    def begin(self) -> None:
        self.folder.mkdir(mode=0o755)
        self.boards.mkdir(mode=0o700)
        self.pages.mkdir(parents=True, exist_ok=True)
        for page in self.pages.glob("*.html"):
            page.unlink()

    def show(self, step: Path) -> None:
        for kind, text in blocks(step.read_text("utf-8")):
            if kind == "command":
                self.command(text)
            elif text.startswith("# "):
                print(f"\n══ {text[2:]} {'═' * max(0, 96 - len(text))}\n", flush=True)
            else:
                print(textwrap.fill(re.sub(r"`(.*?)`", r"\1", text), 100) + "\n", flush=True)

    def command(self, line: str) -> None:
        print(f"$ {line}", flush=True)
        where = self.mount if self.mount.is_mount() else self.folder
        # A session of its own: Ctrl-C comes to us alone, and we end it whole.
        self.running = subprocess.Popen(
            ["bash", "-c", line], cwd=where, env=self.env, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            status = self.running.wait(NEEDS_S)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"demo: '{line}' does not end") from None
        self.running = None
        if status:
            raise SystemExit(f"demo: '{line}' ended with status {status}")
        print(flush=True)


def boards_of(folder: Path) -> Path:
    return Path("/dev/shm") / folder.name


def take_away(folder: Path) -> None:
    """Everything of the demo in this folder: the testbed, processes, boards, files."""
    if (folder / "pfs.testbed").exists():
        down = [PENSTOCK, "testbed", "down", "--purge", "--dir", folder / "pfs"]
        subprocess.run([str(word) for word in down], check=False, capture_output=True, timeout=60)
    for turn in range(50):
        left = processes_of(folder)
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGTERM if turn < 25 else signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)
    shutil.rmtree(boards_of(folder), ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def processes_of(folder: Path) -> list[int]:
    """Processes that were started in this demo: its folder stands in their environment."""
    mark = os.fsencode(f"HOME={folder}\0")
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def abandoned() -> list[Path]:
    """Folders of demos that were killed."""
    found = Path(tempfile.gettempdir()).glob(f"{PREFIX}[0-9]*")
    ours = [path for path in found if path.lstat().st_uid == os.getuid()]
    return [path for path in ours if not Path("/proc", path.name.removeprefix(PREFIX)).exists()]


def stop(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help="only steps with this in their name")
    parser.add_argument(
        "--pages", type=Path, default=TOP / "build" / "demo", help="where pages go (%(default)s)"
    )
    args = parser.parse_args()
    # The first step brings the testbed up; all others may be left out.
    found = sorted(STEPS.glob("*.md"))
    chosen = [p for p in found[1:] if not args.steps or any(word in p.stem for word in args.steps)]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    for path in abandoned():
        take_away(path)
    demo = Demo(args.pages.absolute())
    began = time.monotonic()
    try:
        demo.begin()
        for step in [found[0], *chosen]:
            demo.show(step)
        print(f"That was {time.monotonic() - began:.0f} s.")
        if pages := sorted(demo.pages.glob("*.html")):
            print("To look at, without a network:\n\n" + "\n".join(f"  {page}" for page in pages), flush=True)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if demo.running and demo.running.poll() is None:
            os.killpg(demo.running.pid, signal.SIGTERM)
        take_away(demo.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
