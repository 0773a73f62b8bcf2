# SPDX-License-Identifier: Apache-2.0
"""Settings: one schema makes the checks, `penstock config show` and the documentation.

Invariants:
1. Command line over PENSTOCK_* over the user's file over the site's file over the default.  A file named with
   --config stands between the environment and the user's file; no file of a project is read unasked.
2. A key that is not in SCHEMA, or a value that does not fit, is an error that names file and line.
3. Each value knows where it came from.
4. Importing this module is cheap: no third party, and TOML is loaded only where a file exists.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base import places, units
from penstock.base.errors import DeniedError, UsageError

STAGES = ("place", "record", "pass")
ANYWHERE = ("command line", "environment", "file")


class Type(NamedTuple):
    """How a value is written: `read` takes what TOML or a word gave, `write` makes text that reads back."""

    name: str
    read: Callable[[Any], Any]
    write: Callable[[Any], str]


class Setting(NamedTuple):
    """One row of the schema."""

    name: str
    type: Type
    default: str
    doc: str
    where: tuple[str, ...] = ANYWHERE

    @property
    def variable(self) -> str:
        return "PENSTOCK_" + self.name.upper().replace(".", "_")


class Value(NamedTuple):
    """What holds, and why: origin is "default", "command line", a variable's name, or file:line."""

    setting: Setting
    value: Any
    origin: str

    @property
    def text(self) -> str:
        return self.setting.type.write(self.value)


def _word(value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{value!r} is not text; put it in quotes")
    return value


def _bool(value: Any) -> bool:
    words = {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }
    if isinstance(value, bool):
        return value
    if str(value).lower() not in words:
        raise UsageError(f"{value!r} is neither true nor false")
    return words[str(value).lower()]


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,18}", str(value), re.ASCII):
        raise UsageError(f"{value!r} is not a whole number of at least 0")
    return int(value)


