# SPDX-License-Identifier: Apache-2.0
"""Published figures, done again with Penstock: one folder each, one command each.

make experiment NAME=padll-fig5          writes build/experiments/padll-fig5/
"""
