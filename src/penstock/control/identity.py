# SPDX-License-Identifier: Apache-2.0
"""Which job somebody belongs to who asks for a board.

What the kernel says counts: the user by the socket's credentials, the job by the cgroup in which the scheduler put the
process.  The scheduler's variables are hints: the asking process could have set them itself.

Invariants:
1. A process that a scheduler put into a job's cgroup is of that job, whatever it says.
   Only a cgroup that the scheduler made says so: below /user.slice a user makes what he likes.
2. One in no job's cgroup may name an id; it is then a job of its own user under that id, marked as not verified, and
   never the same job as another user's of that id.
"""

import grp
import pwd
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from penstock.base.errors import DeniedError

# How schedulers name a job's cgroup: Slurm, PBS, LSF, Flux.
CGROUPS = (
    re.compile(r"/(?:[\w.-]*slurmstepd\.scope|slurm[\w.-]*/uid_\d+)/job_(\d+(?:_\d+)?)(?:/|$)"),
    re.compile(r"/pbs[\w.-]*/jobid/([0-9]+(?:\[\d*\])?(?:\.[\w.-]+)?)(?:/|$)"),
    re.compile(r"/lsf/[^/]+/job\.(\d+)(?:\.|/|$)"),
    re.compile(r"/flux-[^/]*/job-(\w+)(?:/|$)"),
)


OF_USERS = re.compile(r"(?:^|/)user\.slice/|/user@\d+\.service/")


class Identity(NamedTuple):
    """Whose job, and how sure that is."""

    job: str
    verified: bool


def job_of_cgroup(text: str) -> str:
    """The scheduler's job in the text of /proc/PID/cgroup; empty: none."""
    for line in text.splitlines():
        path = line.partition(":")[2].partition(":")[2]
        for pattern in CGROUPS if not OF_USERS.search(path) else ():
            if found := pattern.search(path):
                return found[1]
    return ""


def decide(claimed: str, cgroup: str, uid: int, verified: dict[str, int]) -> Identity:
    """The job of one who claims an id; `verified`: the jobs known for sure on this node, and their users."""
    if cgroup:
        return Identity(cgroup, True)
    if not claimed or len(claimed) > 120 or not claimed.isprintable() or "/" in claimed:
        raise DeniedError("a job's id has 1 to 120 printable characters and no slash")
    owner = verified.get(claimed)
    if owner is not None:
        whose = "another user's" if owner != uid else "yours, but this process is not in it"
        raise DeniedError(f"job {claimed} is {whose}: the scheduler's cgroup says so")
    return Identity(claimed, False)


def cgroup_of(pid: int) -> str:
    """The scheduler's job of a process; who cannot be looked at is nobody's."""
    try:
        return job_of_cgroup(Path(f"/proc/{pid}/cgroup").read_text("utf-8", "replace"))
    except OSError as error:
        raise DeniedError(
            f"process {pid} asks and cannot be looked at ({error.strerror}): its job is not known"
        ) from error


def start_ticks(pid: int) -> int:
    """When a process began (field 22 of its stat): with its pid it names a process for ever; 0: it is gone.

    Raises OSError where that cannot be seen."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(text.rpartition(")")[2].split()[19])


def sees_others() -> bool:
    """Whether processes of other users can be looked at."""
    try:
        return start_ticks(1) > 0
    except OSError:
        return False


@lru_cache(maxsize=4096)
def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@lru_cache(maxsize=4096)
def group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
