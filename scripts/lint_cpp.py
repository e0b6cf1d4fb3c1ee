#!/usr/bin/env python3
"""Compiles the C++ files with clang without making objects and, with --tidy, looks at them with
clang-tidy, too.

Called by scripts/lint. Files of one compile command are looked at a dozen at a time, written one
after the other into one file: nearly all of the time goes to the headers that they share. Those
that cannot stand in one file (two of them name a thing alike), and those of which clang has
something to say, are looked at once more, in the end alone.

The cache, a folder outside of the tree, remembers each file that was in order by a digest of the
file, the headers of ours and of generators that it includes, its compile command, .clang-tidy and
the tools' release; all clones share it. With --landed COMMIT an empty cache is filled with the
files that have not changed since that commit, nor a header of theirs: somebody looked at them
before they landed. Only runs with --landed believe those entries. Of the others, clang-tidy looks
at those whose own code has changed, and at one file for each header whose code has: what else
includes such a header is compiled only."""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT = 900  # seconds for one process
TOGETHER = 12
# The analyzer follows a function this far. With the default of 225000 steps it takes seven times as
# long, and found nothing more in the dozen files of the server that were tried.
STEPS = ["-Xclang", "-analyzer-config", "-Xclang", "max-nodes=30000"]
# What only checks others, and ends with the test that it is part of.
TESTS = ("tests/", "bench/")
MADE = "generated/"  # headers that generators make, in the build folder
DAYS = 60  # that the cache keeps what nobody asks for


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


