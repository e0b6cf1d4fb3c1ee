"""Reads schema/api/nvml/ and judges it: every mistake is a DescriptionError with file and line."""

import re
from pathlib import Path

from .. import prototype
from ..errors import DescriptionError
from ..loader import load_chapter, load_yaml, refuse_doubles
from ..model import Chapter
from .model import DEVICE, Argument, Function, Library
from .structs import Structs

CALLS = ("sync", "local", "manual", "denied", "unsupported")
KEYS = ("fn", "call", "why", "client", "server", "args", "cache", "meaning", "via")
ARGUMENT_KEYS = ("out", "inout", "len", "count", "optional", "versions")
SHAPES = {
    "out": ("value", "struct", "array", "cstr"),
    "inout": ("value", "struct", "array"),
}
_RESULTS = r"nvmlReturn_t|const\s+char\s*\*"


def _bad(where, function, parameter, message):
    raise DescriptionError(where, f"{function}: {parameter}: {message}")


def _versions(notes, name, parameter):
    """struct type -> its number, which its name ends in: nvmlMemory_v2_t."""
    found = {}
    for text in notes.get("versions") or ():
        match = re.fullmatch(r"nvml\w+_v(\d+)_t", str(text))
        if not match:
            _bad(notes.at("versions"), name, parameter, f"'{text}' does not end in its version")
        found[text] = int(match[1])
    return found


def _check_type(parameter, shape, notes, types, where, name):
    """Only types of types.yml travel."""
    plain = types["scalars"] | types["enums"]
    # An array of devices travels as their places; hand-written halves make handles of them.
    listed = plain | types["structs"] | {DEVICE}
    allowed = {"value": plain, "struct": types["structs"], "array": listed}
    used = [parameter.base, *(notes or {}).get("versions", ())]
    for base in used if shape in allowed else ():
        if base not in allowed[shape]:
            _bad(where, name, parameter.name, f"'{base}' is no {shape} of types.yml")


def _inputs(a, types, where, name):
    """Of a struct that goes both ways only what the function reads is sent."""
    if a.direction != "inout" or a.shape == "value":
        return {}
    bases = list(a.versions) or [a.base]
    for base in bases:
        if base not in types["inputs"]:
            _bad(where, name, a.name, f"types.yml does not say which fields of '{base}' are inputs")
    return {base: types["inputs"][base] for base in bases}


def _repaired(a, types, where, name):
    if a.shape not in ("struct", "array"):
        return ()
    found = tuple(t for t in list(a.versions) or [a.base] if types["layouts"].repairs(t))
    if found and a.shape == "array":
        _bad(where, name, a.name, "texts and counts in arrays of structs are not looked after")
    return found


def _argument(parameter, entry, name, parameters, types):
    notes = (entry.get("args") or {}).get(parameter.name)
    where = notes.where if notes else entry.where
    for key in notes or ():
        if key not in ARGUMENT_KEYS:
            _bad(notes.at(key), name, parameter.name, f"unknown key '{key}'")
    directions = [d for d in SHAPES if d in (notes or {})]
    if len(directions) > 1:
        _bad(where, name, parameter.name, "more than one of out, inout")
    if not directions:
        if parameter.stars:
            hint = "say what the pointer means (out, inout)"
            _bad(where, name, parameter.name, f"'{parameter.ctype}' cannot travel: {hint}")
        shape = "device" if parameter.base == DEVICE else "value"
        _check_type(parameter, shape, notes, types, where, name)
        return Argument(parameter.name, parameter.ctype, parameter.base, shape)
    direction = directions[0]
    shape = notes[direction]
    if shape not in SHAPES[direction]:
        allowed = ", ".join(SHAPES[direction])
        _bad(where, name, parameter.name, f"{direction}: '{shape}' is none of {allowed}")
    if parameter.stars != 1:
        _bad(where, name, parameter.name, f"{direction}: {shape} needs one pointer")
    if parameter.const:
        _bad(where, name, parameter.name, "an output cannot be const")
    _check_type(parameter, shape, notes, types, where, name)
    a = Argument(
        parameter.name,
        parameter.ctype,
        parameter.base,
        shape,
        direction,
        length=str(notes.get("len", "")),
        count=str(notes.get("count", "")),
        optional=bool(notes.get("optional")),
        versions=_versions(notes, name, parameter.name),
    )
    needs_length = shape in ("array", "cstr")
    if needs_length != bool(a.length):
        wrong = "needs 'len'" if needs_length else "has no 'len'"
        _bad(where, name, parameter.name, f"{direction}: {shape} {wrong}")
    if a.count and a.count not in {p.name for p in parameters}:
        _bad(where, name, parameter.name, f"count: no parameter '{a.count}'")
    if a.versions and (direction, shape) != ("inout", "struct"):
        _bad(where, name, parameter.name, "versions are for inout: struct")
    if (direction, shape) == ("inout", "struct") and not a.versions:
        _bad(where, name, parameter.name, "inout: struct needs 'versions'")
    a.inputs = _inputs(a, types, where, name)
    a.repaired = _repaired(a, types, where, name)
    return a


