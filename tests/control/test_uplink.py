# SPDX-License-Identifier: Apache-2.0
"""Coming back after a loss, and what agents and controllers refuse of each other."""

import contextlib
import random
import signal
import socket
import ssl
import time
from pathlib import Path

import numpy as np
import pytest
import trustme
from launching import until
from plane import Site
from plane_jobs import asked, held_to, rate, row, start

from penstock.base.errors import PenstockError, UsageError
from penstock.control import tls, wire
from penstock.control.journal import Journal
from penstock.control.uplink import MOST_S, pause_s


def test_c08_two_hundred_agents_do_not_come_back_in_one_moment() -> None:
    """After a restart: when each tries, over its first tries; peak against mean, in windows of a tenth of MOST_S."""
    chance = random.Random(7)
    tries: list[float] = []
    for _ in range(200):
        at = 0.0
        for failure in range(1, 12):
            at += pause_s(failure, chance.random())
            tries.append(at)
    late = [at for at in tries if 2.0 <= at < 8.0]
    counts, _ = np.histogram(late, bins=round(6.0 / (MOST_S / 10)), range=(2.0, 8.0))

    assert counts.max() / counts.mean() < 3
    assert max(pause_s(n, 0.999) for n in range(100)) <= MOST_S
    assert min(pause_s(n, 0.0) for n in range(100)) > 0


ANOTHER_CLOCK = ("unshare", "-T", "--monotonic", "864000", "--boottime", "864000", "--fork", "--kill-child")


@pytest.mark.root
def test_c02_what_an_agent_is_granted_ends_by_its_own_clock(tmp_path: Path) -> None:
    """The controller's clock is ten days ahead, then it is not: leases are lengths of time."""
    with Site(tmp_path) as site:
        site.start_controller(inside=ANOTHER_CLOCK)
        site.start_agent("n1")
        job = start(site, "n1", "1")
        until(lambda: asked(site, "n1", "1") > 100, "it runs")
        ahead = until(lambda: (r := row(site, "n1", "1")) and r["rate"] > 900 and r, "it is granted")
        assert site.controller is not None
        site.controller.end(signal.SIGKILL)
        until(lambda: row(site, "n1", "1")["lease_left_s"] < 0, "its lease ends")  # type: ignore[index]
        until(lambda: not answers(site), "the port is free")
        site.start_controller()
        back = until(
            lambda: (r := row(site, "n1", "1")) and r["lease_left_s"] > 0 and r, "it is granted again"
        )
        job.stop()
        fake = site.fake("n2")
        fake.rows([{"id": "1", "user": "u"}], [(0, 0)])
        fake.report([10], [0])
        grants = fake.hear("grants")

    assert ahead["lease_left_s"] <= 1.0
    assert back["lease_left_s"] <= 1.0
    assert grants.lease_s == 1.0
    assert "time" not in {field.name for field in grants.DESCRIPTOR.fields}


def answers(site: Site) -> bool:
    try:
        socket.create_connection((site.host, site.ports[0]), timeout=5).close()
    except OSError:
        return False
    return True


def test_c10_the_controller_starts_no_process() -> None:
    source = Path(tls.__file__).parent
    for name in ("controller", "tools", "fleet", "journal", "aggregator", "uplink", "wire"):
        text = (source / f"{name}.py").read_text()
        assert not any(word in text for word in ("subprocess", "os.fork", "multiprocessing")), name


def test_c12_no_generated_code_that_another_protobuf_would_refuse() -> None:
    source = Path(wire.__file__).parent

    assert list(source.glob("*_pb2*.py")) == []
    assert (source / "wire.binpb").exists()


@pytest.mark.parametrize(
    "name, found, right",
    [
        ("n1", ("n1",), True),
        ("n1", ("n2", "n3"), False),
        ("n1.site", ("*.site",), True),
        ("a.n1.site", ("*.site",), False),
        ("n1", ("*",), False),
        ("", ("",), False),
    ],
)
def test_a_certificate_says_for_which_nodes_one_speaks(
    name: str, found: tuple[str, ...], right: bool
) -> None:
    assert tls.may_be(name, found) is right


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:65536", "host:x"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="is no address; write it as HOST:PORT"):
        tls.read_address(text)


