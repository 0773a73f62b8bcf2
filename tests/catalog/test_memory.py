# SPDX-License-Identifier: Apache-2.0
"""Ten million entries looked up at random with 20 MB of memory: a real limit, of a control group."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
FOLDERS, LOOK_UPS = 10_000, 3000
LIMIT_BYTES = 20 << 20


@contextlib.contextmanager
def limited() -> Iterator[Path]:
    """The file that a process writes its pid to, to be limited."""
    if os.geteuid() != 0:
        pytest.skip("only root can make control groups")
    for base, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(base) / f"penstock-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / limit).write_text(str(LIMIT_BYTES))
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        try:
            yield group / "cgroup.procs"
        finally:
            group.rmdir()
        return
    pytest.skip("no control group with a limit of memory can be made here")


@pytest.mark.root
def test_ten_million_entries_in_20_mb(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 3 << 30:
        pytest.skip("3 GiB of room are needed")
    kernels = [
        str(TOP / "native/kernels" / name) for name in ("index.c", "index_write.c", "batch.c", "folders.c")
    ]
    program = str(tmp_path / "catalog_memory")
    source = str(Path(__file__).parent / "catalog_memory.c")
    subprocess.run(
        ["gcc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", f"-I{TOP}/native", source, *kernels, "-o", program],
        check=True,
    )
    file = tmp_path / "seg"
    subprocess.run([program, "make", file, str(FOLDERS)], check=True, timeout=200)
    assert file.stat().st_size > 700 << 20
    with limited() as procs:
        script = f'echo $$ > {procs} && exec "$@"'
        words = [program, "look", str(file), str(FOLDERS), str(LOOK_UPS)]
        done = subprocess.run(
            ["sh", "-c", script, "sh", *words], check=True, capture_output=True, text=True, timeout=200
        )
    file.unlink()
    assert done.stdout.split() == [str(LOOK_UPS), str(FOLDERS * 1000)]
