# SPDX-License-Identifier: Apache-2.0
"""The history of runs as commands use it: find, list, load, forget, keep in bounds.

Invariants:
1. Opening brings the index up to date; a damaged index or an exchanged segment costs a second try, no answer.
2. What was passed over is named once a command, in one sentence (`notes`).
3. A history that belongs to somebody else is only read.
"""

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.base.errors import DeniedError, NothingMatchedError, PenstockError, UsageError
from penstock.base.settings import Settings
from penstock.runs import index, merge, record, retention, segments

HOUSEKEEPING_S = 86400
NOTHING = "no runs are recorded yet; start one with: penstock run -- ./app"
Answer = TypeVar("Answer")


class History:
    """The runs in a folder of segments."""

    def __init__(
        self, settings: Settings, note: Callable[[str], None], progress: index.Progress | None = None
    ) -> None:
        self.settings, self.note, self.progress = settings, note, progress
        self.folder = settings.history_dir
        self._told: set[str] = set()
        self._check_readable()
        self.summaries: list[merge.Summary] = self._try(self._summaries)
        self._tell_passed_over()

    def _check_readable(self) -> None:
        try:
            os.listdir(self.folder)  # noqa: PTH208 - wanted for its error alone
        except FileNotFoundError:
            return
        except OSError as error:
            raise DeniedError(
                f"the history {self.folder} cannot be read ({error.strerror}); mend its rights, or name "
                "another place with PENSTOCK_STATE_DIR"
            ) from error

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            self.note(sentence)

    def _try(self, ask: Callable[[index.Index], Answer]) -> Answer:
        """Ask the index; when it is damaged or outdated make it anew, the last time in memory."""
        wanted, remark = index.place_for(self.folder, self.settings.index_dir)
        for path in (wanted, wanted, None):
            try:
                base = index.Index(self.folder, path)
            except OSError as error:
                self._tell(f"the index {path} cannot be used ({error.strerror}); it is made anew in memory")
                continue
            if path is not None and base.path is None:
                self._tell(f"the index {path} cannot be used ({base.trouble}); it is made anew in memory")
            elif remark and base.made_anew:
                self._tell(remark)
            try:
                return ask(base)
            except (index.DamagedError, sqlite3.DatabaseError, ValueError) as error:
                full = isinstance(error, sqlite3.OperationalError)
                self._tell(
                    f"the index {path} was {'of no use' if full else 'damaged'} ({error}); it is made anew"
                )
                base.discard()
            except index.OutdatedError:
                base.clear()
            finally:
                base.close()
        raise PenstockError(f"the history {self.folder} changed while it was read; try again")

    def _summaries(self, base: index.Index) -> list[merge.Summary]:
        base.sync(self.progress)
        if self._keep_house(base):
            base.sync()
        self._seen = base.seen()
        found = [row.summary for row in base.rows() if not row.summary.forgotten]
        return sorted(found, key=lambda s: (-s.start_ns, s.id))

    # -- what was passed over ------------------------------------------------------------------------------

    def _tell_passed_over(self) -> None:
        damages = [(name, at, size) for name, seen in self._seen.items() for at, size, _ in seen.damages]
        if damages:
            name, at, _ = damages[0]
            self._tell(
                f"{sum(d[2] for d in damages):,} damaged bytes of the history were passed over, first "
                f"in {self.folder / name} at byte {at}; runs recorded there may be missing or incomplete"
            )
        if newer := sum(seen.newer for seen in self._seen.values()):
            self._tell(f"{newer:,} records are of a newer Penstock and were passed over; upgrade this one")
        closed = [(name, seen.unreadable) for name, seen in self._seen.items() if seen.unreadable]
        if closed:
            self._tell(
                f"{len(closed)} file{'s' * (len(closed) > 1)} of the history cannot be read, first "
                f"{self.folder / closed[0][0]} ({closed[0][1]}); mend the rights"
            )

    # -- asking --------------------------------------------------------------------------------------------

    def find(self, word: str | None) -> merge.Summary:
        """The run that a word names: the start of its id, or a job's id; None is this user's last run."""
        if not self.summaries:
            raise NothingMatchedError(NOTHING)
        if word is None:
            mine = [s for s in self.summaries if s.uid in (os.getuid(), -1)]
            return (mine or self.summaries)[0]
        of_job = [s for s in self.summaries if word in (s.job, f"{s.job}.{s.step}")]
        if of_job:
            if len(of_job) > 1:
                others = ", ".join(short(s.id) for s in of_job[1:4])
                self._tell(f"job {word} has {len(of_job)} runs, this is the last; others: {others}")
            return of_job[0]
        found = [s for s in self.summaries if s.id.startswith(word.lower())]
        if not found:
            raise NothingMatchedError(f"there is no run {word!r}; penstock runs lists them")
        if len(found) > 1:
            some = ", ".join(s.id[: len(word) + 4] for s in found[:4])
            raise UsageError(f"{word!r} is the start of {len(found)} runs ({some}, ...); type more of it")
        return found[0]

    def load(self, summary: merge.Summary) -> merge.Run:
        """All of a run."""
        run = bytes.fromhex(summary.id)

        def ask(base: index.Index) -> merge.Run:
            base.sync()
            row = base.row(run)
            if row is None:
                raise NothingMatchedError(f"the run {summary.id} has just gone from the history")
            return merge.merge(run, [base.payload(run, place) for place in row.places])

        return self._try(ask)

    # -- forgetting ----------------------------------------------------------------------------------------

    @property
    def mine(self) -> bool:
        """Is this user the one whose history it is?"""
        try:
            return self.folder.stat().st_uid == os.getuid()
        except OSError:
            return False

    @property
    def _for_group(self) -> bool:
        return bool(self.settings["history.readers"] == "group")

    def _keep_house(self, base: index.Index) -> bool:
        """Once a day: remove what is too old or too much; at once: the modes that were asked for."""
        if not self.mine:
            return False
        wanted = 0o750 if self._for_group else 0o700
        if self.folder.stat().st_mode & 0o777 != wanted:
            retention.set_readers(self.folder, self._for_group)
        if time.time() - base.note("kept_house_s") < HOUSEKEEPING_S:
            return False
        base.set_note("kept_house_s", int(time.time()))
        return bool(self.expire())

    def expire(self, dry_run: bool = False) -> list[retention.Held]:
        """Remove the months that `history.keep` and `history.max_size` do not allow; which they were."""
        try:
            return retention.remove(
                self.folder, self.settings["history.keep"], self.settings["history.max_size"], dry_run
            )
        except OSError as error:
            self._tell(f"old records cannot be removed from {self.folder} ({error.strerror})")
            return []

    def forget(self, summary: merge.Summary) -> None:
        """Hide a run from now on; its bytes go with their month."""
        if not self.mine:
            raise DeniedError(f"the history {self.folder} is somebody else's; only he can forget runs of it")
        self.mark(
            summary, record.Mark(node=os.uname().nodename, word=merge.FORGOTTEN, time_ns=time.time_ns())
        )

    def mark(self, summary: merge.Summary, mark: record.Mark) -> None:
        """Note something of a run beside what there is."""
        frame = segments.pack(bytes.fromhex(summary.id), mark)
        segments.append(self.folder, mark.node, [frame], self._for_group)


def short(run: str) -> str:
    """As much of a run's id as people type."""
    return run[:8]


def show_progress(done: int, total: int) -> None:
    """A line on a terminal while a large history is read for the first time."""
    if sys.stderr.isatty() and total > 4 * index.BATCH_BYTES:
        end = "\n" if done >= total else ""
        sys.stderr.write(f"\rpenstock: reading the history: {100 * min(done, total) // total} %{end}")
        sys.stderr.flush()
