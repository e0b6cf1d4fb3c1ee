"""How long the campaigns need to find known faults. Each of these takes a check out of the code, one
at a time, and builds preset asan with it.

  PYTHONPATH=tests/support:tests/fuzz python3 -B tests/fuzz/planted.py [--seconds N] [NAME...]

N (120) is the time for each fault and test. The tree must have no changes; it is as before in the
end. Exit code 1: a fault was not found, or its place is gone."""

import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "asan"
# name: (target, file, code, code without the check)
FAULTS = {
    "launch-parameters": (
        "fargpu-worker",
        "server/image/parameter_layouts.h",
        "if (uint64_t{layout.offsets[i]} + layout.sizes[i] > packed.size()) return false;",
        "",
    ),
    "copied-bytes": (
        "fargpu-worker",
        "server/manual/copy.cc",
        "if (data_bytes != (brings ? copy.shape.bytes() : 0))",
        "if (false)",
    ),
    "piece-of-an-image": (
        "fargpu-worker",
        "server/manual/link.cc",
        "if (offset > image->size() || bytes > image->size() - offset) {",
        "if (false) {",
    ),
    "counted-arrays": (
        "fargpu-worker",
        "schema/apigen/cpp_dispatch.py",
        "out.append(f'if ({size}) return malformed",
        "out.append(f'if (false) return malformed",
    ),
    "structs-of-calls": (
        "fargpu-worker",
        "server/object/server_support.h",
        "if (data.size() != sizeof(T)) return false;",
        "",
    ),
    "host-calls-of-a-graph": (
        "fargpu-worker",
        "server/manual/graph.cc",
        "if (given.hostCalls.size() != hosts.size())",
        "if (false)",
    ),
    "kinds-of-objects": (
        "fargpu-worker",
        "server/object/handle_table.cc",
        "if (rpc::handle_kind(id) != kind) return CUDA_ERROR_INVALID_HANDLE;",
        "",
    ),
    "pages-of-a-region": (
        "fargpu-worker",
        "common/pages/agreement.h",
        "bytes <= bytes_ - (address - address_);",
        "bytes != 0;",
    ),
    "arrays-of-nvml": (
        "fargpu-worker",
        "server/nvml/arguments.h",
        "if (array.there() && array.size() != static_cast<uint64_t>(count)) reader_.fail();",
        "",
    ),
    "data-of-answers": (
        "libcuda.so.1",
        "client/link/message.h",
        "if (data.size() != size) return false;",
        "",
    ),
    "counts-of-answers": (
        "libcuda.so.1",
        "schema/apigen/cpp_call.py",
        "out.append(f'if ({n}_have > {n}_count) return malformed(\"{f.name}\");')",
        "",
    ),
}


def is_found(test, seconds):
    """In how many seconds; None: it was not."""
    environment = dict(os.environ, FARGPU_FUZZ_SECONDS=str(seconds))
    begin = time.monotonic()
    command = ["ctest", "--test-dir", BUILD, "-R", f"^fuzz_{test}$"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return round(time.monotonic() - begin) if done.returncode != 0 else None


def look_for(name, seconds):
    target, file, code, without = FAULTS[name]
    path = ROOT / file
    text = path.read_text()
    if text.count(code) != 1:
        return "its place is gone"
    path.write_text(text.replace(code, without))
    try:
        subprocess.run(["ninja", "-C", BUILD, target], check=True, stdout=subprocess.DEVNULL)
        of_client = target == "libcuda.so.1"
        for test in ("mutations", "scribbles") if of_client else ("replays", "sessions"):
            if (after := is_found(test, seconds)) is not None:
                return f"found by fuzz_{test} in a run of {after} s"
    finally:
        path.write_text(text)
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
    missed = 0
    for name in options.names or FAULTS:
        result = look_for(name, options.seconds)
        missed += not result.startswith("found")
        print(f"{name:24} {result}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
