# SPDX-License-Identifier: Apache-2.0
"""One limit of a policy changed in its text: comments and order stay as somebody wrote them.

Invariant: the text that comes out differs from the one that went in by this one limit alone.
"""

import tomlkit

from penstock.base.errors import UsageError
from penstock.policy.rules import CLASSES, Match, Policy, read_rate


def find(policy: Policy, name: str) -> int | None:
    """The number of a limit by its name; CLASS.total is the site's limit on a whole class.  None: there is none yet."""
    for number, limit in enumerate(policy.limits):
        if limit.name == name:
            return number
    kind, dot, last = name.partition(".")
    if not dot or last != "total" or kind not in CLASSES:
        names = ", ".join(repr(limit.name) for limit in policy.limits) or "none"
        raise UsageError(f"there is no limit {name!r}; there are {names}, and CLASS.total")
    for number, limit in enumerate(policy.limits):
        if limit.per == "site" and limit.calls == (kind,) and not limit.paths and limit.match == Match():
            return number
    return None


def change(
    text: str, policy: Policy, name: str, rate: str = "", shadow: bool | None = None
) -> tuple[str, str]:
    """The text with another rate, or (not) in shadow, and what was changed in a sentence."""
    if not rate and shadow is None:
        raise UsageError("nothing is to be changed; name a rate, like 300k/s")
    number = find(policy, name)
    document = tomlkit.parse(text)
    if number is None:
        kind = name.partition(".")[0]
        if not rate:
            raise UsageError(f"there is no limit {name!r} yet; name a rate, like 300k/s")
        table = tomlkit.table()
        table["name"] = name
        table["rate"] = rate
        table["calls"] = kind
        read_rate(rate, kind == "data")
        tables = document.get("limit")
        if tables is None:
            tables = tomlkit.aot()
            tables.append(table)
            document["limit"] = tables
        else:
            tables.append(table)
        said = [f"new limit {name!r}: {rate}"]
    else:
        table = document["limit"][number]
        said = []
        if rate:
            read_rate(rate, policy.limits[number].bytes)
            said.append(f"{policy.limits[number].name!r}: {table['rate']} is now {rate}")
            table["rate"] = rate
    if shadow is not None and bool(table.get("shadow", False)) != shadow:
        said.append(f"{name!r} {'only counts from now on (shadow)' if shadow else 'holds from now on'}")
        table["shadow"] = shadow
    return tomlkit.dumps(document), "; ".join(said) or f"{name!r} stays as it was"
