# SPDX-License-Identifier: Apache-2.0
"""Bring in what a node's agent keeps for its user: boards of runs whose own recorder was killed.

Invariants:
1. Only the user writes his history; the agent only keeps his boards until it hears that they are brought in.
2. No agent, or one that does not know this question, has nothing for us.
"""

import json
from pathlib import Path

from penstock import _native
from penstock.base.errors import PenstockError
from penstock.base.settings import Settings
from penstock.control import local
from penstock.runs.collect import Board, node_name


def collect(settings: Settings) -> list[Board]:
    """Each run that the agent of this node still waits for; one whose processes still live comes in so far."""
    at = local.find(str(settings["agent.socket"] or ""))
    try:
        rows = json.loads(local.ask(at, op="unrecorded")["json"]) if Path(at).exists() else []
    except PenstockError:
        return []
    return [found for row in rows for found in _bring_in(at, Path(row["board"]), row["runs"], settings)]


def _bring_in(at: str, path: Path, runs: list[str], settings: Settings) -> list[Board]:
    try:
        group = settings["history.readers"] == "group"
        living = _native.harvest(path, settings.history_dir, node_name(), group)
        if not living:
            for run in runs:
                local.ask(at, op="recorded", run=run)
    except (OSError, PenstockError) as error:
        return [Board(path, run, error=str(error) or "error") for run in runs]
    return [Board(path, run, living=living) for run in runs]
