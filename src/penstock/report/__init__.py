# SPDX-License-Identifier: Apache-2.0
"""Figures, tables, pages."""
