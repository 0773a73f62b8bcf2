# SPDX-License-Identifier: Apache-2.0
"""Penstock: an I/O control plane for parallel file systems.  ARCHITECTURE.md is the map."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's, without importing it
if TYPE_CHECKING:
    from penstock.catalog.reader import Catalog

__version__ = "0.1.0"
__all__ = ["Catalog"]


def __getattr__(name: str):  # type: ignore[no-untyped-def]
    """What is imported only when it is asked for."""
    if name == "Catalog":
        from penstock.catalog.reader import Catalog

        return Catalog
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
