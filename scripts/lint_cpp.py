#!/usr/bin/env python3
"""Compiles the C++ files with clang without making objects and, with --tidy, looks at them with
clang-tidy, too.

Called by scripts/lint. Files of one compile command are looked at a dozen at a time, written one
after the other into one file: nearly all of the time goes to the headers that they share. Those
that cannot stand in one file (two of them name a thing alike), and those of which clang has
something to say, are looked at once more, in the end alone. What was in order is not looked at
again until a file, a header of ours or of a generator that it includes, the compile command or
.clang-tidy changes."""

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
LIMIT = 900  # seconds for one process
TOGETHER = 12
# The analyzer follows a function this far. With the default of 225000 steps it takes seven times as
# long, and found nothing more in the dozen files of the server that were tried.
STEPS = ["-Xclang", "-analyzer-config", "-Xclang", "max-nodes=30000"]
# What only checks others, and ends with the test that it is part of.
TESTS = ("tests/", "bench/")


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
        self.command = tuple(a for a in arguments if a not in ("-c", entry["file"]))
        self.name = str(self.path.relative_to(ROOT))
        self.text = self.path.read_text(errors="replace")
        self.made = self.name.startswith("build/")
        self.tidy = False
        if not self.text.endswith("\n"):
            self.text += "\n"

    @property
    def kind(self):
        """Sources of one kind can be looked at together. A program is alone."""
        program = self.name if re.search(r"\bmain\(", self.text) else ""
        test = self.name.startswith(TESTS)
        return (self.folder, self.command, self.path.suffix, self.tidy, test, program)


class Unit:
    """Sources of one kind, and the file that holds them all."""

    def __init__(self, sources, folder):
        self.sources, first = sources, sources[0]
        # What a source includes from its own folder.
        folders = dict.fromkeys(str(s.path.parent) for s in sources)
        self.command = [*first.command, *(part for f in folders for part in ("-iquote", f))]
        self.cwd = first.folder
        text = "".join(s.text for s in sources)
        self.digest = hashlib.sha256(repr((first.kind, text)).encode()).hexdigest()
        self.path = folder / (self.digest[:32] + first.path.suffix)
        if not self.path.exists():
            self.path.write_text(text)

    def __len__(self):
        return sum(len(s.text) for s in self.sources)

    def place(self, line):
        """The source that a line of the file is of, and the line there."""
        for source in self.sources:
            lines = source.text.count("\n")
            if line <= lines:
                return source, line
            line -= lines
        return self.sources[-1], lines

    def run(self, command):
        return subprocess.run(
            command,
            cwd=self.cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT,
        )

    def clang(self, *options):
        return self.run([*self.command, *options, str(self.path)])

    def tidy(self):
        # One using declaration stands for those of all files.
        checks = "-misc-unused-using-decls" if len(self.sources) > 1 else ""
        if self.sources[0].name.startswith(TESTS):
            checks += ",-clang-analyzer-*"
        options = ["--quiet", "--warnings-as-errors=*", f"--checks={checks}"]
        return self.run(["clang-tidy", *options, str(self.path), "--", *self.command[1:], *STEPS])

    def readable(self, text):
        """Output with the places of the sources."""

        def name(match):
            source, line = self.place(int(match[1]))
            return f"{source.name}:{line}:"

        # How many warnings of system headers were left out is of no interest.
        lines = [line for line in text.splitlines() if not re.match(r"^\d+ warnings? ", line)]
        text = re.sub(re.escape(str(self.path)) + r":(\d+):", name, "\n".join(lines) + "\n")
        return text.replace(f"{ROOT}/", "")

    def blamed(self, text):
        """Sources that errors are told of."""
        errors = re.finditer(re.escape(str(self.path)) + r":(\d+):\d+: (?:fatal )?error", text)
        return {self.place(int(e[1]))[0] for e in errors}


class Contents:
    """Digests of files, each read once."""

    def __init__(self):
        self.known, self.lock = {}, threading.Lock()

    def digest(self, path):
        with self.lock:
            if path not in self.known:
                self.known[path] = hashlib.sha256(path.read_bytes()).hexdigest()
            return self.known[path]


