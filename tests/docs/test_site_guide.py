# SPDX-License-Identifier: Apache-2.0
"""The guide to limits for a site: its certificates can be used, its files are right, its units name what there is."""

import configparser
import json
import re
import ssl
import subprocess
from pathlib import Path

from penstock.base import settings
from penstock.control import tls
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


def test_units_alerts_and_dashboard_name_what_there_is() -> None:
    words = {}
    for path in (PACKAGING / "systemd").glob("penstock-*.service"):
        unit = configparser.RawConfigParser(strict=False)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(path.read_text())
        words[path.stem] = unit["Service"]["ExecStart"].split()
        assert unit["Service"]["NoNewPrivileges"] == "yes"
    text = (TOP / "src/penstock/control/metrics.py").read_text()
    told = (PACKAGING / "prometheus/alerts.yml").read_text() + (
        PACKAGING / "prometheus/dashboard.json"
    ).read_text()
    json.loads((PACKAGING / "prometheus/dashboard.json").read_text())

    assert words["penstock-agent"][1:] == ["agent", "--all-users"]
    assert words["penstock-controller"][1] == "controller"
    for name in set(re.findall(r"penstock_(?:agent|limit)_\w+", told)):
        assert name.removesuffix("_total") in text, name
