# SPDX-License-Identifier: Apache-2.0
"""CephFS: layouts by xattr; a target is an OSD, and a pool on one OSD alone is how a file gets there.

Reading and setting layouts needs no rights but the file's.  Targets, load and health are asked from the
cluster, which takes a readable ceph.conf (and keyring, where the cluster wants one) and python3-rados.
"""

import errno
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from penstock.base.errors import PenstockError
from penstock.targets.ceph_ask import Cluster
from penstock.targets.driver import (
    DEGRADED,
    DOWN,
    FULL,
    INACTIVE,
    UP,
    Load,
    Target,
    UnsupportedError,
    Where,
    answer,
)
from penstock.targets.layouts import ALL, Component, Layout
from penstock.targets.mounts import Mount

TYPES = ("ceph", "fuse.ceph-fuse")
DEFAULT_OBJECT_BYTES = 4 << 20


def detect(mount: Mount) -> "CephFS | None":
    return CephFS(mount) if mount.type in TYPES else None


def conf_of(mount: Mount) -> str:
    """The ceph.conf of a mount: the one that its ceph-fuse was started with, else the usual one.

    Only root's processes and our own are believed: a conf can name files to be written.
    """
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if cmdline.stat().st_uid not in (0, os.geteuid()):
                continue
            words = cmdline.read_bytes().decode(errors="surrogateescape").split("\0")
        except OSError:
            continue
        if words[0].endswith("ceph-fuse") and mount.point in words and "-c" in words[:-1]:
            return words[words.index("-c") + 1]
    return os.environ.get("CEPH_CONF", "/etc/ceph/ceph.conf")


def parse_layout(text: str) -> dict[str, str]:
    """`stripe_unit=65536 stripe_count=3 object_size=1048576 pool=data`."""
    return dict(word.partition("=")[::2] for word in text.split() if "=" in word)


def layout_of(blob: bytes, stripes: Callable[[str, int], tuple[int, ...]] = lambda pool, count: ()) -> Layout:
    """The attribute's text as a layout; `stripes` says on which OSDs those of a pool lie."""
    said = parse_layout(blob.decode(errors="replace"))
    try:
        unit, count, size = (int(said[key]) for key in ("stripe_unit", "stripe_count", "object_size"))
    except (KeyError, ValueError):
        return Layout("unknown", (), blob)
    pool = said.get("pool", "")
    only = Component(
        0,
        stripe_size_bytes=unit,
        stripe_count=count,
        targets=stripes(pool, count),
        pool=pool,
        object_size_bytes=size,
    )
    return Layout(CephFS.kind, (only,), blob)


def below(nodes: list[dict[str, Any]], name: str) -> set[int]:
    """The OSDs under a bucket of the tree, by its name."""
    by_id = {node["id"]: node for node in nodes}
    todo = [node["id"] for node in nodes if node["name"] == name.partition("~")[0]]
    found: set[int] = set()
    while todo:
        node = by_id.get(todo.pop(), {})
        if node.get("type") == "osd":
            found.add(node["id"])
        todo += node.get("children", [])
    return found


