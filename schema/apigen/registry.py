"""api/registry.yml: opcodes.

Append-only: a number is given once and never again, also when its function is dropped.
"""

import hashlib

from .errors import DescriptionError
from .loader import load_yaml

FIRST = 64  # wire::kFirstApiOpcode
LAST = 65535


def load(path, root):
    """name -> opcode, in file order; judged for doubles and range."""
    data = load_yaml(path, root) or {}
    seen = {}
    previous = FIRST - 1
    for name, opcode in data.items():
        if not isinstance(opcode, int) or not FIRST <= opcode <= LAST:
            raise DescriptionError(
                data.at(name), f"{name}: opcode '{opcode}' is not in {FIRST}..{LAST}"
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
    return dict(data)


def assign(api, registry):
    """Gives every function its opcode.

    Functions that the registry lacks are returned, with the numbers they would get.
    """
    following = max(registry.values(), default=FIRST - 1) + 1
    new = {}
    for f in api.functions:
        if not f.exported:
            continue
        if f.name in registry:
            f.opcode = registry[f.name]
        else:
            f.opcode = new[f.name] = following
            following += 1
    return new


def append(path, new):
    with open(path, "a", encoding="utf-8") as out:
        out.writelines(f"{name}: {opcode}\n" for name, opcode in new.items())


def check_append_only(old, new):
    """Problems of `new` against the committed `old`, one line each."""
    lines = [
        f"registry.yml: {n} was {o} and is {new[n]} now; opcodes never change"
        for n, o in old.items()
        if n in new and new[n] != o
    ]
    lines += [
        f"registry.yml: {n} ({o}) was removed; numbers are never given up"
        for n, o in old.items()
        if n not in new
    ]
    return lines


def digest(api, contracts):
    """64 bits over opcodes and message layouts: two ends with the same value mean the same by every
    frame.
    """
    text = "".join(
        f"{f.opcode} {f.name}\n" for f in sorted(api.functions, key=lambda f: f.opcode) if f.wire
    )
    text += "".join(contracts[name] for name in sorted(contracts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