def _function(entry, chapter, types):
    if not isinstance(entry, dict) or "fn" not in entry:
        raise DescriptionError(
            getattr(entry, "where", chapter), "an entry needs 'fn: nvmlReturn_t name(...)'"
        )
    where = entry.where
    name, parameters = prototype.parse(entry["fn"], entry.at("fn"), _RESULTS)
    returns = re.match(_RESULTS, entry["fn"].strip())[0]
    for key in entry:
        if key not in KEYS:
            raise DescriptionError(entry.at(key), f"{name}: unknown key '{key}'")
    call = entry.get("call")
    if call not in CALLS:
        raise DescriptionError(
            entry.at("call"), f"{name}: call: '{call}' is none of {', '.join(CALLS)}"
        )
    sides = {side: entry.get(side, "generated") for side in ("client", "server")}
    for side, value in sides.items():
        if value not in ("generated", "manual"):
            raise DescriptionError(entry.at(side), f"{name}: {side}: generated or manual")
    wired = call == "sync" or (call == "manual" and ("args" in entry or "server" in entry))
    by_hand = call in ("local", "manual") or "manual" in sides.values()
    if "why" not in entry and (by_hand or call == "unsupported"):
        raise DescriptionError(where, f"{name}: a reason is needed ('why')")
    if not wired and ("args" in entry or sides["server"] == "manual" or entry.get("cache")):
        raise DescriptionError(
            where, f"{name}: 'args', 'server', 'cache' need a message; call: {call} has none"
        )
    for key in entry.get("args") or ():
        if key not in {p.name for p in parameters}:
            raise DescriptionError(entry["args"].at(key), f"{name}: no parameter '{key}'")
    if wired:
        arguments = [_argument(p, entry, name, parameters, types) for p in parameters]
    else:
        arguments = [
            Argument(p.name, p.ctype, p.base, "device" if p.ctype == DEVICE else "opaque")
            for p in parameters
        ]
    if any(a.shape == "array" and a.base == DEVICE for a in arguments) and (
        sides["client"] != "manual" or sides["server"] != "manual"
    ):
        raise DescriptionError(where, f"{name}: places of devices need halves written by hand")
    return Function(
        name=name,
        chapter=chapter,
        where=where,
        returns=returns,
        arguments=arguments,
        call=call,
        why=entry.get("why", ""),
        via=entry.get("via", ""),
        wire=wired,
        client_manual=call == "local"
        or sides["client"] == "manual"
        or (call == "manual" and sides["server"] != "manual"),
        server_manual=wired and sides["server"] == "manual",
        cache=bool(entry.get("cache")),
        meaning=entry.get("meaning", 0),
    )


def _chapter(path, root, types):
    title, entries = load_chapter(path, root)
    return Chapter(path.stem, title, [_function(e, path.stem, types) for e in entries])


def _check_vias(library):
    for f in library.functions:
        if f.via and library.function(f.via) is None:
            raise DescriptionError(f.where, f"{f.name}: via '{f.via}', which is not described")


def _check_symbols(library, symbols):
    described = {f.name for f in library.functions}
    for f in library.functions:
        if f.name not in symbols:
            raise DescriptionError(f.where, f"{f.name} is not in symbols.txt")
    missing = sorted(symbols - described)
    if missing:
        raise DescriptionError(
            "api/nvml/symbols.txt",
            f"{len(missing)} symbols are described nowhere: {', '.join(missing[:8])}",
        )


def _types(loaded, root):
    """types.yml, with the layouts of the headers."""
    types = {key: set(loaded[key]) for key in ("scalars", "enums", "structs", "opaque")}
    types["inputs"] = {name: list(fields) for name, fields in loaded["inputs"].items()}
    counts = {name: dict(fields) for name, fields in loaded["counts"].items()}
    types["layouts"] = Structs(root / "nvml", counts)
    for key in ("inputs", "counts"):
        for name, fields in loaded[key].items():
            known = types["layouts"].fields(name)
            named = list(fields) + (list(fields.values()) if key == "counts" else [])
            for wrong in [n for n in named if n not in known]:
                raise DescriptionError(loaded[key].at(name), f"{name} has no field '{wrong}'")
    return types


def load(schema_dir):
    """The Library in `schema_dir`/api/nvml; empty where there is none."""
    root = Path(schema_dir)
    folder = root / "api" / "nvml"
    if not (folder / "types.yml").exists():
        return Library([])
    types = load_yaml(folder / "types.yml", root)
    types = _types(types, root)
    paths = [p for p in sorted(folder.glob("*.yml")) if p.stem != "types"]
    library = Library([_chapter(p, root, types) for p in paths], types["layouts"])
    refuse_doubles(library.functions)
    _check_vias(library)
    _check_symbols(library, set((folder / "symbols.txt").read_text(encoding="utf-8").split()))
    return library
