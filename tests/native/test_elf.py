# SPDX-License-Identifier: Apache-2.0
"""What is preloaded into users' programs loads where users are: glibc 2.28 and on, and nothing more."""

import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tools"))
import calls  # noqa: E402
import elf_needs  # noqa: E402

OLDEST = (2, 28)
MPI_CALLS = {"MPI_File_open", "H5Fcreate"}
PREFIX = Path(sys.prefix)
LIBRARIES = sorted((PREFIX / "lib" / "penstock").glob("*.so"))
# Up to glibc 2.33 these lived in libdl.so.2, which libpenstock.so is linked with by name.
IN_LIBDL = {"dlsym", "dlvsym", "dlopen", "dlclose", "dlerror", "dladdr", "dlinfo"}


def moved_in_2_34() -> set[str]:
    """What is in libc only since glibc 2.34: before, it stood in libpthread, librt or libdl."""
    words = [
        name
        for name in elf_needs.readelf("--dyn-syms", "/lib/x86_64-linux-gnu/libc.so.6").split()
        if "@@GLIBC_2.34" in name
    ]
    return {word.partition("@")[0] for word in words}


def test_library_needs_no_newer_glibc() -> None:
    for library in LIBRARIES:
        assert elf_needs.read(library).newer_than(OLDEST) == {}


def test_library_asks_libc_for_nothing_that_an_older_libc_has_elsewhere() -> None:
    """The program need not be linked with libpthread; dlsym comes with libdl.so.2."""
    for library in LIBRARIES:
        elf = elf_needs.read(library)
        assert set(elf.undefined) & moved_in_2_34() - IN_LIBDL - elf.weak == set()
        if set(elf.undefined) & IN_LIBDL:
            assert "libdl.so.2" in elf.libraries


def test_library_brings_no_other_library_into_the_program() -> None:
    for library in LIBRARIES:
        assert set(elf_needs.read(library).libraries) <= {"libc.so.6", "libdl.so.2"}


def build(folder: Path, *flags: str) -> elf_needs.Elf:
    source, library = folder / "old.c", folder / "old.so"
    source.write_text(
        "#include <dlfcn.h>\n#include <pthread.h>\n"
        'int f(pthread_t *t) { return pthread_create(t, 0, dlsym(RTLD_NEXT, "open"), 0); }\n'
    )
    gcc = [
        "gcc",
        "-D_GNU_SOURCE",
        "-O2",
        "-Wall",
        "-Werror",
        "-fPIC",
        "-shared",
        *flags,
        str(source),
        "-o",
        str(library),
    ]
    subprocess.run(gcc, check=True)
    return elf_needs.read(library)


def test_the_check_sees_a_symbol_that_is_too_new(tmp_path: Path) -> None:
    assert set(build(tmp_path).newer_than(OLDEST)) == {"dlsym", "pthread_create"}


def test_compat_header_asks_for_the_old_versions(tmp_path: Path) -> None:
    elf = build(tmp_path, "-include", str(TOP / "native" / "compat.h"))
    assert elf.undefined["dlsym"] == (2, 2, 5)
    assert elf.newer_than(OLDEST) == {}


def test_g02_library_exports_the_calls_of_the_table_and_nothing_else() -> None:
    table = calls.parse((TOP / "native" / "calls.def").read_text())
    exported = set(elf_needs.read(PREFIX / "lib/penstock/libpenstock.so").exported)
    assert exported == {call.symbol for call in table.calls} | set(calls.EXPORTED_TOO)
    assert set(elf_needs.read(PREFIX / "lib/penstock/libpenstock-mpi.so").exported) == MPI_CALLS


def test_i26_thread_local_memory_is_small() -> None:
    """What is preloaded takes it from the few hundred bytes that all libraries share."""
    for library in LIBRARIES:
        rows = [line.split() for line in elf_needs.readelf("--program-headers", str(library)).splitlines()]
        assert all(int(row[5], 16) <= 64 for row in rows if row[:1] == ["TLS"])


def test_i24_the_launcher_is_static_and_cannot_be_preloaded() -> None:
    launcher = elf_needs.read(PREFIX / "bin" / "penstock-run")
    assert (launcher.libraries, launcher.interpreter, launcher.undefined) == ([], "", {})
