# SPDX-License-Identifier: Apache-2.0
"""Bulk tools built on catalogs and loaders."""
