# SPDX-License-Identifier: Apache-2.0
"""Makes everything that follows from native/calls.def: python tools/calls.py WHAT native/calls.def > FILE

WHAT is
    enum       enum penstock_op and enum penstock_class, and which class an operation has
    originals  the table of libc's functions, and what finds them (names and their GNU hashes)
    wrappers   the wrappers of all regular shapes
    exports    the linker's version script: exactly the table's symbols are visible
    doc        the page of the documentation
    symbols    a line a call, for tests: symbol, shape, operation, optional or required
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

SHAPES = ("path", "fd", "read", "write", "stream", "stock", "own")
CLASSES = ("metadata", "data", "directory", "xattr", "lock")
FLAGS = {"optional", "calls-back", "renamed"}
KEYS = {"bytes", "fails", "on", "as"}
OPS_MAX = 72
LICENSE = "SPDX-License-Identifier: Apache-2.0"


class Wrong(Exception):
    """A row that cannot be; says which line."""


@dataclass(frozen=True)
class Parameter:
    type: str
    name: str
    after: str = ""

    def __str__(self) -> str:
        gap = "" if self.type.endswith("*") else " "
        return f"{self.type}{gap}{self.name}{self.after}"


@dataclass(frozen=True)
class Call:
    symbol: str
    shape: str
    op: str
    type: str
    parameters: list[Parameter]
    variadic: bool
    flags: set[str]
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def optional(self) -> bool:
        return "optional" in self.flags

    @property
    def names(self) -> set[str]:
        return {p.name for p in self.parameters}

    def declared(self, name: str, variadic: bool = True) -> str:
        words = [str(p) for p in self.parameters] + (["..."] if self.variadic and variadic else [])
        gap = "" if self.type.endswith("*") else " "
        return f"{self.type}{gap}{name}({', '.join(words) or 'void'})"

    def exported(self) -> str:
        """How the wrapper's definition begins."""
        if "renamed" not in self.flags:
            return f"PENSTOCK_EXPORT {self.declared(self.symbol)} {{"
        name = f"named_{self.symbol}"
        return f'{self.declared(name)} __asm__("{self.symbol}");\nPENSTOCK_EXPORT {self.declared(name)} {{'

    @property
    def arguments(self) -> str:
        return ", ".join(p.name for p in self.parameters)

    @property
    def named_by(self) -> str:
        """How the call says which file it means."""
        for wanted, text in (
            ({"dirfd2", "path2"}, "folder descriptors and paths"),
            ({"path2"}, "two paths"),
            ({"dirfd", "path"}, "folder descriptor and path"),
            ({"path"}, "path"),
            ({"fd"}, "descriptor"),
            ({"stream"}, "FILE"),
            ({"dir"}, "DIR"),
        ):
            if wanted <= self.names:
                return text
        return self.keys.get("on", "nothing")


@dataclass(frozen=True)
class Table:
    ops: dict[str, str]  # operation: class
    calls: list[Call]
    exceptions: dict[str, str]  # symbol: why it stands in no row


def parse_parameter(text: str) -> Parameter:
    """`type name`, `type name[2]`, or a pointer to a function `type (*name)(...)`."""
    found = re.fullmatch(r"(.*?\(\*|.*?[\s*])(\w+)(\[\d*\]|\)\(.*\))?", text.strip())
    if not found:
        raise Wrong(f"no name in the parameter '{text}'")
    return Parameter(found[1].strip(), found[2], found[3] or "")


def parse_call(text: str, ops: dict[str, str]) -> Call:
    shape, op, *words = text.split()
    if shape not in SHAPES:
        raise Wrong(f"no shape '{shape}'")
    if op not in ops:
        raise Wrong(f"no operation '{op}'")
    flags, keys = set(), {}
    while words and (words[0] in FLAGS or re.match(r"[a-z]+=", words[0])):
        key, _, value = words.pop(0).partition("=")
        if key in FLAGS:
            flags.add(key)
        elif key in KEYS:
            keys[key] = value
        else:
            raise Wrong(f"no key '{key}'")
    found = re.fullmatch(r"([\w\s*]*?[\s*])(\w+)\((.*)\)", " ".join(words))
    if not found:
        raise Wrong(f"no prototype in '{' '.join(words)}'")
    inside = [] if found[3] == "void" else [word.strip() for word in re.split(r",(?![^()]*\))", found[3])]
    variadic = bool(inside) and inside[-1] == "..."
    parameters = [parse_parameter(word) for word in inside[: -1 if variadic else None]]
    call = Call(found[2], shape, op, found[1].strip(), parameters, variadic, flags, keys)
    check(call)
    return call


