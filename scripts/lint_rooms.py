#!/usr/bin/env python3
"""Checks that includes point down the table of rooms (scripts/rooms.txt).

A room is a folder. An include of a file in another room is right when the table lets it. What
apigen makes is looked at, too (rooms generated/...), and so are its templates: one that lies in
schema/ belongs to generated/schema, one in client/ to generated/client, one in a folder of client/
or server/ to that of generated/, one in common/rpc/ to generated/rpc. Tests and benchmarks may
include everything.
No CMake target may list a source that lies in another target's folder.

scripts/rooms_held.txt has figures of the table that may only go down: its arrows, the floors of the
client, and what a room of the client calls although it lies above and is handed in: interfaces with
an implementation in another room, and structs of functions.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

from lint_files import ROOT, tracked

TREES = ("common", "client", "server", "schema", "sim")  # where every folder is a room
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
PAGE = "docs/architecture.md"
HELD = "scripts/rooms_held.txt"
TOP = "client/manual"  # with the rooms of its folder: where the client's floors end
# Rooms of programs, which the library's floors do not stand on.
APART = ("client/bench/", "client/cli/", "client/program/")
SOURCE = re.compile(r'[^\s"();]+\.(?:cc|cpp|c)(?=$|[\s"();])')
HERE = ("${CMAKE_CURRENT_SOURCE_DIR}/", "${CMAKE_CURRENT_LIST_DIR}/")


def read_table(text):
    """({room: rooms that it names}, what is wrong with the table)."""
    table, wrong = {}, []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        room, _, below = line.partition(":")
        if room in table:
            wrong.append(f"line {number}: {room} stands there twice")
        for name in below.split():
            if name not in table:
                wrong.append(f"line {number}: {room} names {name}, which is not listed before it")
        table[room] = below.split()
    return table, wrong


def reach(table):
    """{room: every room that it may include}, itself among them."""
    result = {}
    for room, below in table.items():  # from the bottom up
        result[room] = {room}.union(*(result.get(name, set()) for name in below))
    return result


def room_of(path):
    if path.endswith(".j2"):
        tree, folder, *_ = path.split("/")
        if tree == "common":
            return f"generated/{folder}"
        has_room = tree in ("client", "server") and folder != "templates"
        return f"generated/{tree}/{folder}" if has_room else f"generated/{tree}"
    return path.rpartition("/")[0]


def edges(files):
    """Yields (file, room, included file, its room) for `files`, name -> text."""
    for name, text in files.items():
        for included in INCLUDE.findall(text):
            yield name, room_of(name), included, room_of(included)


def include_problems(table, files):
    """One line per undeclared or empty room, and per include that points up or aside."""
    allowed = reach(table)
    rooms = {room_of(name) for name in files}
    wrong = [f"{room}: not in the table of rooms" for room in sorted(rooms - set(table))]
    wrong += [f"{room}: in the table, but without code" for room in table if room not in rooms]
    for name, room, included, other in edges(files):
        if room not in table:
            continue
        if other not in table:
            wrong.append(f'{name}: includes "{included}", which is in no room')
        elif other not in allowed[room]:
            wrong.append(f'{name}: includes "{included}": {room} may not include {other}')
    return wrong


def source_problems(lists):
    """One line per source in another target's folder. `lists`: CMake files, name -> text."""
    folders = {room_of(name) for name in lists}
    wrong = []
    for name, text in lists.items():
        folder = room_of(name)
        code = "\n".join(line.split("#")[0] for line in text.splitlines())
        for source in SOURCE.findall(code):
            for prefix in HERE:
                source = source.removeprefix(prefix)
            path = source.removeprefix("${CMAKE_SOURCE_DIR}/")
            if path == source:
                if "$" in source:  # made in the build folder, or a file of another language's rule
                    continue
                path = f"{folder}/{source}"
            at = room_of(str(pathlib.PurePosixPath(path)))
            below = at == folder or at.startswith(folder + "/")
            own = any(at == f or at.startswith(f + "/") for f in folders if len(f) > len(folder))
            if ".." in path.split("/") or not below or own:
                wrong.append(f"{name}: lists {source}, which lies in another folder")
    return wrong


def graph(table, files):
    """Lines "room -> rooms": what includes use, without what follows from other arrows. A long line
    goes on in the next one."""
    used = {room: set() for room in table}
    for _, room, _, other in edges(files):
        if room in used and other in used and room != other:
            used[room].add(other)
    below = reach({room: sorted(names) for room, names in used.items()})
    lines = []
    for room, names in used.items():
        direct = [n for n in sorted(names) if not any(n in below[m] for m in names if m != n)]
        line = f"{room} -> {' '.join(direct)}" if direct else room
        lines += textwrap.wrap(line, 96, subsequent_indent="    ", break_on_hyphens=False)
    return lines


def longest_chain(table, tree, top):
    """Rooms of `tree`, each naming the one before, that end in `top` or a folder of it; the longest
    such list."""
    chains = {}
    for room, below in table.items():  # from the bottom up
        if tree in room.split("/"):
            chains[room] = max((chains[n] for n in below if n in chains), key=len, default=[])
            chains[room] = [*chains[room], room]
    ends = (chain for room, chain in chains.items() if room == top or room.startswith(top + "/"))
    return max(ends, key=len, default=[])


