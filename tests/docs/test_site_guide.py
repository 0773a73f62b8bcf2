# SPDX-License-Identifier: Apache-2.0
"""The guide to limits for a site: its certificates can be used, its files are right, its units name what there is."""

import configparser
import json
import re
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import cli
from penstock.base import settings
from penstock.control import local, tls
from penstock.policy import rules_toml
from penstock.runs import board

TOP = Path(__file__).parents[2]
GUIDE = (TOP / "docs/guide/site.md").read_text(encoding="utf-8")
PACKAGING = TOP / "packaging"


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> tuple[str, ...]:
    """Both sides in memory; whom the server sees."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=name)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return tls.names(other.getpeercert())


def test_the_certificates_of_the_guide_let_nodes_and_controller_meet(tmp_path: Path) -> None:
    [script] = [block for block in blocks("sh") if "openssl" in block]
    subprocess.run(["bash", "-euc", script], cwd=tmp_path, check=True, capture_output=True, timeout=60)

    def files(host: str) -> tls.Files:
        return tls.Files(*(str(tmp_path / name) for name in (f"{host}.pem", f"{host}.key", "ca.pem")))

    server = tls.Certificates(files("head"), server=True).context
    client = tls.Certificates(files("node1"), server=False).context

    assert handshake(server, client, "head") == ("node1",)


def test_the_settings_and_the_policy_of_the_guide_are_right() -> None:
    held, policy = blocks("toml")
    found = settings.read_text(held, "guide")
    parsed, mistakes = rules_toml.parse(policy, frozenset(board.operations()))

    assert found["controller.address"].value == "head:7411"
    assert mistakes == []
    assert parsed is not None
    assert parsed.limits[0].shadow


UNITS = sorted((PACKAGING / "systemd").glob("penstock-*.service"))


def read(unit: Path) -> configparser.RawConfigParser:
    found = configparser.RawConfigParser(strict=False)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(unit.read_text())
    return found


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_starts_what_the_program_takes(unit: Path) -> None:
    """Each command is one that the command line parses, and the folders are those that the settings mean."""
    service = read(unit)["Service"]
    commands = [service[key].split() for key in ("ExecStartPre", "ExecStart") if key in service]

    for program, verb, *rest in commands:
        assert program == "/usr/bin/penstock"
        args = cli.make_parser(verb).parse_args([verb, *rest])
        assert args.verb == verb
    if unit.stem == "penstock-agent":
        assert args.all_users
        mount = read(PACKAGING / "systemd/run-penstock-boards.mount")["Mount"]
        assert mount["Where"] == str(Path(local.SITE_SOCKET).parent / "boards")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_has_nothing_to_say_against_a_unit(unit: Path, tmp_path: Path) -> None:
    """Its own checks, without it running: words, dependencies, and how far the service is shut in."""
    for path in (PACKAGING / "systemd").glob("*.*"):
        text = path.read_text().replace("/usr/bin/penstock ", f"{sys.prefix}/bin/penstock ")
        (tmp_path / path.name).write_text(text)
    ours = [tmp_path / unit.name, tmp_path / "run-penstock-boards.mount"]
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *ours],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=25", ours[0]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (verified.returncode, verified.stderr) == (0, "")
    assert judged.returncode == 0, judged.stdout


def test_alerts_and_dashboard_name_what_there_is() -> None:
    text = (TOP / "src/penstock/control/metrics.py").read_text()
    told = (PACKAGING / "prometheus/alerts.yml").read_text() + (
        PACKAGING / "prometheus/dashboard.json"
    ).read_text()
    json.loads((PACKAGING / "prometheus/dashboard.json").read_text())

    for name in set(re.findall(r"penstock_(?:agent|limit)_\w+", told)):
        assert name.removesuffix("_total") in text, name
