# SPDX-License-Identifier: Apache-2.0
"""What an operation costs, in calls of weight one: the requests that reach the metadata servers.

The figures are those of a real Lustre (docs/guide/limits.md tells which row is why), and tests hold them against the
emulated one's counters.  What only the clients' locks decide is guessed: a name that this process used with success
lately is cached; any other costs a look-up.  A site's [weights] replaces a row: then every call costs that much.

Invariants:
1. An operation that is not named here costs nothing.
2. A call is charged whether it fails or not.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Cost(NamedTuple):
    calls: float  # each time
    lookup: float = 0.0  # more, where the name is not known to be cached


COSTS: Mapping[str, Cost] = {
    "open": Cost(1),  # its close is charged when it comes: a create and its close cost 2
    "close": Cost(1),
    "truncate": Cost(1, 1),
    "sync": Cost(1),
    "stat": Cost(0, 1),
    "access": Cost(0, 1),
    "readlink": Cost(0, 2),
    "opendir": Cost(1, 2),  # open; at first also the listing's lock and a page of it
    "readdir": Cost(0),  # a page holds some 20,000 names
    "walk": Cost(1),  # an entry
    "mkdir": Cost(1),
    "rmdir": Cost(1, 1),
    "mknod": Cost(1),
    "link": Cost(2),
    "symlink": Cost(1),
    "unlink": Cost(1, 1),
    "rename": Cost(2, 1),
    "chmod": Cost(2),
    "chown": Cost(3),
    "utime": Cost(2),
    "getxattr": Cost(0, 1),
    "listxattr": Cost(0, 1),
    "setxattr": Cost(1),
    "removexattr": Cost(1),
    "statfs": Cost(1),
    "lock": Cost(1),
    "chdir": Cost(0, 1),
    "exec": Cost(2),
    "other": Cost(1),
}
TRUNCATE = 2.0  # more for an open that also truncates
PLACED = 3.0  # more for a file that is created with a layout: place charges them
KNOWN_S = 600  # how long a name counts as cached: Lustre's clients keep an idle lock as long


def with_weights(weights: Mapping[str, float]) -> dict[str, Cost]:
    """The table with a site's own figures."""
    return {**COSTS, **{name: Cost(calls) for name, calls in weights.items()}}
