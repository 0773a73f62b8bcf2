# SPDX-License-Identifier: Apache-2.0
"""Units, errors, settings."""
