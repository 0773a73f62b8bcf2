# SPDX-License-Identifier: Apache-2.0
"""The demo's job, one of its ranks: a shared checkpoint, then many small files.  python job.py FOLDER"""

import os
import sys
from pathlib import Path

MIB = 1 << 20
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
ranks = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
top = Path(sys.argv[1])

fd = os.open(top / "checkpoint.dat", os.O_CREAT | os.O_WRONLY, 0o644)
for turn in range(16):
    os.pwrite(fd, bytes([rank]) * MIB, (turn * ranks + rank) * MIB)
os.fsync(fd)
os.close(fd)

own = top / f"samples.{rank}"
own.mkdir()
for number in range(200):
    (own / f"{number:03}.json").write_text('{"label": 1}\n' * 8)
for path in sorted(own.iterdir()):
    path.stat()
    path.read_text()
