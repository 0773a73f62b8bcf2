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

SHAPES = ("path", "fd", "read", "write", "stream", "dir", "stock", "own")
CLASSES = ("metadata", "data", "directory", "xattr", "lock")
KEYS = {"bytes", "fails", "on", "as", "result", "real"}
OPS_MAX = 72
LICENSE = "SPDX-License-Identifier: Apache-2.0"


class Wrong(Exception):
    """A row that cannot be; says which line."""


@dataclass(frozen=True)
class Parameter:
    type: str
    name: str

    def __str__(self) -> str:
        base, bracket, rest = self.type.partition("[")
        gap = "" if base.endswith("*") else " "
        return f"{base}{gap}{self.name}{bracket}{rest}"


@dataclass(frozen=True)
class Call:
    symbol: str
    shape: str
    op: str
    type: str
    parameters: list[Parameter]
    variadic: bool
    optional: bool
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        return {p.name for p in self.parameters}

    def declared(self, name: str, variadic: bool = True) -> str:
        words = [str(p) for p in self.parameters] + (["..."] if self.variadic and variadic else [])
        gap = "" if self.type.endswith("*") else " "
        return f"{self.type}{gap}{name}({', '.join(words) or 'void'})"

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


def parse_parameter(text: str) -> Parameter:
    found = re.fullmatch(r"(.*?[\s*])(\w+)(\[\d*\])?", text.strip())
    if not found:
        raise Wrong(f"no name in the parameter '{text}'")
    return Parameter(found[1].strip() + (found[3] or ""), found[2])


def parse_call(text: str, ops: dict[str, str]) -> Call:
    shape, op, *words = text.split()
    if shape not in SHAPES:
        raise Wrong(f"no shape '{shape}'")
    if op not in ops:
        raise Wrong(f"no operation '{op}'")
    optional, keys = False, {}
    while words and (words[0] == "optional" or re.match(r"[a-z]+=", words[0])):
        key, _, value = words.pop(0).partition("=")
        if key == "optional":
            optional = True
        elif key in KEYS:
            keys[key] = value
        else:
            raise Wrong(f"no key '{key}'")
    found = re.fullmatch(r"(.*?[\s*])(\w+)\((.*)\)", " ".join(words))
    if not found:
        raise Wrong(f"no prototype in '{' '.join(words)}'")
    inside = [] if found[3] == "void" else [word.strip() for word in found[3].split(",")]
    variadic = bool(inside) and inside[-1] == "..."
    parameters = [parse_parameter(word) for word in inside[: -1 if variadic else None]]
    call = Call(found[2], shape, op, found[1].strip(), parameters, variadic, optional, keys)
    check(call)
    return call


def check(call: Call) -> None:
    needs = {"path": {"path"}, "fd": {"fd"}, "read": {"fd"}, "write": {"fd"}, "dir": {"dir"}}
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
            call = parse_call(row, ops)
            if call.symbol in seen:
                raise Wrong(f"{call.symbol} stands here twice")
            seen.add(call.symbol)
            calls.append(call)
        except (Wrong, ValueError) as problem:
            raise Wrong(f"line {number}: {problem}") from problem
    if len(ops) > OPS_MAX:
        raise Wrong(f"{len(ops)} operations; the board has room for {OPS_MAX}")
    return Table(ops, calls)


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
    lines.append("#define PENSTOCK_CALL_TABLE \\")
    for call in table.calls:
        kind = "POINTER" if call.type.endswith("*") else "NUMBER"
        lines.append(f'  PENSTOCK_CALL("{call.symbol}", 0x{gnu_hash(call.symbol):08x}u, {kind}) \\')
    return "\n".join(lines) + "\n\n"


def failed(call: Call) -> str:
    if "fails" in call.keys:
        return call.keys["fails"]
    return "!result" if call.type.endswith("*") else "result == -1"


def does(call: Call) -> str:
    """What the call does to its file, as bits of call.h."""
    moves = call.shape in ("read", "write", "stream") and call.op in ("read", "write")
    bits = ["READ" if call.op == "read" else "WRITE"] if moves else []
    bits += ["SEEK"] if call.op == "seek" and call.shape == "fd" else []
    return " | ".join(f"PENSTOCK_DOES_{bit}" for bit in bits) or "0"


def begins(call: Call) -> str:
    op = f"PENSTOCK_OP_{call.op.upper()}, {does(call)}"
    if call.shape == "path":
        dirfd = "dirfd" if "dirfd" in call.names else "AT_FDCWD"
        if "path2" in call.names:
            dirfd2 = "dirfd2" if "dirfd2" in call.names else "AT_FDCWD"
            return f"penstock_enter_paths(&call, {op}, {dirfd}, path, {dirfd2}, path2)"
        return f"penstock_enter_path(&call, {op}, {dirfd}, path)"
    if call.shape == "stream":
        return f"penstock_enter_fd(&call, {op}, fd)"
    if call.shape == "dir":
        return f"penstock_enter_fd(&call, {op}, fd)"
    return f"penstock_enter_fd(&call, {op}, fd)"


def details(call: Call) -> list[str]:
    lines = []
    if call.shape in ("read", "write"):
        if "count" in call.names:
            lines.append("call.asked = count;")
        if "offset" in call.names:
            lines += ["call.positioned = true;", "call.offset = offset;"]
    if call.shape == "stream":
        lines.append("call.stream = true;")
    return ["  " + line for line in lines]


def make_wrapper(call: Call) -> str:
    real = f"penstock_real.{call.symbol}({call.arguments})"
    answer = f"({call.type})penstock_answer(&call)"
    if call.type.endswith("*"):
        answer = f"({call.type})(intptr_t)penstock_answer(&call)"
    lines = [f"PENSTOCK_EXPORT {call.declared(call.symbol)} {{"]
    by_fd = call.shape in ("fd", "read", "write", "stream", "dir")
    if call.shape == "stream":
        lines.append(f"  int fd = penstock_stream_fd({call.keys.get('on', 'stream')});")
    if call.shape == "dir":
        lines.append("  int fd = penstock_dir_fd(dir);")
    if by_fd:
        lines += ["  if (penstock_ignored(fd))", f"    return {real};"]
    lines += [
        "  struct penstock_call call;",
        f"  if (!{begins(call)})",
        f"    return {real};",
        *details(call),
        "  if (penstock_before(&call))",
        f"    return {answer};",
    ]
    moved = call.keys.get("bytes")
    if call.type == "void":
        lines += [f"  {real};", "  penstock_after(&call, 0, false);"]
    else:
        gap = "" if call.type.endswith("*") else " "
        lines.append(f"  {call.type}{gap}result = {real};")
        if moved:
            number = f"({failed(call)}) ? 0 : (int64_t)({moved})"
        else:
            number = "result ? 0 : -1" if call.type.endswith("*") else "result"
        if "iov" in call.names:
            lines += ["  if (result >= 0)", "    call.asked = penstock_iov_bytes(iov, iovcnt);"]
        lines += [f"  penstock_after(&call, {number}, {failed(call)});", "  return result;"]
    return "\n".join(lines) + "\n}\n"


def make_wrappers(table: Table) -> str:
    made = [make_wrapper(call) for call in table.calls if call.shape != "own"]
    return head("The wrappers of all regular shapes") + '#include "interpose/wrap.h"\n\n' + "\n".join(made)


def make_exports(table: Table) -> str:
    names = "".join(f"    {call.symbol};\n" for call in table.calls)
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
