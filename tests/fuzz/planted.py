"""How long the campaigns need to find known faults: checks that are left out, one at a time. Preset
asan is built with all of them, each behind a question which one it is that is there.

  PYTHONPATH=tests/support:tests/fuzz python3 -B tests/fuzz/planted.py [--seconds N] [NAME...]

N (120) is the most time for each fault and test. The tree must have no changes; it is as before in
the end, and the next build makes what belongs to it. Exit code 1: a fault was not found, or its
place is gone."""

import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "asan"
WHICH = BUILD / "planted"  # a file with the name of the fault that is there
HEADER = BUILD / "generated" / "planted.h"
OF_SERVER, OF_CLIENT = ("replays", "sessions"), ("mutations", "scribbles")
# name: (tests, file, code before, condition, code behind, what is there instead)
FAULTS = {
    "launch-parameters": (
        OF_SERVER,
        "server/image/parameter_layouts.h",
        "if (",
        "uint64_t{layout.offsets[i]} + layout.sizes[i] > packed.size()",
        ") return false;",
        "false",
    ),
    "copied-bytes": (
        OF_SERVER,
        "server/manual/copy.cc",
        "if (",
        "data_bytes != (brings ? copy.shape.bytes() : 0)",
        ")",
        "false",
    ),
    "piece-of-an-image": (
        OF_SERVER,
        "server/manual/link.cc",
        "if (",
        "offset > image->size() || bytes > image->size() - offset",
        ") {",
        "false",
    ),
    "counted-arrays": (
        OF_SERVER,
        "schema/apigen/cpp_dispatch.py",
        "out.append(f'if (",
        "{size}",
        ") return malformed",
        "false",
    ),
    "structs-of-calls": (
        OF_SERVER,
        "server/object/server_support.h",
        "if (",
        "data.size() != sizeof(T)",
        ") return false;",
        "false",
    ),
    "host-calls-of-a-graph": (
        OF_SERVER,
        "server/manual/graph.cc",
        "if (",
        "given.hostCalls.size() != hosts.size()",
        ")",
        "false",
    ),
    "kinds-of-objects": (
        OF_SERVER,
        "server/object/handle_table.cc",
        "if (",
        "rpc::handle_kind(id) != kind",
        ") return CUDA_ERROR_INVALID_HANDLE;",
        "false",
    ),
    "pages-of-a-region": (
        OF_SERVER,
        "common/pages/agreement.h",
        "",
        "bytes <= bytes_ - (address - address_)",
        ";",
        "bytes != 0",
    ),
    "arrays-of-nvml": (
        OF_SERVER,
        "server/nvml/arguments.h",
        "if (",
        "array.there() && array.size() != static_cast<uint64_t>(count)",
        ") reader_.fail();",
        "false",
    ),
    "data-of-answers": (
        OF_CLIENT,
        "client/link/message.h",
        "if (",
        "data.size() != size",
        ") return false;",
        "false",
    ),
    "items-of-nvml": (
        OF_CLIENT,
        "schema/support/packed.h",
        "broken_ = broken_ || ",
        "rest_.size() < count",
        ";",
        "false",
    ),
    "counts-of-answers": (
        OF_CLIENT,
        "schema/apigen/cpp_call.py",
        "out.append(f'if (",
        "{n}_have > {n}_count",
        ') return malformed("{f.name}");',
        "false",
    ),
}
ASKS = f"""#pragma once
#include <fstream>
#include <string>
inline bool fargpu_planted(const char* name) {{
  // Never destroyed: other threads ask while the process ends.
  static const std::string& which = *[] {{
    auto* word = new std::string;
    std::ifstream("{WHICH}") >> *word;
    return word;
  }}();
  return which == name;
}}
"""


def plant():
    """The texts of the changed files as they were."""
    HEADER.write_text(ASKS)
    were = {}
    for name, (_, file, before, condition, behind, instead) in FAULTS.items():
        path = ROOT / file
        text = path.read_text()
        were.setdefault(path, text)
        if text.count(before + condition + behind) != 1:
            sys.exit(f"error: the place of {name} is gone")
        asked = f'(fargpu_planted("{name}") ? {instead} : ({condition}))'
        text = text.replace(before + condition + behind, before + asked + behind)
        # What a generator writes includes one of the other files.
        if path.suffix != ".py" and text.count("planted.h") == 0:
            text = f'#include "{HEADER}"\n' + text
        path.write_text(text)
    return were


def is_found(test, seconds):
    """In how many seconds; None: it was not."""
    environment = dict(os.environ, FARGPU_FUZZ_SECONDS=str(seconds))
    begin = time.monotonic()
    command = ["ctest", "--test-dir", BUILD, "-R", f"^fuzz_{test}$"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return round(time.monotonic() - begin) if done.returncode != 0 else None


def look_for(name, seconds):
    WHICH.write_text(name)
    for test in FAULTS[name][0]:
        if (after := is_found(test, seconds)) is not None:
            return f"found by fuzz_{test} in a run of {after} s"
    return "not found"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FAULTS))
    options = parser.parse_args()
    if unknown := set(options.names) - set(FAULTS):
        parser.error(f"no fault {', '.join(sorted(unknown))}")
    if subprocess.run(["git", "-C", ROOT, "diff", "--quiet"]).returncode != 0:
        sys.exit("error: the tree has changes")
    were = plant()
    try:
        build = ["ninja", "-j2", "-C", BUILD, "fargpu-worker", "libcuda.so.1", "fargpu-nvml"]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    finally:
        for path, text in were.items():
            path.write_text(text)
    missed = 0
    try:
        for name in options.names or FAULTS:
            result = look_for(name, options.seconds)
            missed += not result.startswith("found")
            print(f"{name:24} {result}", flush=True)
    finally:
        WHICH.unlink()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