def test_a_frame_too_long_or_damaged_is_refused_and_pieces_are_put_together() -> None:
    whole = wire.frame(wire.ToAgent(refusal=wire.Refusal(why="x" * 1000)))
    frames = wire.Frames(wire.ToAgent)
    found = [said for byte in whole + whole for said in frames.feed(bytes([byte]))]

    assert [said.refusal.why for said in found] == ["x" * 1000] * 2
    with pytest.raises(wire.WireError, match="a frame of 4294967295 bytes came"):
        list(wire.Frames(wire.ToAgent).feed(b"\xff" * 8))
    with pytest.raises(wire.WireError, match="no message of this protocol"):
        list(wire.Frames(wire.ToAgent).feed(b"\0\0\0\x03\x0a\x7f\x01"))


def test_who_has_not_said_who_he_is_may_say_little() -> None:
    frames = wire.Frames(wire.FromAgent, wire.UNKNOWN_FRAME_BYTES)
    long = wire.frame(wire.FromAgent(hello=wire.Hello(node="x" * 70_000)))

    with pytest.raises(wire.WireError, match="65536 are allowed"):
        list(frames.feed(long[:10]))
    frames = wire.Frames(wire.FromAgent, wire.UNKNOWN_FRAME_BYTES)
    frames.most = wire.MAX_FRAME_BYTES
    assert len(list(frames.feed(long))) == 1


