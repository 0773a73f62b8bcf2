# SPDX-License-Identifier: Apache-2.0
"""DCA-IO's Figures 4 to 6: what stripes gain a writer, and what two writers on the same targets lose."""
