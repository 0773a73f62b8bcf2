# SPDX-License-Identifier: Apache-2.0
"""penstock config, as a user types it."""

import json
import subprocess
import sys
from pathlib import Path


def penstock(tmp_path: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    base = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [str(Path(sys.executable).parent / "penstock"), *words]
    return subprocess.run(command, capture_output=True, text=True, env=base | env, timeout=60, check=False)


def test_show_origin_tells_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / ".config/penstock/penstock.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[history]\nkeep = "1h30m"\n')

    shown = penstock(tmp_path, "config", "show", "--origin", PENSTOCK_REPORT_TOP="3")

    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert shown.returncode == 0
    assert lines["history.keep"].endswith(f"# {file}:2")
    assert "= 1h30m" in lines["history.keep"]
    assert lines["report.top"].endswith("# PENSTOCK_REPORT_TOP")
    assert lines["history.readers"].endswith("# default")


def test_show_json_has_a_version_and_raw_values(tmp_path: Path) -> None:
    shown = penstock(tmp_path, "config", "show", "--json", "history.max_size")

    document = json.loads(shown.stdout)
    assert document["schema_version"] == 1
    assert document["settings"][0]["value"] == 2**31


def test_unknown_setting_is_one_sentence_and_status_2(tmp_path: Path) -> None:
    for words in (["show", "histori.keep"], ["show", "--set", "history.kep=1d"], ["check", "no-such-file"]):
        shown = penstock(tmp_path, "config", *words)

        assert shown.returncode == 2
        assert shown.stdout == ""
        assert len(shown.stderr.splitlines()) == 1


def test_template_checks(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(penstock(tmp_path, "config", "template").stdout)

    shown = penstock(tmp_path, "config", "check", str(tmp_path / "t"))

    assert shown.stdout == f"{tmp_path}/t: 0 settings, all right\n"
