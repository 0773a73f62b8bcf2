# SPDX-License-Identifier: Apache-2.0
"""The sub-verbs of `penstock policy`, one module each, made like a verb: HELP, register(parser), run(args)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.policy.rules import Policy


def load(path: str) -> "Policy":
    """The policy of a file; each of its mistakes is named, with its line, in the one error."""
    from pathlib import Path

    from penstock.base.errors import UsageError
    from penstock.runs import board, limits

    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise UsageError(f"the policy {path} cannot be read ({why})") from error
    policy, mistakes = limits.parse(text, frozenset(board.operations()))
    if policy is None:
        raise UsageError("\n".join(f"{path}:{m.line}: {m.text}" for m in mistakes))
    return policy
