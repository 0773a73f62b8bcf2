# SPDX-License-Identifier: Apache-2.0
"""Settings of the service model: what is written, what the server reads, what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import UsageError
from penstock.testbed import settings

TOP = Path(__file__).resolve().parents[2]


def test_table_is_the_one_the_model_is_compiled_with() -> None:
    source = TOP / "native/testbed/model_settings.def"
    text = source.read_text()
    assert list(settings.rows(text)) == list(settings.schema().values())
    assert text.count("\nSETTING(") == len(settings.schema()) > 50


def test_toml_becomes_flat_text() -> None:
    table = {
        "model": "count",
        "mds": {"threads": 8, "cost": {"rename": "2ms"}},
        "ost": {
            "bandwidth": "200MB/s",
            "contention": [[1, 1], [64, 32]],
            "reserved": "1%",
            "7": {"slowdown": 10, "size": "1GiB"},
        },
        "layout": {"stripe_count": 4},
        "pool": {"flash": [1, 2]},
    }
    assert settings.flatten(table).splitlines() == [
        "model=count",
        "mds.threads=8",
        "mds.cost.rename=2000000",
        "ost.bandwidth=200000000",
        "ost.contention=1:1 64:32",
        "ost.reserved=0.01",
        "ost.7.slowdown=10",
        "ost.7.size=1073741824",
        "layout.stripe_count=4",
        "pool.flash=1,2",
    ]


REFUSED = {
    "mds.treads=4": "did you mean mds.threads",
    "nonsense=1": "no setting nonsense",
    "mds.threads=0": "between 1 and 4096, not 0",
    "mds.threads=1.5": "whole number",
    "mds.threads=many": "is a whole number, not 'many'",
    "mds.cost.open=fast": "is not a time",
    "mds.cost.open=1h": "between 0 and 10000000000",
    "mds.service=now": "one of fixed, exponential",
    "ost.bandwidth=quick": "is not a",
    "ost.reserved=60%": "between 0 and 0.5",
    "ost.contention=2:1": "begin with 1:1",
    "ost.contention=1:1 8:4 4:8": "rise from point to point",
    "ost.contention=1:1 8": "list of points",
    "ost.contention=": "begin with 1:1",
    "ost.3.contention=1:1": "without a number",
    "client.3.rpc_size=4MiB": "no setting client.3",
    "time.scale=0": "between 0.001",
    "time.scale=nan": "is a number",
}


@pytest.mark.parametrize("line", REFUSED)
def test_impossible_settings_have_a_sentence_each(line: str) -> None:
    key, _, value = line.partition("=")
    with pytest.raises(UsageError, match=REFUSED[line]) as caught:
        settings.normal(key, value)
    assert key.split(".")[0] in str(caught.value)


@given(st.sampled_from(sorted(settings.schema())), st.text(max_size=20))
def test_any_text_is_read_or_refused(key: str, value: str) -> None:
    try:
        once = settings.normal(key, value)
    except UsageError:
        return
    assert settings.normal(key, once) == once


@pytest.mark.root
def test_server_and_python_read_the_same(make_testbed: Callable[..., object]) -> None:
    """Each default, as Python reads it, is what the server says it has."""
    bed = make_testbed(settings={})
    said = dict(line.split("=", 1) for line in bed.ask("get").splitlines())
    assert said == {key: settings.normal(key, row.default) for key, row in settings.schema().items()}


def test_guide_has_the_table() -> None:
    assert settings.markdown() in (TOP / "docs/guide/testbed-model.md").read_text()
