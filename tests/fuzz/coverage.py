"""Which lines of the server and of the client's decoding the campaigns run: builds daemon, worker
and client with clang, in build/coverage, runs the campaigns with programs of the preset release,
which must be configured, and prints the share of lines for each folder. Counters lie in mapped
files, so that they stay when a worker is killed or ends by _exit.

  PYTHONPATH=tests/support:tests/fuzz python3 -B tests/fuzz/coverage.py [--seconds N] [--lines]

N (120): of each campaign. --lines: also writes all lines with their counts, build/coverage/lines.
It needs clang and llvm-cov of one release."""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD, RELEASE = ROOT / "build" / "coverage", ROOT / "build" / "release"
PROFILES = BUILD / "profiles"
FLAGS = f"-O1 -fprofile-instr-generate={PROFILES}/%m%c.profraw -fcoverage-mapping "
FLAGS += "-mllvm -runtime-counter-relocation"
PROGRAMS = (
    "bin/fargpud",
    "bin/fargpu-worker",
    "lib/fargpu/libcuda.so.1",
    "lib/fargpu/libnvidia-ml.so.1",
)
CONFORMANCE, OTHERS = "tests/conformance", ("fault_program", "fuzz_nvml_program")
CAMPAIGNS = ("sessions", "replays", "mutations", "scribbles")
# Of the client: what reads frames and answers.
PARTS = (
    "server",
    "generated/server",
    "client/link",
    "client/nvml",
    "generated/client",
    "common/rpc",
    "common/wire",
    "common/transport",
)


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, **options)


def build():
    settings = dict(CMAKE_CXX_FLAGS=FLAGS, FARGPU_FUZZ="OFF", FARGPU_UNITY="ON")
    defined = [f"-D{name}={value}" for name, value in settings.items()]
    quiet = dict(stdout=subprocess.DEVNULL)
    run("cmake", "--preset", "fuzz", "-B", BUILD, *defined, cwd=ROOT, **quiet)
    parts = "fargpud fargpu-worker fargpu-client fargpu-nvml fargpu-sim fargpu-sim-nvml"
    run("ninja", "-C", BUILD, "-j2", *parts.split(), **quiet)
    listed = run("ninja", "-C", RELEASE, "-t", "targets", "all", capture_output=True, text=True)
    names = {line.split(":")[0] for line in listed.stdout.splitlines()}
    programs = [name for name in names if re.fullmatch(r"conformance_\w+", name)]
    run("ninja", "-C", RELEASE, "-j2", "fargpu", *OTHERS, *programs, **quiet)
    for name in ("bin/fargpu", "tests/fault/fault_program", "tests/fuzz_nvml_program", CONFORMANCE):
        of_release = RELEASE / name
        programs = of_release.glob("conformance_*") if of_release.is_dir() else [of_release]
        for program in (each for each in programs if each.is_file()):
            place = BUILD / program.relative_to(RELEASE)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(program, place)


def measured():
    """name of a source file -> (lines, lines that were run)"""
    profile = BUILD / "campaigns.profdata"
    run("llvm-profdata", "merge", "-sparse", *PROFILES.glob("*.profraw"), "-o", profile)
    objects = [f"-object={BUILD / name}" for name in PROGRAMS[1:] if (BUILD / name).exists()]
    arguments = [BUILD / PROGRAMS[0], *objects, f"-instr-profile={profile}"]
    done = run("llvm-cov", "export", "-summary-only", *arguments, stdout=subprocess.PIPE, text=True)
    found = {}
    for file in json.loads(done.stdout)["data"][0]["files"]:
        path = pathlib.Path(file["filename"])
        base = BUILD if BUILD in path.parents else ROOT
        if base in path.parents:
            lines = file["summary"]["lines"]
            found[str(path.relative_to(base))] = lines["count"], lines["covered"]
    return found, arguments


def report(found):
    sums = collections.defaultdict(lambda: [0, 0])
    for name, (lines, covered) in found.items():
        for part in PARTS:
            if name.startswith(part + "/"):
                rest = name[len(part) + 1 :].split("/")
                keys = (part, f"{part}/{rest[0]}") if len(rest) > 1 else (part,)
                for key in keys:
                    sums[key][0] += lines
                    sums[key][1] += covered
    print(f"{'folder':36} {'lines':>7} {'run':>7}")
    for key, (lines, covered) in sorted(sums.items()):
        print(f"{key:36} {lines:7} {100 * covered / lines:6.1f}%")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--lines", action="store_true")
    options = parser.parse_args()
    build()
    shutil.rmtree(PROFILES, ignore_errors=True)
    PROFILES.mkdir()
    environment = dict(os.environ, FARGPU_FUZZ_SECONDS=str(options.seconds))
    for name in CAMPAIGNS:
        run("ctest", "--test-dir", BUILD, "-R", f"^fuzz_{name}$", env=environment)
    found, arguments = measured()
    report(found)
    if options.lines:
        with open(BUILD / "lines", "w") as file:
            run("llvm-cov", "show", *arguments, stdout=file)


if __name__ == "__main__":
    main()
