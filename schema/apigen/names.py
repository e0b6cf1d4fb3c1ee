"""How names follow from names: symbols, proc names, messages, fields."""

import re

PER_THREAD_SUFFIXES = ("ptsz", "ptds")


def per_thread_suffix(symbol):
    """ "ptsz", "ptds" or "" for an exported symbol."""
    tail = symbol.rsplit("_", 1)[-1]
    return tail if tail in PER_THREAD_SUFFIXES else ""


def proc_name(symbol):
    """The name under which cuGetProcAddress knows a symbol: without _v2 and _ptsz."""
    suffix = per_thread_suffix(symbol)
    if suffix:
        symbol = symbol[: -len(suffix) - 1]
    return re.sub(r"_v\d+$", "", symbol)


def camel(name):
    """cuMemAlloc_v2 -> CuMemAllocV2"""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_") if part)


def field(parameter):
    """Cap'n Proto field of a parameter: pAllocateArray, dptr, graphOut (of graph_out)."""
    text = camel(parameter)
    return text[:1].lower() + text[1:]


def accessor(parameter):
    """What follows get/set/init in the generated C++ of a field."""
    text = field(parameter)
    return text[:1].upper() + text[1:]
