"""Writes what the simulated driver exports beyond its hand-written entry points, from the
description in schema/api: per-thread and old names of implemented functions, refusals for all
others, gates in front of entry points for stream captures, and the table for cuGetProcAddress.

Also version scripts of older drivers, exports-VERSION.map, which lack what is newer.

usage: make_exports.py SCHEMA_FOLDER OUTPUT_FOLDER SOURCE.cc ..."""

import re
import sys
from pathlib import Path

# Of drivers 535, 550 and 570 (CMakeLists.txt).
OLDER = (12020, 12040, 12080)

DEFINITION = re.compile(r"^CUresult CUDAAPI (cu\w+)\(", re.M)

TWINS_HEAD = """// Made by make_exports.py; do not edit.
// Other names of functions that are written by hand.
#include "sim/object/api.h"

#include <cudaProfiler.h>

"""

TABLE_HEAD = """// Made by make_exports.py; do not edit.
// Refused functions (their parameters do not matter: nothing is read), and every name that
// cuGetProcAddress knows. No CUDA header here: it would declare the functions with their real
// types.
#include "sim/api/proc_table.h"

#define FARGPU_REFUSED(name)                                     \\
  extern "C" __attribute__((visibility("default"))) int name() { \\
    static std::atomic<bool> logged{false};                      \\
    return fargpu::sim::refuse(#name, &logged);                  \\
  }

"""

TABLE_TAIL = """};

}  // namespace

std::span<const ProcEntry> proc_table() { return kTable; }

}  // namespace fargpu::sim
"""


GATES_HEAD = """// Made by make_exports.py; do not edit.
// What becomes of calls during a stream capture (`capture` in the description), in front of the
// entry points.
#include "sim_gates.h"

#include "sim/context/capture.h"

using fargpu::sim::Captures;

"""

GATED_HEAD = """// Made by make_exports.py; do not edit.
// Entry points with a gate, under the names that sim_renames.h gives them; it is included in front
// of them, behind cuda.h, which takes back macros of some of the names.
#pragma once
#include <cuda.h>
#pragma GCC visibility push(default)
#include <cudaProfiler.h>
#pragma GCC visibility pop

"""

# By `capture`: the check, with {stream} and {event} for those of the call. What is captured decides
# by itself.
GATES = {
    "free": "captures.legacy({stream})",
    "captured-unsafe": "captures.captured({stream}) ? CUDA_SUCCESS"
    " : captures.unsafe_or_legacy({stream})",
    "unsafe": "captures.unsafe({event})",
    "refused": "captures.forbidden({stream}, false)",
    "forbidden": "captures.forbidden({stream}, true)",
    "forbidden-unsafe": "captures.captured({stream}) ? captures.forbidden({stream}, true)"
    " : captures.unsafe_or_legacy({stream})",
    "forbidden-everywhere": "captures.forbidden_everywhere()",
    "implicit": "captures.implicit()",
}


def gated(function):
    """The name under which an entry point is compiled, behind its gate."""
    return f"behind_gate_{function.name}"


def gated_declaration(function):
    parameters = ", ".join(a.declaration for a in function.arguments)
    return f'extern "C" CUresult CUDAAPI {gated(function)}({parameters});\n'


def gate(function):
    stream, event = (
        next((a.name for a in function.arguments if a.ctype == ctype), "nullptr")
        for ctype in ("CUstream", "CUevent")
    )
    parameters = ", ".join(a.declaration for a in function.arguments)
    values = ", ".join(a.name for a in function.arguments)
    check = GATES[function.capture].format(stream=stream, event=event)
    return (
        f"CUresult CUDAAPI {function.name}({parameters}) {{\n"
        "  Captures& captures = Captures::get();\n"
        "  if (captures.any()) {\n"
        f"    const CUresult result = {check};\n"
        "    if (result != CUDA_SUCCESS) return result;\n"
        "  }\n"
        f"  return {gated(function)}({values});\n"
        "}\n"
    )


def per_thread(symbol):
    return symbol.endswith(("_ptsz", "_ptds"))


def retired(function):
    """A function of an old interface: its outputs are cleared, and no context is right."""
    parameters = ", ".join(a.declaration for a in function.arguments)
    clear = "".join(f"  if ({name} != nullptr) *{name} = 0;\n" for name in function.retired_outputs)
    return (
        f"CUresult CUDAAPI {function.name}({parameters}) {{\n{clear}"
        "  return fargpu::sim::with_driver(\n"
        "      [](fargpu::sim::Driver&) { return CUDA_ERROR_INVALID_CONTEXT; });\n"
        "}"
    )


def symbols(function):
    return (
        [function.name] + [f"{function.name}_{t}" for t in function.twins] + list(function.aliases)
    )


def main():
    schema, out, sources = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    sys.path.insert(0, str(schema))
    from apigen import describe, render

    written = set()
    for source in sources:
        written.update(DEFINITION.findall(Path(source).read_text(encoding="utf-8")))
    api = describe.load(schema)
    functions = [f for f in api.functions if not f.internal]
    twins, refused = [], []
    for f in functions:
        for symbol in symbols(f):
            if symbol in written:
                continue
            if f.retired:
                twins.append(retired(f))
                continue
            if f.name not in written:
                refused.append(symbol)
                continue
            scope = "fargpu::sim::PerThreadDefault scope; " if per_thread(symbol) else ""
            parameters = ", ".join(a.declaration for a in f.arguments)
            values = ", ".join(a.name for a in f.arguments)
            twins.append(
                f"CUresult CUDAAPI {symbol}({parameters}) {{ {scope}return {f.name}({values}); }}"
            )
    gates = [f for f in functions if f.name in written and f.is_judged and f.capture in GATES]
    rows = render.proc_entries(api)
    described = {s for f in functions for s in symbols(f)}
    declared = sorted({r["symbol"] for r in rows} - set(refused))
    out.mkdir(parents=True, exist_ok=True)
    body = "".join(line + "\n" for line in twins)
    (out / "sim_twins.cc").write_text(TWINS_HEAD + body, encoding="utf-8")
    (out / "sim_gates.cc").write_text(GATES_HEAD + "".join(map(gate, gates)), encoding="utf-8")
    renames = "".join(f"#define {f.name} {gated(f)}\n" for f in gates)
    declarations = "".join(map(gated_declaration, gates))
    (out / "sim_gates.h").write_text(GATED_HEAD + declarations, encoding="utf-8")
    (out / "sim_renames.h").write_text('#include "sim_gates.h"\n' + renames, encoding="utf-8")
    table = TABLE_HEAD + "".join(f"FARGPU_REFUSED({s})\n" for s in refused)
    table += "".join(f'extern "C" int {s}();\n' for s in declared)
    table += "\nnamespace fargpu::sim {\nnamespace {\n\nconst ProcEntry kTable[] = {\n"
    for r in rows:
        flag = "true" if r["per_thread"] else "false"
        address = f"reinterpret_cast<void*>(&{r['symbol']})"
        table += f'    {{"{r["name"]}", {r["version"]}, {flag}, {address}}},\n'
    table += TABLE_TAIL
    (out / "sim_table.cc").write_text(table, encoding="utf-8")
    for version in OLDER:
        old = sorted({r["symbol"] for r in rows if r["version"] <= version})
        names = "".join(f"    {name};\n" for name in old)
        script = f"{{\n  global:\n{names}  local: *;\n}};\n"
        (out / f"exports-{version}.map").write_text(script, encoding="utf-8")
    unknown = sorted(written - described)
    if unknown:
        sys.exit(f"make_exports.py: not in the description: {', '.join(unknown)}")


if __name__ == "__main__":
    main()