def shake(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """A whole handshake, in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="head"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in list(sides):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                sides.remove(side)
    assert sides == []


def test_c11_a_half_renewed_certificate_leaves_the_old_one(tmp_path: Path) -> None:
    """The new certificate is there, its key is not yet."""
    ca, paths = trustme.CA(), [tmp_path / name for name in ("h.pem", "h.key", "ca.pem")]
    ca.cert_pem.write_to_path(str(paths[2]))
    old, new = ca.issue_cert("head"), ca.issue_cert("head")
    old.cert_chain_pems[0].write_to_path(str(paths[0]))
    old.private_key_pem.write_to_path(str(paths[1]))
    files = tls.Files(*map(str, paths))
    server = tls.Certificates(files, server=True)
    client = ssl.create_default_context(cafile=str(paths[2]))
    old.configure_cert(client)
    shake(server.context, client)
    new.cert_chain_pems[0].write_to_path(str(paths[0]))

    assert "cannot be used" in server.refresh()
    shake(server.context, client)
    new.private_key_pem.write_to_path(str(paths[1]))
    assert server.refresh() == ""
    shake(server.context, client)


def test_the_agent_says_in_one_sentence_why_it_is_not_let_in(tmp_path: Path) -> None:
    """A foreign certificate, a used token, an authority that is not its own: it goes on trying, and jobs run."""
    with Site(tmp_path) as site:
        site.start_controller()
        token = site.token()
        site.fake("other", token=token).hear("welcome")
        (tmp_path / "n1.token").write_text(token)
        agent = site.start_agent("n1")
        until(lambda: "the token of n1 was used already" in agent.said(), "it says why")
        job = start(site, "n1", "1")
        until(lambda: job.popen.poll() is None and row_or_none(site), "a job runs meanwhile")
        screen = site.ask("status", node="n1")
        job.stop()
        foreign = site.certificate("n2", ca=trustme.CA())
        (tmp_path / "n2.token").write_text("x")
        stranger = site.start_agent("n2", **foreign)
        until(lambda: "WARNING" in stranger.said(), "it says why")

        assert "the token of n1 was used already" in screen
        assert "Traceback" not in agent.said() + stranger.said()


def row_or_none(site: Site) -> bool:
    try:
        return "job 1" in site.ask("status", node="n1")
    except AssertionError:
        return False


def test_an_aggregator_stands_between(tmp_path: Path) -> None:
    """Limits hold in sum over two aggregators; releases and policies pass through; a lost top ends leases below."""
    with Site(tmp_path) as site:
        site.start_controller()
        below = []
        for name in ("agg1", "agg2"):
            process, port = site.start_aggregator(name)
            below.append((process, port))
            (tmp_path / f"of-{name}.token").write_text(site.token(of=name))
        top = site.ports
        agents = []
        for number, (name, (_, port)) in enumerate(zip(("agg1", "agg2"), below, strict=True)):
            site.ports = (port, top[1])
            (tmp_path / f"n{number}.token").write_text((tmp_path / f"of-{name}.token").read_text())
            agents.append(site.start_agent(f"n{number}"))
        site.ports = top
        pairs = [("n0", "1"), ("n1", "1")]
        for node, job in pairs:
            start(site, node, job)
        until(lambda: all(asked(site, *pair) > 100 for pair in pairs), "both run")
        until(lambda: (j := site.job("1")) and j["nodes"] == 2, "the top sees it through both")
        time.sleep(1)  # the windows before are of the start
        held_to(site, pairs, 800, 1200)
        site.ask("policy", "set", "all metadata", "400/s")
        until(lambda: rate(site, pairs, 1.0) < 520, "another rate reaches the nodes")
        site.ask("release", "--all")
        until(lambda: rate(site, pairs, 0.5) > 3000, "so does a release")
        site.ask("release", "--all", "--undo")
        until(lambda: rate(site, pairs, 0.5) < 1000, "and its end")
        assert site.controller is not None
        site.controller.end(signal.SIGKILL)
        until(lambda: row(site, "n0", "1")["lease_left_s"] < 0, "leases below end")  # type: ignore[index]


def test_numbers_for_prometheus_are_told_on_loopback_alone(tmp_path: Path) -> None:
    import urllib.request

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Site(tmp_path) as site:
        site.start_controller()
        site.start_agent("n1", **{"agent.metrics": f"127.0.0.1:{port}"})
        start(site, "n1", "1")
        until(lambda: asked(site, "n1", "1") > 100, "it runs")

        def scrape() -> dict[str, float]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                rows = [
                    line.rpartition(" ") for line in answer.read().decode().splitlines() if line[0] != "#"
                ]
            return {name: float(value) for name, _, value in rows}

        label = '{limit="all metadata"}'
        found = until(
            lambda: (s := scrape()).get(f"penstock_limit_granted_per_second{label}", 0) > 900 and s,
            "grants show",
        )
        with pytest.raises(AssertionError, match="numbers are told on loopback alone"):
            site.start_agent("n2", **{"agent.metrics": "0.0.0.0:0"})

    assert found["penstock_agent_connected"] == 1
    assert found["penstock_agent_jobs"] == 1
    assert found[f"penstock_limit_asked_per_second{label}"] > 500


def test_the_guard_lowers_the_total_while_calls_are_slow(tmp_path: Path) -> None:
    policy = (
        '[control]\ninterval = "50ms"\nlease = "2s"\n[[limit]]\nname = "m"\nrate = "1k/s"\n'
        '[guard]\nlimit = "m"\nlatency = "20ms"\nleast = "300/s"\n'
    )
    with Site(tmp_path, policy) as site:
        site.start_controller()
        fake = site.fake("n1")
        fake.rows([{"id": "1", "user": "u"}], [(0, 0)])

        def granted(latency_s: float) -> float:
            column = np.array([900.0]).tobytes()
            said = wire.Report(epoch=1, asked=column, waiting=column, waited_s=column, latency_s=latency_s)
            fake.send(wire.FromAgent(report=said))
            return fake.grants()[0]

        until(lambda: granted(0.001) > 950, "all of it while calls are quick")
        until(lambda: granted(0.5) < 700, "less while they are slow")
        until(lambda: granted(0.001) > 950, "all of it again", 60)


def test_a_journal_admits_each_token_as_often_as_it_says(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a/journal.sqlite")
    token = journal.make_token(1, 60)
    first, second, again = journal.admit("n1", token), journal.admit("n2", token), journal.admit("n1", "")
    held = journal.set_policy("base", "text", "who", "said")
    journal.close()
    reopened = Journal(tmp_path / "a/journal.sqlite")

    assert (first, again) == ("", "")
    assert "used already" in second
    assert reopened.policy() == held
    assert reopened.admit("n1", "anything") == ""
    assert token not in (tmp_path / "a/journal.sqlite").read_bytes().decode("latin-1")
    (tmp_path / "b").write_text("no folder")
    with pytest.raises((PenstockError, FileExistsError)):
        Journal(tmp_path / "b/journal.sqlite")
