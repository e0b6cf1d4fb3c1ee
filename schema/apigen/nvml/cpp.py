"""C++ of the generated halves.

Client: the arguments go into a Query, which is asked, and the outputs come out of it. Server: the
arguments come out of NvmlArguments, the function is called, and the outputs go into NvmlOutputs.
Both in the order of the parameters; what is wrong is kept in these objects, so that the code has no
branches. Room for outputs is no item of the message: both ends know it from the other arguments.
"""

import re


def _version(a, base):
    return f"schema::nvml_version<{base}>({a.versions[base]})"


def _versions(a):
    return "{" + ", ".join(_version(a, t) for t in a.versions) + "}"


def _inputs(a, base):
    fields = (f"{{offsetof({base}, {n}), sizeof({base}::{n})}}" for n in a.inputs[base])
    return "{" + ", ".join(fields) + "}"


def _layouts(a):
    return "{" + ", ".join(f"{{{_version(a, t)}, {_inputs(a, t)}}}" for t in a.versions) + "}"


def _pointed(f, text):
    """A length where values that go both ways are pointers."""
    for a in f.arguments:
        if a.direction == "inout" and a.shape == "value":
            there = f"({a.name} == nullptr ? 0 : *{a.name})"
            text = re.sub(rf"(?<![\w*]){a.name}\b", there, text)
    return text


def _is_output(a):
    return a.shape in ("array", "cstr")


def _limited(f, a, value):
    """The value of `a`: one that is the length of an output is no more than what travels."""
    for other in f.arguments:
        if not _is_output(other):
            continue
        if other.length == a.name:
            size = "1" if other.shape == "cstr" else f"sizeof({other.base})"
            return f"limited({value}, {size})"
        if re.search(rf"\b{a.name}\b", other.length):  # a number of bytes
            return f"limited({value}, 1)"
    return value


def _put(f, a):
    n, optional = a.name, "true" if a.optional else "false"
    place = f"query_.place({n}, {optional});"
    if a.direction == "in":
        if a.shape == "device":
            return [f"query_.put_device({n});"]
        return [f"query_.put_value({_limited(f, a, n)});"]
    if a.versions:
        return [f"query_.put_versioned({n}, {_layouts(a)});"]
    if a.direction == "inout":
        if a.shape == "value":
            given = _limited(f, a, f"*{n}")
            return [place, f"if ({n} != nullptr) query_.put_value({given});"]
        length = _pointed(f, a.length)
        return [place, f"query_.put_inputs({n}, {length}, {_inputs(a, a.base)});"]
    # NVML itself judges a NULL beside a length.
    return [f"query_.place({n}, true);"] if _is_output(a) else [place]


def _take(f, a):
    n = a.name
    if a.direction == "in":
        return []
    if a.versions:
        out = [f"query_.take_versioned({n}, {n}_version_);"]
        for base in a.repaired:
            match = f"query_.took({n}) && {n}_version_ == {_version(a, base)}"
            out.append(f"if ({match}) repair(*reinterpret_cast<{base}*>({n}));")
        return out
    if a.shape == "value":
        always = "_always" if a.direction == "inout" else ""
        return [f"query_.take_value{always}({n});"]
    if a.shape == "struct":
        out = [f"query_.take_data({n}, sizeof({a.base}));"]
        return out + ([f"if (query_.took({n})) repair(*{n});"] if a.repaired else [])
    if a.shape == "cstr":
        return [f"query_.take_text({n}, {n}_room_);"]
    return [f"const uint64_t {n}_taken_ = query_.take_array({n}, {n}_room_);"]


def _expect(f, a):
    """As many elements as the server says, once all outputs are there."""
    if a.shape != "array":
        return []
    said = next((c for c in f.arguments if c.name == (a.count or a.length)), None)
    if said is not None and said.direction != "in":
        return [f"query_.expect({a.name}, {a.name}_taken_, {said.name});"]
    return [f"query_.expect({a.name}, {a.name}_taken_, {a.name}_room_);"]


