"""The cases of tests/conformance/answers: every supported function called rightly, then wrongly in
one argument at a time.

How to call a function rightly is said in cases.yml, by C type and by function. The template lies
beside it.
"""

import re
from dataclasses import dataclass, field

from . import render
from .errors import DescriptionError
from .loader import load_yaml

BEFORE, WITHOUT, WITH = "kBeforeInit", "kWithoutContext", "kWithContext"
FUNCTION_KEYS = (
    *("args", "quiet", "fresh", "sweeps", "more", "skip", "prepare", "show", "without"),
    *("captured", "capture_ends"),
)
CALLBACKS = (
    *("CUhostFn", "CUstreamCallback", "CUoccupancyB2DSize", "CUlogsCallback", "CUasyncCallback"),
)
PRINTABLE = ("int", "unsigned", "unsigned int", "size_t", "unsigned long long", "cuuint64_t")


@dataclass
class Value:
    """An argument of the call: its right value, and how an output is printed."""

    name: str
    ctype: str
    good: str
    show: str


@dataclass
class Call:
    """One function with all its cases."""

    name: str
    arguments: list
    types: str
    values: str
    fresh: str
    prepare: str
    captured: str  # set after the capture has begun
    capture_ends: str
    cases: list = field(default_factory=list)


@dataclass
class Case:
    name: str
    phase: str
    change: str = ""
    first: int = 0
    last: int = 0
    bits: str = "false"


class Cases:
    """cases.yml."""

    def __init__(self, path):
        document = load_yaml(path)
        self.path = path.name
        self.values = document["values"]
        self.enums = document["enums"]
        self.functions = document["functions"]

    def of(self, name):
        notes = self.functions.get(name) or {}
        for key in notes:
            if key not in FUNCTION_KEYS:
                raise DescriptionError(notes.at(key), f"{name}: unknown key '{key}'")
        return notes


def _stars(argument):
    return argument.ctype.count("*")


def _good(f, argument, cases, notes):
    given = notes.get("args") or {}
    if argument.name in given:
        return given[argument.name]
    if argument.ctype in cases.values:
        return cases.values[argument.ctype]
    if _stars(argument):
        pointee = argument.ctype[:-1].strip()
        if pointee in ("void", "const void"):
            raise DescriptionError(
                cases.path, f"{f.name}: {argument.name}: a value is needed for {argument.ctype}"
            )
        if _stars(argument) == 1:
            pointee = argument.base
        return f"w.out<{pointee}>()"
    if argument.base in cases.enums:
        first, _ = cases.enums[argument.base]
        return f"static_cast<{argument.base}>({first})"
    if argument.base in PRINTABLE + ("float", "double", "unsigned char", "unsigned short"):
        return "0"
    if argument.base in ("cuuint32_t",):
        return "0"
    raise DescriptionError(
        cases.path, f"{f.name}: {argument.name}: a value is needed for {argument.ctype}"
    )


def _show(argument, cases, notes):
    own = notes.get("show") or {}
    if argument.name in own:
        return own[argument.name]
    quiet = notes.get("quiet", [])
    if quiet is True or argument.name in quiet or not _stars(argument):
        return ""
    place, label = f"a.{argument.name}", argument.name
    if argument.ctype == "const char**":
        return f'if ({place} != nullptr) line.text("{label}", *{place});'
    if (
        argument.ctype.startswith("const ")
        or argument.direction == "in"
        and argument.shape
        in (
            "struct",
            "array",
            "bytes",
            "cstr",
        )
    ):
        return ""
    pointee = argument.ctype[:-1]
    if pointee == "CUdeviceptr" or pointee == "CUmemGenericAllocationHandle":
        return f'if ({place} != nullptr) line.presence("{label}", *{place} != 0);'
    if pointee in cases.enums or pointee in PRINTABLE or pointee in ("CUdevice", "CUresult"):
        return f'line.value("{label}", {place});'
    if cases.values.get(pointee, "").startswith("w.") and pointee.startswith("CU"):
        return f'line.value("{label}", {place});'
    return ""


