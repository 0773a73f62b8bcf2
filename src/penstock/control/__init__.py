# SPDX-License-Identifier: Apache-2.0
"""Launching, agent, controller, wire format."""
