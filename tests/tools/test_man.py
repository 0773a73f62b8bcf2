# SPDX-License-Identifier: Apache-2.0
"""Man pages and completions come from the parser, one for each verb."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import verbs
from penstock.cli.completion import SHELLS

ROOT = Path(__file__).parents[2]
PENSTOCK = Path(sys.executable).parent / "penstock"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, str(ROOT / "tools/man.py"), str(folder)], check=True, timeout=60)
    return folder


def test_verbs_are_modules_are_pages(pages: Path) -> None:
    """A verb is a module of penstock.cli and has a man page; nothing else has."""
    modules = {p.stem for p in (ROOT / "src/penstock/cli").glob("[!_]*.py")}

    assert set(verbs()) == modules
    assert {p.name for p in pages.iterdir()} == {"penstock.1"} | {f"penstock-{m}.1" for m in modules}


def test_each_option_of_the_parser_is_in_its_page(pages: Path) -> None:
    for verb in verbs():
        text = (pages / f"penstock-{verb}.1").read_text().replace("\\-", "-")
        shown = subprocess.run(
            [PENSTOCK, verb, "--help"], capture_output=True, text=True, check=True, timeout=60
        )
        for option in re.findall(r"^  +(--?[a-z-]+)", shown.stdout, re.MULTILINE):
            assert option in text, verb


def test_each_page_has_an_example_and_every_verb_a_line(pages: Path) -> None:
    whole = (pages / "penstock.1").read_text().replace("\\-", "-")
    for verb in verbs():
        assert f"penstock-{verb} (1)" in whole
        assert ".SH EXAMPLES\n.PP\n.nf\n" in (pages / f"penstock-{verb}.1").read_text(), verb


def test_pages_are_good_roff(pages: Path) -> None:
    if not shutil.which("groff"):
        pytest.skip("groff is missing: apt-get install groff-base")
    for page in pages.iterdir():
        shown = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", str(page)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert shown.stderr == ""
        assert "it took too long" in shown.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_holds_every_verb(shell: str) -> None:
    shown = subprocess.run(
        [PENSTOCK, "completion", shell], capture_output=True, text=True, check=True, timeout=60
    )

    for verb in verbs():
        assert verb in shown.stdout


def test_bash_completes(tmp_path: Path) -> None:
    """A real bash offers the verb for its first letters, and a verb's options."""
    code = f"""
    source <({PENSTOCK} completion bash)
    try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_penstock; echo "${{COMPREPLY[*]}}"; }}
    try penstock repo
    try penstock report --ht
    try penstock runs sh
    """
    shown = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert shown.stdout.split() == ["report", "--html", "show"]
