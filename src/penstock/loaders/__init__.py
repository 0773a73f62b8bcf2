# SPDX-License-Identifier: Apache-2.0
"""Schedules and engines of bulk reads."""
