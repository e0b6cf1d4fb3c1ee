"""C++ of tests/wire_roundtrip: messages with pattern values, and requests that every generated
dispatch function accepts.
"""

_SIGNED = {"Int8": 0x5A, "Int16": 0x5A5A, "Int32": 0x5A5A5A00, "Int64": 0x5A5A5A5A5A5A5A00}
_UNSIGNED = {"UInt8": 0xA5, "UInt16": 0xA5A5, "UInt32": 0xA5A5A500, "UInt64": 0xA5A5A5A5A5A5A500}
_DATA_BYTES = 13  # not a multiple of 8: padding is part of the bound


def pattern(a, position):
    """A value that no other field of the message has, as C++."""
    if a.capnp in _SIGNED:
        return f"{_SIGNED[a.capnp] + position}{'ll' if a.capnp == 'Int64' else ''}"
    if a.capnp in _UNSIGNED:
        return f"{_UNSIGNED[a.capnp] + position}u{'ll' if a.capnp == 'UInt64' else ''}"
    if a.capnp in ("Float32", "Float64"):
        return f"{position}.25{'f' if a.capnp == 'Float32' else ''}"
    return f"wiretest::{'text' if a.capnp == 'Text' else 'data'}({position})"


def _extra(fields):
    pointers = sum(a.is_pointer_field for a in fields)
    texts = sum(a.capnp == "Text" for a in fields)
    return f"{pointers - texts} * wiretest::kDataBytes + {texts} * wiretest::kTextBytes"


def _messages(chapter):
    for f in chapter.messages:
        yield f.params_type, f.request_fields
        if f.reply_fields:
            yield f.results_type, f.reply_fields


def _locals(f):
    """The scalars, so that the lengths of the description can be computed from them; 3 of
    everything.
    """
    out = []
    for a in f.arguments:
        if a.shape in ("scalar", "enum", "device"):
            out.append(f"[[maybe_unused]] const {a.base} {a.name} = static_cast<{a.base}>(3);")
    for a in f.request_fields:
        if a.member:
            out.append(f"const std::string {a.name}_bytes;")
        elif a.members:
            out.append(f"const std::string {a.name}_bytes(sizeof({a.base}), '\\0');")
        elif a.shape in ("array", "bytes"):
            each = f" * sizeof({a.base})" if a.shape == "array" else ""
            out.append(
                f"const std::string {a.name}_bytes(static_cast<size_t>({a.length}){each}, '\\1');"
            )
        elif a.shape == "struct":
            out.append(f"const std::string {a.name}_bytes(sizeof({a.base}), '\\1');")
    return out


def _value(a):
    if a.shape in ("array", "bytes", "struct"):
        return f"bytes_of({a.name}_bytes)"
    if a.shape == "cstr":
        return "text(1)"
    if a.shape in ("handle", "address"):
        return "0x600000010u"
    return f"static_cast<{'int32_t' if a.shape != 'scalar' else a.base}>({a.name})"


def _case_bytes(f):
    parts = ["0"]
    for a in f.request_fields:
        if a.capnp == "Data":
            parts.append(f"schema::padded({a.name}_bytes.size())")
        elif a.capnp == "Text":
            parts.append("kTextBytes")
    return " + ".join(parts)


def add(api, put):
    """put(path, template, **values) for every test source."""
    chapters = [c for c in api.chapters if c.messages]
    for chapter in chapters:
        put(
            f"tests/{chapter.name}_wire_test.cc",
            "wire_test.cc.j2",
            chapter=chapter,
            messages=list(_messages(chapter)),
            pattern=pattern,
            extra=_extra,
        )
    generated = [f for f in api.functions if f.wire and not f.server_manual]
    by_hand = [f for f in api.functions if f.wire and f.server_manual]
    put(
        "tests/dispatch_cases.cc",
        "dispatch_test.cc.j2",
        chapters=chapters,
        generated=generated,
        manual=by_hand,
        driver=[f for f in generated + by_hand if not f.internal],
        locals=_locals,
        value=_value,
        extra=_case_bytes,
    )
