# SPDX-License-Identifier: Apache-2.0
"""The kernels of DCA-IO's experiments, as jobs of writers.py."""

from experiments import placed

KINDS = {"sequential": "own"}  # as writers.py calls them; the others have one name


def job_of(kernel: str, processes: int, bytes_together: int) -> placed.Job:
    """A kernel with a file each, or a shared one, of which the default layout is the file system's."""
    kind = KINDS.get(kernel, kernel)
    return placed.Job(f"{kernel}-{processes}", processes, 0, bytes_together // processes, kind, reads=False)
