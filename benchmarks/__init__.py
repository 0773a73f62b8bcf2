# SPDX-License-Identifier: Apache-2.0
"""Tables of figures: `python -m benchmarks NAME`.

A table is a module with TITLE and `rows(rounds) -> list[Row]`.
"""