def check(call: Call) -> None:
    needs = {
        "path": {"path"},
        "stock": {"path"},
        "fd": {"fd"},
        "read": {"fd"},
        "write": {"fd"},
    }
    missing = needs.get(call.shape, set()) - call.names
    if missing:
        raise Wrong(f"{call.symbol}: shape {call.shape} needs a parameter {', '.join(missing)}")
    if call.shape == "stream" and "stream" not in call.names and "on" not in call.keys:
        raise Wrong(f"{call.symbol}: names no stream")
    if call.variadic and call.shape != "own" and "as" not in call.keys:
        raise Wrong(f"{call.symbol}: takes varying arguments and does not say how they are passed on")


def parse(text: str) -> Table:
    ops: dict[str, str] = {}
    calls: list[Call] = []
    seen: set[str] = set()
    why: dict[str, str] = {}
    exceptions: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        row = line.partition("#")[0].strip()
        if not row:
            continue
        try:
            if row.startswith("op "):
                _, op, cls = row.split()
                if cls not in CLASSES:
                    raise Wrong(f"no class '{cls}'")
                ops[op] = cls
                continue
            if row.startswith("why "):
                _, name, reason = row.split(maxsplit=2)
                why[name] = reason
                continue
            if row.startswith("except "):
                _, name, *symbols = row.split()
                if name not in why:
                    raise Wrong(f"no reason '{name}'")
                exceptions |= dict.fromkeys(symbols, why[name])
                continue
            call = parse_call(row, ops)
            if call.symbol in seen:
                raise Wrong(f"{call.symbol} stands here twice")
            seen.add(call.symbol)
            calls.append(call)
        except (Wrong, ValueError) as problem:
            raise Wrong(f"line {number}: {problem}") from problem
    if len(ops) > OPS_MAX:
        raise Wrong(f"{len(ops)} operations; the board has room for {OPS_MAX}")
    if both := seen & set(exceptions):
        raise Wrong(f"both a row and an exception: {', '.join(sorted(both))}")
    check_lists(calls)
    return Table(ops, calls, exceptions)


def check_lists(calls: list[Call]) -> None:
    """What varying arguments are passed on to takes a list after the same parameters."""
    by_symbol = {call.symbol: call for call in calls}
    for call in calls:
        if "as" not in call.keys:
            continue
        other = by_symbol.get(call.keys["as"])
        if not other or other.parameters[:-1] != call.parameters or other.parameters[-1].type != "va_list":
            raise Wrong(f"{call.symbol}: {call.keys['as']} does not take a list in place of its arguments")


def head(what: str, comment: str = "//") -> str:
    return f"{comment} {LICENSE}\n/* {what}.  Made by tools/calls.py from native/calls.def. */\n"


def make_enum(table: Table) -> str:
    lines = [head("Operations and classes of calls") + "#pragma once", "enum penstock_class {"]
    lines += [f"  PENSTOCK_CLASS_{cls.upper()}," for cls in CLASSES]
    lines += ["};", "enum penstock_op {"]
    lines += [f"  PENSTOCK_OP_{op.upper()}," for op in table.ops]
    lines += ["  PENSTOCK_OPS", "};", "#define PENSTOCK_OP_CLASSES \\"]
    lines += [
        f"  [PENSTOCK_OP_{op.upper()}] = PENSTOCK_CLASS_{cls.upper()}, \\" for op, cls in table.ops.items()
    ]
    lines += ["", "#define PENSTOCK_OP_NAMES \\"]
    lines += [f'  [PENSTOCK_OP_{op.upper()}] = "{op}", \\' for op in table.ops]
    return "\n".join(lines) + "\n\n"


def gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


def make_originals(table: Table) -> str:
    lines = [head("libc's functions, by name") + "#pragma once", "struct penstock_originals {"]
    lines += [f"  {call.declared(f'(*{call.symbol})')};" for call in table.calls]
    lines += ["};", f"enum {{ PENSTOCK_CALLS = {len(table.calls)} }};"]
    lines.append(
        "/* All names in one text, and where each begins: pointers would cost each process a page. */"
    )
    lines.append("#define PENSTOCK_CALL_NAMES \\")
    lines += [f'  "{call.symbol}\\0" \\' for call in table.calls]
    lines += ["", "#define PENSTOCK_CALL_TABLE \\"]
    at = 0
    for call in table.calls:
        kind = "POINTER" if call.type.endswith("*") else "NUMBER"
        lines.append(f"  PENSTOCK_CALL({at}, 0x{gnu_hash(call.symbol):08x}u, {kind}) \\")
        at += len(call.symbol) + 1
    return "\n".join(lines) + "\n\n"


def failed(call: Call) -> str:
    if "fails" in call.keys:
        return call.keys["fails"]
    return "!result" if call.type.endswith("*") else "result == -1"


def does(call: Call) -> str:
    """What the call does to its file, as bits of call.h."""
    if call.shape == "stock":
        return "PENSTOCK_DOES_OPEN"
    moves = call.shape in ("read", "write", "stream") and call.op in ("read", "write")
    bits = ["READ" if call.op == "read" else "WRITE"] if moves else []
    bits += ["SEEK"] if call.op == "seek" and call.shape == "fd" else []
    return " | ".join(f"PENSTOCK_DOES_{bit}" for bit in bits) or "0"


def begins(call: Call) -> str:
    op = f"PENSTOCK_OP_{call.op.upper()}, {does(call)}"
    if call.shape in ("path", "stock"):
        dirfd = "dirfd" if "dirfd" in call.names else "AT_FDCWD"
        if "path2" in call.names:
            dirfd2 = "dirfd2" if "dirfd2" in call.names else "AT_FDCWD"
            return f"penstock_enter_paths(&call, {op}, {dirfd}, path, {dirfd2}, path2)"
        return f"penstock_enter_path(&call, {op}, {dirfd}, path)"
    return f"penstock_enter_fd(&call, {op}, fd)"


ASKED = {"stat": "STAT", "access": "ACCESS", "readlink": "READLINK", "getxattr": "XATTR"}


WANTED = {
    "into": ("st", "buffer", "value"),
    "room": ("length", "room"),
    "mask": ("mask", "mode"),
    "attribute": ("name",),
}


def wants(call: Call) -> list[str]:
    """What a call by path asks for, where a stage may answer it."""
    if call.shape != "path" or call.op not in ASKED or call.type.endswith("*"):
        return []
    what = "STATX" if call.symbol == "statx" else ASKED[call.op]
    flags = ["flags"] if "flags" in call.names else []
    flags += ["AT_SYMLINK_NOFOLLOW"] if call.symbol.lstrip("_").startswith(("l", "readlink")) else []
    flags += ["AT_EACCESS"] if call.symbol.startswith("e") else []
    fields = [f"PENSTOCK_WANTS_{what}", " | ".join(flags) or "0"]
    for name, names in WANTED.items():
        given = next((given for given in names if given in call.names), None)
        fields += [f".{name} = {given}"] if given else []
    lines = [f"struct penstock_wants wants = {{{', '.join(fields)}}};"]
    guard = "if (version == PENSTOCK_STAT_VERSION) " if "version" in call.names else ""
    return [*lines, f"{guard}call.wants = &wants;"]