def _wrong(argument, cases):
    """Cases that change one argument."""
    name, base = argument.name, argument.base
    if _stars(argument):
        yield Case(f"{name}=null", WITH, f"a.{name} = nullptr;")
    elif argument.ctype in CALLBACKS:
        yield Case(f"{name}=null", WITH, f"a.{name} = nullptr;")
    elif base == "CUdevice":
        yield Case(f"{name}=%lld", WITH, f"a.{name} = static_cast<int>(v);", -1, -1)
        yield Case(f"{name}=%lld", WITH, f"a.{name} = static_cast<int>(v);", 64, 64)
    elif base == "CUdeviceptr":
        yield Case(f"{name}=0", WITH, f"a.{name} = 0;")
        yield Case(f"{name}=garbage", WITH, f"a.{name} = garbage<CUdeviceptr>();")
    elif base in cases.enums:
        _, last = cases.enums[base]
        change = f"a.{name} = static_cast<{base}>(v);"
        yield Case(f"{name}=%lld", WITH, change, -1, last + 2)
        yield Case(f"{name}=%lld", WITH, change, 1000, 1000)
        yield Case(f"{name}=%lld", WITH, change, 0x7FFFFFFF, 0x7FFFFFFF)
    elif cases.values.get(argument.ctype, "").startswith("w."):
        yield Case(f"{name}=0", WITH, f"a.{name} = {{}};")
        yield Case(f"{name}=destroyed", WITH, f"a.{name} = w.destroyed({base}{{}});")
        yield Case(f"{name}=garbage", WITH, f"a.{name} = garbage<{base}>();")
    elif name.lower().endswith("flags"):
        yield Case(f"{name}=0x%llx", WITH, f"a.{name} = v;", bits="true")
    elif base in PRINTABLE or base == "cuuint32_t":
        yield Case(f"{name}=0", WITH, f"a.{name} = 0;")
        if base == "int":
            yield Case(f"{name}=-1", WITH, f"a.{name} = -1;")


def _cases(f, cases, notes):
    if f.name != "cuInit":
        yield Case("before cuInit", BEFORE)
    yield Case("without a context", WITHOUT)
    for a in f.arguments:
        if a.ctype in ("CUstream", "CUcontext"):
            yield Case(f"without a context, {a.name}=0", WITHOUT, f"a.{a.name} = nullptr;")
    for row in notes.get("without") or []:
        yield Case(f"without a context, {row['name']}", WITHOUT, row["set"])
    yield Case("right", WITH)
    for a in f.arguments:
        yield from _wrong(a, cases)
    for target, bounds in (notes.get("sweeps") or {}).items():
        label = re.sub(r"const_cast<[^>]*>\(a\.(\w+)\)", r"\1", target).replace("a.", "", 1)
        change = f"{target} = static_cast<std::remove_reference_t<decltype({target})>>(v);"
        if bounds == "bits":
            yield Case(f"{label}=0x%llx", WITH, change, bits="true")
        else:
            yield Case(f"{label}=%lld", WITH, change, bounds[0], bounds[1])
    for row in notes.get("more") or []:
        first, last = row.get("range", [0, 0])
        yield Case(row["name"], WITH, row["set"], first, last)


def calls(api, cases):
    for name in cases.functions:
        if api.function(name) is None:
            raise DescriptionError(cases.path, f"{name}: no such function")
    for f in api.functions:
        if f.internal or f.header or not f.supported:
            continue
        notes = cases.of(f.name)
        if "skip" in notes:
            continue
        arguments = [
            Value(a.name, a.ctype, _good(f, a, cases, notes), _show(a, cases, notes))
            for a in f.arguments
        ]
        fresh = notes.get("fresh", any(a.destroys for a in f.arguments))
        yield Call(
            f.name,
            arguments,
            f.types,
            ", ".join(f"a.{a.name}" for a in f.arguments),
            "true" if fresh else "false",
            notes.get("prepare", ""),
            notes.get("captured", ""),
            "true" if notes.get("capture_ends") else "false",
            list(_cases(f, cases, notes)),
        )


def text(api, path):
    """The C++ of all cases."""
    template = render.environment(path.parent).get_template("answers.cc.j2")
    return template.render(
        functions=list(calls(api, Cases(path))), results=list(api.results.items())
    )
