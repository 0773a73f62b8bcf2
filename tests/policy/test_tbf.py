# SPDX-License-Identifier: Apache-2.0
"""A policy as TBF rules: what they say, what they cannot, and that they never let through more."""

import subprocess
import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policy import rules_toml, tbf
from penstock.policy.rules import Limit, Match, Policy

OPERATIONS = frozenset(["open", "stat", "rename", "read", "write"])
PENSTOCK = Path(sys.executable).parent / "penstock"
ONE = tbf.Shape()

SITE = """
[[limit]]
name = "everybody"
rate = "4k/s"
per = "job"

[[limit]]
name = "crawlers"
rate = "400/s"
per = "job"
jobs = ["crawl*", "4711"]

[[limit]]
name = "bytes"
rate = "1GiB/s"
per = "job"
calls = "data"

[[limit]]
name = "the whole"
rate = "300k/s"

[[limit]]
name = "imports"
rate = "200/s"
per = "job"
calls = ["open", "stat"]

[weights]
rename = 3
"""


def translated(text: str, shape: tbf.Shape = ONE, ids: tbf.Ids | None = None) -> tbf.Translation:
    policy, mistakes = rules_toml.parse(text, OPERATIONS)
    assert mistakes == []
    assert policy is not None
    return tbf.translate(policy, shape, ids or {})


def test_what_can_be_said() -> None:
    """Four CPTs: each rate is a quarter; data in requests of 4 MiB."""
    found = tbf.commands(translated(SITE, tbf.Shape(cpts=4)))

    assert found == {
        "metadata servers": [
            'lctl set_param mds.MDS.mdt.nrs_policies="tbf jobid"',
            'lctl set_param mds.MDS.mdt.nrs_tbf_rule="change default rate=1000"',
            'lctl set_param mds.MDS.mdt.nrs_tbf_rule="start penstock_2 jobid={crawl* 4711} rate=100"',
        ],
        "object servers": [
            'lctl set_param ost.OSS.ost_io.nrs_policies="tbf jobid"',
            'lctl set_param ost.OSS.ost_io.nrs_tbf_rule="change default rate=64"',
        ],
    }


def test_what_cannot_be_said_is_named() -> None:
    refused = {(r.limit, r.line): r.text for r in translated(SITE).refusals}

    assert refused["the whole", 19] == (
        "TBF has a bucket for each job, user, group or node, and none that several of them share"
    )
    assert refused["imports", 23] == (
        "requests tell no open, stat from other calls (open, stat and lookup are one kind of request)"
    )
    assert refused["everybody", 2] == "weights are left out: each request counts as one"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ('per = "job"\npaths = ["/pfs"]', "requests carry no path"),
        ('per = "job"\nusers = ["alice"]', "a bucket by job does not know the user"),
        ('per = "user"\njobs = ["x"]', "a bucket by user does not know the job"),
        ('per = "job"\njobs = ["x[12]"]', "the pattern 'x[12]' says more than TBF's one sign, *"),
        ('per = "user"\nusers = ["nobody-here"]', "the user 'nobody-here' has no number on this machine"),
        ('per = "job"\nshadow = true', "it is a shadow: it holds back nobody"),
    ],
)
def test_each_reason(words: str, why: str) -> None:
    found = translated(f'[[limit]]\nrate = "100/s"\n{words}\n')

    assert found.rules == ()
    assert [r.text for r in found.refusals] == [why]


def test_too_low_a_rate_is_no_rule() -> None:
    found = translated('[[limit]]\nrate = "7/s"\nper = "job"\n', tbf.Shape(cpts=8))

    assert [r.text for r in found.refusals] == [
        "its rate is less than one of requests a second on each of 8 CPTs"
    ]


def test_one_kind_of_bucket_a_service() -> None:
    found = translated(
        '[[limit]]\nrate = "100/s"\nper = "user"\n[[limit]]\nname = "b"\nrate = "9/s"\nper = "job"\n'
    )

    assert found.types == {"mds.MDS.mdt": "uid"}
    assert [r.text for r in found.refusals] == [
        "the service has buckets by uid already, and can have one kind only"
    ]


def test_users_by_number() -> None:
    text = '[[limit]]\nrate = "100/s"\nper = "user"\nusers = ["ann", "bob"]\n'
    found = translated(text, ids={("user", "ann"): 1001, ("user", "bob"): 1002})

    assert tbf.commands(found)["metadata servers"] == [
        'lctl set_param mds.MDS.mdt.nrs_policies="tbf uid"',
        'lctl set_param mds.MDS.mdt.nrs_tbf_rule="change default rate=999999"',
        'lctl set_param mds.MDS.mdt.nrs_tbf_rule="start penstock_1 uid={1001 1002} rate=100"',
    ]


def test_static_rates_by_job() -> None:
    text = """
    [[limit]]
    name = "all"
    rate = "300k/s"
    sharing = "static"
    [rates.all]
    default = "75k/s"
    4711 = "100k/s"
    """
    found = translated(text)

    assert [(r.name, r.match, r.rate) for r in found.rules] == [
        ("default", "jobid={*}", 75_000),
        ("penstock_1_1", "jobid={4711}", 100_000),
    ]


LIMITS = st.builds(
    Limit,
    name=st.just(""),
    rate=st.floats(0, 1e7),
    per=st.just("job"),
    match=st.builds(
        Match, jobs=st.lists(st.sampled_from(["a", "b", "a*", "*b", "ab"]), max_size=2).map(tuple)
    ),
)


@given(st.lists(LIMITS, max_size=6), st.integers(1, 16), st.sampled_from(["a", "b", "ab", "aab", "c"]))
def test_never_more_than_the_policy(limits: list[Limit], cpts: int, job: str) -> None:
    """On all CPTs together a job has no more than the least of the limits that have a rule."""
    limits = [replace(limit, name=str(i)) for i, limit in enumerate(limits)]
    found = tbf.translate(Policy(tuple(limits)), tbf.Shape(cpts), {})
    refused = {r.limit for r in found.refusals}
    rates = [
        limit.rate
        for limit in limits
        if limit.name not in refused
        and (not limit.match.jobs or any(fnmatchcase(job, p) for p in limit.match.jobs))
    ]
    asked = [rule for rule in reversed(found.rules) if rule.name != "default"]
    default = [rule for rule in found.rules if rule.name == "default"]
    patterns = [(rule, rule.match.partition("{")[2].rstrip("}").split()) for rule in [*asked, *default]]
    first = next((rule for rule, words in patterns if any(fnmatchcase(job, w) for w in words)), None)

    assert not rates or first is not None
    assert not rates or first.rate * cpts <= min(rates)


def test_the_command(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text(SITE)
    shown = subprocess.run(
        [PENSTOCK, "policy", "tbf", site, "--cpts", "4"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    lines = shown.stdout.splitlines()
    assert 'lctl set_param mds.MDS.mdt.nrs_tbf_rule="change default rate=1000"' in lines
    assert all(line.startswith(("lctl set_param ", "# ")) or not line for line in lines)
    assert subprocess.run(["bash", "-n"], input=shown.stdout, text=True, check=False).returncode == 0


def test_a_wrong_policy_is_refused_with_its_line(tmp_path: Path) -> None:
    site = tmp_path / "site.toml"
    site.write_text('[[limit]]\nrate = "fast"\n')
    shown = subprocess.run(
        [PENSTOCK, "policy", "tbf", site], capture_output=True, text=True, check=False, timeout=60
    )

    assert shown.returncode == 2
    assert shown.stderr == (
        f"penstock policy: {site}:2: 'fast' is not a rate; write it like 500/s, 300k/s or 600/min\n"
    )
