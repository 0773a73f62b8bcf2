# SPDX-License-Identifier: Apache-2.0
"""One job on three hosts, each with a network and an agent of its own, one controller over mTLS."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import until
from plane import Hosts, Site
from plane_jobs import asked, held_to, rate, row, start

from penstock.control import local

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="only root can make network namespaces"),
]
NAMES = ("n1", "n2", "n3")
POLICY = """
[control]
interval = "50ms"
lease = "1s"

[[limit]]
name = "all metadata"
rate = "1200/s"
on_lost = "100/s"
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    hosts = Hosts(tmp_path, NAMES)
    try:
        with Site(tmp_path, POLICY, hosts.address) as made:
            made.inside = hosts.inside("head")
            made.hosts = hosts  # type: ignore[attr-defined]
            made.start_controller()
            for name in NAMES:
                made.start_agent(name, inside=hosts.inside(name))
            yield made
    finally:
        hosts.end()


def is_connected(site: Site, node: str) -> bool:
    told = json.loads(local.ask(str(site.socket(node)), op="status")["json"])
    return bool(told["controller"]["connected"])


def test_the_limit_of_a_job_on_three_hosts_holds_in_sum_and_through_a_partition(site: Site) -> None:
    hosts = site.hosts  # type: ignore[attr-defined]
    pairs = [(name, "4711") for name in NAMES]
    for name in NAMES:
        start(site, name, "4711", inside=hosts.inside(name))
    until(lambda: all(asked(site, *pair) > 100 for pair in pairs), "all three run")
    until(lambda: len([n for n in site.ask("nodes", "--json")["nodes"] if n["here"]]) == 3, "all are here")
    time.sleep(1)  # the windows before are of the start
    held_to(site, pairs, 1000, 1350)
    shown = site.job("4711")

    hosts.cut_off("n3")
    until(lambda: not is_connected(site, "n3"), "C01: the agent notices that nobody is there", 60)
    until(lambda: rate(site, pairs[:2], 1.0) > 1050, "the two others have what it left", 60)
    alone = until(lambda: (r := rate(site, pairs[2:], 1.0)) < 200 and r, "on_lost holds on the lost one", 60)
    others = rate(site, pairs[:2])
    screen = site.ask("status", "4711", node="n3")

    hosts.cut_off("n3", cut=False)
    until(lambda: is_connected(site, "n3"), "it has found the controller again", 60)
    until(lambda: row(site, "n3", "4711")["lease_left_s"] > 0, "it is back", 60)  # type: ignore[index]
    until(lambda: rate(site, pairs[2:], 1.0) > 300, "it has its share again", 60)
    held_to(site, pairs, 1000, 1350)

    assert shown["nodes"] == 3
    assert others < 1350
    assert alone < 200
    assert "its lease is over: on_lost = " in screen


def test_the_unused_share_of_a_jobs_idle_node_moves_to_its_busy_one(site: Site) -> None:
    hosts = site.hosts  # type: ignore[attr-defined]
    idle = [start(site, name, "1", inside=hosts.inside(name)) for name in NAMES[1:]]
    busy = start(site, "n1", "1", inside=hosts.inside("n1"), threads=2)
    pairs = [(name, "1") for name in NAMES]
    until(lambda: all(asked(site, *pair) > 50 for pair in pairs), "all three run")
    for job in idle:
        job.stop()
    until(lambda: rate(site, pairs[:1], 1.0) > 1050, "C07: the busy node has nearly all")
    busy.stop()
