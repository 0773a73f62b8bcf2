# SPDX-License-Identifier: Apache-2.0
"""A controller as it is deployed, over TLS, with agents in name only: joining, refusing, deciding, coming back."""

import datetime
import json
import signal
import socket
import sqlite3
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from launching import PENSTOCK, until
from plane import POLICY, Process, Site, settings

from penstock.control import tools, wire

JOB = [{"id": "4711", "user": "alice"}]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as made:
        made.start_controller()
        yield made


def refusal(site: Site, name: str = "n9", **hello: Any) -> str:
    return str(site.fake(name, **hello).hear("refusal").why)


def test_an_agent_joins_reports_and_is_granted(site: Site) -> None:
    fake = site.fake("n1")
    fake.rows(JOB, [(0, 0)])
    fake.report([300], [0])

    assert fake.hear("policy").text == POLICY
    assert 375 < until(lambda: fake.report([300], [0]) or fake.grants(), "grants")[0] <= 1000
    assert site.ask("nodes", "--json")["nodes"][0]["node"] == "n1"


def test_who_is_not_who_he_says_is_refused(site: Site) -> None:
    wrong_name = refusal(site, "n1", node="n2")
    assert wrong_name == "'n2' is not in the certificate of 127.0.0.1, which is for n1"

    no_token = refusal(site, "n3", token="")
    assert no_token == "n3 has not joined yet and brings no token; make one with: penstock controller token"

    unknown = refusal(site, "n4", token="made-up")
    assert unknown == (
        "the token of n4 is not one of this controller's; make one with: penstock controller token"
    )

    version = refusal(site, "n5", version=99)
    assert version == (
        "n5 speaks version 99 of the protocol, this controller 1 to 1; install the same Penstock on both "
        "(fake, 0.1.0)"
    )

    assert site.fake("n6").hear("welcome").version == wire.VERSION  # everything else goes on


def test_a_replayed_token_is_refused_but_a_known_node_comes_back(site: Site) -> None:
    token = site.token()
    first = site.fake("n1", token=token)
    first.hear("welcome")

    replayed = refusal(site, "n2", token=token)

    assert replayed == "the token of n2 was used already; make another with: penstock controller token"
    assert site.fake("n1", token="").hear("welcome")


def test_foreign_and_expired_certificates_are_refused(site: Site) -> None:
    """The handshake fails, on both sides with a sentence; others go on."""
    stranger = trustme.CA()
    foreign = site.certificate("n1", ca=stranger)
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    expired = site.certificate("n2", not_after=past)
    for files in (foreign, expired):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            fake = site.fake("nx", token="", certificate=files)
            fake.hear("refusal")

    assert site.fake("n3").hear("welcome")


def test_a_client_without_a_certificate_gets_nowhere(site: Site) -> None:
    context = ssl.create_default_context(cafile=str(site.folder / "ca.pem"))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        raw = socket.create_connection((site.host, site.ports[0]), timeout=10)
        with context.wrap_socket(raw, server_hostname=site.host) as sock:
            sock.sendall(wire.frame(wire.FromAgent(hello=wire.Hello(version=1, node="n1"))))
            if not sock.recv(100):
                raise ConnectionError("closed")


def test_c13_what_is_no_message_is_refused_and_the_rest_goes_on(site: Site) -> None:
    good = site.fake("n1")
    good.hear("welcome")
    for data in (b"\xff\xff\xff\xff rest", b"\0\0\0\x05hello", wire.frame(wire.FromAgent())):
        bad = site.fake("n2", token=site.token())
        bad.hear("release")
        bad.socket.sendall(data)
        assert bad.hear("refusal").why

    good.rows(JOB, [(0, 0)])
    good.report([1], [0])
    assert good.grants()


def test_c03_an_absurd_report_is_refused_with_one_sentence(site: Site) -> None:
    bad, good = site.fake("n1"), site.fake("n2")
    for fake in (bad, good):
        fake.rows(JOB, [(0, 0)])
    bad.report([float("nan")], [0])
    good.report([10], [0])

    assert bad.hear("refusal").why == "the report of n1 holds absurd numbers; what it said before counts"
    assert good.grants()