class Headers:
    """What files include, directly and through headers: ours and those of generators, found by the
    names in the text. A condition around an include is not looked at."""

    def __init__(self, build):
        self.build, self.known = build, {}

    def path(self, name, folder):
        for start in (folder, ROOT, self.build):
            if (start / name).is_file():
                return (start / name).resolve()
        return None

    def direct(self, path):
        """Digest of a file, and the paths that it includes."""
        if path not in self.known:
            data = path.read_bytes()
            names = re.findall(
                r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', data.decode(errors="replace"), re.M
            )
            found = [self.path(name, path.parent) for name in names]
            self.known[path] = hashlib.sha256(data).hexdigest(), [p for p in found if p]
        return self.known[path]

    def closure(self, path):
        """Paths of a file and of everything that it includes."""
        seen, left = {path}, [path]
        while left:
            new = set(self.direct(left.pop())[1]) - seen
            seen |= new
            left += new
        return seen

    def digest(self, path):
        """Of the file and of everything that it includes, wherever the tree lies."""
        parts = sorted(
            (str(p).replace(str(self.build), "build").replace(str(ROOT), ""), self.direct(p)[0])
            for p in self.closure(path)
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()


class Cache:
    """Which files were in order: a file for each, which says LANDED if nobody looked at it here."""

    LANDED = "landed"

    def __init__(self, folder, headers):
        self.folder, self.headers = folder, headers
        folder.mkdir(parents=True, exist_ok=True)
        self.is_empty = not any(folder.iterdir())
        version = subprocess.run(["clang", "--version"], capture_output=True, text=True).stdout
        self.base = version + (ROOT / ".clang-tidy").read_text() + repr(STEPS)

    def stamp(self, source):
        command = repr((source.command, source.tidy)).replace(str(ROOT), "")
        text = self.base + command + self.headers.digest(source.path)
        return self.folder / hashlib.sha256(text.encode()).hexdigest()

    def has(self, source, believe_landed):
        stamp = self.stamp(source)
        try:
            said = stamp.read_text()
        except FileNotFoundError:
            return False
        if said == self.LANDED and not believe_landed:
            return False
        stamp.touch()
        return True

    def add(self, source, said=""):
        self.stamp(source).write_text(said)

    def forget_old(self):
        for stamp in self.folder.iterdir():
            if stamp.stat().st_mtime < time.time() - DAYS * 86400:
                stamp.unlink(missing_ok=True)


class Look:
    """How sources are looked at."""

    def __init__(self, units, cache):
        self.units, self.cache = units, cache
        units.mkdir(parents=True, exist_ok=True)

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
        for source in sources:
            self.cache.add(source)
        unit.path.unlink(missing_ok=True)
        return []


def including(sources, names, headers):
    """The sources that are, or include, one of the files `names`."""
    paths = {(ROOT / name).resolve() for name in names}
    return [s for s in sources if not paths.isdisjoint(headers.closure(s.path))]


def changed_since(commit):
    """Files that differ from a commit, also those that git does not know yet."""
    commands = (
        ["diff", "--name-only", commit, "--"],
        ["ls-files", "--others", "--exclude-standard"],
    )
    names = []
    for command in commands:
        done = subprocess.run(["git", "-C", ROOT, *command], check=True, stdout=subprocess.PIPE)
        names += done.stdout.decode().splitlines()
    return names


def code_changed_since(commit):
    """Those of changed_since() that differ in more than comments and names of included files. A
    file that only moved does not."""
    options = ["--find-renames", "--unified=0", "--no-color"]
    command = ["git", "-C", ROOT, "diff", *options, commit, "--"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    names, name = set(), None
    for line in done.stdout.decode(errors="replace").splitlines():
        if line.startswith("+++ "):
            name = line.removeprefix("+++ b/")
        elif re.match(r"[-+](?!--|\+\+)(?!\s*(?://|#\s*include|$))", line):
            names.add(name)
    return names | {n for n in changed_since(commit) if not git_knows(n)}


def git_knows(name):
    command = ["git", "-C", ROOT, "ls-files", "--error-unmatch", name]
    return subprocess.run(command, capture_output=True).returncode == 0


def not_landed(sources, commit, headers):
    """The sources that have changed since a commit, or whose headers have. Generated headers count
    as changed if their generator has. Those that clang-tidy need not look at are marked."""
    names = changed_since(commit)
    if ".clang-tidy" in names:
        return sources
    generator = any(n.startswith("schema/apigen/") or n.endswith(".j2") for n in names)
    changed = {id(s) for s in including(sources, names, headers)}
    made = headers.build / MADE
    for source in sources:
        if generator and any(made in path.parents for path in headers.closure(source.path)):
            changed.add(id(source))
    found = [s for s in sources if id(s) in changed]
    looked_at = one_for_each(code_changed_since(commit), found, headers)
    for source in found:
        source.tidy = source.tidy and source.path in looked_at
    return found


def one_for_each(names, sources, headers):
    """Paths of sources: those among `names`, and for each header there one that includes it, of its
    own name if there is one."""
    chosen = set()
    included = {s.path: headers.closure(s.path) for s in sources if s.tidy}
    for name in sorted(names):
        path = (ROOT / name).resolve()
        including_it = [source for source, paths in included.items() if path in paths]
        own = [p for p in including_it if p.stem == path.stem]
        chosen.update(own[:1] or sorted(including_it)[:1])
    return chosen


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
    parser.add_argument("--units", type=pathlib.Path, required=True, help="folder for what is made")
    parser.add_argument("--tidy", action="store_true", help="clang-tidy, too")
    parser.add_argument("--base", help="only files that differ from COMMIT, or include such ones")
    parser.add_argument("--landed", help="COMMIT of which everything counts as in order")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    options = parser.parse_args()
    build = pathlib.Path(options.build_dir).resolve()
    database = json.loads((build / "compile_commands.json").read_text())
    entries = [e for e in database if pathlib.Path(e["directory"], e["file"]).exists()]
    sources = [Source(entry) for entry in entries]
    # clang-tidy once for a file that is compiled in several ways, and not for what generators made.
    seen = set()
    for source in sources:
        source.tidy = options.tidy and not source.made and source.path not in seen
        seen.add(source.path)
    headers = Headers(build)
    cache = Cache(options.cache.expanduser().resolve(), headers)
    if options.base:
        sources = including(sources, changed_since(options.base), headers)
    if options.landed and cache.is_empty:
        new = not_landed(sources, options.landed, headers)
        for source in sources:
            if source not in new:
                cache.add(source, Cache.LANDED)
    count = len(sources)
    sources = [s for s in sources if not cache.has(s, bool(options.landed))]
    print(f"{count} files, {count - len(sources)} of them in the cache", flush=True)
    look, wrong = Look(options.units.resolve(), cache), 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        looks = [pool.submit(look.look, portion) for portion in portions(sources)]
        for future in concurrent.futures.as_completed(looks):
            for name, text in future.result():
                wrong += 1
                print(f"--- {name}\n{text}", end="", flush=True)
    cache.forget_old()
    print(f"{len(sources)} files looked at, {wrong} findings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
