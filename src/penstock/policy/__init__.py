# SPDX-License-Identifier: Apache-2.0
"""Pure decisions: values in, values out."""
