# SPDX-License-Identifier: Apache-2.0
"""What `penstock catalog` does: making and mending catalogs, asking them, and giving their data to other programs."""
