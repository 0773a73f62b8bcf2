# SPDX-License-Identifier: Apache-2.0
"""Drivers, layouts, load and health of targets."""
