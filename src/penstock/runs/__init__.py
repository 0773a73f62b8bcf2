# SPDX-License-Identifier: Apache-2.0
"""The board from Python, records, history."""
