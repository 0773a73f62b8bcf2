# SPDX-License-Identifier: Apache-2.0
"""What the next run of a program will write: names, sizes, ranks.  Begin reading at contract.py."""