def test_c01_an_agent_that_reads_nothing_delays_nobody_and_is_dropped(site: Site) -> None:
    """More than the controller keeps for it is on its way; each turn the other one is answered."""
    frozen, quick = site.fake("n1"), site.fake("n2")
    jobs = [{"id": str(number), "user": "alice"} for number in range(4000)]
    frozen.rows(jobs, [(number, 0) for number in range(len(jobs))])
    quick.rows(JOB, [(0, 0)])
    asked, waiting = [1.0] * len(jobs), [0.0] * len(jobs)
    deadline, turns = time.monotonic() + 90, 0
    with pytest.raises(OSError):
        while time.monotonic() < deadline:
            frozen.report(asked, waiting)
            quick.report([100], [0])
            assert quick.grants()
            turns += 1

    assert turns > 5
    quick.report([100], [0])
    assert quick.grants()


def test_c15_a_wrong_policy_leaves_the_old_one(site: Site) -> None:
    fake = site.fake("n1")
    assert fake.hear("policy").number == 1
    site.policy.write_text(POLICY.replace("1k/s", "many"))
    assert site.controller is not None
    site.controller.popen.send_signal(signal.SIGHUP)
    until(lambda: "the old policy stays" in site.controller.said(), "it says so")  # type: ignore[union-attr]
    asked = site.ask("policy", "set", "all metadata", "lots", check=False)
    unknown = site.ask("policy", "set", "all metadat", "1/s", check=False)

    assert asked.returncode == 2
    assert asked.stderr == ("penstock policy: 'lots' is not a rate; write it like 500/s, 300k/s or 600/min\n")
    assert unknown.stderr == (
        "penstock policy: there is no limit 'all metadat'; there are 'all metadata', and CLASS.total\n"
    )
    assert site.ask("policy", "show", "--json")["policy"] == 1


def test_a_rate_below_what_is_reserved_is_refused_in_one_sentence(tmp_path: Path) -> None:
    reserve = '[[job]]\nusers = ["a"]\nreserve = {"all metadata" = "400/s"}\n'
    with Site(tmp_path, POLICY + reserve) as site:
        site.start_controller()
        refused = site.ask("policy", "set", "all metadata", "100/s", check=False)

    assert refused.returncode == 2
    assert refused.stderr == (
        "penstock policy: 'all metadata' has 400/s reserved, more than its rate of 100/s\n"
    )


def test_a_changed_policy_reaches_agents_and_the_audit_and_survives_kill_9(site: Site) -> None:
    fake = site.fake("n1")
    fake.hear("policy")
    said = site.ask("policy", "set", "metadata.total", "2500/s", "--shadow", "--json")
    told = fake.hear("policy")
    assert site.controller is not None
    site.controller.end(signal.SIGKILL)
    site.start_controller()

    assert (
        said["said"]
        == "'all metadata': 1k/s is now 2500/s; 'metadata.total' only counts from now on (shadow)"
    )
    assert (told.number, "2500/s" in told.text, "shadow = true" in told.text) == (2, True, True)
    assert site.ask("policy", "show", "--json")["policy"] == 2
    audit = [row["what"] for row in site.ask("policy", "show", "--audit", "--json")["audit"]]
    assert said["said"] in audit
    assert site.fake("n1", token="").hear("policy").number == 2


STEPS = """
[[limit]]
name = "m"
rate = "1k/s"
sharing = "timetable"
[rates.m]
default = "700/s"
[timetable.m]
"1s" = {default = "300/s"}
"""


def test_a_timetable_goes_on_over_changes_and_restarts(tmp_path: Path) -> None:
    """Another limit changed, and the controller killed: it does not begin anew."""
    with Site(tmp_path, POLICY + STEPS) as site:
        site.start_controller()
        fake = site.fake("n1")
        policy = fake.hear("policy").number
        fake.rows(JOB, [(0, 1)], policy)

        def granted() -> float:
            fake.report([900], [5])
            return float(fake.grants()[0])

        until(lambda: granted() == 300, "the second step")
        site.ask("policy", "set", "all metadata", "900/s")
        fake.rows(JOB, [(0, 1)], fake.hear("policy").number)
        seen = {granted() for _ in range(10)}
        state = site.state / "journal.sqlite"
        until(lambda: sqlite3.connect(state).execute("select * from begun").fetchall(), "it is written down")
        assert site.controller is not None
        site.controller.end(signal.SIGKILL)
        site.start_controller()
        fake = site.fake("n1", token="")
        fake.rows(JOB, [(0, 1)], fake.hear("policy").number)
        seen |= {granted() for _ in range(10)}

    assert seen == {300}


