"""What both ends must mean alike by a function's message, as one fingerprint.

It covers what the .capnp contracts show (fields, their order and types) and what they do not: sizes
of structs, lengths, kinds of handles, which side makes an id, whether the caller waits. Names do
not count: they do not travel. What only the author knows is `meaning` in the description.
"""

import hashlib
import re


def expression(text, f):
    """A length with positions instead of parameter names."""
    for position, a in enumerate(f.arguments):
        text = re.sub(rf"\b{a.name}\b", f"${position}", text)
    return text


def _element(a, types):
    """The type of a value, or of the elements of an array, with its size."""
    if a.base in types.structs:
        return f"{a.base}[{types.structs[a.base]['size']}]"
    found = types.value_shape(a.base)
    return found[1] if found else a.capnp


def _argument(f, a, types):
    parts = [a.direction, a.shape]
    if a.shape == "handle":
        parts.append(a.kind)
    elif a.shape in ("struct", "array"):
        parts.append(_element(a, types))
    elif a.capnp and not a.bulk:
        parts.append(a.capnp)
    for key in ("length", "count"):
        if getattr(a, key):
            parts.append(f"{key}({expression(getattr(a, key), f)})")
    parts += [word for word in ("optional", "bulk") if getattr(a, word)]
    parts += [f"{key} {getattr(a, key)}" for key in ("creates", "destroys") if getattr(a, key)]
    parts += [f"location {member}" for member in a.locations]
    # Of no elements, it may be NULL.
    parts += [f"member {_argument(f, array, types)} optional" for array in a.members]
    return " ".join(parts)


def text(f, types):
    """One line per argument; empty for a function without a message."""
    if not f.wire:
        return ""
    lines = [f.wire + (f" meaning {f.meaning}" if f.meaning else "")]
    lines += [_argument(f, a, types) for a in f.arguments]
    return "\n".join(lines) + "\n"


def fingerprint(f, types):
    """16 hexadecimal digits; empty for a function without a message."""
    lines = text(f, types)
    return hashlib.sha256(lines.encode()).hexdigest()[:16] if lines else ""
