"""From a C parameter and its entry under `args` to an Argument."""

from .errors import DescriptionError
from .model import Argument

KEYS = ("in", "out", "inout", "len", "count", "optional", "bulk", "creates", "destroys", "size")
SHAPES = {
    "in": ("struct", "array", "bytes", "cstr", "address"),
    "out": ("value", "devptr", "handle", "struct", "array", "bytes", "cstr"),
    "inout": ("struct",),
}


# Where the worker receives bulk of a request: memory of its own, memory that is pinned in the
# frame's context, or the place that an earlier call has named for it.
BULK = {True: "staging", "pinned": "pinned", "named": "named"}


def _bulk(notes, bad):
    given = notes.get("bulk", False)
    if given is False:
        return ""
    if given not in BULK:
        bad(f"bulk: '{given}' is none of true, pinned, named")
    if given is not True and "in" not in notes:
        bad(f"bulk: {given} is for inputs")
    return BULK[given]


def _plain_input(parameter, notes, bad, types):
    shape = types.value_shape(parameter.base) if parameter.stars == 0 else None
    if shape is None:
        hint = (
            "say what the pointer means (in, out, inout)"
            if parameter.stars
            else "its type is not in types.yml"
        )
        bad(f"'{parameter.ctype}' cannot travel: {hint}")
    argument = Argument(
        parameter.name, parameter.ctype, parameter.base, shape[0], capnp=shape[1], kind=shape[2]
    )
    destroys = (notes or {}).get("destroys", "")
    if destroys == "allocation":
        if parameter.base != "CUdeviceptr":
            bad("destroys: allocation needs a CUdeviceptr")
        argument.destroys = destroys
    elif destroys:
        if argument.kind != destroys:
            bad(f"destroys: {destroys}, but the handle is a {argument.kind or 'value'}")
        argument.destroys = destroys
    return argument


def _struct_array(a, member, array):
    """The Argument that stands for an array that a struct points to."""
    of = array["of"]
    return Argument(
        f"{a.name}_{member}",
        f"const {of}*",
        of,
        "array",
        capnp="Data",
        length=f"{a.name}->{array['len']}",
        pointer=f"{a.name}->{member}",
        member=member,
    )


def _with_direction(parameter, direction, notes, bad, parameters, types):
    shape = notes[direction]
    if shape not in SHAPES[direction]:
        bad(f"{direction}: '{shape}' is none of {', '.join(SHAPES[direction])}")
    if parameter.stars < 1:
        bad(f"{direction}: {shape} needs a pointer, not '{parameter.ctype}'")
    a = Argument(
        parameter.name,
        parameter.ctype,
        parameter.base,
        shape,
        direction,
        capnp="Data",
        optional=bool(notes.get("optional")),
        bulk=_bulk(notes, bad),
        length=str(notes.get("len", "")),
        count=str(notes.get("count", "")),
    )
    if direction != "in" and parameter.const:
        bad("an output cannot be const")
    if shape in ("array", "bytes") or (shape == "cstr" and direction == "out"):
        if not a.length:
            bad(f"{direction}: {shape} needs 'len'")
    elif a.length:
        bad(f"{direction}: {shape} has no 'len'")
    if a.bulk and shape != "bytes":
        bad("only bytes travel as bulk")
    if a.count and a.count not in {p.name for p in parameters}:
        bad(f"count: no parameter '{a.count}'")
    if shape == "cstr":
        a.capnp = "Text"
    elif shape == "address":
        a.capnp = "UInt64"
    elif shape in ("struct", "array"):
        if (
            parameter.stars != 1
            or not types.is_plain(parameter.base)
            or (shape == "struct" and parameter.base not in types.structs)
        ):
            bad(f"'{parameter.base}' is not a plain type of types.yml")
        info = types.structs.get(parameter.base) or {}
        a.locations, a.clear = info.get("locations", []), info.get("clear", [])
        arrays = info.get("arrays") or {}
        if arrays and ((direction, shape) != ("in", "struct") or a.optional):
            bad(f"'{parameter.base}' has arrays inside: it goes in, alone, and is there")
        a.members = [_struct_array(a, member, array) for member, array in arrays.items()]
    elif shape in ("value", "devptr", "handle"):
        found = types.value_shape(parameter.base) if parameter.stars == 1 else None
        if found is None or (shape == "handle") != (found[0] == "handle") or found[0] == "device":
            bad(f"'{parameter.ctype}' is no {shape}")
        a.shape, a.capnp, a.kind = found
    creates = notes.get("creates", "")
    if a.shape == "handle" and creates != a.kind:
        bad(f"out: {shape} needs 'creates: {a.kind}'")
    if creates == "allocation":
        if shape != "devptr" or not notes.get("size"):
            bad("creates: allocation needs 'out: devptr' and 'size'")
        a.size = str(notes["size"])
    elif creates and a.shape != "handle":
        bad(f"creates: {creates} needs 'out: handle'")
    a.creates = creates
    return a


def resolve(parameter, entry, function, parameters, types, wired):
    """The Argument of `parameter`. Functions without a message may have any types."""
    if not wired:
        return Argument(parameter.name, parameter.ctype, parameter.base, "opaque")
    notes = (entry.get("args") or {}).get(parameter.name)

    def bad(message):
        where = (notes or entry).where
        raise DescriptionError(where, f"{function}: {parameter.name}: {message}")

    for key in notes or ():
        if key not in KEYS:
            bad(f"unknown key '{key}'")
    directions = [d for d in ("in", "out", "inout") if d in (notes or {})]
    if len(directions) > 1:
        bad("more than one of in, out, inout")
    if directions:
        return _with_direction(parameter, directions[0], notes, bad, parameters, types)
    return _plain_input(parameter, notes, bad, types)
