"""api/registry.yml: opcodes, and the fingerprint of each one's message (layout.py).

Append-only: a number is given once, for one message. A function whose message has changed gets a
new line, NAME@2, with the next number; the old line stays, and the old number is refused by name.
"""

from dataclasses import dataclass

from . import layout
from .errors import DescriptionError
from .loader import load_yaml

FIRST = 64  # wire::kFirstApiOpcode
LAST = 4095  # NVML has its own registry from there (nvml/contracts.py)

_HEADER = """\
# Opcodes of frames, from 64 up: function -> number and fingerprint of its message, if it has ever
# had one. Append-only: a number stands for one message and is never given again. `apigen generate`
# adds new functions at the end, and functions whose message has changed: NAME@2 and so on. The last
# line of a function is the one in use.
"""


@dataclass(frozen=True)
class Entry:
    """One line. layout: empty while the function has never had a message."""

    opcode: int
    layout: str = ""


def parse(data):
    """name -> Entry of a YAML mapping; opcode 0 where there is no number."""
    result = {}
    for name, value in (data or {}).items():
        number, _, rest = str(value).partition(" ")
        result[name] = Entry(int(number) if number.isdecimal() else 0, rest)
    return result


def load(path, root, first=FIRST, last=LAST):
    """name -> Entry, in file order; judged for doubles and range."""
    data = load_yaml(path, root) or {}
    entries = parse(data)
    seen = {}
    previous = first - 1
    for name, entry in entries.items():
        opcode = entry.opcode
        if not first <= opcode <= last:
            raise DescriptionError(
                data.at(name), f"{name}: opcode '{data[name]}' is not in {first}..{last}"
            )
        if opcode in seen:
            raise DescriptionError(
                data.at(name), f"{name}: opcode {opcode} already belongs to {seen[opcode]}"
            )
        if opcode <= previous:
            raise DescriptionError(
                data.at(name), f"{name}: opcode {opcode} is out of order; new ones go to the end"
            )
        seen[opcode] = name
        previous = opcode
    return entries


def function_name(name):
    """cuFoo of cuFoo@2."""
    return name.partition("@")[0]


def assign(api, entries, kept=None):
    """Gives every function its opcode; the registry as it should be, with what it lacked.

    kept: lines that others may already rely on (name -> Entry); by default all of `entries`. A
    changed message of another line keeps its number.
    """
    kept = entries if kept is None else kept
    functions = [(f, layout.fingerprint(f, api.types)) for f in api.functions if not f.header]
    return assign_numbers(functions, entries, kept, FIRST)


def assign_numbers(functions, entries, kept, first):
    """The same for (function, fingerprint)s, with numbers from `first` on."""
    latest = {function_name(name): name for name in entries}
    result = dict(entries)
    following = max((e.opcode for e in entries.values()), default=first - 1) + 1
    for f, print_ in functions:
        name = latest.get(f.name)
        if name is None:
            name = f.name
        elif not print_ or result[name].layout == print_:
            f.opcode = result[name].opcode
            continue
        elif name not in kept or not kept[name].layout:
            f.opcode = result[name].opcode
            result[name] = Entry(f.opcode, print_)
            continue
        else:
            name = f"{f.name}@{int(name.partition('@')[2] or 1) + 1}"
        f.opcode = following
        result[name] = Entry(following, print_)
        following += 1
    return result


def text(entries, header=_HEADER):
    """The file."""
    lines = (f"{n}: {e.opcode} {e.layout}".rstrip() + "\n" for n, e in entries.items())
    return header + "".join(lines)


def check_append_only(old, new, file="registry.yml"):
    """Problems of `new` against the committed `old`, one line each."""
    lines = []
    for name, entry in old.items():
        if name not in new:
            lines.append(f"{file}: {name} ({entry.opcode}) was removed; numbers are never given up")
        elif new[name].opcode != entry.opcode:
            lines.append(
                f"{file}: {name} was {entry.opcode} and is {new[name].opcode} now; "
                "opcodes never change"
            )
        elif entry.layout and new[name].layout != entry.layout:
            lines.append(
                f"{file}: the message of {name} ({entry.opcode}) was {entry.layout} and is "
                f"{new[name].layout or 'gone'} now; a changed message needs a new opcode"
            )
    return lines