class CephFS:
    kind = "ceph"

    def __init__(self, mount: Mount) -> None:
        self.mount = mount

    @cached_property
    def cluster(self) -> Cluster:
        return Cluster(conf_of(self.mount))

    # What the cluster says

    @cached_property
    def pools(self) -> dict[str, frozenset[int]]:
        """The OSDs that each pool may use."""
        nodes = self.cluster.ask("osd tree")["nodes"]
        rules = {}
        for rule in self.cluster.ask("osd crush rule dump"):
            takes = [step["item_name"] for step in rule["steps"] if step["op"] == "take"]
            rules[rule["rule_id"]] = frozenset().union(*(below(nodes, name) for name in takes))
        dump = self.cluster.ask("osd dump")
        return {pool["pool_name"]: rules.get(pool["crush_rule"], frozenset()) for pool in dump["pools"]}

    def targets(self) -> tuple[Target, ...]:
        rows = self.cluster.ask("osd df")["nodes"]
        tree = self.cluster.ask("osd tree")["nodes"]
        host = {child: node["name"] for node in tree if node["type"] == "host" for child in node["children"]}
        return tuple(
            Target(
                row["id"],
                row["name"],
                host.get(row["id"], ""),
                row["kb"] * 1024,
                max(row["kb_avail"], 0) * 1024,
            )
            for row in sorted(rows, key=lambda row: row["id"])
        )

    def load(self) -> Mapping[int, Load]:
        states = {osd["osd"]: osd["up"] for osd in self.cluster.ask("osd dump")["osds"]}
        found = {osd: Load() for osd in states}
        for osd, said in self.cluster.tell([osd for osd, up in states.items() if up], "perf dump").items():
            count = said.get("osd", {})
            busy_s = sum(count.get(name, {}).get("sum", 0.0) for name in ("op_r_latency", "op_w_latency"))
            found[osd] = Load(
                count.get("op_r", -1),
                count.get("op_w", -1),
                count.get("op_out_bytes", -1),
                count.get("op_in_bytes", -1),
                int(busy_s * 1e9),
                count.get("op_wip", -1),
            )
        return found

    def sees_all(self) -> bool:
        return True

    def health(self) -> Mapping[int, str]:
        return {osd["osd"]: _state(osd) for osd in self.cluster.ask("osd dump")["osds"]}

    def job_counts(self) -> Mapping[str, Mapping[str, int]]:
        return {}

    def servers(self) -> Mapping[str, str]:
        return {}

    # Layouts

    def layout(self, where: Where) -> Layout:
        try:
            blob = _layout_text(where)
        except OSError as error:
            raise answer(error, where) from error
        return layout_of(blob, self._stripes)

    @cached_property
    def _known_pools(self) -> Mapping[str, frozenset[int]]:
        """The pools, or nothing where the cluster cannot be asked; it is tried once."""
        try:
            return self.pools
        except PenstockError:
            return {}

    def _stripes(self, pool: str, count: int) -> tuple[int, ...]:
        """The OSD of each stripe, if the pool has only one; else objects are spread by hashing."""
        osds = self._known_pools.get(pool, frozenset())
        return tuple(osds) * count if len(osds) == 1 else ()

    def _pool_on(self, targets: tuple[int, ...], path: str) -> str:
        for pool, osds in self.pools.items():
            if osds == set(targets):
                return pool
        alone = ", ".join(sorted(pool for pool, osds in self.pools.items() if len(osds) == 1)) or "none"
        raise UnsupportedError(
            f"{path}: no pool lies on exactly the OSDs {', '.join(map(str, targets))}; a file "
            f"lies in one pool, and those of a single OSD are: {alone}"
        )

    def text_of(self, layout: Layout, path: str) -> bytes:
        """A wish as the value of the xattr."""
        if len(layout.components) != 1:
            raise UnsupportedError(f"{path}: CephFS stripes a file in one way from begin to end")
        wish = layout.components[0]
        pool = wish.pool or (self._pool_on(wish.targets, path) if wish.targets else "")
        count = wish.stripe_count or 1
        if count == ALL:
            count = len(self.pools.get(pool, ())) or 1
        if len(set(wish.targets)) == 1 and wish.targets:
            count = 1
        unit = wish.stripe_size_bytes or DEFAULT_OBJECT_BYTES
        size = wish.object_size_bytes or -(-DEFAULT_OBJECT_BYTES // unit) * unit
        words = [f"stripe_unit={unit}", f"stripe_count={count}", f"object_size={size}"]
        return " ".join([*words, *([f"pool={pool}"] if pool else [])]).encode()

    def create(self, path: str, layout: Layout) -> None:
        value = self.text_of(layout, path)
        made = False
        try:
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
                made = True
            except FileExistsError:
                pass
            os.setxattr(path, "ceph.file.layout", value)
        except OSError as error:
            if made:
                Path(path).unlink()
            raise answer(error, path, "setting the layout") from error

    def set_default(self, path: str, layout: Layout) -> None:
        try:
            os.setxattr(path, "ceph.dir.layout", self.text_of(layout, path))
        except OSError as error:
            raise answer(error, path, "setting the layout") from error


def _layout_text(where: Where) -> bytes:
    """A file's layout, else a folder's default; ENODATA from the second says that there is none."""
    try:
        return os.getxattr(where, "ceph.file.layout")
    except OSError as error:
        if error.errno != errno.ENODATA:
            raise
        return os.getxattr(where, "ceph.dir.layout")


def _state(osd: dict[str, Any]) -> str:
    if not osd["up"]:
        return DOWN
    if not osd["in"]:
        return INACTIVE
    if "full" in osd["state"]:
        return FULL
    return DEGRADED if {"nearfull", "backfillfull"} & set(osd["state"]) else UP
