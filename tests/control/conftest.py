# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of launching."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import launching


@pytest.fixture
def env(tmp_path: Path) -> Iterator[dict[str, str]]:
    with launching.places(tmp_path) as found:
        yield found
