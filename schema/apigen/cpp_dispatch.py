"""C++ of dispatch_cuX: message -> checked arguments -> driver -> reply.

Lengths and handles are judged before the driver is called. The same decoding serves hand-written
halves, as decode_cuX.
"""

import dataclasses


def _or_answer(call):
    """Calls, and answers the request with the error if that is one."""
    answer = "return answer(worker_, request_, bad_);"
    return f"if (CUresult bad_ = {call}; bad_ != CUDA_SUCCESS) {answer}"


def _decode(f, a, types, out):
    n, s, name = a.name, a.accessor, f.name
    if a.shape == "handle" and a.direction == "out":
        out.append(f"{a.base} {n} = {{}};")
    elif a is f.stream and f.submits:
        out.append(f"const Submission submission_(worker_, params_.get{s}());")
        out.append(_or_answer("submission_.result()"))
        out.append(f"const CUstream {n} = submission_.handle();")
    elif a.shape == "handle":
        out.append(f"{a.base} {n} = {{}};")
        kind = f"rpc::HandleKind::{types.kinds[a.kind].enumerator}"
        out.append(_or_answer(f"find_handle(worker_, {kind}, params_.get{s}(), &{n})"))
    elif a.shape == "device":
        out.append(f"const CUdevice {n} = params_.get{s}();")
    elif a.shape == "address":
        out.append(f"void* const {n} = reinterpret_cast<void*>(params_.get{s}());")
    elif a.shape in ("scalar", "enum"):
        if a.direction == "out":
            out.append(f"{a.base} {n}{{}};")
        else:
            value = f"params_.get{s}()"
            value = f"static_cast<{a.base}>({value})" if a.shape == "enum" else value
            out.append(f"const {a.base} {n} = {value};")
    elif a.shape == "cstr" and a.direction == "in":
        out.append(
            f"const char* const {n} = "
            + (
                f"params_.has{s}() ? params_.get{s}().cStr() : nullptr;"
                if a.optional
                else f"params_.get{s}().cStr();"
            )
        )
    elif a.shape == "struct":
        out.append(f"{a.base} {n}{{}};")
        if a.direction != "out":
            check = (
                f"if (!read_struct(params_.get{s}(), &{n})) "
                f'return malformed("{name}", "{n} has the wrong size");'
            )
            out.append(f"if (params_.has{s}()) {check}" if a.optional else check)
            for member in a.clear:
                out.append(f"{n}.{member} = {{}};")
            for array in a.members:
                _decode_sized(f, array, out)
                data = f"{array.name}_count == 0 ? nullptr : {array.name}.data()"
                out.append(f"{n}.{array.member} = {data};")


def _length(a):
    """A length as it is here: a struct is a value."""
    return a.length.replace("->", ".") if a.member else a.length


def _decode_sized(f, a, out):
    """Arrays and bytes, after all scalars are there for their length."""
    n, s, name = a.name, a.accessor, f.name
    element = a.base if a.shape == "array" else "std::byte"
    out.append(f"const uint64_t {n}_count = static_cast<uint64_t>({_length(a)});")
    if a.direction == "out":
        out.append(
            f"if (!schema::fits({n}_count, sizeof({element}))) "
            "return answer(worker_, request_, CUDA_ERROR_INVALID_VALUE);"
        )
        out.append(f"schema::SmallBuffer<{element}> {n}({n}_count);")
        return
    out.append(f"auto {n}_data = params_.get{s}();")
    size = (
        f"{n}_data.size() != {n}_count * sizeof({element}) || "
        f"!schema::fits({n}_count, sizeof({element}))"
    )
    if a.optional:
        size = f"params_.has{s}() && ({size})"
    out.append(f'if ({size}) return malformed("{name}", "{n} has the wrong size");')
    out.append(
        f"schema::SmallBuffer<{element}> {n}("
        f"reinterpret_cast<const {element}*>({n}_data.begin()), "
        f"{n}_data.size() / sizeof({element}));"
    )
    for member in a.clear:
        out.append(f"for ({a.base}& element : {n}) element.{member} = {{}};")


def _pass(a):
    """The argument as the driver wants it."""
    n = a.name
    if a.shape in ("array", "bytes"):
        pointer = f"{n}.data()"
        if a.shape == "bytes":
            pointer = f"static_cast<{'const ' if 'const' in a.ctype else ''}void*>({pointer})"
        return (
            f"params_.has{a.accessor}() ? {pointer} : nullptr"
            if a.optional and a.direction == "in"
            else pointer
        )
    if a.shape == "struct":
        return (
            f"params_.has{a.accessor}() ? &{n} : nullptr"
            if a.optional and a.direction == "in"
            else f"&{n}"
        )
    if a.direction in ("out", "inout") and a.shape != "cstr":
        return f"&{n}"
    return n


def _reply_value(a):
    n, s = a.name, a.accessor
    if a.shape == "enum":
        return f"results_.set{s}(static_cast<int32_t>({n}));"
    if a.shape == "scalar":
        return f"results_.set{s}({n});"
    if a.shape == "struct":
        return f"results_.set{s}(as_data(&{n}, sizeof({n})));"
    return f"results_.set{s}(as_data({n}.data(), {n}.bytes()));"


def _reply_bytes(a):
    if a.shape == "struct":
        return f"schema::padded(sizeof({a.name}))"
    if a.shape in ("array", "bytes"):
        return f"schema::padded({a.name}.bytes())"
    return ""


