# SPDX-License-Identifier: Apache-2.0
"""DCA-IO's kernels beside another writer, with and without choosing the targets that it leaves free."""
