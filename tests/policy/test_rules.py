# SPDX-License-Identifier: Apache-2.0
"""A policy's text: what right ones mean, and for each mistake the line and the exact sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import UsageError
from penstock.policy import rules, rules_toml

OPERATIONS = frozenset(["open", "close", "read", "write", "stat", "rename", "unlink", "mkdir"])

SITE = """
[control]
interval = "100ms"

[[limit]]
name = "all metadata"
rate = "300k/s"
sharing = "proportional"

[[limit]]
name = "bytes"
rate = "20GiB/s"
calls = "data"

[[limit]]
name = "imports"
rate = "200/s"
per = "job"
calls = ["open", "stat"]
paths = ["/sw/python"]
users = ["*"]
on_lost = "50/s"
shadow = true

[[job]]
users = ["alice"]
jobs = ["wrf*"]
reserve = {"all metadata" = "40k/s"}
weight = 2
unit = "team"

[weights]
rename = 3
"""


def parsed(text: str) -> rules.Policy:
    policy, mistakes = rules_toml.parse(text, OPERATIONS)
    assert mistakes == []
    assert policy is not None
    return policy


def mistakes(text: str) -> list[tuple[int, str]]:
    policy, found = rules_toml.parse(text, OPERATIONS)
    assert policy is None
    return [(m.line, m.text) for m in found]


def test_a_policy_means_what_it_says() -> None:
    policy = parsed(SITE)

    metadata, data, imports = policy.limits
    assert (metadata.rate, metadata.per, metadata.sharing, metadata.line) == (
        300e3,
        "site",
        "proportional",
        5,
    )
    assert (data.rate, data.bytes, data.calls) == (20 * 2**30, True, ("data",))
    assert (imports.on_lost, imports.lost_rate, imports.shadow) == ("rate", 50.0, True)
    assert imports.paths == ("/sw/python",)
    assert policy.weights == {"rename": 3.0}


def test_the_first_job_table_that_matches_holds() -> None:
    policy = parsed(SITE)

    hers = policy.rule_of(rules.Job("4711", "wrf_big", "alice"))
    other = policy.rule_of(rules.Job("4712", "wrf_big", "bob"))
    assert (hers.weight, hers.unit, hers.reserve) == (2.0, "team", {"all metadata": 40e3})
    assert (other.weight, other.unit) == (1.0, "")


def test_limits_by_hand() -> None:
    by_hand = rules.parse_words(["metadata=5k/s", "write=200MiB/s"], OPERATIONS)

    assert [(x.calls, x.rate, x.bytes, x.per) for x in by_hand.limits] == [
        (("metadata",), 5e3, False, "job"),
        (("write",), 200 * 2**20, True, "job"),
    ]


@pytest.mark.parametrize("word", ["metadata", "nothing=5/s", "metadata=5", "data=5", "open=-1/s"])
def test_a_limit_by_hand_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        rules.parse_words([word], OPERATIONS)


LIMIT = '[[limit]]\nname = "m"\nrate = "10/s"\n'


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("\na = ]", 2, "this is not TOML: Invalid value (at line 2, column 5)"),
        ("\na = [", 2, "this is not TOML: Invalid value (at end of document)"),
        ('[[limits]]\nrate = "1/s"\n', 1, "there is no table 'limits'; did you mean limit?"),
        ('lease = "1s"\n', 1, "'lease' stands outside a table"),
        ("[[limit]]\n", 1, 'a limit needs a rate, like rate = "300k/s"'),
        ("[[limit]]\nrate = 300\n", 2, "300 is not a rate; write it like 300k/s"),
        ('[[limit]]\nrate = "-3/s"\n', 2, "'-3/s' is not a rate; write it like 500/s, 300k/s or 600/min"),
        ('[[limit]]\nrate = "9999G/s"\n', 2, "'9999G/s' is above 1e+12 a second"),
        (LIMIT + 'pre = "site"\n', 4, "there is no key 'pre'; did you mean per?"),
        (
            LIMIT + 'per = "cluster"\n',
            4,
            "per is to be one of site, user, group, job, node, not 'cluster'",
        ),
        (LIMIT + 'calls = "opne"\n', 4, "there is no operation or class 'opne'; did you mean open?"),
        (LIMIT + 'calls = ["data", "open"]\n', 4, "data is limited in bytes: give it a limit of its own"),
        (LIMIT + 'paths = ["scratch"]\n', 4, "'scratch' is not a plain absolute path"),
        (LIMIT + 'paths = ["/pfs/../etc"]\n', 4, "'/pfs/../etc' is not a plain absolute path"),
        (LIMIT + "shadow = 1\n", 4, "shadow is to be true or false"),
        (LIMIT + 'burst = "quick"\n', 4, "'quick' is not a time; write it like 250ms, 90s, 1h30m or 7d"),
        (LIMIT + 'on_lost = "shut"\n', 4, "on_lost is to be hold, open or a rate, not 'shut'"),
        (LIMIT + LIMIT, 1, "two limits are named 'm'; give each its own name"),
        (LIMIT + 'sharing = "static"\n', 1, "sharing 'static' needs a table [rates.\"m\"]"),
        (LIMIT + '[rates."x"]\ndefault = "1/s"\n', 4, "there is no limit 'x'"),
        (LIMIT + '[[job]]\nreserve = {"n" = "1/s"}\n', 5, "there is no limit 'n'"),
        (
            LIMIT + '[[job]]\nreserve = {"m" = "11/s"}\n',
            1,
            "'m' has 11/s reserved, more than its rate of 10/s",
        ),
        (LIMIT + "[[job]]\nweight = 0\n", 5, "weight is to be a number above 0"),
        ("[weights]\nopne = 2\n", 2, "there is no operation 'opne'; did you mean open?"),
        ("[weights]\nopen = -1\n", 2, "the weight of open is to be a number from 0 to 1000"),
        ('[control]\ninterval = "1ms"\n', 2, "interval is to be between 10ms and 1min"),
        (
            '[control]\nlease = "200ms"\n',
            2,
            "lease is to be at least three intervals, else one late grant ends it",
        ),
        ('limit = "all"\n', 1, "write each limit as a table of its own: [[limit]]"),
    ],
)
def test_a_mistake_is_named_with_line_and_sentence(text: str, line: int, sentence: str) -> None:
    found = mistakes(text)

    assert (line, sentence) in found
    assert len(found) == (2 if sentence.startswith("two limits") else 1)


def test_all_mistakes_are_named_at_once() -> None:
    text = '[[limit]]\nrate = 1\nper = "x"\n[[limit]]\nrat = "1/s"\n'

    assert [line for line, _ in mistakes(text)] == [2, 3, 4, 5]


@given(st.text(alphabet="[]limtjobrae=\"' \n0123456789k/s{}.,#per", max_size=200))
def test_any_text_gives_a_policy_or_mistakes(text: str) -> None:
    policy, found = rules_toml.parse(text, OPERATIONS)

    assert (policy is None) == bool(found)