def details(call: Call) -> list[str]:
    lines = wants(call)
    if call.shape in ("read", "write"):
        if "count" in call.names:
            lines.append("call.asked = count;")
        if "offset" in call.names:
            lines += ["call.positioned = true;", "call.offset = offset;"]
    if call.shape == "stream":
        lines.append("call.stream = true;")
    if call.op in ("setxattr", "removexattr"):
        lines.append("call.attribute = name;")
    if call.shape == "stock":
        lines += ["call.open_flags = O_RDWR | O_CREAT | O_EXCL;", "call.creates = call.fixed = true;"]
        lines += ["penstock_lost(PENSTOCK_LOST_STOCK);"]
    return ["  " + line for line in lines]


def passing(call: Call) -> str:
    """The statement that passes a call on unseen."""
    real = f"penstock_real.{call.symbol}({call.arguments})"
    if call.shape == "stock":
        return f"return penstock_opened_unseen({real});"
    return f"{{ {real}; return; }}" if call.type == "void" else f"return {real};"


def ignores(call: Call) -> list[str]:
    """Which descriptor is meant, and whether anybody wants to see it."""
    lines = []
    if call.shape == "stream":
        lines.append(f"  int fd = penstock_stream_fd({call.keys.get('on', 'stream')});")
    if call.shape in ("fd", "read", "write", "stream"):
        lines += ["  if (penstock_ignored(fd))", f"    {passing(call)}"]
    return lines


def is_quick(call: Call) -> bool:
    """Whether it is among what is called most (stages/record.h)."""
    return call.shape in ("read", "write") and "count" in call.names and not call.keys


def tries_again(call: Call) -> list[str]:
    """A failed write is made once more where a stage has mended what was wrong (none such is on the short way)."""
    return [
        "if (PENSTOCK_UNLIKELY(result == -1) && penstock_again(&call, fd))",
        f"  result = penstock_real.{call.symbol}({call.arguments});",
    ]


def make_quick(call: Call) -> str:
    """The short way through: a function of its own, so that what is ignored need not set up its frame."""
    moved = {"read": "penstock_record_read", "write": "penstock_record_wrote"}[call.shape]
    offset = "offset" if "offset" in call.names else "-1"
    declared = call.declared(f"quick_{call.symbol}").removesuffix(")")
    lines = [
        f"static __attribute__((noinline)) {declared}, struct penstock_fd *entry) {{",
        "  if (!penstock_quick(entry, count))",
        f"    return seen_{call.symbol}({call.arguments});",
        f"  {call.type} result = penstock_real.{call.symbol}({call.arguments});",
        f"  result = ({call.type}){moved}(entry, count, {offset}, result);",
        "  penstock_quick_done();",
        "  return result;",
        "}",
    ]
    return "\n".join(lines) + "\n"


def opens(call: Call) -> list[str]:
    """Up to the real call."""
    answer = f"({call.type})penstock_answer(&call)"
    if call.type.endswith("*"):
        answer = f"({call.type})(intptr_t)penstock_answer(&call)"
    answers = "{ penstock_answer(&call); return; }" if call.type == "void" else f"return {answer};"
    lines = ["  struct penstock_call call;", f"  if (!{begins(call)})", f"    {passing(call)}"]
    return [*lines, *details(call), "  if (penstock_before(&call))", f"    {answers}"]


def closes(call: Call) -> list[str]:
    """The real call, and what came of it."""
    real = f"penstock_real.{call.symbol}({call.arguments})"
    if call.type == "void":
        return [f"  {real};", "  penstock_after(&call, 0, false);"]
    if "bytes" in call.keys:
        number = f"({failed(call)}) ? 0 : (int64_t)({call.keys['bytes']})"
    else:
        number = "result ? 0 : -1" if call.type.endswith("*") else "result"
    gap = "" if call.type.endswith("*") else " "
    lines = ["  penstock_thread.inside = 0;"] if "calls-back" in call.flags else []
    lines.append(f"  {call.type}{gap}result = {real};")
    lines += [f"  {line}" for line in tries_again(call)] if call.shape == "write" else []
    if "iov" in call.names:
        lines += ["  if (result >= 0)", "    call.asked = penstock_iov_bytes(iov, iovcnt);"]
    return [*lines, f"  penstock_after(&call, {number}, {failed(call)});", "  return result;"]


