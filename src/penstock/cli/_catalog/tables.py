# SPDX-License-Identifier: Apache-2.0
"""penstock catalog sql, export, restore."""

import argparse
import sys
from pathlib import Path
from typing import Any

from penstock.cli import _common


def register(rows: Any) -> None:
    sql = rows.add_parser(
        "sql",
        help="SQL over the table files (DuckDB)",
        epilog='example: penstock catalog sql data.cat "select uid, sum(size) from files group by uid"',
    )
    sql.add_argument("file", metavar="FILE")
    sql.add_argument("text", metavar="SQL")
    sql.add_argument("--json", action="store_true", help="as one JSON document")
    sql.add_argument("--csv", action="store_true", help="as CSV")
    sql.set_defaults(act=sql_)
    out = rows.add_parser(
        "export",
        help="give it to other programs",
        epilog="example: penstock catalog export data.cat --parquet data.parquet",
    )
    out.add_argument("file", metavar="FILE")
    form = out.add_mutually_exclusive_group(required=True)
    form.add_argument("--parquet", metavar="OUT", help="the archive: all of it, in a few bytes a file")
    form.add_argument("--csv", metavar="OUT", help="text; - for standard output")
    form.add_argument("--gufi", metavar="OUT", help="a trace for gufi_trace2index -d x")
    out.set_defaults(act=export)
    back = rows.add_parser(
        "restore",
        help="a catalog out of an archive",
        epilog="example: penstock catalog restore data.parquet -o data.cat",
    )
    back.add_argument("archive", metavar="PARQUET")
    back.add_argument("-o", "--output", metavar="FILE", required=True)
    back.set_defaults(act=restore)


def _plain(value: Any) -> Any:
    """A value for eyes and JSON."""
    from penstock.base.text import visible

    if isinstance(value, bytes):
        return visible(value)
    return value if value is None or isinstance(value, int | float | str | bool) else str(value)


def sql_(args: argparse.Namespace) -> int:
    from penstock.catalog import archive
    from penstock.cli._catalog.asking import opened, status_of

    catalog = opened(args)
    names, rows, damaged = archive.query(catalog, args.text)
    plain = [[_plain(value) for value in row] for row in rows]
    if args.json:
        documents = [dict(zip(names, row, strict=True)) for row in plain]
        _common.print_json({"schema_version": 1, "rows": documents})
    elif args.csv:
        import csv

        csv.writer(sys.stdout, lineterminator="\n").writerows([names, *plain])
    else:
        texts = [names, *([["" if value is None else str(value) for value in row] for row in plain])]
        widths = [max(len(row[i]) for row in texts) for i in range(len(names))]
        for row in texts:
            print("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    return status_of(catalog, damaged)


def export(args: argparse.Namespace) -> int:
    from penstock.base.errors import UsageError
    from penstock.catalog import archive
    from penstock.cli._catalog.asking import opened, status_of

    if "-" in (args.parquet, args.gufi):
        raise UsageError("only --csv goes to standard output; name a file")
    catalog = opened(args)
    if args.parquet:
        return status_of(catalog, archive.write_parquet(catalog, Path(args.parquet)))
    if args.csv == "-":
        return status_of(catalog, archive.write_csv(catalog, sys.stdout))
    if args.csv:
        import io

        with archive.beside(Path(args.csv)) as raw:
            out = io.TextIOWrapper(raw, encoding="utf-8", newline="")
            damaged = archive.write_csv(catalog, out)
            out.flush()
            out.detach()
        return status_of(catalog, damaged)
    with archive.beside(Path(args.gufi)) as raw:
        left, unread = archive.write_gufi(catalog, raw)
    if left:
        _common.note(f"{left} names hold a newline or the delimiter, which a trace cannot; they are left out")
    return 3 if left or unread else status_of(catalog, [])


def restore(args: argparse.Namespace) -> int:
    from penstock.catalog import archive

    manifest = archive.restore(Path(args.archive), Path(args.output))
    print(f"{args.output}: {manifest.parts[0].entries} entries")
    return 0
