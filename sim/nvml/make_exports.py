"""Writes, from the description in schema/api/nvml, the declarations of all functions of the
simulated management library, and refusals for those that are not written by hand.

usage: make_exports.py SCHEMA_FOLDER OUTPUT_FOLDER SOURCE.cc ..."""

import re
import sys
from pathlib import Path

DEFINITION = re.compile(r"^(?:nvmlReturn_t|const char\*) (nvml\w+)\(|^FARGPU_\w+\((nvml\w+)", re.M)

HEADER = """// Made by make_exports.py; do not edit.
// Every function of NVML, exported.
#pragma once

#include "schema/nvml/nvml.h"

#pragma GCC visibility push(default)
extern "C" {
"""

HEADER_TAIL = """}
#pragma GCC visibility pop
"""

REFUSALS = """// Made by make_exports.py; do not edit.
// Functions that are not simulated. Their parameters do not matter: nothing is read, and the
// prototypes are not known here.
#include "sim/nvml/refuse.h"

#define FARGPU_REFUSED(name, error)                                       \\
  extern "C" __attribute__((visibility("default"))) nvmlReturn_t name() { \\
    return fargpu::sim::nvml::refuse(error);                              \\
  }

"""


def described(folder):
    """{name: entry} of all chapters."""
    from apigen.loader import load_chapter

    found = {}
    for path in sorted(folder.glob("*.yml")):
        if path.stem != "types":
            for entry in load_chapter(path)[1]:
                found[re.search(r"(nvml\w+)\(", entry["fn"])[1]] = entry
    return found


def main():
    schema, out, sources = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    sys.path.insert(0, str(schema))
    functions = described(schema / "api" / "nvml")
    written = set()
    for source in sources:
        found = DEFINITION.findall(Path(source).read_text(encoding="utf-8"))
        written.update(a or b for a, b in found)
    unknown = sorted(written - set(functions))
    if unknown:
        sys.exit(f"make_exports.py: not in the description: {', '.join(unknown)}")
    declarations = "".join(f"{f['fn']};\n" for f in functions.values())
    refusals = ""
    for name, entry in functions.items():
        if name not in written:
            denied = entry["call"] == "denied"
            error = "NVML_ERROR_NO_PERMISSION" if denied else "NVML_ERROR_NOT_SUPPORTED"
            refusals += f"FARGPU_REFUSED({name}, {error})\n"
    out.mkdir(parents=True, exist_ok=True)
    texts = {
        "sim_nvml_functions.h": HEADER + declarations + HEADER_TAIL,
        "sim_nvml_refusals.cc": REFUSALS + refusals,
    }
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
