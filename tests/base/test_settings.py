# SPDX-License-Identifier: Apache-2.0
"""Settings: precedence, origin, and errors that say where."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base import settings
from penstock.base.errors import DeniedError, UsageError


def load(tmp_path: Path, words: list[str] | None = None, **texts: str) -> settings.Settings:
    """Settings from files and variables given as texts: site, user, config; the rest are variables."""
    names = {}
    for name in ("site", "user", "config"):
        path = tmp_path / name / "penstock" / "penstock.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        if name in texts:
            path.write_text(texts[name])
            names[name] = str(path)
    env = {"XDG_CONFIG_HOME": str(tmp_path / "user"), "HOME": str(tmp_path)}
    env |= {key: value for key, value in texts.items() if key.isupper()}
    return settings.load(words, names.get("config"), env, str(tmp_path / "site/penstock/penstock.toml"))


SOURCES = ["site", "user", "config", "environment", "words"]


@given(st.sets(st.sampled_from(SOURCES)))
def test_the_strongest_source_wins(sources: set[str]) -> None:
    """Command line over environment over --config over user over site over default, and origin says which."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        texts = {
            s: f"[report]\n\ntop = {1 + SOURCES.index(s)}\n" for s in sources & {"site", "user", "config"}
        }
        if "environment" in sources:
            texts["PENSTOCK_REPORT_TOP"] = "4"
        held = load(Path(name), ["report.top=5"] if "words" in sources else None, **texts)
        strongest = max((SOURCES.index(s) for s in sources), default=-1)

        assert held["report.top"] == (8 if strongest < 0 else strongest + 1)
        expected = ["default", ":3", ":3", ":3", "PENSTOCK_REPORT_TOP", "command line"][strongest + 1]
        assert held.origin("report.top").endswith(expected)


def test_unknown_key_names_file_line_and_neighbour(tmp_path: Path) -> None:
    text = '# mine\n[history]\nreaders = "user"\nkep = "3d"\n'

    with pytest.raises(UsageError, match=r"penstock\.toml:4: .*'history\.kep'; did you mean history\.keep\?"):
        load(tmp_path, user=text)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ('[history]\nkeep = "many"\n', r":2: history\.keep: 'many' is not a time"),
        ("[history]\nkeep = true\n", r":2: history\.keep"),
        ('history.readers = "world"\n', r":1: .* none of user, group"),
        ('history = { dir = "relative" }\n', r":1: .*absolute"),
        ("[history\n", "is not TOML"),
        ("[histori]\n", "no setting 'histori'"),
        ("report = 3\n", "no setting 'report'"),
        ("[report]\ntop = -1\n", r":2: .*whole number"),
        ('place.target_rate = "0MiB"\n', r":1: .*'0MiB' is 0; it must be more"),
        ('tune.safety = "0%"\n', r":1: .*'0%' is 0; it must be more"),
        ("[[report]]\ntop = 1\n", "no setting 'report'"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, text: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        load(tmp_path, user=text)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text of a settings file raises anything but the one error."""
    with contextlib.suppress(UsageError):
        settings.read_text(text, "file")


def test_unreadable_file_is_denied(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").mkdir()

    with pytest.raises(DeniedError, match="cannot be read"):
        settings.read_file(str(tmp_path / "penstock.toml"))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a = '\xff'")

    with pytest.raises(UsageError, match="not UTF-8"):
        settings.read_file(str(tmp_path / "f"))


def test_one_variable_moves_all_state(tmp_path: Path) -> None:
    held = load(tmp_path, PENSTOCK_STATE_DIR=str(tmp_path / "s"))

    assert held.history_dir == tmp_path / "s/history"
    assert held.index_dir == tmp_path / "s/cache"


def test_defaults_follow_xdg(tmp_path: Path) -> None:
    held = load(tmp_path, XDG_STATE_HOME="/var/x", XDG_CACHE_HOME="not/absolute")

    assert str(held.history_dir) == "/var/x/penstock/history"
    assert held.index_dir == tmp_path / ".cache/penstock"


def test_defaults_read_back_and_template_is_valid() -> None:
    """Each default is written as its type writes it, and the template without its comments is right."""
    for setting in settings.SCHEMA:
        assert setting.type.write(setting.type.read(setting.default)) == setting.default
    bare = "\n".join(
        line.removeprefix("# ") if " = " in line else line for line in settings.template().splitlines()
    )

    found = settings.read_text(bare, "template")

    assert sorted(found) == sorted(settings.BY_NAME)


def test_misspelt_variable_is_noticed() -> None:
    found = settings.stray_variables({"PENSTOCK_HISTROY_KEEP": "1d", "PENSTOCK_OTHER": "1"})

    assert found == ["PENSTOCK_HISTROY_KEEP is not a setting; did you mean PENSTOCK_HISTORY_KEEP?"]


def test_settings_are_documented() -> None:
    """The table in the guide is the schema's."""
    guide = Path(__file__).parents[2] / "docs/guide/settings.md"

    assert settings.markdown() in guide.read_text()


def test_importing_settings_is_cheap() -> None:
    """No third party and no TOML at import: `penstock run` pays for each look-up of a path."""
    names = "('msgspec', 'tomllib', 'difflib')"
    code = f"import sys, penstock.base.settings; print([m for m in {names} if m in sys.modules])"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert shown.stdout == "[]\n"
