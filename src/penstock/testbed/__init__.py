# SPDX-License-Identifier: Apache-2.0
"""Bringing the testbed and the labs up and down."""
