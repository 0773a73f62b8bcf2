# SPDX-License-Identifier: Apache-2.0
"""Where Penstock keeps things: XDG folders, and what moves them.

Invariants:
1. With PENSTOCK_STATE_DIR (or the setting `state_dir`) all that Penstock keeps lies under that folder.
2. These functions name places; they create nothing and need no name service unless HOME is unset.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing's, without importing it
if TYPE_CHECKING:
    from collections.abc import Mapping

SITE_CONFIG = "/etc/penstock/penstock.toml"


def home(env: Mapping[str, str]) -> str:
    """The user's home folder."""
    return env.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 - HOME is unset: the password database


def _xdg(env: Mapping[str, str], name: str, below_home: str) -> str:
    """An XDG folder; values that are not absolute are ignored, as its specification says."""
    value = env.get(name, "")
    return value if value.startswith("/") else f"{home(env)}/{below_home}"


def user_config(env: Mapping[str, str]) -> str:
    """The user's settings."""
    return _xdg(env, "XDG_CONFIG_HOME", ".config") + "/penstock/penstock.toml"


def state_dir(env: Mapping[str, str], chosen: str = "") -> str:
    """The folder of what must last: the history."""
    return chosen or _xdg(env, "XDG_STATE_HOME", ".local/state") + "/penstock"


def cache_dir(env: Mapping[str, str], chosen: str = "") -> str:
    """The folder of what can be made again: the history's index."""
    return f"{chosen}/cache" if chosen else _xdg(env, "XDG_CACHE_HOME", ".cache") + "/penstock"


def runtime_dir(env: Mapping[str, str]) -> str:
    """A folder on this node, of this user alone, gone with the boot; the caller makes it 0700."""
    value = env.get("XDG_RUNTIME_DIR", "")
    return f"{value}/penstock" if value.startswith("/") else f"/tmp/penstock-{os.getuid()}"


def make_private(path: str) -> None:
    """A folder of this user alone, made if it is not there."""
    os.makedirs(path, mode=0o700, exist_ok=True)  # noqa: PTH103
