# SPDX-License-Identifier: Apache-2.0
"""iez's figures 7 to 9 and 11 to 14: how evenly the bytes of jobs lie on targets and servers."""
