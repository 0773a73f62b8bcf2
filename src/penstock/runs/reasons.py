# SPDX-License-Identifier: Apache-2.0
"""Why a record is partial: every stable word, what it means, and what would have seen more.

Writers (the collector, the launcher) use these words; readers show sentence and hint.  A word that is not
here comes from a newer writer: it is shown as it is.  `docs/guide/report.md` holds the table that `markdown`
makes.
"""

from typing import NamedTuple

from penstock.base.text import visible


class Meaning(NamedTuple):
    """A sentence and a hint; `{n}` is how much, `{s}` and the like follow it."""

    sentence: str
    hint: str


REASONS = {
    "ranks_missing": Meaning(
        "{n} rank{s} of the job {were} not seen",
        "start the program itself through penstock-run: srun penstock-run ./app, mpirun penstock-run ./app",
    ),
    "not_attached": Meaning(
        "{n} process{es} did not load the recorder (static, setuid, or started with a clean environment)",
        "penstock doctor -- ./app says why; for thousands of processes raise board.max_size",
    ),
    "table_full": Meaning(
        "{n} file{s} did not fit the tables and {are} summed by directory",
        "raise record.files_max: penstock run --set record.files_max=... -- ./app",
    ),
    "no_board": Meaning(
        "there was no shared memory on a node, so nothing was counted there",
        "penstock doctor says why",
    ),
    "killed_harvest": Meaning(
        "the collector was killed before the end, so the last counts may be missing",
        "penstock runs collect brings in what still lies in shared memory",
    ),
    "damaged": Meaning(
        "{n} part{s} of what the processes counted could not be read",
        "run it again; a program that writes over shared memory can cause this",
    ),
    "not_ended": Meaning(
        "processes on {n} node{s} had not ended when they were last looked at",
        "penstock report shows more when they have ended; penstock runs collect if they were killed",
    ),
    "no_counts": Meaning(
        "it began, but no counts have come in",
        "wait until it ends; penstock runs collect brings in what a killed collector left",
    ),
}

# What the recorder's tables could not hold in full, by the names of `Node.overflow`.
OVERFLOW = {
    "processes": "{n} process{es} beyond the table",
    "rows": "{n} row{s} of files summed by directory",
    "chunks": "{n} process{es} without room on the board",
    "files": "{n} open{s} summed by directory",
    "directories": "{n} open{s} summed over all directories",
    "threads": "{n} thread{s} that share one table",
    "names": "{n} name{s} cut",
    "descriptors": "{n} descriptor{s} beyond the table",
    "unknown": "{n} call{s} on files that could not be told",
    "syscalls": "{n} file call{s} by syscall()",
    "stock": "{n} call{s} that are only counted (mkstemp and its like)",
}


def known(word: str) -> Meaning:
    """The meaning of a word; one that is not known speaks for itself."""
    if word in REASONS:
        return REASONS[word]
    own = visible(word).replace("_", " ").replace("{", "{{").replace("}", "}}")
    return Meaning(own or "it is partial for a reason not told", "")


def sentence(word: str, count: int) -> str:
    """The sentence of a word with its count."""
    return _fill(known(word).sentence, count)


def overflow(name: str, count: int) -> str:
    """What of one table did not fit."""
    own = visible(name).replace("{", "{{").replace("}", "}}")
    return _fill(OVERFLOW.get(name, "{n} " + own), count)


def _fill(words: str, count: int) -> str:
    one = count == 1
    return words.format(
        n=f"{count:,}" if count else "some",
        s="" if one else "s",
        es="" if one else "es",
        were="was" if one else "were",
        are="is" if one else "are",
    )


def markdown() -> str:
    """The table of all words for the documentation."""
    rows = ["| word | what it means | what to do |", "| --- | --- | --- |"]
    rows += [f"| `{word}` | {sentence(word, 0)} | {meaning.hint} |" for word, meaning in REASONS.items()]
    return "\n".join(rows) + "\n"
