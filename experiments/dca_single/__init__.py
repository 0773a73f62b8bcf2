# SPDX-License-Identifier: Apache-2.0
"""DCA-IO's comparison on four servers: recurring kernels under four ways to choose layouts."""
