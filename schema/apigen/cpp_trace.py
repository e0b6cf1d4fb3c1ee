"""C++ of the arguments that a trace prints: {"dptr", trace::result_of(dptr, result)} per
parameter.
"""

_CALLBACKS = ("CUhostFn", "CUstreamCallback", "CUoccupancyB2DSize")


def _item(a):
    n = a.name
    stars = a.ctype.count("*")
    if a.ctype == "const char*":
        value = f"trace::text({n})"
    elif a.direction != "in" and stars == 1 and a.shape in ("scalar", "enum", "handle"):
        value = f"trace::result_of({n}, result_)"
    elif stars or a.base in _CALLBACKS:
        value = f"trace::pointer(reinterpret_cast<const void*>({n}))"
    else:
        value = f"trace::value({n})"
    return f'{{"{n}", {value}}}'


def items(f):
    return ", ".join(_item(a) for a in f.arguments)
