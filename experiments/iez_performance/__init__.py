# SPDX-License-Identifier: Apache-2.0
"""iez's read and write rates of the same jobs, by how targets were chosen."""
