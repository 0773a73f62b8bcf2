# SPDX-License-Identifier: Apache-2.0
"""PADLL's figure 5: four jobs that enter one after the other, under four policies."""
