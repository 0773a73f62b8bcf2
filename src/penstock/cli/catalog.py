# SPDX-License-Identifier: Apache-2.0
"""Catalogs: the metadata of a tree, kept, so that nobody has to ask the metadata server for it.

penstock catalog build /scratch/data -o data.cat     reads the tree once; killed, it goes on where it was
penstock catalog update data.cat                     what changed since
penstock catalog find data.cat /scratch/data -size +1G -mtime +30
penstock catalog du data.cat -h -d 1
penstock catalog sql data.cat "select uid, sum(size) from files group by uid"
"""

import argparse
import os

HELP = "keep the metadata of a tree, and ask it"


def register(parser: argparse.ArgumentParser) -> None:
    from penstock.cli._catalog import asking, building, following, tables

    rows = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for module in (building, asking, tables, following):
        module.register(rows)


_ASKING = ("ls", "find", "du", "top", "sql")


def _is_not_known(error: OSError) -> bool:
    """Does the catalog not know a name?  That it lacks its own root is no word about the tree either."""
    import errno

    return error.errno == errno.ENODATA or (error.errno == errno.ENOENT and not error.filename)


def run(args: argparse.Namespace) -> int:
    import errno

    from penstock.base.errors import IncompleteError, PenstockError

    try:
        return int(args.act(args))
    except (PenstockError, BrokenPipeError):
        raise
    except OSError as error:
        if error.errno == errno.ENOSPC and error.filename is None and args.what in _ASKING:
            raise  # of what is printed
        if error.filename is not None and _is_not_known(error) and hasattr(args, "file"):
            name = os.fsdecode(error.filename) or "its root folder"
            raise IncompleteError(
                f"{args.file}: {name} is not known to it; penstock catalog update --full reads it"
            ) from error
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        raise PenstockError(f"{where}{error.strerror or error}") from error