def test_a_whole_new_policy_survives_kill_9_too(site: Site) -> None:
    other = site.folder / "other.toml"
    other.write_text(POLICY.replace("1k/s", "3k/s"))
    site.ask("policy", "set", "--file", str(other))
    site.ask("policy", "set", "all metadata", "5/s")
    assert site.controller is not None
    site.controller.end(signal.SIGKILL)
    site.start_controller()

    assert 'rate = "5/s"' in site.ask("policy", "show")


def test_it_listens_where_the_settings_say_and_logs_it(tmp_path: Path) -> None:
    with socket.socket() as one, socket.socket() as other:
        for sock in (one, other):
            sock.bind(("127.0.0.1", 0))
        agents, tools_ = one.getsockname()[1], other.getsockname()[1]
    with Site(tmp_path) as site:
        named = {"controller.address": f"localhost:{agents}", "controller.tools": f"localhost:{tools_}"}
        files = {**site.certificate("controller", site.host), **named}
        command = [str(PENSTOCK), "controller", "--json", *settings(files)]
        log = tmp_path / "controller.log"
        process = Process(command, site.env("controller"), log, ())
        site.processes.append(process)

        assert (process.ready["agents"], process.ready["tools"]) == (agents, tools_)
        assert f"listening for agents at 0.0.0.0:{agents}" in log.read_text()
        assert f"listening for people and tools at 127.0.0.1:{tools_}" in log.read_text()


def test_another_file_takes_over_from_the_journal(site: Site) -> None:
    site.ask("policy", "set", "all metadata", "5/s")
    assert site.controller is not None
    site.controller.end()
    site.policy.write_text(POLICY.replace("1k/s", "7k/s"))
    site.start_controller()

    assert 'rate = "7k/s"' in site.ask("policy", "show")
    gone = "which has changed; what was set since it was last read is gone (policy 2)"
    assert gone in site.ask("policy", "show", "--audit")
    assert gone in (site.folder / "controller.log").read_text()


def test_after_release_of_all_every_node_is_shown_as_released(site: Site) -> None:
    site.fake("n1").hear("welcome")
    done = site.ask("release", "--all")
    node = site.ask("nodes", "--json")["nodes"][0]
    audit = site.ask("policy", "show", "--audit")

    assert done == "every job is released: told to 1 node\n"
    assert node["released"]
    assert "made a token for 1 node, valid for 24 h" in audit


def test_tokens_say_who_may_look_and_who_may_change(site: Site) -> None:
    reader = site.ask("policy", "set", "all metadata", "5/s", token="reader", check=False)
    nobody = site.ask("jobs", token="", check=False)

    assert site.ask("jobs", token="reader") == "no job is known on any node\n"
    assert (reader.returncode, nobody.returncode) == (12, 12)
    assert "may not change anything" in reader.stderr
    assert nobody.stderr == (
        "penstock jobs: without a token you may not look; set controller.token_file to a copy of the controller's "
        "reader.token\n"
    )
    assert [p.stat().st_mode & 0o777 for p in site.state.glob("*.token")] == [0o600, 0o600]


def test_an_unknown_job_and_a_missing_controller_have_their_own_exit_codes(site: Site) -> None:
    unknown = site.ask("policy", "explain", "--job", "nope", check=False)
    released = site.ask("release", "nope", check=False)
    listed = site.ask("top", "--once", "--json")["status"]["released"]
    assert site.controller is not None
    site.controller.end()
    gone = site.ask("jobs", check=False)

    assert (unknown.returncode, released.returncode, gone.returncode) == (4, 4, 10)
    assert released.stderr == "penstock release: no node has a job 'nope' now; penstock jobs lists them\n"
    assert listed == []
    assert unknown.stderr == "penstock policy: no node has a job 'nope' now; penstock jobs lists them\n"
    assert "does not answer" in gone.stderr


