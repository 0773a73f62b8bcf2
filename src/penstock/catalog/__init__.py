# SPDX-License-Identifier: Apache-2.0
"""Metadata of a tree, kept: formats, build, update, check, serve."""
