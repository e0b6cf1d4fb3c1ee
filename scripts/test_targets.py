#!/usr/bin/env python3
"""Prints the targets that tests need, so that one test does not wait for a build of everything.

    test_targets.py BUILD_FOLDER REGEX

Called by scripts/test --only. A test that is a program needs that target. A test that a script runs
needs, of its own folder, the targets that its command names or, if it names none, all of them; and
the product, if its command names the build folder."""

import json
import pathlib
import re
import subprocess
import sys

PRODUCT = ["product", "fargpu-sim-versions"]  # and the simulated drivers of older versions


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def known_targets(build):
    """Names that ninja can build."""
    listed = output_of("ninja", "-C", build, "-t", "targets", "all").splitlines()
    return {line.rsplit(":", 1)[0] for line in listed if ":" in line}


def tests_of(build, regex):
    """Pairs of a test's name and its description by ctest."""
    shown = output_of("ctest", "--test-dir", build, "-R", regex, "--show-only=json-v1")
    return [(test["name"], test) for test in json.loads(shown)["tests"]]


def folder_of(test, build):
    for entry in test["properties"]:
        if entry["name"] == "WORKING_DIRECTORY":
            return str(pathlib.Path(entry["value"]).resolve().relative_to(build))
    return "tests"


def needed(name, test, targets, build):
    """Targets of one test. A test whose program was never built has no command."""
    command = test.get("command", [])
    if not command:
        return {name} & targets or {"all"}
    program = pathlib.Path(command[0])
    if build in program.parents:
        return {str(program.relative_to(build))} & targets or {"all"}
    words = [word for part in command for word in part.split()]
    words += [pathlib.Path(word).stem for word in words if word.endswith(".cc")]
    folder = folder_of(test, build)
    prefixes = ("", f"{pathlib.Path(folder).name}_")
    named = {p + word for word in words for p in prefixes if re.fullmatch(r"[\w.-]+", word)}
    found = named & targets or {f"{folder}/all"} & targets
    return found | set(PRODUCT) if any(str(build) in part for part in command) else found


def main():
    build, regex = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    targets, found = known_targets(build), set()
    for name, test in tests_of(build, regex):
        found |= needed(name, test, targets, build)
    print("\n".join(sorted(found)))


if __name__ == "__main__":
    main()
