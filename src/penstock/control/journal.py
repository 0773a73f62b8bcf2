# SPDX-License-Identifier: Apache-2.0
"""What a controller must not forget: the policy and each change of it, who did what, who may join, what is released.

When timetables began is in it too.  SQLite on a local disk.  Grants and demand are not in it: agents tell those anew
within a report.

Invariants:
1. A policy that was set is on disk before anybody is told of it.
2. A token is kept as a hash; it admits as many nodes as it says, once each, until it expires.  A node that has
   joined needs none.
"""

import hashlib
import secrets
import sqlite3
import time
from pathlib import Path
from typing import NamedTuple

from penstock.base.errors import PenstockError
from penstock.base.text import plural
from penstock.base.units import show_duration

SCHEMA = """
create table if not exists policies(
  number integer primary key, time_s real not null, who text not null, said text not null,
  base text not null, text text not null);
create table if not exists audit(time_s real not null, who text not null, what text not null);
create table if not exists tokens(hash text primary key, uses integer not null, expires_s real not null);
create table if not exists nodes(name text primary key, joined_s real not null, token text not null);
create table if not exists released(job text primary key);
create table if not exists begun(name text primary key, what text not null, time_s real not null);
"""
ALL = "*"  # in `released`: every job


class Set(NamedTuple):
    """A policy that was set: `base` is the file's text, `text` that with what was changed since."""

    number: int
    time_s: float
    who: str
    said: str
    base: str
    text: str


class Journal:
    """One file; one controller writes it, `penstock controller token` beside it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self.db = sqlite3.connect(path, timeout=10, isolation_level=None)
            self.db.execute("pragma journal_mode = wal")
            self.db.executescript(SCHEMA)
            path.chmod(0o600)
        except (sqlite3.Error, OSError) as error:
            raise PenstockError(f"the journal {path} cannot be opened ({error})") from error

    def close(self) -> None:
        self.db.close()

    # ---- policies ----

    def policy(self) -> Set | None:
        """The one that holds."""
        row = self.db.execute("select * from policies order by number desc limit 1").fetchone()
        return Set(*row) if row else None

    def set_policy(self, base: str, text: str, who: str, said: str) -> Set:
        last = self.policy()
        made = Set((last.number if last else 0) + 1, time.time(), who, said, base, text)
        with self.db:
            self.db.execute("insert into policies values (?, ?, ?, ?, ?, ?)", made)
        self.note(who, said)
        return made

    def note(self, who: str, what: str) -> None:
        """A line of the audit."""
        self.db.execute("insert into audit values (?, ?, ?)", (time.time(), who, what))

    def audit(self, last: int) -> list[tuple[float, str, str]]:
        rows = self.db.execute("select * from audit order by rowid desc limit ?", (last,)).fetchall()
        return rows[::-1]

    # ---- who may join ----

    def make_token(self, uses: int, valid_s: float) -> str:
        token = secrets.token_urlsafe(24)
        self.db.execute("insert into tokens values (?, ?, ?)", (_hash(token), uses, time.time() + valid_s))
        self.note(
            "here", f"made a token for {plural(uses, 'node')}, valid for {show_duration(valid_s * 1e9)}"
        )
        return token

    def admit(self, node: str, token: str) -> str:
        """May this node join?  Empty, or why not."""
        if self.db.execute("select 1 from nodes where name = ?", (node,)).fetchone():
            return ""
        if not token:
            return f"{node} has not joined yet and brings no token; make one with: penstock controller token"
        row = self.db.execute("select uses, expires_s from tokens where hash = ?", (_hash(token),)).fetchone()
        if row is None:
            return f"the token of {node} is not one of this controller's; make one with: penstock controller token"
        if row[1] < time.time():
            return f"the token of {node} has expired; make another with: penstock controller token"
        if row[0] < 1:
            return f"the token of {node} was used already; make another with: penstock controller token"
        self.db.execute("update tokens set uses = uses - 1 where hash = ?", (_hash(token),))
        self.db.execute("insert into nodes values (?, ?, ?)", (node, time.time(), _hash(token)))
        self.note(node, "joined")
        return ""

    # ---- timetables ----

    def begun(self) -> dict[str, tuple[str, float]]:
        """Of each limit with a timetable: which one, and when it began."""
        return {name: (what, time_s) for name, what, time_s in self.db.execute("select * from begun")}

    def begin(self, found: dict[str, tuple[str, float]]) -> None:
        """These have begun, and no others."""
        with self.db:
            self.db.execute("begin")
            self.db.execute("delete from begun")
            self.db.executemany("insert into begun values (?, ?, ?)", [(k, *v) for k, v in found.items()])

    # ---- released ----

    def released(self) -> set[str]:
        return {row[0] for row in self.db.execute("select job from released")}

    def release(self, job: str, undo: bool, who: str) -> None:
        if undo:
            self.db.execute("delete from released where job = ?", (job,))
        else:
            self.db.execute("insert or ignore into released values (?)", (job,))
        what = "every job" if job == ALL else f"job {job}"
        self.note(who, f"{'ended the release of' if undo else 'released'} {what}")


def _hash(token: str) -> str:
    return hashlib.blake2b(token.encode("utf-8", "replace"), digest_size=32).hexdigest()
