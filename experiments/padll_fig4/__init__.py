# SPDX-License-Identifier: Apache-2.0
"""PADLL's figure 4: limits by operation and by class, changed while the job runs."""
