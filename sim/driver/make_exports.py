"""Writes what the simulated driver exports beyond its hand-written entry points, from the
description in schema/api: per-thread and old names of implemented functions, refusals for all
others, and the table for cuGetProcAddress.

usage: make_exports.py SCHEMA_FOLDER OUTPUT_FOLDER SOURCE.cc ..."""

import re
import sys
from pathlib import Path

DEFINITION = re.compile(r"^CUresult CUDAAPI (cu\w+)\(", re.M)

TWINS_HEAD = """// Made by make_exports.py; do not edit.
// Other names of functions that are written by hand.
#include "sim/driver/api.h"

#include <cudaProfiler.h>

"""

TABLE_HEAD = """// Made by make_exports.py; do not edit.
// Refused functions (their parameters do not matter: nothing is read), and every name that
// cuGetProcAddress knows. No CUDA header here: it would declare the functions with their real
// types.
#include "sim/driver/proc_table.h"

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


def per_thread(symbol):
    return symbol.endswith(("_ptsz", "_ptds"))


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
            if f.name not in written:
                refused.append(symbol)
                continue
            scope = "fargpu::sim::PerThreadDefault scope; " if per_thread(symbol) else ""
            parameters = ", ".join(a.declaration for a in f.arguments)
            values = ", ".join(a.name for a in f.arguments)
            twins.append(
                f"CUresult CUDAAPI {symbol}({parameters}) {{ {scope}return {f.name}({values}); }}"
            )
    rows = render.proc_entries(api)
    described = {s for f in functions for s in symbols(f)}
    declared = sorted({r["symbol"] for r in rows} - set(refused))
    out.mkdir(parents=True, exist_ok=True)
    body = "".join(line + "\n" for line in twins)
    (out / "sim_twins.cc").write_text(TWINS_HEAD + body, encoding="utf-8")
    table = TABLE_HEAD + "".join(f"FARGPU_REFUSED({s})\n" for s in refused)
    table += "".join(f'extern "C" int {s}();\n' for s in declared)
    table += "\nnamespace fargpu::sim {\nnamespace {\n\nconst ProcEntry kTable[] = {\n"
    for r in rows:
        flag = "true" if r["per_thread"] else "false"
        address = f"reinterpret_cast<void*>(&{r['symbol']})"
        table += f'    {{"{r["name"]}", {r["version"]}, {flag}, {address}}},\n'
    table += TABLE_TAIL
    (out / "sim_table.cc").write_text(table, encoding="utf-8")
    unknown = sorted(written - described)
    if unknown:
        sys.exit(f"make_exports.py: not in the description: {', '.join(unknown)}")


if __name__ == "__main__":
    main()