def _measure(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise UsageError(f"{value!r} is not a number with a unit")
        return parse(str(value))

    return read


def _path(value: Any) -> str:
    text = os.path.expandvars(os.path.expanduser(_word(value)))  # noqa: PTH111 - text in, text out
    if text and not text.startswith("/"):
        raise UsageError(f"{text!r} is not an absolute path")
    return text


def _list(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part for part in value.split(":") if part)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UsageError(f"{value!r} is not a list of texts")
    return tuple(value)


def _share(value: Any) -> float:
    text = str(value).strip()
    if not re.fullmatch(r"\d{1,3}(\.\d+)?\s*%", text, re.ASCII) or float(text.rstrip("% ")) > 100:
        raise UsageError(f"{value!r} is not a share; write it like 70%")
    return float(text.rstrip("% ")) / 100


def choice(*words: str) -> Type:
    """One of a few words."""

    def read(value: Any) -> str:
        if value not in words:
            raise UsageError(f"{value!r} is none of {', '.join(words)}")
        return str(value)

    return Type(" | ".join(words), read, str)


def above_zero(plain: Type) -> Type:
    """The same without 0: somebody divides by it, or takes its logarithm."""

    def read(value: Any) -> Any:
        found = plain.read(value)
        if not found:
            raise UsageError(f"{value!r} is 0; it must be more")
        return found

    return plain._replace(read=read)


TEXT = Type("text", _word, str)
BOOL = Type("true | false", _bool, lambda value: "true" if value else "false")
WHOLE = Type("whole number", _whole, str)
SIZE = Type("size", _measure(units.parse_size), units.exact_size)
DURATION = Type("time", _measure(units.parse_duration), units.exact_duration)
RATE = Type("rate", _measure(units.parse_rate), units.exact_rate)
PATH = Type("absolute path", _path, str)
SHARE = Type("share", _share, lambda value: f"{100 * value:g}%")
LIST = Type("list of texts", _list, ":".join)


def stages_type() -> Type:
    """A list of stages."""

    def read(value: Any) -> tuple[str, ...]:
        found = _list(value)
        for word in found:
            if word not in STAGES:
                raise UsageError(f"{word!r} is none of the stages {', '.join(STAGES)}")
        return found

    return Type("list of stages", read, ":".join)


SCHEMA = (
    Setting(
        "state_dir",
        PATH,
        "",
        "Folder of all that Penstock keeps. Empty: `$XDG_STATE_HOME/penstock`, and for the index "
        "`$XDG_CACHE_HOME/penstock`.",
    ),
    Setting(
        "history.dir",
        PATH,
        "",
        "Folder of the records of runs; any file system may hold it. Empty: `history` in the state folder.",
    ),
    Setting(
        "history.keep",
        DURATION,
        "400d",
        "How long records are kept. A month's file goes when its last day is older. `0s`: for ever.",
    ),
    Setting(
        "history.max_size",
        SIZE,
        "2GiB",
        "How much room records may take; the oldest months go first, the running month never. `0`: no limit.",
    ),
    Setting(
        "history.readers",
        choice("user", "group"),
        "user",
        "Who may read the records: you alone, or your group too. It becomes the modes of folders and files.",
    ),
    Setting(
        "history.index_dir",
        PATH,
        "",
        "Folder of the index over the history, on a disk of this node. Empty: the cache folder if "
        "that is local, else a temporary file.",
    ),
    Setting(
        "board.dir",
        PATH,
        "",
        "Folder of the shared memory of running jobs, of one user alone, on a tmpfs. Empty: "
        "`/dev/shm/penstock-UID`, or in `/tmp` where that cannot be used.",
    ),
    Setting(
        "board.max_size",
        SIZE,
        "64MiB",
        "How much shared memory a job may use on a node; it is taken in steps, as the job needs it.",
    ),
    Setting(
        "record.files_max",
        WHOLE,
        "16384",
        "How many files of one process are recorded each by itself; what is above is summed by directory.",
    ),
    Setting(
        "record.sample_every",
        WHOLE,
        "64",
        "Of the calls on one file, this many to one are timed, after the first few; reports scale the time.",
    ),
    Setting(
        "run.stages",
        stages_type(),
        "record",
        "What is done to calls, in a list: `record` (count them), `pass` (nothing).",
    ),
    Setting(
        "run.mounts",
        LIST,
        "",
        "File systems under control, besides what is recorded anyway (`penstock run --mount`).",
    ),
    Setting(
        "run.detect",
        LIST,
        "lustre:ceph:fuse.ceph:fuse.ceph-fuse:fuse.penstock",
        "Types of parallel file systems, as /proc/mounts has them: their mounts are under control without being "
        "named. `none`: no mount is.",
    ),
    Setting(
        "agent.socket",
        PATH,
        "",
        "Where the agent of this node listens. Empty: `/run/penstock/agent.sock`, or a user's own in his runtime "
        "folder.",
    ),
    Setting(
        "agent.boards",
        PATH,
        "",
        "Folder of the boards that an agent keeps, on a tmpfs. Empty: `boards` beside the socket, or "
        "`/dev/shm/penstock-UID-agent` for a user's own.",
    ),
    Setting(
        "agent.token_file", PATH, "", "File with the token with which a node joins its controller, once."
    ),
    Setting(
        "agent.bypass",
        PATH,
        "/run/penstock-bypass/bypass.json",
        "What `penstock bypass --write` found: jobs of which a part escapes are marked.",
    ),
    Setting(
        "agent.metrics",
        TEXT,
        "",
        "Where the agent tells Prometheus its numbers, like `127.0.0.1:9741`. Empty: nowhere.",
    ),
    Setting("controller.address", TEXT, "", "HOST:PORT at which the site's controller listens for agents."),
    Setting("controller.tools", TEXT, "", "HOST:PORT at which it answers people and tools."),
    Setting(
        "controller.token_file",
        PATH,
        "",
        "File with the token by which the controller lets you look (its `reader.token`) or change (`admin.token`).",
    ),
    Setting("tls.ca", PATH, "", "Certificate of the authority that certified the controller and all agents."),
    Setting("tls.certificate", PATH, "", "This node's (or the controller's) certificate, with its name."),
    Setting("tls.key", PATH, "", "The key of that certificate."),
    Setting(
        "catalog.file",
        PATH,
        "",
        "The catalog that runs keep as they write files (`penstock run --catalog`). Empty: none.",
    ),
    Setting(
        "catalog.root",
        PATH,
        "",
        "The folder whose tree that catalog is of. Empty: that of the catalog that is there, else where it lies.",
    ),
    Setting(
        "catalog.ring_size",
        SIZE,
        "4MiB",
        "Shared memory between a run and its catalog's helper. What does not fit while the helper is behind is "
        "found by a scan of its folder.",
    ),
    Setting(
        "catalog.max_age",
        DURATION,
        "0s",
        "`penstock run --serve` answers nothing about folders that were learnt longer ago, and `penstock catalog ls`, "
        "`find`, `du` and `top` say that there are such. `0s`: any age.",
    ),
    Setting(
        "tune.mode",
        choice("observe", "advise", "apply"),
        "observe",
        "What becomes of the choices: nothing, shown, or given to new files (`penstock run --tune` applies them in "
        "that run).",
    ),
    Setting(
        "tune.policy",
        choice("gauss", "dca", "dca-printed", "tapp", "fixed", "default"),
        "gauss",
        "How stripe counts and sizes are chosen: a Gaussian process, DCA-IO as meant or as printed, TAPP-IO, none.",
    ),
    Setting("tune.fixed_count", WHOLE, "1", "The stripe count of the policy `fixed`."),
    Setting("tune.fixed_size", SIZE, "1MiB", "The stripe size of the policy `fixed`, a multiple of 64 KiB."),
    Setting(
        "tune.budget", WHOLE, "20", "How many runs of a program may try a layout that is not the best known."
    ),
    Setting(
        "tune.safety",
        above_zero(SHARE),
        "90%",
        "No layout is tried that may be slower than this share of the default.",
    ),
    Setting(
        "place.wait",
        DURATION,
        "200ms",
        "How long a program's start waits for its plan (`penstock run --place`); what comes later is put onto the "
        "board of the running program.",
    ),
    Setting(
        "place.small",
        SIZE,
        "0",
        "Files that are expected to be smaller than this are left to the file system. `0`: where the model "
        "says that placing them would cost more than it saves.",
    ),
    Setting(
        "place.allocator",
        choice("finish", "stock", "iez", "iez-renewed", "two-choices"),
        "finish",
        "How targets are chosen: by projected finish time, as the file system itself does, as published "
        "(once, or with renewed costs), or the better of two at random.",
    ),
    Setting(
        "place.target_rate",
        above_zero(SIZE),
        "200MiB",
        "What one target can do in a second when nobody else uses it; how busy it is follows from that.",
    ),
    Setting(
        "place.mds_cpu",
        SHARE,
        "70%",
        "Nothing is planned while a metadata server uses more of its processors, where that can be seen.",
    ),
    Setting("place.mds_memory", SHARE, "50%", "The same of its memory."),
    Setting(
        "place.every",
        DURATION,
        "1m",
        "How often an agent tells its controller of the state of storage targets.",
    ),
    Setting(
        "place.components",
        BOOL,
        "false",
        "May a plan give components of its own where a folder's default has components? Else those files are left.",
    ),
    Setting("report.top", WHOLE, "8", "How many files the report on the screen names."),
    Setting(
        "report.small_request",
        SIZE,
        "10KiB",
        "Requests up to this size are called small. Records count by classes (up to 100 B, 1 KiB, 10 KiB, "
        "100 KiB, 1 MiB, ...): the largest class bound not above it holds.",
    ),
    Setting(
        "targets.server_every",
        DURATION,
        "1m",
        "How often `penstock targets --server` looks at a server's processors and memory.",
    ),
)
BY_NAME = {setting.name: setting for setting in SCHEMA}


class Settings(Mapping[str, Any]):
    """All values by name; `origin(name)` says where one came from."""

    def __init__(self, values: dict[str, Value], env: Mapping[str, str]) -> None:
        self.values_by_name = values
        self.env = env

    def __getitem__(self, name: str) -> Any:
        return self.values_by_name[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def origin(self, name: str) -> str:
        return self.values_by_name[name].origin

    @property
    def state_dir(self) -> Path:
        return Path(places.state_dir(self.env, self["state_dir"]))

    @property
    def history_dir(self) -> Path:
        return Path(self["history.dir"]) if self["history.dir"] else self.state_dir / "history"

    @property
    def index_dir(self) -> Path:
        return Path(self["history.index_dir"] or places.cache_dir(self.env, self["state_dir"]))


def nearest(name: str, among: list[str]) -> str:
    """ "; did you mean X?" or nothing."""
    import difflib

    found = difflib.get_close_matches(name, among, n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def line_of(text: str, name: str) -> int:
    """The line of a TOML text where dotted key `name` stands; 0 when it is not to be found."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            table = match[1].replace(" ", "").replace('"', "") + "."
            if table.removesuffix(".") == name:
                return number
        elif match := re.match(r'\s*([A-Za-z0-9_."-]+)\s*=', line):
            key = table + match[1].replace('"', "")
            if key == name or name.startswith(key + "."):
                return number
    return 0


def _flatten(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and prefix + key not in BY_NAME:
            if not value:
                yield prefix + key, value
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def read_text(text: str, origin: str) -> dict[str, Value]:
    """The settings of one file's text; every mistake names the line."""
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{origin} is not TOML: {error}") from error
    found = {}
    for name, raw in _flatten(table):
        line = line_of(text, name)
        at = f"{origin}:{line}" if line else origin
        if name not in BY_NAME:
            if any(known.startswith(name + ".") for known in BY_NAME) and raw == {}:
                continue
            raise UsageError(f"{at}: there is no setting {name!r}{nearest(name, list(BY_NAME))}")
        found[name] = _value(BY_NAME[name], raw, at, "file")
    return found


def read_file(path: str, required: bool = False) -> dict[str, Value]:
    """The settings of a file; an absent one has none unless it is required."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        if required:
            raise UsageError(f"there is no file {path}; --config names a TOML file") from error
        return {}
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text at byte {error.start}") from error
    except OSError as error:
        raise DeniedError(
            f"the settings {path} cannot be read ({error.strerror}); mend it or remove it"
        ) from error
    return read_text(text, path)


def _value(setting: Setting, raw: Any, origin: str, source: str) -> Value:
    if source not in setting.where:
        raise UsageError(f"{origin}: {setting.name} may be set by {' and '.join(setting.where)} only")
    try:
        return Value(setting, setting.type.read(raw), origin)
    except UsageError as error:
        raise UsageError(f"{origin}: {setting.name}: {error}") from error


def read_environment(env: Mapping[str, str]) -> dict[str, Value]:
    """The settings among the environment's variables; an empty one counts as not set."""
    found = {}
    for setting in SCHEMA:
        raw = env.get(setting.variable, "")
        if raw and "environment" in setting.where:
            if setting.type is PATH:
                raw = os.path.abspath(os.path.expanduser(raw))  # noqa: PTH100, PTH111 - text in, text out
            found[setting.name] = _value(setting, raw, setting.variable, "environment")
    return found


def read_words(words: list[str]) -> dict[str, Value]:
    """The settings of `--set NAME=VALUE` on the command line."""
    found = {}
    for word in words:
        name, equals, raw = word.partition("=")
        if not equals or name not in BY_NAME:
            hint = nearest(name, list(BY_NAME)) if equals else "; write it as NAME=VALUE"
            raise UsageError(f"--set {word}: there is no setting {name!r}{hint}")
        if BY_NAME[name].type is PATH and raw:
            raw = os.path.abspath(os.path.expanduser(raw))  # noqa: PTH100, PTH111 - text in, text out
        found[name] = _value(BY_NAME[name], raw, "command line", "command line")
    return found


def load(
    words: list[str] | None = None,
    config: str | None = None,
    env: Mapping[str, str] | None = None,
    site: str = places.SITE_CONFIG,
) -> Settings:
    """All settings, each from the first place that has it."""
    env = os.environ if env is None else env
    values = {s.name: Value(s, s.type.read(s.default), "default") for s in SCHEMA}
    values |= read_file(site)
    values |= read_file(places.user_config(env))
    if config is not None:
        values |= read_file(config, required=True)
    values |= read_environment(env)
    values |= read_words(words or [])
    return Settings(values, env)


def stray_variables(env: Mapping[str, str]) -> list[str]:
    """Sentences on PENSTOCK_* variables that look like misspelt settings."""
    known = [setting.variable for setting in SCHEMA]
    strays = [name for name in sorted(env) if name.startswith("PENSTOCK_") and name not in known]
    return [f"{name} is not a setting{hint}" for name in strays if (hint := _close(name, known))]


def _close(name: str, known: list[str]) -> str:
    import difflib

    found = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
    return f"; did you mean {found[0]}?" if found else ""


def markdown() -> str:
    """The table of all settings for the documentation."""
    rows = ["| setting | written as | default | what it does |", "| --- | --- | --- | --- |"]
    for s in SCHEMA:
        kind = s.type.name.replace("|", "or")
        only = "" if s.where == ANYWHERE else f" Set by {' and '.join(s.where)} only."
        default = f"`{s.default}`" if s.default else "empty"
        rows.append(f"| `{s.name}` <br> `{s.variable}` | {kind} | {default} | {s.doc}{only} |")
    return "\n".join(rows) + "\n"


def template() -> str:
    """A file of settings with every default, commented out."""
    lines, section = ["# Settings of Penstock; `penstock config show --origin` tells which hold."], ""
    for s in sorted(SCHEMA, key=lambda s: ("." in s.name, s.name.rpartition(".")[0])):
        table, _, key = s.name.rpartition(".")
        if table != section:
            lines += ["", f"[{table}]"]
            section = table
        bare = s.type in (BOOL, WHOLE)
        lines += ["", f"# {s.doc}", f"# {key} = {s.default if bare else chr(34) + s.default + chr(34)}"]
    return "\n".join(lines) + "\n"
