#!/usr/bin/env python3
"""Checks that objects need symbols only of rooms below theirs (scripts/rooms.txt).

A function may be declared in a room below and defined in one above: no include points up then, but
the linker's edge does. scripts/rooms_held.txt lists the edges that are there today; one that is
not listed there is wrong, and so is a line without an edge.

Looks at the objects of a build folder in which the target `product` is up to date; tests and
benchmarks are left out.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

from lint_files import ROOT
from lint_rooms import HELD, TREES, held, reach, read_table, room_of

OBJECT = re.compile(r" -o (\S+\.o)\b")
OURS = "fargpu"  # in the name of the C++ namespace; the C functions of CUDA are anybody's
DEFINED = "TDBR"  # nm's letters; weak definitions (inline functions) lie where they are used


def relative(path, folders):
    """`path` without the first of `folders` that it is in; None: in none."""
    for folder in folders:
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return None


def rooms_of_source(source, build):
    """The rooms whose code the compiler reads: several sources may be compiled as one."""
    sources = [source]
    if source.parent.name == "Unity":
        included = re.findall(r'#include "([^"]+)"', source.read_text(encoding="utf-8"))
        sources = [pathlib.Path(name) for name in included]
    names = {relative(path, (build, ROOT)) for path in sources}
    return {room_of(name) for name in names if name is not None}


def objects(build):
    """Yields (object, its room) of the rooms' trees. ValueError: an object of several rooms."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    for command in commands:
        found = OBJECT.search(command["command"])
        rooms = rooms_of_source(pathlib.Path(command["file"]), build)
        rooms = {room for room in rooms if room.split("/")[0] in (*TREES, "generated")}
        if found is None or not rooms:
            continue
        if len(rooms) > 1:
            raise ValueError(f"{found[1]} is of several rooms: {' '.join(sorted(rooms))}")
        yield build / found[1], rooms.pop()


def symbols(path):
    """[(name, nm's letter)] of an object, as the linker sees it."""
    told = subprocess.run(["nm", "-P", path], capture_output=True, text=True, check=True).stdout
    return [line.split()[:2] for line in told.splitlines()]


def link_edges(known):
    """{(room, room of the definition): symbols}. `known`: [(room, [(name, letter)])]."""
    defined = collections.defaultdict(set)
    for room, names in known:
        for name, letter in names:
            if letter in DEFINED:
                defined[name].add(room)
    edges = collections.defaultdict(set)
    for room, names in known:
        for name, letter in names:
            ours = OURS in name and name in defined
            if letter == "U" and ours and room not in defined[name]:
                edges[(room, min(defined[name]))].add(name)
    return edges


def forbidden(edges, table):
    """Those of `edges` that the table does not allow."""
    allowed = reach(table)
    return {edge: names for edge, names in edges.items() if edge[1] not in allowed[edge[0]]}


def problems(wrong, exceptions):
    """One line per edge that is not listed, and per line that is not an edge."""
    found = [
        f"{room} -> {other}: {len(names)} symbols may not be needed, as {demangled(min(names))}"
        for (room, other), names in sorted(wrong.items())
        if (room, other) not in exceptions
    ]
    return found + [
        f"{HELD}: {room} -> {other}: there is no such edge; take the line out"
        for room, other in exceptions
        if (room, other) not in wrong
    ]


def demangled(name):
    return subprocess.run(["c++filt", name], capture_output=True, text=True).stdout.strip() or name


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path, help="a build folder, as build/release")
    parser.add_argument("--graph", action="store_true", help="print all edges that are not allowed")
    options = parser.parse_args()
    build = options.build.resolve()
    table, _ = read_table((ROOT / "scripts/rooms.txt").read_text(encoding="utf-8"))
    try:
        places = [(p, room) for p, room in objects(build) if room in table and p.exists()]
        if not places:
            raise ValueError("this is no build of the tree that the script lies in")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            names = pool.map(symbols, [path for path, _ in places])
            known = [(room, found) for (_, room), found in zip(places, names, strict=True)]
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"error: {error}; build the target product in {build}", file=sys.stderr)
        return 2
    wrong = forbidden(link_edges(known), table)
    if options.graph:
        for (room, other), needed in sorted(wrong.items()):
            print(f"{room} -> {other}: {', '.join(demangled(name) for name in sorted(needed))}")
        return 0
    found = problems(wrong, held((ROOT / HELD).read_text(encoding="utf-8"))[2])
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
