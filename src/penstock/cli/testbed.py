# SPDX-License-Identifier: Apache-2.0
"""A parallel file system to try things on: emulated, with Lustre's interface, or a real CephFS.

penstock testbed up --mds 1 --oss 3 --osts 5 --dir /tmp/pfs    # 5 OSTs on each of 3 OSS, mounted at /tmp/pfs
penstock testbed mount /tmp/node2                              # another client of the same file system
penstock testbed set ost.7.slowdown=10 mds.pause=2s
penstock testbed fail ost.3
penstock testbed fill ost.4 95%
penstock testbed down                                          # the data stays; --purge removes it
penstock testbed up --real ceph --osds 6 --dir /tmp/ceph
"""

import argparse
import sys
from typing import TYPE_CHECKING

from penstock.cli import _common

if TYPE_CHECKING:
    from penstock.testbed.emulated import Status

HELP = "bring up an emulated or a throw-away real parallel file system"


def register(parser: argparse.ArgumentParser) -> None:
    rows = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    up = rows.add_parser("up", help="start and mount it")
    up.add_argument("--mds", type=int, metavar="N", help="metadata servers (default 1)")
    up.add_argument("--oss", type=int, metavar="N", help="object servers (default 2)")
    up.add_argument("--osts", type=int, metavar="N", help="targets on each object server (default 2)")
    up.add_argument("--fsname", metavar="NAME", help="name of the file system (default pfs)")
    up.add_argument("--caching", choices=("contention", "posix"), default="contention", help=CACHING)
    up.add_argument(
        "--model", choices=("on", "count", "off"), help="the service model; off: as fast as it goes"
    )
    up.add_argument("--config", metavar="FILE", help="settings of the service model, in TOML")
    up.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one such setting")
    up.add_argument("--real", choices=("ceph",), help="a real one instead, from Debian packages")
    up.add_argument("--osds", type=int, default=3, metavar="N", help="with --real ceph: storage daemons (3)")
    up.add_argument("--store", choices=("memstore", "bluestore"), default="memstore", help="with --real ceph")
    more = {
        "mount": "mount it once more, as another client",
        "umount": "unmount one of its mounts",
        "status": "what is up, and its clients",
        "set": "change settings of the service model while it runs",
        "get": "settings of the service model",
        "fail": "make a server or target fail: ost.3, oss.1, mds, client.2",
        "heal": "make it work again",
        "fill": "fill a target: ost.4 95%%",
        "ask": "pass a line to the service model: counters, stats, drop, flush, prometheus",
        "down": "stop it; its data stays",
    }
    sub = {name: rows.add_parser(name, help=text) for name, text in more.items()}
    sub["mount"].add_argument("where", metavar="DIR")
    sub["umount"].add_argument("where", metavar="DIR")
    sub["umount"].add_argument("--force", action="store_true", help="also when it is in use")
    sub["set"].add_argument("words", nargs="+", metavar="KEY=VALUE")
    sub["get"].add_argument("words", nargs="?", metavar="PREFIX", default="")
    sub["fail"].add_argument("words", nargs="+", metavar="WHAT")
    sub["heal"].add_argument("words", nargs="+", metavar="WHAT")
    sub["fill"].add_argument("target", metavar="OST")
    sub["fill"].add_argument("share", metavar="SHARE")
    sub["ask"].add_argument("words", nargs="+", metavar="WORD")
    sub["down"].add_argument("--purge", action="store_true", help="remove the data too")
    for row in (up, *sub.values()):
        row.add_argument("--dir", metavar="D", help="which one: its mount point")
    for row in (up, sub["mount"], sub["status"]):
        row.add_argument("--json", action="store_true", help="as one JSON document")


CACHING = "contention: every call and byte reaches the server; posix: close-to-open caching in the kernel"


def run(args: argparse.Namespace) -> int:
    if args.what == "up":
        return up(args)
    from penstock.testbed import emulated

    if args.what == "umount":
        emulated.unmount(args.where, args.force)
        return 0
    if lab := _lab_meant(args.dir):
        return ceph(args, lab)
    folder = emulated.find(args.dir)
    if args.what == "mount":
        client = emulated.mount_more(folder, args.where, _common.note)
        if args.json:
            _common.print_json({"schema_version": 1, "client": client.number, "path": client.path})
        else:
            print(f"client {client.number} is mounted at {client.path}")
    elif args.what == "status":
        show(emulated.status(folder), args.json)
    elif args.what == "down":
        emulated.down(folder, args.purge, _common.note)
    else:
        for line in lines_for(args):
            sys.stdout.write(emulated.ask(folder, line))
    return 0


def lines_for(args: argparse.Namespace) -> list[str]:
    """The commands to the service model that were asked for."""
    if args.what in ("set", "fail", "heal"):
        return [f"{args.what} {word}" for word in args.words]
    if args.what == "fill":
        return [f"fill {args.target} {args.share}"]
    if args.what == "get":
        return [f"get {args.words}".rstrip()]
    return [" ".join(args.words)]


