"""C++ of tests/wire_roundtrip for NVML: a request that every server half accepts."""


def _there(a):
    """The word that says whether the caller gave a pointer."""
    return ["writer.value<uint64_t>(1);"] if a.optional else []


def _items(a):
    """What the client puts for one argument (cpp.py), with 3 of everything."""
    if a.direction == "in":
        return [f"writer.value({'uint64_t{0}' if a.shape == 'device' else a.name});"]
    if a.versions:
        base, number = next(iter(a.versions.items()))
        return [f"put_struct(writer, schema::nvml_version<{base}>({number}), sizeof({base}));"]
    if a.direction == "out":
        if a.shape in ("array", "cstr"):
            return ["writer.value<uint64_t>(1);"]
        return _there(a)
    if a.shape == "value":
        return [*_there(a), f"writer.value({a.name});"]
    count = f"{a.length} * " if a.shape == "array" else ""
    return [*_there(a), f"put_struct(writer, 0, {count}sizeof({a.base}));"]


def case(f):
    """Lines that put a request of `f` into `writer`."""
    out = []
    for a in f.arguments:
        if a.shape == "value" and a.direction != "out":
            value = f"static_cast<{a.base}>(3)"
            out.append(f"[[maybe_unused]] const {a.base} {a.name} = {value};")
    for a in f.arguments:
        out += _items(a)
    return out


def add(library, put):
    wired = [f for f in library.functions if f.wire]
    put("tests/nvml_cases.cc", "nvml_cases.cc.j2", functions=wired, case=case)