def test_grpc_tells_its_health_and_its_service(site: Site) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    ca = (site.folder / "ca.pem").read_bytes()
    address = f"{site.host}:{site.ports[1]}"
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(ca)) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=wire.SERVICE), timeout=20
        )
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        [answer] = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([ask]), timeout=20
        )

    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert wire.SERVICE in [service.name for service in answer.list_services_response.service]


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Site]:
    """A site whose leases outlast a slow machine's commands."""
    with Site(tmp_path, POLICY.replace('"1s"', '"60s"')) as made:
        made.start_controller()
        yield made


def test_rates_move_with_demand_and_are_explained(patient: Site) -> None:
    site = patient
    a, b = site.fake("n1"), site.fake("n2")
    a.rows([{"id": "1", "user": "alice"}], [(0, 0)])
    b.rows([{"id": "2", "user": "bob"}], [(0, 0)])

    def cycle(busy: float) -> float:
        a.report([900], [5])
        b.report([busy], [0])
        return float(a.grants()[0])

    until(lambda: 850 < cycle(50) < 960, "a has what b leaves")
    until(lambda: cycle(480) < 510, "b has its share back")
    found = site.ask("policy", "explain", "--job", "1", "--json")["jobs"][0]

    assert found["held"][0]["why"] == "its fair share of all metadata: it asks for 1000/s"
    assert found["held"][0]["limit"] == "all metadata"
    shown = site.ask("policy", "explain", "--job", "1")
    assert "job 1 of alice, on 1 node:" in shown


def test_c11_a_renewed_certificate_is_used_without_a_restart(site: Site) -> None:
    before = site.fake("n1")
    serial = before.socket.getpeercert(binary_form=True)
    site.certificate("controller", site.host)  # another one, in the same files

    def renewed() -> bool:
        fake = site.fake("n1", token="")
        return bool(fake.socket.getpeercert(binary_form=True) != serial)

    until(renewed, "new connections see the new certificate")


def test_c11_people_and_tools_too_see_the_renewed_certificate(site: Site) -> None:
    context = ssl.create_default_context(cafile=str(site.folder / "ca.pem"))
    context.set_alpn_protocols(["h2"])

    def shown() -> bytes | None:
        raw = socket.create_connection((site.host, site.ports[1]), timeout=10)
        with context.wrap_socket(raw, server_hostname=site.host) as sock:
            return sock.getpeercert(binary_form=True)

    first = shown()
    site.certificate("controller", site.host)
    until(lambda: shown() != first, "new connections see the new certificate")

    assert site.ask("jobs") == "no job is known on any node\n"


def test_an_empty_token_file_lets_nobody_in_and_is_made_anew(site: Site) -> None:
    """A controller that was killed while it made them, or a disk that was full."""
    assert site.controller is not None
    site.controller.end()
    (site.state / "admin.token").write_text("")
    site.start_controller()
    nobody = site.ask("policy", "set", "all metadata", "5/s", token="", check=False)

    assert nobody.returncode == 12
    assert len((site.state / "admin.token").read_text()) > 30
    assert (site.state / "admin.token").stat().st_mode & 0o777 == 0o600
    assert site.ask("policy", "set", "all metadata", "5/s", "--json")["policy"] == 2
    assert not tools.may("", ["", "x"])
    assert not tools.may("y", ["", "x"])
    assert tools.may("x", ["", "x"])


def test_a_wrong_start_is_one_sentence(tmp_path: Path) -> None:
    with Site(tmp_path, "[[limit]]\nrate = 5\n[[limits]]\n") as site:
        with pytest.raises(AssertionError, match=r"site\.toml:2: 5 is not a rate"):
            site.start_controller()
        said = (tmp_path / "controller.log").read_text()
        assert "site.toml:3: there is no table 'limits'; did you mean limit?" in said
        assert "Traceback" not in said


def test_a_token_is_valid_for_so_many_nodes_and_so_long(site: Site) -> None:
    token = site.token(uses=2)
    for name in ("n1", "n2"):
        site.fake(name, token=token).hear("welcome")

    assert "was used already" in refusal(site, "n3", token=token)
    words = [str(PENSTOCK), "controller", "token", "--valid", "0s", "--json"]
    done = subprocess.run(words, env=site.env("controller"), capture_output=True, timeout=60, check=True)
    late = json.loads(done.stdout)["token"]
    assert refusal(site, "n4", token=late) == (
        "the token of n4 has expired; make another with: penstock controller token"
    )
