# SPDX-License-Identifier: Apache-2.0
"""Penstock: an I/O control plane for parallel file systems.  ARCHITECTURE.md is the map."""

__version__ = "0.1.0"