CLASS = re.compile(r"\b(?:class|struct) (\w+)[^;{}()]*\{")
PURE = re.compile(r"\) (?:const )?(?:noexcept )?= 0;")
FUNCTION_MEMBER = re.compile(
    r"(?:std::function<[^;]*> \w+|\w[\w:*& ]*\(\* ?(?:const )?\w+\)\([^;]*\))[^;()]*;"
)


def classes(text):
    """Yields (name with those of the classes around it, what is directly in its body)."""
    around = []  # [name, text of its own, whether it is a class]
    at = 0
    heads = {match.end() - 1: match[1] for match in CLASS.finditer(text)}
    for brace in re.finditer(r"[{}]", text):
        if around:
            around[-1][1] += text[at : brace.start()]
        at = brace.end()
        if brace[0] == "{":
            around.append([heads.get(brace.start()), ""])
        elif around:
            name, own = around.pop()
            if name:
                yield "::".join([n for n, _ in around if n] + [name]), own


def handed_in(files):
    """{(header, class): how many functions} of the interfaces that another room implements and the
    structs of functions that another room names. `files`: name -> text."""
    found = {}
    for file, text in files.items():
        for name, own in classes(text) if file.endswith(".h") else ():
            pure, members = len(PURE.findall(own)), len(FUNCTION_MEMBER.findall(own))
            used = rf"public (?:\w+::)*{name}\b" if pure else rf"\b{name.split('::')[0]}\b"
            if (pure or members) and any(
                room_of(other) != room_of(file) and re.search(used, code)
                for other, code in files.items()
            ):
                found[(file, name)] = pure or members
    return found


def held(text):
    """(figures by name, [(header, class)], [(room, room)]) of the list of what may only go down."""
    figures, handed, links = {}, [], []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if len(words) == 2:
            figures[words[0]] = int(words[1])
        elif len(words) == 3 and words[0] == "handed-in":
            handed.append((words[1], words[2]))
        elif len(words) == 4 and words[0] == "link" and words[2] == "->":
            links.append((words[1], words[3]))
        elif words:
            raise ValueError(f"{HELD}: what is '{line}'?")
    return figures, handed, links


def held_problems(figures, handed, now, found):
    """One line for each figure that is not the one that is held, and for each class that is handed
    in but not listed, or listed without need."""
    wrong = [
        f"{HELD}: {name} is {now[name]} now, not {figures.get(name)}: "
        + ("write that" if now[name] < figures.get(name, 0) else "it may not go up")
        for name in now
        if now[name] != figures.get(name)
    ]
    wrong += [
        f"{file}: {name} is handed in from above"
        for file, name in found
        if (file, name) not in handed
    ]
    return wrong + [
        f"{HELD}: {name} of {file} is not handed in: take the line out"
        for file, name in handed
        if (file, name) not in found
    ]


def told(lines, page):
    """Whether the page has these lines as a block."""
    return "".join(f"    {line}\n" for line in lines) in page


def texts(*patterns):
    """{name: text} of the files that fit."""
    return {name: (ROOT / name).read_text(encoding="utf-8") for name in tracked(*patterns)}


def generated():
    """What apigen makes for the client, the server and both."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-B", "-m", "apigen", "cpp", "--out", folder],
            cwd=ROOT / "schema",
            check=True,
        )
        out = pathlib.Path(folder)
        return {
            "generated/" + path.relative_to(out).as_posix(): path.read_text(encoding="utf-8")
            for room in ("client", "server", "schema")
            for path in sorted((out / room).rglob("*"))
            if path.suffix in (".h", ".cc")
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", action="store_true", help="print which room includes which")
    options = parser.parse_args()
    table, wrong = read_table((ROOT / "scripts/rooms.txt").read_text(encoding="utf-8"))
    patterns = [f"{tree}/{end}" for tree in TREES for end in ("*.h", "*.cc", "*.j2")]
    files = texts(*patterns) | generated()
    chain = longest_chain(table, "client", TOP)
    now = {"arrows": sum(len(below) for below in table.values()), "floors": len(chain) - 1}
    found = handed_in(
        {n: t for n, t in files.items() if n.split("/")[0] == "client" and not n.startswith(APART)}
    )
    if options.graph:
        print("\n".join(graph(table, files)))
        print(f"{now['arrows']} arrows in scripts/rooms.txt")
        print(f"{now['floors']} floors: {' <- '.join(chain)}")
        functions = ", ".join(f"{name} {count}" for (_, name), count in found.items())
        print(f"{len(found)} handed in from above, with their functions: {functions}")
        return 0
    lists = texts("CMakeLists.txt", "*/CMakeLists.txt", "*.cmake")
    wrong += include_problems(table, files) + source_problems(lists)
    if not told(graph(table, files), (ROOT / PAGE).read_text(encoding="utf-8")):
        wrong.append(f"{PAGE}: shows another graph than scripts/lint_rooms.py --graph")
    figures, handed, _ = held((ROOT / HELD).read_text(encoding="utf-8"))
    wrong += held_problems(figures, handed, now, found)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
