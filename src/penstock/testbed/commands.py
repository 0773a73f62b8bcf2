# SPDX-License-Identifier: Apache-2.0
"""`lctl` and `lfs` for a testbed: small programs in FOLDER/bin, for the front of PATH.

They print what Lustre's own print, so that scripts written for Lustre run on the testbed.  Each is a shell line
that calls this installation's Python with the testbed's folder, wherever that is.
"""

import os
import shlex
import sys
from pathlib import Path

FOLDER_VARIABLE = "PENSTOCK_TESTBED"
COMMANDS = ("lctl", "lfs")


def install(folder: str | os.PathLike[str]) -> Path:
    """Write the programs; their folder."""
    place = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would follow links
    into = place / "bin"
    into.mkdir(exist_ok=True)
    for name in COMMANDS:
        words = [sys.executable, "-I", "-m", f"penstock.testbed.{name}"]
        text = f'#!/bin/sh\n{FOLDER_VARIABLE}={shlex.quote(str(place))} exec {shlex.join(words)} "$@"\n'
        aside = into / f".{name}.new"
        aside.write_text(text)
        aside.chmod(0o755)
        aside.rename(into / name)
    return into
