#!/usr/bin/env python3
"""Compares schema/nvml and schema/api/nvml with NVIDIA's header.

usage: compare_header.py NVML_H [NEWER_NVML_H]

NVML_H is the header of CUDA 13.0, for example of the package nvidia-nvml-dev==13.0.*. Compared
are the size of every type that both have, the place and size of every field, the value of every
constant, and every prototype; and with NEWER_NVML_H (13.4), of what driver 580.159 has and the
header of 13.0 lacks, the same. Run by hand: the build does not have these headers.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OLDER = {"nvmlPciInfo_v1_t", "nvmlPciInfo_v2_t", "nvmlEventData_v1_t"}  # no longer in theirs
YOUNGER = {"nvmlRemappedRowsInfo_v2_t", "nvmlUnrepairableMemoryStatus_v1_t"}  # not yet in theirs
# Exported, but in no header of 13.0.
UNDECLARED = {
    "nvmlInternalGetExportTable",
    "nvmlGetBlacklistDeviceCount",
    "nvmlGetBlacklistDeviceInfoByIndex",
    "nvmlDeviceGetRemappedRows_v2",
    "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    "nvmlDeviceReadPRMCounters_v1",
}


def own_text():
    text = "".join(p.read_text() for p in sorted((ROOT / "schema/nvml").glob("*.h")))
    return re.sub(r"\\\n\s*", "", re.sub(r"//[^\n]*", "", text))


def types_and_fields(text):
    """{type: [field paths]} of the structs and unions, and the names of the other types."""
    structs, rest = {}, set()
    for body, name in re.findall(r"typedef (?:struct|union) \{\n(.*?)\n\} (\w+);", text, re.S):
        paths, outer = [], None
        inner = []
        for line in body.split("\n"):
            line = line.strip()
            if line.startswith(("struct {", "union {")):
                outer, inner = True, []
            elif closing := re.match(r"\} (\w+)(\[.*\])?;", line):
                first = "[0]" if closing[2] else ""
                paths += [closing[1], *(f"{closing[1]}{first}.{f}" for f in inner)]
                outer = None
            else:
                field = re.match(r".*?(\w+)(\[.*\])?;", line)[1]
                (inner if outer else paths).append(field)
        structs[name] = paths
    for name in re.findall(r"\} (\w+);|typedef [\w ]+?\*? ?(\w+);", text):
        rest.add(name[0] or name[1])
    opaque = set(re.findall(r"typedef struct (nvml\w+_t) \1;", text))
    return structs, sorted(rest - set(structs) - opaque)


def constants(text):
    names = re.findall(r"^#define (\w+) (?!\S*\()", text, re.M)
    names += re.findall(r"^#define (\w+) NVML_STRUCT_VERSION\(", text, re.M)
    names += re.findall(r"^#define (\w+) \(", text, re.M)
    names += re.findall(r"^  (NVML_\w+) = ", text, re.M)
    return sorted(set(names))


def probe(include, structs, rest, names):
    lines = [
        "#define NVML_NO_UNVERSIONED_FUNC_DEFS",
        f'#include "{include}"',
        "#include <cstddef>\n#include <cstdio>\nint main() {",
    ]
    for name in rest:
        lines.append(f'std::printf("{name} %zu\\n", sizeof({name}));')
    for name, fields in structs.items():
        lines.append(f'std::printf("{name} %zu\\n", sizeof({name}));')
        for field in fields:
            lines.append(
                f'std::printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                f"sizeof((({name}*)nullptr)->{field}));"
            )
    for name in names:
        lines.append(f'std::printf("{name} %lld\\n", (long long)({name}));')
    return "\n".join([*lines, "}\n"])


def answers(folder, tag, text, *includes):
    source = folder / f"{tag}.cc"
    source.write_text(text)
    command = ["g++", "-std=c++20", "-w", *(f"-I{i}" for i in includes), source, "-o", folder / tag]
    subprocess.run(command, check=True)
    return subprocess.run([folder / tag], check=True, capture_output=True, text=True).stdout


def normal(prototype):
    text = re.sub(r"\s+", " ", prototype.replace("DECLDIR", " ")).strip()
    return re.sub(r"\s*([*(),])\s*", r"\1", text)


def their_prototypes(text):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    text = re.sub(r"\bDEPRECATED\([\d.]*\)", " ", text)
    kind = r"(?:nvmlReturn_t\s+DECLDIR|const DECLDIR char\*)"
    found = re.findall(rf"({kind}\s+(nvml\w+)\s*\([^;{{]*?\))\s*;", text)
    return {name: normal(prototype) for prototype, name in found}


def differences(folder, header, structs, rest, names):
    ours = answers(folder, "ours", probe("schema/nvml/nvml.h", structs, rest, names), ROOT)
    theirs = answers(folder, "theirs", probe(header, structs, rest, names))
    both = zip(ours.splitlines(), theirs.splitlines(), strict=True)
    return [f"{a}: theirs has {b}" for a, b in both if a != b]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("header", type=pathlib.Path)
    parser.add_argument("newer", type=pathlib.Path, nargs="?")
    options = parser.parse_args()
    header = options.header.resolve()
    sys.path.insert(0, str(ROOT / "schema"))
    from apigen.loader import load_chapter

    text = own_text()
    structs, rest = types_and_fields(text)
    younger = {k: v for k, v in structs.items() if k in YOUNGER}
    structs = {k: v for k, v in structs.items() if k not in OLDER | YOUNGER}
    names = constants(text)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        wrong = differences(folder, header, structs, rest, names)
        if options.newer:
            wrong += differences(folder, options.newer.resolve(), younger, [], [])

    described = {}
    for path in sorted((ROOT / "schema/api/nvml").glob("*.yml")):
        if path.stem != "types":
            for entry in load_chapter(path)[1]:
                prototype = normal(entry["fn"])
                described[re.search(r"(nvml\w+)\(", prototype)[1]] = prototype
    declared = their_prototypes(header.read_text())
    if options.newer:
        newer = their_prototypes(options.newer.read_text())
        declared |= {name: newer[name] for name in UNDECLARED & set(newer)}
    for name in sorted(set(declared) | set(described) - UNDECLARED):
        if declared.get(name) != described.get(name):
            wrong.append(f"{name}: {described.get(name)}, theirs is {declared.get(name)}")
    print("\n".join(wrong))
    print(
        f"{len(structs)} structs, {len(rest)} other types, {len(names)} constants, "
        f"{len(declared)} prototypes, {len(wrong)} differences"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
