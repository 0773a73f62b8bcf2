# SPDX-License-Identifier: Apache-2.0
"""The emulated parallel file system: bringing it up, asking it things, taking it down.

A testbed is a mount point D and its folder beside it, `D.testbed` (native/testbed/server.h says what lies in
it); further mounts of the same file system may be anywhere.  The table of mounts is the only register: a mount
of type fuse.penstock names its folder as its source.

Invariants:
1. Data stays when a testbed goes down; only `down(purge=True)` removes it.
2. A path that may be a dead mount is never looked at without need: the table of mounts comes first.
3. Nothing waits without a limit.
"""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base import places, units
from penstock.base.errors import BusyError, DeniedError, PenstockError, TimeoutError_, UsageError
from penstock.targets.mounts import TESTBED_TYPE as TYPE
from penstock.targets.mounts import testbed_runs as is_running
from penstock.testbed import commands
from penstock.testbed import settings as model_settings

MAX_OSTS = 2048
START_S = 300.0
STOP_S = 20.0
_OCTAL = (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\043", "#"), ("\\134", "\\"))

Say = Callable[[str], None]


class Mount(NamedTuple):
    path: str
    folder: str


class Shape(NamedTuple):
    """How many servers and targets; `osts` on each object server."""

    mds: int = 1
    oss: int = 2
    osts: int = 2
    fsname: str = "pfs"

    @property
    def targets(self) -> int:
        return self.oss * self.osts


class Client(NamedTuple):
    """A mount as the server sees it; flags are FUSE's of INIT: what was agreed, what the kernel offered."""

    number: int
    path: str
    agreed_flags: int
    offered_flags: int


class Status(NamedTuple):
    folder: str
    running: bool
    shape: Shape
    caching: str
    pid: int
    inodes: int
    clients: tuple[Client, ...]
    trouble: tuple[str, ...] = ()
    """What was made slow, full or dead."""


# Where things are


def mounts() -> list[Mount]:
    """Every testbed mount of this machine, living or dead."""
    found = []
    for line in Path("/proc/self/mounts").read_text("utf-8", "surrogateescape").splitlines():
        source, point, kind = line.split(" ")[:3]
        if kind == TYPE:
            found.append(Mount(_unescape(point), _unescape(source)))
    return found


def _unescape(field: str) -> str:
    for code, char in _OCTAL:
        field = field.replace(code, char)
    return field


def _absolute(path: str | os.PathLike[str]) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - resolve() would look at the path, which may be a dead mount


def default_dir(env: Mapping[str, str]) -> str:
    """Where a testbed is mounted when nobody said where."""
    return f"{places.runtime_dir(env)}/pfs"


def folder_of(directory: str | os.PathLike[str]) -> str:
    """The testbed's folder for a mount point (any of its mounts), or for the folder itself."""
    path = _absolute(directory)
    for mount in mounts():
        if path == mount.path or path.startswith(mount.path + "/"):
            return mount.folder
    return path if path.endswith(".testbed") else path + ".testbed"


def find(directory: str | None) -> str:
    """The folder of the testbed that is meant: by --dir, by the folder we are in, or the only one."""
    if directory is not None:
        folder = folder_of(directory)
        if not Path(folder, "testbed.json").exists():
            raise UsageError(f"{directory}: no testbed is there; bring one up with penstock testbed up")
        return folder
    here = os.environ.get("PWD") or "/"
    known = mounts()
    for mount in known:
        if here == mount.path or here.startswith(mount.path + "/"):
            return mount.folder
    folders = sorted({mount.folder for mount in known if _is_ours(mount.folder)})
    if not folders:
        raise UsageError(
            "no testbed of yours is mounted; bring one up with penstock testbed up, or name it with --dir"
        )
    if len(folders) > 1:
        names = ", ".join(folder.removesuffix(".testbed") for folder in folders)
        raise UsageError(f"several testbeds are mounted ({names}); name one with --dir")
    return folders[0]


def _is_ours(folder: str) -> bool:
    """Somebody else's is never meant without being named, not even by root."""
    try:
        return os.stat(folder).st_uid == os.geteuid()  # noqa: PTH116
    except OSError:
        return False


# Asking the server


def ask(folder: str, line: str, limit_s: float = 60.0) -> str:
    """What the server answers to a line; its refusals are errors."""
    if "\n" in line:
        raise UsageError(f"{line!r}: a command is one line")
    try:
        run = os.open(f"{folder}/run", os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError as error:
        raise DeniedError(f"the testbed in {folder} belongs to somebody else") from error
    except OSError as error:
        raise PenstockError(f"no testbed is in {folder}") from error
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(limit_s)
            link.connect(f"/proc/self/fd/{run}/control")  # a socket's path is short, folders may be deep
            link.sendall(line.encode("utf-8", "surrogateescape") + b"\n")
            parts = []
            while part := link.recv(1 << 16):
                parts.append(part)
    except TimeoutError as error:
        raise TimeoutError_(f"the testbed in {folder} gave no answer in {limit_s:.0f} s") from error
    except OSError as error:
        raise PenstockError(
            f"the testbed in {folder} is not running; penstock testbed up --dir starts it again"
        ) from error
    finally:
        os.close(run)
    head, _, text = b"".join(parts).decode("utf-8", "surrogateescape").partition("\n")
    if head == "ok":
        return text
    number = int(head.removeprefix("error ") or 0) if head.startswith("error ") else 0
    kind = UsageError if number == errno.EINVAL else PenstockError
    raise kind(text.strip() or f"{line}: {os.strerror(number)}")


def shape_of(folder: str) -> Shape:
    """The shape a testbed was made with."""
    try:
        return Shape(**json.loads(Path(folder, "testbed.json").read_text())["shape"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PenstockError(f"{folder}/testbed.json cannot be read; remove {folder} to start anew") from error


def status(folder: str) -> Status:
    """What the server says of itself, or that it does not run."""
    shape = shape_of(folder)
    if not is_running(folder):
        return Status(folder, False, shape, "", 0, 0, ())
    rows, clients = {}, []
    for line in ask(folder, "status").splitlines():
        key, _, value = line.partition("=")
        if key == "mount":
            number, agreed, offered, path = value.split(" ", 3)
            clients.append(Client(int(number), path, int(agreed, 16), int(offered, 16)))
        else:
            rows[key] = value
    trouble = tuple(ask(folder, "trouble").splitlines())
    numbers = (int(rows["pid"]), int(rows["inodes"]))
    return Status(folder, True, shape, rows["caching"], *numbers, tuple(clients), trouble)


def counters(folder: str, client: int | None = None) -> dict[str, int]:
    """How many requests of each kind reached the servers, from one client or all; kinds as on the guide's page."""
    rows = ask(folder, f"counters {'' if client is None else client}".strip()).splitlines()
    return {kind: int(count) for kind, _, count in (row.rpartition(" ") for row in rows)}


# Up


def missing() -> str:
    """Why there can be no testbed here, or nothing."""
    if _program() is None:
        return "penstock-testbed is not installed; this build was made without libfuse 3"
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse; load the kernel module fuse, or give the container that device"
    if os.geteuid() != 0:
        if not os.access("/dev/fuse", os.R_OK | os.W_OK):
            return "you may not use /dev/fuse; ask for the right, or run as root"
        if shutil.which("fusermount3") is None:
            return "without root it needs fusermount3; install the package fuse3"
    return ""


def _program() -> str | None:
    beside = Path(sys.executable).parent / "penstock-testbed"
    return str(beside) if beside.exists() else shutil.which("penstock-testbed")


def _check_shape(shape: Shape) -> None:
    for what, count, least, most in (
        ("--mds", shape.mds, 1, 64),
        ("--oss", shape.oss, 1, MAX_OSTS),
        ("--osts", shape.osts, 1, MAX_OSTS),
    ):
        if not least <= count <= most:
            raise UsageError(f"{what} {count}: from {least} to {most} are possible")
    if shape.targets > MAX_OSTS:
        raise UsageError(
            f"{shape.oss} × {shape.osts} are {shape.targets} OSTs; at most {MAX_OSTS} are possible"
        )
    if not shape.fsname.isalnum() or not 1 <= len(shape.fsname) <= 8:
        raise UsageError(f"--fsname {shape.fsname!r}: 1 to 8 letters and digits")


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings of TOML tables as dotted keys with text."""
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            flat[prefix + key] = "on" if value else "off"
        elif isinstance(value, list):
            flat[prefix + key] = (
                ",".join(str(v) for v in value)
                if prefix == "pool."
                else " ".join(":".join(str(v) for v in p) if isinstance(p, list) else str(p) for p in value)
            )
        else:
            flat[prefix + key] = str(value)
    return flat


def read_config(path: str) -> dict[str, str]:
    """The settings in a TOML file."""
    import tomllib

    try:
        return flatten(tomllib.loads(Path(path).read_text("utf-8")))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read; --config names a TOML file") from error


def _flat_text(settings: Mapping[str, str]) -> str:
    lines = []
    for key, value in model_settings.checked(settings).items():
        if "\n" in key + value or "=" in key:
            raise UsageError(f"the setting {key!r} is not on one line")
        if key in ("layout.stripe_size", "layout.dom_size"):
            value = str(units.parse_size(value))
        elif key == "layout.space_age":
            value = str(units.parse_duration(value))
        lines.append(f"{key}={value}\n")
    return "".join(lines)


def prepare_mount_point(path: str, say: Say) -> None:
    """An empty folder that nothing is mounted on: made, freed from a dead mount, or refused."""
    for mount in mounts():
        if mount.path == path:
            if is_running(mount.folder):
                raise BusyError(f"{path}: a testbed is mounted there; stop it with penstock testbed down")
            unmount(path, force=True)
            say(f"{path} was left mounted by a server that died; it is unmounted")
    try:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103
        if os.path.ismount(path):
            raise BusyError(f"{path}: another file system is mounted there; choose another folder")
        if os.listdir(path):  # noqa: PTH208
            raise UsageError(f"{path} is not empty; choose an empty or a new folder")
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{path} is not a folder; choose an empty or a new one") from error
    except PermissionError as error:
        raise DeniedError(f"{path} cannot be made or read; choose a folder of your own") from error


def _prepare_folder(folder: str, shape: Shape | None, settings: str) -> Shape:
    """testbed.json comes first: whatever is interrupted after it can be started again."""
    top = Path(folder)
    known = shape_of(folder) if (top / "testbed.json").exists() else None
    held = shape or known or Shape()
    _check_shape(held)
    if known and held != known:
        raise UsageError(
            f"{folder} holds a testbed of {known.oss} × {known.osts} OSTs, {known.mds} MDS, "
            f"named {known.fsname}; ask for the same, or choose another --dir"
        )
    try:
        if known is None and top.exists() and any(p.name != "testbed.json.new" for p in top.iterdir()):
            raise UsageError(f"{folder} is not empty and no testbed; remove it, or choose another --dir")
        top.mkdir(0o755, exist_ok=True)
        aside = top / "testbed.json.new"
        aside.write_text(json.dumps({"schema_version": 1, "shape": held._asdict()}))
        aside.rename(top / "testbed.json")
        (top / "run").mkdir(0o700, exist_ok=True)
        (top / "state").mkdir(0o755, exist_ok=True)
        (top / "settings").write_text(settings)
        commands.install(folder)
    except PermissionError as error:
        raise DeniedError(f"{folder} cannot be made or written; choose a folder of your own") from error
    return held


def _await_ready(pipe: int, server: "subprocess.Popen[bytes]", folder: str, say: Say) -> None:
    """Pass on what the server says until it serves."""
    import selectors

    started, told, text = time.monotonic(), False, b""
    with selectors.DefaultSelector() as chooser:
        chooser.register(pipe, selectors.EVENT_READ)
        while True:
            if chooser.select(0.5):
                part = os.read(pipe, 1 << 16)
                text += part
                while b"\n" in text:
                    line, _, text = text.partition(b"\n")
                    word, _, rest = line.decode("utf-8", "replace").partition(" ")
                    if word == "ready":
                        return
                    if word == "error":
                        server.wait()
                        raise PenstockError(rest)
                    say(rest)
                if not part:
                    raise PenstockError(
                        f"the testbed's server ended at its start (status {server.wait()}); see {folder}/log"
                    )
            passed = time.monotonic() - started
            if passed > 2 and not told:
                told = True
                say("still starting; after a crash the whole store is looked over")
            if passed > START_S:
                server.kill()
                server.wait()
                raise TimeoutError_(
                    f"the testbed's server was not up after {START_S:.0f} s; see {folder}/log"
                )


def up(
    directory: str | os.PathLike[str],
    shape: Shape | None = None,
    caching: str = "contention",
    settings: Mapping[str, str] | None = None,
    say: Say = lambda step: None,
) -> Status:
    """Start a testbed, new or as it was left, and mount it at the directory."""
    if why := missing():
        raise PenstockError(why)
    path = _absolute(directory)
    folder = path + ".testbed"
    if is_running(folder):
        raise BusyError(
            f"a testbed already runs on {folder}; stop it with penstock testbed down --dir {path}"
        )
    wishes = _flat_text(settings or {})  # what is wrong is told before anything is made
    if shape:
        _check_shape(shape)
    prepare_mount_point(path, say)
    for mount in mounts():
        if mount.folder == folder:
            unmount(mount.path, force=True)
            say(f"{mount.path} was left mounted by a server that died; it is unmounted")
    held = _prepare_folder(folder, shape, wishes)
    ready, tell = os.pipe()
    command: list[str] = [
        _program() or "penstock-testbed",
        *("--folder", folder, "--osts", str(held.targets), "--osss", str(held.oss), "--mdts", str(held.mds)),
        *("--fsname", held.fsname, "--caching", caching, "--settings", f"{folder}/settings"),
        *("--ready-fd", str(tell), path),
    ]
    try:
        with Path(folder, "log").open("ab") as log:
            server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[tell],
                cwd="/",
                start_new_session=True,
                env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"},
            )
    finally:
        os.close(tell)
    try:
        _await_ready(ready, server, folder, say)
    finally:
        os.close(ready)
    _servers.append(server)
    ask(folder, "stats")  # whoever looks now finds all targets
    return status(folder)


_servers: list["subprocess.Popen[bytes]"] = []
"""Servers that this process started: kept, so that their ends are collected."""


# More mounts, and down


def mount_more(folder: str, directory: str | os.PathLike[str], say: Say = lambda step: None) -> Client:
    """Another client of the same file system."""
    path = _absolute(directory)
    prepare_mount_point(path, say)
    ask(folder, f"mount {path}")
    return next(client for client in status(folder).clients if client.path == path)


def unmount(directory: str | os.PathLike[str], force: bool = False) -> None:
    """Unmount one mount; `force` takes it from whoever uses it."""
    path = _absolute(directory)
    found = [mount for mount in mounts() if mount.path == path]
    if not found:
        raise UsageError(f"{path}: no testbed is mounted there")
    done = subprocess.run(
        ["fusermount3", "-u", *(["-z"] if force else []), "--", path],
        check=False,
        capture_output=True,
        text=True,
        timeout=STOP_S,
    )
    if done.returncode:
        if "busy" in done.stderr.lower():
            raise BusyError(f"{path} is in use; end what uses it, or unmount with --force")
        raise PenstockError(f"{path} cannot be unmounted: {done.stderr.strip()}")
    if not force:  # the server lets a client go a moment later; one with open files when they are closed
        _wait_until(lambda: not _serves(found[-1].folder, path))


def _serves(folder: str, path: str) -> bool:
    if not is_running(folder):
        return False
    try:
        return ask(folder, f"mounted {path}") == "yes"
    except PenstockError:
        return False


def _wait_until(done: Callable[[], bool], limit_s: float = STOP_S) -> bool:
    end = time.monotonic() + limit_s
    pause = 0.001
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    return True


def down(folder: str, purge: bool = False, say: Say = lambda step: None) -> None:
    """End the server and all its mounts; right too when it died.  `purge` removes the data."""
    if is_running(folder):
        ask(folder, "down")
        if not _wait_until(lambda: not is_running(folder)):
            raise TimeoutError_(f"the testbed in {folder} did not end in {STOP_S:.0f} s; see {folder}/log")
    else:
        say("its server was not running")
    for server in list(_servers):
        if server.poll() is not None:
            _servers.remove(server)
    for mount in mounts():
        if mount.folder == folder:
            unmount(mount.path, force=True)
            say(f"{mount.path} was left mounted; it is unmounted")
    if purge:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            os.rmdir(folder.removesuffix(".testbed"))  # noqa: PTH106
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
