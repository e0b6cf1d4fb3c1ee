#!/usr/bin/env python3
"""Compiles the C++ files with clang without making objects, or looks at them with clang-tidy.

Called by scripts/lint. A file that was in order is not looked at again until it, a header of ours
or of a generator that it includes, its compile command or .clang-tidy changes."""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT = 600  # seconds for one file


class Source:
    """One entry of compile_commands.json."""

    def __init__(self, entry):
        self.folder = entry["directory"]
        self.path = pathlib.Path(self.folder, entry["file"]).resolve()
        arguments = shlex.split(entry["command"])
        if pathlib.Path(arguments[0]).name == "ccache":
            arguments = arguments[1:]
        place = arguments.index("-o")
        del arguments[place : place + 2]
        self.command = [a for a in arguments if a != "-c"]

    @property
    def name(self):
        return str(self.path.relative_to(ROOT))

    def run(self, command):
        return subprocess.run(
            command,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT,
        )

    def inputs(self):
        """The file and every header that it includes and that is no header of the system."""
        done = self.run([*self.command, "-MM", "-MT", "x"])
        if done.returncode != 0:
            return None
        names = done.stdout.replace("\\\n", " ").split(":", 1)[1].split()
        return [pathlib.Path(self.folder, name).resolve() for name in names]


class Contents:
    """Digests of files, each read once."""

    def __init__(self):
        self.known, self.lock = {}, threading.Lock()

    def digest(self, path):
        with self.lock:
            if path not in self.known:
                self.known[path] = hashlib.sha256(path.read_bytes()).hexdigest()
            return self.known[path]


def version(program):
    return subprocess.run([program, "--version"], capture_output=True, text=True).stdout


def fingerprint(source, base, contents):
    """None: the file does not compile far enough to know what it includes."""
    inputs = source.inputs()
    if inputs is None:
        return None
    whole = hashlib.sha256(base.encode())
    whole.update("\0".join([*source.command, source.name]).replace(str(ROOT), "").encode())
    for path in inputs:
        whole.update(contents.digest(path).encode())
    return whole.hexdigest()


def look(source, options, base, contents):
    """What the tool says about the file; empty when it is in order."""
    key = fingerprint(source, base, contents)
    stamp = options.cache / key if key else None
    if stamp and stamp.exists():
        return ""
    if options.tidy:
        quiet = ["--quiet", "--warnings-as-errors=*"]
        done = source.run(["clang-tidy", "-p", options.build_dir, *quiet, str(source.path)])
    else:
        done = source.run([*source.command, "-fsyntax-only"])
    if done.returncode == 0 and not (not options.tidy and done.stdout.strip()):
        if stamp:
            stamp.touch()
        return ""
    # How many warnings of system headers were left out is of no interest.
    lines = [line for line in done.stdout.splitlines() if not re.match(r"^\d+ warnings? ", line)]
    return "\n".join(lines) + "\n"


def chosen(sources, names):
    """Sources for the files `names`: a header is seen through one source that includes it, that of
    the same name if there is one."""
    wanted, missing = {}, []
    texts = None
    for name in names:
        path = (ROOT / name).resolve()
        found = [s for s in sources if s.path == path]
        if not found and path.suffix == ".h":
            if texts is None:
                texts = [(s, s.path.read_text(errors="replace")) for s in sources]
            including = [s for s, text in texts if f'#include "{name}"' in text]
            including.sort(key=lambda s: (s.path != path.with_suffix(".cc"), s.name))
            found = including[:1]
        if not found:
            missing.append(name)
        for source in found[:1]:
            wanted[source.path] = source
    return list(wanted.values()), missing


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build-dir", required=True, help="folder with compile_commands.json")
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="what was in order")
    parser.add_argument("--tidy", action="store_true", help="clang-tidy instead of clang")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--own", action="store_true", help="leave out what generators made")
    parser.add_argument("files", nargs="*", help="these files (default: all that are compiled)")
    options = parser.parse_args()
    database = pathlib.Path(options.build_dir, "compile_commands.json")
    sources = [Source(entry) for entry in json.loads(database.read_text())]
    sources = [s for s in sources if s.path.exists()]
    if options.own:
        sources = [s for s in sources if not s.name.startswith("build/")]
    if options.files:
        sources, missing = chosen(sources, options.files)
        for name in missing:
            print(f"not compiled by this build, left out: {name}")
    if options.tidy:
        # Once is enough for a file that is compiled for several instruction sets.
        sources = list({s.path: s for s in sources}.values())
    options.cache.mkdir(parents=True, exist_ok=True)
    base = version("clang") + version("clang-tidy") if options.tidy else version("clang")
    if options.tidy:
        base += (ROOT / ".clang-tidy").read_text()
    contents, wrong = Contents(), 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        looks = {pool.submit(look, s, options, base, contents): s for s in sources}
        for future in concurrent.futures.as_completed(looks):
            if future.result():
                wrong += 1
                print(f"--- {looks[future].name}\n{future.result()}", end="", flush=True)
    print(f"{len(sources)} files, {wrong} with findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
