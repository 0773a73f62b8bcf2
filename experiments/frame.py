# SPDX-License-Identifier: Apache-2.0
"""What experiments share: words on the command line, a place to load, and the files they leave."""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent


def words(folder: Path, text: str) -> tuple[dict[str, Any], Path]:
    """The configuration and where results go.  `--set minute_s=0.2` replaces a value for one run."""
    name = folder.name.replace("_", "-")
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{folder.name}", description=text)
    parser.add_argument("-o", "--output", type=Path, default=TOP / "build" / "experiments" / name)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one value of config.toml"
    )
    args = parser.parse_args()
    config = tomllib.loads((folder / "config.toml").read_text("utf-8"))
    for word in args.set:
        key, equals, value = word.partition("=")
        if not equals or key not in config:
            parser.error(f"--set {word}: the values are {', '.join(config)}")
        config[key] = tomllib.loads(f"x = {value}")["x"]
    args.output.mkdir(parents=True, exist_ok=True)
    return config, args.output


@contextmanager
def place() -> Iterator[Path]:
    """A folder in memory to load: a tmpfs of its own where we may mount one."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-experiment."))
    mounted = False
    if os.geteuid() == 0:
        command = ["mount", "-t", "tmpfs", "-o", "size=512m,mode=700", "penstock-experiment", str(folder)]
        mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def keep(path: Path, value: Any) -> None:
    """Results as JSON, written aside first."""
    aside = path.with_name(f"{path.name}.new")
    aside.write_text(json.dumps(value, indent=1) + "\n")
    aside.replace(path)


def finish(figure: Any, axes: Any, note: str, path: Path) -> None:
    """One legend above for all, a note below that says what is synthetic and scaled; as SVG and PNG."""
    from matplotlib import pyplot

    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    figure.supxlabel(note, fontsize=7)
    figure.savefig(path.with_suffix(".svg"), dpi=120, metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=120)
    pyplot.close(figure)
