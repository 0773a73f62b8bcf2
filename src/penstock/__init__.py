# SPDX-License-Identifier: Apache-2.0
"""Penstock: an I/O control plane for parallel file systems.  ARCHITECTURE.md is the map."""

__version__ = "0.1.0"

_LAZY = {"Catalog": "penstock.catalog.reader"}
"""What users import from here: loaded when it is asked for.  Nothing in the project imports it from here."""


def __getattr__(name: str):  # type: ignore[no-untyped-def]
    if name not in _LAZY:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