def _after_success(f, types, out):
    for a in f.arguments:
        if a.shape == "handle" and a.creates:
            kind = types.kinds[a.kind]
            parent = f.parent_of(kind)
            added = (
                f"worker_.add(rpc::HandleKind::{kind.enumerator}, params_.get{a.accessor}(), "
                f"handle_pointer({a.name}), request_.header.context"
                + (f", params_.get{parent.accessor}())" if parent else ")")
            )
            out.append(f"if (CUresult bad_ = {added}; bad_ != CUDA_SUCCESS)")
            out.append(f'  return refused_id(worker_, request_, "{f.name}", bad_);')
        elif a.creates == "allocation":
            out.append(f"worker_.remember_allocation({a.name}, {a.size});")
        elif a.destroys == "allocation":
            out.append(f"worker_.forget_allocation({a.name});")
        elif a.destroys:
            out.append(f"worker_.remove(params_.get{a.accessor}());")


def _arguments(f, types, driver, out):
    """From the message to checked arguments; leaves them as locals with the parameters' names."""
    sized = [a for a in f.arguments if a.shape in ("array", "bytes") and not a.bulk]
    if driver:
        out.append(
            f"if ({driver} == nullptr) return answer(worker_, request_, CUDA_ERROR_NOT_SUPPORTED);"
        )
    if f.needs != "nothing":
        out.append(_or_answer("worker_.enter_context(request_.header.context)"))
    # What has a struct's length inside comes after the struct.
    for a in f.arguments:
        if a not in sized and not a.bulk:
            _decode(f, a, types, out)
    for a in sized:
        _decode_sized(f, a, out)


def _given(f):
    """The arguments that decode_<name> gives on."""
    return [a for a in f.arguments if a.direction != "out" or (a.creates and a.shape == "handle")]


def members(f):
    """Members of the struct that decode_<name> gives to a hand-written half."""
    out = []
    for a in _given(f):
        n = a.name
        if a.shape == "handle":
            if a.direction == "in":
                out.append(f"{a.base} {n} = {{}};")
            out.append(f"uint64_t {n}_id = 0;")
        elif a.bulk:
            out.append(f"std::span<std::byte> {n};")
        elif a.shape in ("array", "bytes"):
            element = a.base if a.shape == "array" else "std::byte"
            out.append(f"std::span<{element}> {n};  // no data: it was not given")
        elif a.shape == "struct":
            out.append(f"{a.base}* {n} = nullptr;  // nullptr: it was not given")
        elif a.shape == "cstr":
            out.append(f"const char* {n} = nullptr;")
        elif a.shape == "address":
            out.append(f"void* {n} = nullptr;")
        else:
            out.append(f"{a.base} {n}{{}};")
    if f.submits:
        out.append("const Submission& submission;")
    return out


def member_values(f):
    """The values of members(), in their order."""
    out = []
    for a in _given(f):
        n, there = a.name, f"params_.has{a.accessor}()"
        if a.shape == "handle":
            out += ([n] if a.direction == "in" else []) + [f"params_.get{a.accessor}()"]
        elif a.bulk:
            out.append("request_.bulk")
        elif a.shape in ("array", "bytes"):
            span = f"std::span({n}.data(), {n}.end())"
            out.append(f"{there} ? {span} : {span}.first(0)" if a.optional else span)
        elif a.shape == "struct":
            out.append(f"{there} ? &{n} : nullptr" if a.optional else f"&{n}")
        else:
            out.append(n)
    return out + (["submission_"] if f.submits else [])


def decoding(f, types):
    """Lines of decode_<name>: the arguments of a hand-written half."""
    out = ["wire::SegmentReader reader_(request_.body);"]
    out.append(f"auto params_ = reader_.getRoot<schema::{f.params_type}>();")
    # What goes out is the half's own; of a handle it gets the id.
    shown = dataclasses.replace(f, arguments=[a for a in f.arguments if a.direction != "out"])
    driver = "" if f.internal else f"worker_.driver().{f.name}"
    _arguments(shown, types, driver, out)
    if a := f.bulk_in:
        out.append(f"if (request_.bulk.size() != static_cast<uint64_t>({a.length}))")
        out.append(f'  return malformed("{f.name}", "{a.name} has the wrong size");')
    return out


def body(f, types):
    """Lines of the body of dispatch_<name>(Worker& worker_, const Request& request_).

    Names of ours end in _: parameters have any names.
    """
    out = []
    if f.request_fields:
        out.append("wire::SegmentReader reader_(request_.body);")
        out.append(f"auto params_ = reader_.getRoot<schema::{f.params_type}>();")
    out.append(f"const auto driver_ = worker_.driver().{f.name};")
    _arguments(f, types, "driver_", out)
    allocation = next((a for a in f.arguments if a.creates == "allocation"), None)
    if allocation:
        out.append(_or_answer(f"worker_.charge({allocation.size})"))
    out.append(f"const CUresult result_ = driver_({', '.join(_pass(a) for a in f.arguments)});")
    after = []
    _after_success(f, types, after)
    refund = f"  worker_.refund({allocation.size});" if allocation else ""
    if not f.reply_fields:
        if after:
            out.append("if (result_ == CUDA_SUCCESS) {")
            out += ["  " + line for line in after]
            out.append("}")
        out.append("return answer(worker_, request_, result_);")
        return out
    out.append("if (result_ != CUDA_SUCCESS) {")
    if refund:
        out.append(refund)
    out.append("  return answer(worker_, request_, result_);")
    out.append("}")
    out += after
    bound = [f"schema::fixed_bytes<schema::{f.results_type}>()"] + [
        b for b in map(_reply_bytes, f.reply_fields) if b
    ]
    out.append(
        f"rpc::Responder::Frame frame_(worker_.responder(), request_.header, {' + '.join(bound)});"
    )
    out.append(f"auto results_ = frame_.init<schema::{f.results_type}>();")
    out += [_reply_value(a) for a in f.reply_fields]
    out.append("return frame_.send(CUDA_SUCCESS);")
    return out