class Look:
    """How units are looked at, and what was in order before."""

    def __init__(self, cache):
        self.cache, self.contents = cache, Contents()
        self.units = cache / "units"
        self.units.mkdir(parents=True, exist_ok=True)
        version = subprocess.run(["clang", "--version"], capture_output=True, text=True).stdout
        self.base = version + (ROOT / ".clang-tidy").read_text() + repr(STEPS)

    def stamp(self, unit):
        """None: the unit does not compile far enough to know what it includes."""
        done = unit.clang("-MM", "-MT", "x")
        if done.returncode != 0:
            return None
        names = done.stdout.replace("\\\n", " ").split(":", 1)[1].split()
        whole = hashlib.sha256((self.base + repr(unit.command)).replace(str(ROOT), "").encode())
        whole.update(unit.digest.encode())
        for name in names:
            whole.update(self.contents.digest(pathlib.Path(unit.cwd, name).resolve()).encode())
        return self.cache / whole.hexdigest()

    def parts(self, unit, text, again):
        """What a unit is taken apart into that did not compile as a whole."""
        blamed = unit.blamed(text)
        rest = [s for s in unit.sources if s in blamed]
        good = [s for s in unit.sources if s not in blamed]
        if not rest or not good or again:
            return [[s] for s in rest or unit.sources] + ([good] if rest and good else [])
        return [good, rest]

    def look(self, sources, again=False):
        """What the tools say about the sources: pairs of a name and a text, none when they are in
        order."""
        unit = Unit(sources, self.units)
        stamp = self.stamp(unit)
        if stamp and stamp.exists():
            return []
        done = unit.clang("-fsyntax-only", "-ferror-limit=0")
        if done.returncode != 0 or done.stdout.strip():
            if len(sources) == 1:
                return [(sources[0].name, unit.readable(done.stdout))]
            found = []
            for part in self.parts(unit, done.stdout, again):
                found += self.look(part, again=True)
            return found
        if sources[0].tidy:
            done = unit.tidy()
            if done.returncode != 0:
                return [(", ".join(s.name for s in sources), unit.readable(done.stdout))]
        if stamp:
            stamp.touch()
        unit.path.unlink(missing_ok=True)
        return []


def chosen(sources, names):
    """Sources for the files `names`: a header is seen through one source that includes it, that of
    the same name if there is one."""
    wanted, missing = {}, []
    for name in names:
        path = (ROOT / name).resolve()
        found = [s for s in sources if s.path == path]
        if not found and path.suffix == ".h":
            including = [s for s in sources if f'#include "{name}"' in s.text]
            including.sort(key=lambda s: (s.path != path.with_suffix(".cc"), s.name))
            found = including[:1]
        if not found:
            missing.append(name)
        for source in found:
            wanted[id(source)] = source
    return list(wanted.values()), missing


def portions(sources):
    """Lists of sources that are looked at together, the largest first."""
    kinds = {}
    for source in sorted(sources, key=lambda s: s.name):
        kinds.setdefault(source.kind, []).append(source)
    lists = []
    for members in kinds.values():
        count = -(-len(members) // TOGETHER)
        size = -(-len(members) // count)
        lists += [members[i : i + size] for i in range(0, len(members), size)]
    return sorted(lists, key=lambda sources: -sum(len(s.text) for s in sources))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build-dir", required=True, help="folder with compile_commands.json")
    parser.add_argument("--cache", type=pathlib.Path, required=True, help="what was in order")
    parser.add_argument("--tidy", action="store_true", help="clang-tidy, too")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("files", nargs="*", help="these files (default: all that are compiled)")
    options = parser.parse_args()
    database = json.loads(pathlib.Path(options.build_dir, "compile_commands.json").read_text())
    entries = [e for e in database if pathlib.Path(e["directory"], e["file"]).exists()]
    sources = [Source(entry) for entry in entries]
    if options.files:
        sources, missing = chosen(sources, options.files)
        for name in missing:
            print(f"not compiled by this build, left out: {name}")
    # clang-tidy once for a file that is compiled in several ways, and not for what generators made.
    seen = set()
    for source in sources:
        source.tidy = options.tidy and not source.made and source.path not in seen
        seen.add(source.path)
    look, wrong = Look(options.cache.resolve()), 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        looks = [pool.submit(look.look, portion) for portion in portions(sources)]
        for future in concurrent.futures.as_completed(looks):
            for name, text in future.result():
                wrong += 1
                print(f"--- {name}\n{text}", end="", flush=True)
    print(f"{len(seen)} files, {wrong} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
