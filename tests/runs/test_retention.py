# SPDX-License-Identifier: Apache-2.0
"""Which months go."""

import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.runs import retention, segments
from penstock.runs.retention import Held
from tests.runs import made
from tests.runs.test_history import history_of

NOW = 1_790_000_000.0  # 2026-09-21
DAY = 86400 * 10**9
MONTHS = st.builds(lambda y, m: f"{y}-{m:02}", st.integers(2025, 2026), st.integers(1, 12))
HELD = st.lists(
    st.builds(lambda n, m, s: Held(f"n{n}/{m}.seg", m, s), st.integers(1, 3), MONTHS, st.integers(0, 1000)),
    unique_by=lambda h: h.name,
)


@given(HELD, st.integers(0, 800), st.integers(0, 3000))
def test_laws(held: list[Held], keep_days: int, max_bytes: int) -> None:
    """Whole months, oldest first, never the running one or later; bounds hold or only that is left."""
    gone = retention.to_remove(held, keep_days * DAY, max_bytes, NOW)
    kept = [h for h in held if h not in gone]

    assert max((h.month for h in gone), default="") < min((h.month for h in kept), default="9")
    assert all(h.month < "2026-09" for h in gone)
    assert [h.month for h in gone] == sorted(h.month for h in gone)
    old = [h for h in kept if h.month < "2026-09"]
    if max_bytes and old:
        assert sum(h.size_bytes for h in kept) <= max_bytes
    if keep_days:
        assert all(NOW - retention.month_end_s(h.month) <= keep_days * 86400 for h in old)


def test_a_month_is_kept_until_its_last_day_is_old_enough() -> None:
    held = [Held("n1/2026-07.seg", "2026-07", 1)]

    assert retention.to_remove(held, 52 * DAY, 0, NOW) == []
    assert retention.to_remove(held, 51 * DAY, 0, NOW) == held
    assert retention.to_remove(held, 0, 0, NOW) == []


def test_a_month_that_has_just_ended_stays() -> None:
    """A writer may have begun in it."""
    held = [Held("n1/2026-08.seg", "2026-08", 10)]

    assert retention.to_remove(held, 0, 1, retention.month_end_s("2026-08") + 3000) == []
    assert retention.to_remove(held, 0, 1, retention.month_end_s("2026-08") + 4000) == held


def test_old_months_go_when_the_history_is_read(tmp_path: Path) -> None:
    """Reading the history applies the settings; the running month stays whatever they say."""
    old = segments.segment_path(tmp_path / "history", "n9", time.time() - 500 * 86400)
    old.parent.mkdir(parents=True)
    old.write_bytes(b"".join(segments.pack(made.run_of(1), p) for p in made.payloads(1)))
    made.put(tmp_path / "history", 2, made.payloads(2))

    looked = history_of(tmp_path, "history.max_size=1")

    assert [s.job for s in looked.summaries] == ["4702"]
    assert not old.parent.exists()


def test_a_dry_run_removes_nothing(tmp_path: Path) -> None:
    made.put(tmp_path / "history", 2, made.payloads(2))
    looked = history_of(tmp_path)
    old = tmp_path / "history/n1/2020-01.seg"
    old.write_bytes(b"")

    assert [h.name for h in looked.expire(dry_run=True)] == ["n1/2020-01.seg"]
    assert old.exists()
