# SPDX-License-Identifier: Apache-2.0
"""Pure models: service, contention, forwarding."""
