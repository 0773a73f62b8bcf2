# SPDX-License-Identifier: Apache-2.0
"""Whatever libc exports that takes a path, a descriptor or a FILE stands in calls.def, as a row or as an exception.

Prototypes are the compiler's (gcc -aux-info) for the headers below; the names of their parameters, which tell a
descriptor from another number and a path from another text, come from the preprocessed headers.  Exported names that
no header declares (__read_chk, _IO_fread) are taken for what they are forms of.
"""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import library

sys.path.insert(0, str(library.TOP / "tools"))
import calls

LIBC = "/lib/x86_64-linux-gnu/libc.so.6"
HEADERS = """
    stdio.h stdio_ext.h stdlib.h wchar.h fcntl.h unistd.h dirent.h ftw.h fts.h glob.h utime.h
    spawn.h aio.h dlfcn.h sched.h mntent.h fstab.h pty.h utmp.h utmpx.h poll.h termios.h grp.h pwd.h
    shadow.h gshadow.h netdb.h argp.h err.h error.h ttyent.h libgen.h wordexp.h sys/acct.h
    sys/epoll.h sys/eventfd.h sys/fanotify.h sys/file.h sys/inotify.h sys/ioctl.h sys/mman.h
    sys/mount.h sys/prctl.h sys/quota.h sys/select.h sys/sendfile.h sys/signalfd.h sys/socket.h
    sys/stat.h sys/statfs.h sys/statvfs.h sys/swap.h sys/syscall.h sys/time.h sys/timerfd.h
    sys/timex.h sys/types.h sys/uio.h sys/wait.h sys/xattr.h sys/msg.h sys/shm.h sys/sem.h sys/vfs.h
    sys/vlimit.h sys/random.h sys/pidfd.h execinfo.h mcheck.h malloc.h regex.h search.h time.h
    locale.h iconv.h nl_types.h libintl.h langinfo.h resolv.h arpa/inet.h rpc/netdb.h printf.h
    obstack.h ifaddrs.h sys/auxv.h sys/personality.h sys/klog.h sys/sysinfo.h sys/utsname.h
    sys/resource.h sys/times.h thread_db.h syslog.h monetary.h wctype.h netinet/in.h aliases.h
    fmtmsg.h envz.h argz.h ulimit.h sgtty.h sys/gmon.h sys/io.h sys/kd.h sys/ptrace.h sys/reboot.h
    sys/fsuid.h gnu/libc-version.h
"""
TYPES = re.compile(r"\b(FILE|__FILE|DIR|FTS|FTS64|_IO_FILE)\b")
FD = re.compile(
    r"^_*(fd|fildes|fdes|dirfd|infd|outfd|in_fd|out_fd|fdin|fdout|oldfd|newfd|tofd|fromfd|dfd|dir_fd|fd1|fd2|fd_in|fd_out|fp|lowfd)\d?$"
)
PATH = re.compile(
    r"^_*(path|file|name|filename|pathname|dir|linkpath|special_file|template|pattern|from|to|old|new|dirname|name_path|filenames?|tmpl)\d?$"
)


@cache
def includes() -> str:
    found = [
        h
        for h in HEADERS.split()
        if Path("/usr/include", h).exists() or list(Path("/usr/include").glob(f"*/{h}"))
    ]
    return "#define _GNU_SOURCE\n" + "".join(f"#include <{h}>\n" for h in found)


@cache
def exported() -> set[str]:
    out = subprocess.run(
        ["nm", "-D", "--defined-only", LIBC], check=True, capture_output=True, text=True
    ).stdout
    names = set()
    for line in out.splitlines():
        kind, name = line.split()[-2:]
        if kind in "TWi":
            names.add(name.partition("@")[0])
    return names


@cache
def prototypes() -> dict[str, str]:
    """By name, the types of the parameters as the compiler says them."""
    out = library.built_here() / "prototypes"
    words = ["gcc", "-fsyntax-only", "-w", "-D_FILE_OFFSET_BITS=32", "-aux-info", str(out), "-x", "c", "-"]
    subprocess.run(words, input=includes(), text=True, check=True)
    found = {}
    for line in out.read_text().splitlines():
        match = re.search(r"\*/ (?:extern|static) .*?\b(\w+) \((.*)\);", line)
        if match:
            found[match[1]] = match[2]
    return found


@cache
def parameters() -> dict[str, list[str]]:
    """By name, the words that the headers' declarations end their parameters with."""
    words = ["gcc", "-E", "-P", "-x", "c", "-"]
    text = subprocess.run(words, input=includes(), text=True, capture_output=True, check=True).stdout
    found = {}
    for statement in re.sub(r"\s+", " ", text).split(";"):
        match = re.search(
            r"\b(\w+) ?\(((?:[^()]|\([^()]*\))*)\)[^()]*(?:__attribute__.*|__asm__.*)?$", statement
        )
        match = match or re.search(r"\b(\w+) ?\(((?:[^()]|\([^()]*\))*)\)", statement)
        if match:
            found[match[1]] = [
                (re.findall(r"\w+", word.split("[")[0]) or [""])[-1] for word in match[2].split(",")
            ]
    return found


def takes_a_file(name: str) -> bool:
    types = prototypes().get(name)
    if types is None:
        return False
    names = parameters().get(name, [])
    kinds = types.split(", ")
    for i, kind in enumerate(kinds):
        word = names[i] if i < len(names) else ""
        if TYPES.search(kind):
            return True
        if kind in ("int", "unsigned int") and FD.match(word):
            return True
        if kind.startswith(("const char *", "char *")) and PATH.match(word):
            return True
    return False


def plain(name: str) -> str:
    """What an undeclared name is a form of."""
    forms = (r"__(\w+)_chk", r"__(\w+)_2", r"_IO_(\w+)", r"__libc_(\w+)", r"__isoc\d+_(\w+)", r"_+(\w+)")
    for pattern in forms:
        if (found := re.fullmatch(pattern, name)) and found[1] in prototypes():
            return found[1]
    old = {
        "__xstat": "stat",
        "__lxstat": "lstat",
        "__fxstat": "fstat",
        "__fxstatat": "fstatat",
        "__xmknod": "mknod",
    }
    return next((new for prefix, new in old.items() if name.startswith(prefix)), name)


def takers() -> set[str]:
    return {name for name in exported() if takes_a_file(name) or takes_a_file(plain(name))}


@cache
def table() -> calls.Table:
    return calls.parse((library.NATIVE / "calls.def").read_text())


def test_headers_are_understood() -> None:
    known = {
        "open",
        "__open_2",
        "fread",
        "_IO_fread",
        "__read_chk",
        "rename",
        "renameat2",
        "__xstat64",
        "mkstemp64",
    }
    assert known <= takers()
    assert not {"strlen", "getpid", "malloc", "qsort"} & takers()
    assert len(takers()) > 350


def test_each_call_on_a_file_is_in_the_table_or_an_exception() -> None:
    rows = {call.symbol for call in table().calls}
    assert takers() - rows - set(table().exceptions) == set()


def test_no_exception_is_without_need() -> None:
    assert set(table().exceptions) - exported() == set()


def test_each_row_names_what_libc_exports() -> None:
    newer = {call.symbol for call in table().calls if call.symbol.startswith("__isoc23_")}
    assert {call.symbol for call in table().calls} - exported() - newer == set()
