"""What both ends must mean alike by a function's message, as one fingerprint.

Types are named: their layout is part of NVML's ABI. Names of parameters do not count.
"""

import hashlib

from ..layout import expression


def _argument(f, a):
    parts = [a.direction, a.shape, a.base]
    for key in ("length", "count"):
        if getattr(a, key):
            parts.append(f"{key}({expression(getattr(a, key), f)})")
    if a.optional:
        parts.append("optional")
    # A version more is no other message: an older end refuses it by its number.
    if a.versions:
        parts.append("versioned")
    return " ".join(parts)


def fingerprint(f):
    """16 hexadecimal digits; empty for a function without a message."""
    if not f.wire:
        return ""
    lines = ["sync" + (f" meaning {f.meaning}" if f.meaning else "")]
    lines += [_argument(f, a) for a in f.arguments]
    return hashlib.sha256(("\n".join(lines) + "\n").encode()).hexdigest()[:16]