def make_list_call(call: Call) -> str:
    """Varying arguments are collected and passed on to the wrapper that takes a list."""
    last = call.parameters[-1].name
    lines = [call.exported(), "  va_list list;", f"  va_start(list, {last});"]
    lines.append(f"  {call.type} result = with_{call.keys['as']}({call.arguments}, list);")
    return "\n".join([*lines, "  va_end(list);", "  return result;", "}"]) + "\n"


def make_wrapper(call: Call, used_with_list: bool) -> str:
    if call.variadic:
        return make_list_call(call)
    if call.shape in ("fd", "read", "write") and not used_with_list:
        # What is not ignored has a frame of its own, which the rest need not set up.
        seen = f"seen_{call.symbol}"
        lines = [
            f"static __attribute__((noinline)) {call.declared(seen)} {{",
            *opens(call),
            *closes(call),
            "}",
            "",
        ]
        lines += [make_quick(call)] if is_quick(call) else []
        lines += [call.exported(), *ignores(call)]
        if is_quick(call):
            lines += ["  if (PENSTOCK_LIKELY((unsigned)fd < PENSTOCK_FDS))"]
            lines += [f"    return quick_{call.symbol}({call.arguments}, &penstock_fds[fd]);"]
        return "\n".join([*lines, f"  return {seen}({call.arguments});", "}"]) + "\n"
    if not used_with_list:
        body = [call.exported(), *ignores(call), *opens(call), *closes(call), "}"]
        return "\n".join(body) + "\n"
    inner = f"with_{call.symbol}"
    lines = [f"static {call.declared(inner)} {{", *ignores(call), *opens(call), *closes(call), "}", ""]
    return "\n".join([*lines, call.exported(), f"  return {inner}({call.arguments});", "}"]) + "\n"


def make_wrappers(table: Table) -> str:
    with_lists = {call.keys.get("as") for call in table.calls}
    made = [make_wrapper(call, call.symbol in with_lists) for call in table.calls if call.shape != "own"]
    # Some are macros besides.
    undefined = "".join(f"#undef {call.symbol}\n" for call in table.calls if call.shape != "own")
    top = head("The wrappers of all regular shapes") + '#include "interpose/wrap.h"\n\n'
    return top + undefined + "\n" + "\n".join(made)


EXPORTED_TOO = ["penstock_mpi_opened"]  # what libpenstock-mpi.so calls


def make_exports(table: Table) -> str:
    names = "".join(f"    {symbol};\n" for symbol in [*(call.symbol for call in table.calls), *EXPORTED_TOO])
    return f"/* {LICENSE}\n   Made by tools/calls.py. */\n{{\n  global:\n{names}  local:\n    *;\n}};\n"


def make_doc(table: Table) -> str:
    lines = [
        "# Calls that are seen",
        "",
        "Made from `native/calls.def`. A call that is not here goes to libc unseen.",
        "",
        "| call | operation | class | names its file by | libc may lack it |",
        "|---|---|---|---|---|",
    ]
    for call in sorted(table.calls, key=lambda c: (list(table.ops).index(c.op), c.symbol)):
        maybe = "yes" if call.optional else ""
        lines.append(f"| `{call.symbol}` | {call.op} | {table.ops[call.op]} | {call.named_by} | {maybe} |")
    return "\n".join(lines) + "\n"


def make_symbols(table: Table) -> str:
    return "".join(
        f"{c.symbol} {c.shape} {c.op} {'optional' if c.optional else 'required'}\n" for c in table.calls
    )


MAKERS = {
    "enum": make_enum,
    "originals": make_originals,
    "wrappers": make_wrappers,
    "exports": make_exports,
    "doc": make_doc,
    "symbols": make_symbols,
}


def main(words: list[str]) -> int:
    if len(words) != 2 or words[0] not in MAKERS:
        print(f"usage: calls.py {'|'.join(MAKERS)} native/calls.def", file=sys.stderr)
        return 2
    try:
        print(MAKERS[words[0]](parse(Path(words[1]).read_text())), end="")
    except Wrong as problem:
        print(f"{words[1]}: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
