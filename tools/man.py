# SPDX-License-Identifier: Apache-2.0
"""Write the man pages, penstock.1 and penstock-VERB.1, from the parser: python tools/man.py FOLDER."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from penstock import __version__
from penstock.cli import make_parser

STATUS = {
    "0": "done",
    "1": "failed; the sentence says what, where, and what to do",
    "2": "the words typed, or a setting, are wrong",
    "3": "done, but not all of it",
    "4": "there is nothing like that",
    "10": "no controller",
    "11": "somebody else holds a lock",
    "12": "a permission is missing",
    "13": "written by another version",
    "124": "it took too long",
}


def roff(text: str) -> str:
    """Text in which nothing is a request of roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in text.splitlines())


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The verbs, or what is below a verb."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def helps(parser: argparse.ArgumentParser) -> dict[str, str]:
    """One line on each of them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {choice.dest: (choice.help or "").replace("%%", "%") for choice in action._choices_actions}
    return {}


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Each option and word with what it does."""
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        yield f".TP\n.B {roff(formatter._format_action_invocation(action))}"
        yield roff((action.help or "") % {**vars(action), "prog": parser.prog})


def usage(parser: argparse.ArgumentParser) -> str:
    words = parser.format_usage().removeprefix("usage: ").split()
    return roff(" ".join(words))


def page(parser: argparse.ArgumentParser, line: str) -> str:
    """A whole man page."""
    name = parser.prog.replace(" ", "-")
    prose = (parser.description or "").strip().split("\n\n")
    examples = [text for text in prose[1:] if text.startswith(("penstock", "srun", "mpirun"))]
    rest = [text for text in prose if text not in examples]
    parts = [
        f'.TH "{roff(name).upper()}" 1 "" "Penstock {__version__}" "Penstock"',
        f".SH NAME\n{roff(name)} \\- {roff(line)}",
        f".SH SYNOPSIS\n{usage(parser)}",
        ".SH DESCRIPTION",
        *(f".PP\n{roff(text)}" for text in rest),
        ".SH OPTIONS",
        *options(parser),
    ]
    lines = helps(parser)
    if lines:
        parts.append(".SH COMMANDS")
    for word, below in subparsers(parser).items():
        if parser.prog == "penstock":
            parts += [f".TP\n.BR penstock\\-{roff(word)} (1)", roff(lines.get(word, ""))]
        else:
            parts += [f".SS {usage(below)}", roff(lines.get(word, "")), *options(below)]
    if examples:
        parts += [".SH EXAMPLES", *(f".PP\n.nf\n{roff(text)}\n.fi" for text in examples)]
    parts.append(".SH EXIT STATUS")
    parts += [f".TP\n{status}\n{roff(meaning)}" for status, meaning in STATUS.items()]
    if parser.prog != "penstock":
        parts.append(".SH SEE ALSO\n.BR penstock (1)")
    return "\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """All pages by the name of their files."""
    parser = make_parser()
    lines = helps(parser)
    found = {"penstock.1": page(parser, "an I/O control plane for parallel file systems")}
    for verb, below in subparsers(parser).items():
        found[f"penstock-{verb}.1"] = page(below, lines[verb])
    return found


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/man")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(list(folder.glob('*.1')))} man pages in {folder}")


if __name__ == "__main__":
    main()
