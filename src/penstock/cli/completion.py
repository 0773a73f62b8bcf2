# SPDX-License-Identifier: Apache-2.0
"""Completion of penstock's words in your shell.

penstock completion bash > ~/.local/share/bash-completion/completions/penstock
penstock completion zsh > ~/.zfunc/_penstock
penstock completion fish > ~/.config/fish/completions/penstock.fish
"""

import argparse

HELP = "print the completion of a shell"
SHELLS = ("bash", "zsh", "fish")


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(args: argparse.Namespace) -> int:
    from penstock.base.errors import PenstockError
    from penstock.cli import make_parser

    try:
        import shtab
    except ImportError as error:
        raise PenstockError(
            "completion needs shtab; install it with: pip install 'penstock[completion]'"
        ) from error
    print(
        shtab.complete(make_parser(), args.shell).replace("%%", "%")
    )  # shtab takes argparse's texts as they are
    return 0
