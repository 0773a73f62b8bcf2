# SPDX-License-Identifier: Apache-2.0
"""What of a job's work the file system's servers counted and Penstock did not see.

Compared are the operations of which one call is one count on a Lustre server, and those bytes.  Of what a call may or
may not cause (an open may create or cut a file) the most is taken as seen, so that a difference is never too large.

Invariants:
1. What cannot be compared is not claimed: lookups, getattr and statfs hit caches and say nothing.
2. Counts of servers that were cleared, or begin later than ours, make a difference smaller, never larger.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

# A server's name -> the operations of ours that may raise it.
COMPARED: Mapping[str, tuple[str, ...]] = {
    "mkdir": ("mkdir",),
    "rmdir": ("rmdir",),
    "unlink": ("unlink",),
    "link": ("link",),
    "rename": ("rename",),
    "mknod": ("mknod", "symlink", "open"),
    "setattr": ("chmod", "chown", "utime", "truncate", "open"),
    "setxattr": ("setxattr", "removexattr"),
}
LEAST = 20  # operations, and
SHARE = 0.05  # of what the servers counted: less than both is taken for chance
LEAST_BYTES = 1 << 20


@dataclass(frozen=True)
class Reason:
    """Why a job is said to pass by: a stable word, and a sentence's rest."""

    word: str  # static, go, musl, privileged, machine, dropped, unloaded, io_uring, direct, counts, bytes
    count: int
    text: str
    certain: bool = True


@dataclass(frozen=True)
class Gap:
    """What the servers counted, and what of it nobody saw."""

    counted: int = 0
    unseen: int = 0
    by: Mapping[str, int] = field(default_factory=dict)  # a server's name -> unseen
    written_bytes: int = 0
    unseen_bytes: int = 0

    @property
    def ratio(self) -> float | None:
        """Share of the comparable operations that was not seen; None: the servers counted none."""
        return self.unseen / self.counted if self.counted else None

    @property
    def share(self) -> float | None:
        """The same without what may be chance, or that of bytes where it is larger; None: nothing was counted."""
        words = {reason.word for reason in reasons(self)}
        calls = self.unseen / self.counted if "counts" in words else 0.0
        of_bytes = self.unseen_bytes / self.written_bytes if "bytes" in words else 0.0
        return max(calls, of_bytes) if self.counted or self.written_bytes else None


def compare(server: Mapping[str, int], seen: Mapping[str, int], written_bytes: int) -> Gap:
    """`server`: a job's row of its statistics; `seen`: calls by operation of calls.def, taken after it."""
    by = {
        name: max(0, server.get(name, 0) - sum(seen.get(operation, 0) for operation in ours))
        for name, ours in COMPARED.items()
    }
    wrote = server.get("write_bytes", 0)
    return Gap(
        counted=sum(server.get(name, 0) for name in COMPARED),
        unseen=sum(by.values()),
        by={name: count for name, count in by.items() if count},
        written_bytes=wrote,
        unseen_bytes=max(0, wrote - written_bytes),
    )


def reasons(gap: Gap) -> list[Reason]:
    """What a difference that is no chance says."""
    found = []
    if gap.unseen >= LEAST and gap.unseen >= SHARE * gap.counted:
        names = ", ".join(f"{name} {count:,}" for name, count in sorted(gap.by.items(), key=lambda x: -x[1]))
        text = f"of {gap.counted:,} changes that the servers counted nobody saw {gap.unseen:,} ({names})"
        found.append(Reason("counts", gap.unseen, text))
    if gap.unseen_bytes >= LEAST_BYTES and gap.unseen_bytes >= SHARE * gap.written_bytes:
        text = f"of {gap.written_bytes:,} bytes written at the servers nobody saw {gap.unseen_bytes:,}"
        found.append(Reason("bytes", gap.unseen_bytes, text))
    return found


def is_bypassing(found: list[Reason]) -> bool:
    return any(reason.certain for reason in found)
