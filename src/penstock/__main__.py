# SPDX-License-Identifier: Apache-2.0
"""python -m penstock: the command, for a Python that is not on PATH."""

import sys

from penstock.cli import main

sys.exit(main())