def client(f):
    """Lines of the body of call_nvmlX."""
    out = []
    for a in f.arguments:
        # Before the call changes what the length is made of.
        if _is_output(a):
            size = "1" if a.shape == "cstr" else f"sizeof({a.base})"
            out.append(f"const uint64_t {a.name}_room_ = limited({_pointed(f, a.length)}, {size});")
        if a.versions:
            out.append(f"const uint32_t {a.name}_version_ = version_of({a.name});")
    cached = ", Query::kCached" if f.cache else ""
    out.append(f'Query query_(library_, schema::op_{f.name}, "{f.name}"{cached});')
    for a in f.arguments:
        out += _put(f, a)
    out.append("query_.ask();")
    for a in f.arguments:
        out += _take(f, a)
    for a in f.arguments:
        out += _expect(f, a)
    out.append("return query_.end();")
    return out


def _get(a):
    """Reads what is in the message."""
    n = a.name
    there = f"const bool {n}_there_ = in_.is_there({'true' if a.optional else 'false'});"
    if a.direction == "in":
        if a.shape == "device":
            return [f"const nvmlDevice_t {n} = in_.device(desk_);"]
        return [f"const auto {n} = in_.value<{a.base}>();"]
    if a.versions:
        return [f"VersionedStruct {n} = in_.versioned({_versions(a)});"]
    if a.shape == "value":
        if a.direction == "inout":
            return [
                there,
                f"{a.base} {n}{{}};",
                f"if ({n}_there_) {n} = in_.value<{a.base}>();",
            ]
        return [there, f"{a.base} {n}{{}};"]
    if a.shape == "struct":
        return [there, f"{a.base} {n}{{}};"]
    if a.direction == "inout":
        return [there, f"Array<{a.base}> {n} = in_.array<{a.base}>({n}_there_);"]
    return [f"const bool {n}_there_ = in_.is_there(true);"]


def _measure(a):
    """What follows from other arguments."""
    n = a.name
    if a.shape not in ("array", "cstr"):
        return []
    if a.direction == "out":
        return [f"Array<{a.base}> {n} = in_.room<{a.base}>({n}_there_, {a.length});"]
    return [f"in_.expect({n}, {a.length});"]


def _pass(a):
    n = a.name
    if a.direction == "in":
        return n
    if a.versions:
        return f"static_cast<{a.ctype}>({n}.pointer())"
    if a.shape in ("array", "cstr"):
        return f"{n}.pointer()"
    return f"{n}_there_ ? &{n} : nullptr"


def _give(a):
    n = a.name
    if a.direction == "in":
        return []
    if a.versions:
        return [f"out_.versioned({n});"]
    if a.shape == "value":
        always = "_always" if a.direction == "inout" else ""
        return [f"if ({n}_there_) out_.value{always}({n});"]
    if a.shape == "struct":
        return [f"if ({n}_there_) out_.data(&{n}, sizeof {n});"]
    if a.shape == "cstr":
        return [f"out_.text({n});"]
    return [f"out_.array({n}, {a.count or a.length});"]


def server(f):
    """Lines of the body of serve_nvmlX."""
    out = []
    for a in f.arguments:
        out += _get(a)
    for a in f.arguments:
        out += _measure(a)
    out.append("if (!in_.complete()) return in_.result();")
    values = ", ".join(_pass(a) for a in f.arguments)
    if f.server_manual:
        out.append(f"out_.begin(manual_{f.name}(desk_{', ' if values else ''}{values}));")
    else:
        out.append(f"if (desk_.nvml().{f.name} == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;")
        out.append(f"out_.begin(desk_.nvml().{f.name}({values}));")
    for a in f.arguments:
        out += _give(a)
    out.append("return out_.result();")
    return out


def refusal(f):
    """The checks of a call that is not supported, or denied."""
    devices = [f"refusal_.device({a.name});" for a in f.arguments if a.ctype == "nvmlDevice_t"]
    pointers = [f"refusal_.pointer({a.name});" for a in f.arguments if a.ctype.endswith("*")]
    return devices + (pointers if f.call == "denied" else [])
