# SPDX-License-Identifier: Apache-2.0
"""A program for the system's Python, which alone sees python3-rados: asks a Ceph cluster what JSON lines say.

    /usr/bin/python3 -I ceph_mon.py CEPH_CONF

Each line of standard input is one question, each line of standard output its answer {"rc", "out", "err"}:

    {"prefix": "osd dump", ...}             a command for the monitors (they pass those of the manager on)
    {"tell": [0, 3], "prefix": "perf dump"} the same command to several OSDs at once: {"0": out, ...},
                                            without the ones that did not answer in two seconds
    {"list": "pool"}                        the names of a pool's objects, as its OSDs tell them

It ends with its input.  It imports nothing of Penstock.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

CONNECT_S = 10
TELL_S = 2


def _json(out: bytes) -> Any:
    return json.loads(out) if out.strip() else None


def _tell(cluster: Any, question: dict[str, Any]) -> dict[str, Any]:
    ids = question.pop("tell")
    command = json.dumps({**question, "format": "json"})

    def one(osd: int) -> Any:
        try:
            rc, out, _ = cluster.osd_command(osd, command, b"", timeout=TELL_S)
        except Exception:
            return None
        return None if rc else _json(out)

    with ThreadPoolExecutor(max(len(ids), 1)) as pool:
        rows = zip(ids, pool.map(one, ids), strict=True)
        return {str(osd): row for osd, row in rows if row is not None}


def _list(cluster: Any, pool: str) -> list[str]:
    with cluster.open_ioctx(pool) as context:
        return sorted(item.key for item in context.list_objects())


def answer(cluster: Any, question: dict[str, Any]) -> dict[str, Any]:
    if "list" in question:
        return {"rc": 0, "out": _list(cluster, question["list"]), "err": ""}
    if "tell" in question:
        return {"rc": 0, "out": _tell(cluster, question), "err": ""}
    rc, out, err = cluster.mon_command(json.dumps({**question, "format": "json"}), b"", timeout=CONNECT_S)
    return {"rc": rc, "out": None if rc else _json(out), "err": err}


def main() -> None:
    import rados

    cluster = rados.Rados(conffile=sys.argv[1], name="client.admin")
    cluster.connect(timeout=CONNECT_S)
    try:
        print('{"rc": 0, "out": "connected", "err": ""}', flush=True)
        for line in sys.stdin:
            try:
                said = answer(cluster, json.loads(line))
            except Exception as error:  # one bad question must not end the rest
                said = {"rc": -5, "out": None, "err": f"{type(error).__name__}: {error}"}
            print(json.dumps(said), flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