def wished(args: argparse.Namespace) -> dict[str, str]:
    """The settings for the server: file, then words."""
    from penstock.base.errors import UsageError
    from penstock.testbed import emulated

    found = emulated.read_config(args.config) if args.config else {}
    for word in args.set:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {word}: write it as KEY=VALUE")
        found[key] = value
    if args.model:
        found["model"] = args.model
    return found


def up(args: argparse.Namespace) -> int:
    import os

    if args.real:
        return ceph(args, args.dir or _default_lab())
    from penstock.testbed import emulated

    given = {k: v for k in ("mds", "oss", "osts", "fsname") if (v := getattr(args, k)) is not None}
    where = args.dir or emulated.default_dir(os.environ)
    if not args.dir:
        os.makedirs(os.path.dirname(where), 0o700, exist_ok=True)  # noqa: PTH103, PTH120
    shape = emulated.Shape()._replace(**given) if given else None
    state = emulated.up(where, shape, args.caching, wished(args), _common.note)
    show(state, args.json)
    if not args.json:
        option = f" --dir {where}" if args.dir else ""
        print(f"""
use it       cd {where}
one more     penstock testbed mount DIR{option}
as Lustre    export PATH={state.folder}/bin:$PATH; lfs df {where}; lctl get_param osc.*.kbytesavail
trouble      penstock testbed set ost.0.slowdown=10{option}; penstock testbed fail ost.1{option}
stop it      penstock testbed down{option}        (its data stays in {state.folder})""")
    return 0


def show(state: "Status", as_json: bool) -> None:
    """Print a testbed's status."""
    from penstock.base.text import plural

    shape = state.shape
    if as_json:
        _common.print_json(
            {
                "schema_version": 1,
                "kind": "emulated",
                "running": state.running,
                "folder": state.folder,
                "state": f"{state.folder}/state",
                "caching": state.caching,
                "pid": state.pid,
                "inodes": state.inodes,
                **shape._asdict(),
                "targets": shape.targets,
                "mounts": [{"client": c.number, "path": c.path} for c in state.clients],
                "trouble": list(state.trouble),
            }
        )
        return
    size = f"{shape.targets} OSTs on {shape.oss} OSS, {shape.mds} MDT{'s' * (shape.mds > 1)}"
    if not state.running:
        print(f"{shape.fsname}: not running; {size}; data in {state.folder}")
        return
    print(
        f"{shape.fsname}: {size}; {plural(state.inodes, 'inode')}; caching {state.caching}; process {state.pid}"
    )
    for client in state.clients:
        print(f"client {client.number}  {client.path}")
    for line in state.trouble:
        print(f"trouble   {line}")


# The real ones


def _default_lab() -> str:
    import os

    from penstock.base import places

    return f"{places.runtime_dir(os.environ)}/ceph"


def _lab_meant(directory: str | None) -> str | None:
    """The CephFS lab that is meant: by --dir, by the folder we are in, or the one where none was named."""
    import os

    from penstock.base.errors import UsageError
    from penstock.testbed import emulated

    def on_testbed(where: str) -> bool:
        """Nothing below such a mount is looked at: its server may be paused or dead."""
        return any(f"{os.path.abspath(where)}/".startswith(f"{m.path}/") for m in known)  # noqa: PTH100

    def is_lab(where: str) -> bool:
        return not on_testbed(where) and os.path.exists(f"{where}/ceph.conf")  # noqa: PTH110

    known, lab, here = emulated.mounts(), _default_lab(), os.environ.get("PWD") or "/"
    if directory:
        return directory if is_lab(directory) else None
    if on_testbed(here) or not is_lab(lab):
        return None
    if known and not f"{here}/".startswith(f"{lab}/"):
        raise UsageError(f"a testbed and a CephFS lab ({lab}) are up; name one with --dir")
    return lab


def ceph(args: argparse.Namespace, where: str) -> int:
    """The same words for the CephFS lab."""
    from penstock.base.errors import UsageError
    from penstock.testbed import ceph as lab

    if args.what == "up":
        state = lab.up(where, args.osds, args.store, say=_common.note)
    elif args.what == "status":
        state = lab.status(where)
    elif args.what == "down":
        lab.down(where)
        return 0
    elif args.what in ("fail", "heal"):
        for word in args.words:
            (lab.fail if args.what == "fail" else lab.heal)(where, word)
        return 0
    else:
        raise UsageError(f"a CephFS lab knows no {args.what}; up, status, fail, heal and down")
    if args.json:
        daemons = [d._asdict() for d in state.daemons]
        _common.print_json({"schema_version": 1, "kind": "ceph", **state._asdict(), "daemons": daemons})
    else:
        print(f"CephFS is mounted at {state.mount}; {len(state.daemons)} daemons; configuration {state.conf}")
        print(f"stop it      penstock testbed down --dir {where}")
    return 0
