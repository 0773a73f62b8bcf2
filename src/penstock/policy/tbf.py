# SPDX-License-Identifier: Apache-2.0
"""A policy as rules of Lustre's request scheduler (NRS TBF), and what of it such rules cannot say.

What TBF does: on every service of a server, and there on every partition of its processors (CPT), it keeps a bucket
for each job (or user, group, node) and lets so many requests a second pass.  So a rate holds once on each CPT of
each server, and the rates written here are divided by both: what is asked for is never exceeded, and one client,
whose requests all reach one CPT, gets its part only.

Invariants:
1. What cannot be said is named, with the reason: no limit goes missing in silence.
2. No rule lets through more than the policy does, but that a request is taken for a call.
3. Shadow limits hold back nobody, so they have no rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.policy.rules import Limit, Policy

TYPES = {"job": "jobid", "user": "uid", "group": "gid", "node": "nid"}
SERVICES = {False: "mds.MDS.mdt", True: "ost.OSS.ost_io"}
LEAST, MOST = 1, 999_999  # requests a second that TBF takes
OLD_MOST = 65_534  # what older Lustre takes
DEFAULT = 10_000  # what TBF itself sets for whoever no rule names

Ids = Mapping[tuple[str, str], int]  # ("user" or "group", name) -> number


@dataclass(frozen=True)
class Shape:
    """What a rate is divided by, and how large a data request is."""

    cpts: int = 1
    servers: int = 1
    request_bytes: int = 4 << 20


@dataclass(frozen=True)
class Refusal:
    """What no rule says."""

    limit: str
    line: int
    text: str


@dataclass(frozen=True)
class Rule:
    service: str
    name: str  # "default" for all that no other rule names
    match: str
    rate: int
    limit: str


@dataclass(frozen=True)
class Translation:
    types: Mapping[str, str]  # service -> TBF type
    rules: tuple[Rule, ...]
    refusals: tuple[Refusal, ...]
    remarks: tuple[str, ...]


def translate(policy: Policy, shape: Shape, ids: Ids) -> Translation:
    """The rules that come nearest to the policy without letting more through."""
    types: dict[str, str] = {}
    rules: list[Rule] = []
    refusals: list[Refusal] = []
    for number, limit in enumerate(policy.limits, 1):
        service = SERVICES[limit.bytes]
        why = _refused(limit, types.get(service), ids) or _low(limit, shape)
        if why:
            refusals.append(Refusal(limit.name, limit.line, why))
            continue
        types[service] = _type(limit)
        rules += _rules_of(limit, number, policy, shape, ids)
        refusals += [Refusal(limit.name, limit.line, text) for text in _lost(limit, policy)]
    rules = _ordered(rules)
    return Translation(types, tuple(rules), tuple(refusals), tuple(_remarks(types, rules, shape)))


def _type(limit: Limit) -> str:
    return "jobid" if limit.sharing == "static" and limit.per == "site" else TYPES[limit.per]


def _ordered(rules: list[Rule]) -> list[Rule]:
    """One default a service, the least; no rule above another limit's default; and the lowest rate last: TBF asks
    the newest rule first and no other, where in the policy all limits hold."""
    defaults = [rule for rule in rules if rule.name == "default"]

    def cut(rule: Rule) -> Rule:
        others = [d.rate for d in defaults if d.service == rule.service and d.limit != rule.limit]
        return replace(rule, rate=min([rule.rate, *others]))

    least = {d.service: d for d in sorted(defaults, key=lambda rule: -rule.rate)}
    narrow = [cut(rule) for rule in rules if rule.name != "default"]
    return [*least.values(), *sorted(narrow, key=lambda rule: -rule.rate)]


def _refused(limit: Limit, taken: str | None, ids: Ids) -> str:
    """Why there is no rule for this limit; empty: there is one."""
    match = limit.match
    if limit.shadow:
        return "it is a shadow: it holds back nobody"
    if limit.per == "site" and limit.sharing != "static":
        return "TBF has a bucket for each job, user, group or node, and none that several of them share"
    if limit.paths:
        return "requests carry no path"
    if limit.calls not in (("metadata",), ("data",)):
        names = ", ".join(limit.calls)
        return f"requests tell no {names} from other calls (open, stat and lookup are one kind of request)"
    if taken and taken != _type(limit):
        return f"the service has buckets by {taken} already, and can have one kind only"
    if limit.per == "site" and (match.jobs or match.users or match.groups):
        return "its rates are by job already: TBF cannot also ask whose"
    if match.jobs and limit.per != "job":
        return f"a bucket by {limit.per} does not know the job"
    if match.users and limit.per != "user":
        return f"a bucket by {limit.per} does not know the user"
    if match.groups and limit.per != "group":
        return f"a bucket by {limit.per} does not know the group"
    if odd := next((p for p in match.jobs if set(p) & set("?[] {}&,")), ""):
        return f"the pattern {odd!r} says more than TBF's one sign, *"
    wanted = [*(("user", name) for name in match.users), *(("group", name) for name in match.groups)]
    for kind, name in wanted:
        if name != "*" and (kind, name) not in ids:
            return f"the {kind} {name!r} has no number on this machine"
    return ""


def _low(limit: Limit, shape: Shape) -> str:
    """Whether the rate is below what TBF can hold."""
    if _requests(limit.rate, limit.bytes, shape) < LEAST:
        kind = "requests" if not limit.bytes else f"requests of {shape.request_bytes} bytes"
        return f"its rate is less than one of {kind} a second on each of {shape.cpts * shape.servers} CPTs"
    return ""


def _requests(rate: float, as_bytes: bool, shape: Shape) -> int:
    """The rate of one bucket on one CPT of one server."""
    whole = rate / shape.request_bytes if as_bytes else rate
    return min(int(whole // (shape.cpts * shape.servers)), MOST)


def _rules_of(limit: Limit, number: int, policy: Policy, shape: Shape, ids: Ids) -> list[Rule]:
    """Rules of one limit."""
    service, kind = SERVICES[limit.bytes], _type(limit)
    match = limit.match

    def rule(name: str, what: str, rate: float) -> Rule:
        return Rule(service, name, f"{kind}={{{what}}}", _requests(rate, limit.bytes, shape), limit.name)

    if limit.per == "site":
        rates = policy.rates[limit.name]
        made = [rule("default", "*", rates["default"])] if "default" in rates else []
        others = sorted((job, rate) for job, rate in rates.items() if job != "default")
        return made + [rule(f"penstock_{number}_{i}", job, rate) for i, (job, rate) in enumerate(others, 1)]
    names = match.jobs
    if limit.per in ("user", "group"):
        wanted = match.users if limit.per == "user" else match.groups
        names = () if "*" in wanted else tuple(str(ids[limit.per, name]) for name in wanted)
    if not names:
        return [rule("default", "*", limit.rate)]
    return [rule(f"penstock_{number}", " ".join(names), limit.rate)]


def _lost(limit: Limit, policy: Policy) -> list[str]:
    """What of a limit that has a rule the rule does not say."""
    found = []
    if limit.per == "site":
        found.append(
            "only the rates by job are held, not their sum; a job is told by its id, not by its name"
        )
    if any(name for name in policy.weights) and not limit.bytes:
        found.append("weights are left out: each request counts as one")
    if limit.ceiling_s:
        found.append("the ceiling is left out: a request waits as long as it must")
    if policy.guard is not None and policy.guard.limit == limit.name:
        found.append("the guard is left out: the rate does not follow the servers' latency")
    return found


def _remarks(types: Mapping[str, str], rules: list[Rule], shape: Shape) -> list[str]:
    found = []
    parts = shape.cpts * shape.servers
    if rules and parts > 1:
        found.append(
            f"each rate is 1/{parts} of the policy's, since it holds on each of {shape.cpts} CPTs of "
            f"{shape.servers} server{'s' * (shape.servers > 1)}; "
            "one client reaches one CPT of a server and gets no more than that"
        )
    for service, kind in types.items():
        if not any(rule.service == service and rule.name == "default" for rule in rules):
            found.append(
                f"{service}: whoever no rule names gets TBF's own {DEFAULT} requests a second by {kind}; "
                f"the first line raises that to {MOST}"
            )
    if "mds.MDS.mdt" in types:
        found.append("close and the pages of listings pass by mds.MDS.mdt_readpage: no rule is set there")
    if any(rule.rate > OLD_MOST for rule in rules):
        found.append(f"older releases of Lustre take no rate above {OLD_MOST}")
    if "jobid" in types.values():
        found.append("clients must send job ids: lctl set_param jobid_var=SLURM_JOB_ID jobid_name=%j")
    return found


def commands(found: Translation) -> dict[str, list[str]]:
    """Shell lines, by who runs them."""
    lines: dict[str, list[str]] = {}
    for service, kind in found.types.items():
        mine = [rule for rule in found.rules if rule.service == service]
        where = lines.setdefault("metadata servers" if service.startswith("mds") else "object servers", [])
        where.append(f'lctl set_param {service}.nrs_policies="tbf {kind}"')
        default = next((rule.rate for rule in mine if rule.name == "default"), MOST)
        where.append(f'lctl set_param {service}.nrs_tbf_rule="change default rate={default}"')
        where += [
            f'lctl set_param {service}.nrs_tbf_rule="start {rule.name} {rule.match} rate={rule.rate}"'
            for rule in mine
            if rule.name != "default"
        ]
    return lines


def as_text(found: Translation) -> list[str]:
    """Lines for a shell: what is no command is a comment."""
    lines: list[str] = []
    for who, wanted in commands(found).items():
        lines += [f"# on the {who}", *wanted, ""]
    if not found.rules:
        lines += ["# nothing of this policy can be said in TBF rules", ""]
    lines += [f"# note: {text}" for text in found.remarks]
    lines += [f"# not said: limit {r.limit!r} (line {r.line}): {r.text}" for r in found.refusals]
    return lines


def as_json(found: Translation) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "commands": commands(found),
        "rules": [vars(rule) for rule in found.rules],
        "not_said": [vars(refusal) for refusal in found.refusals],
        "notes": list(found.remarks),
    }
