"""C++ of wire::cuX, the message of a function (arguments -> message -> reply -> outputs), and of
call_cuX, the policy around it: handles, streams, waits, tables.

Names of ours end in _: parameters have any names.
"""

from .describe import SYNCHRONISES


def _kind(types, a):
    return f"rpc::HandleKind::{types.kinds[a.kind].enumerator}"


def _or_return(call):
    """Calls, and returns the error if that is one."""
    return f"if (CUresult bad_ = {call}; bad_ != CUDA_SUCCESS) return bad_;"


def _found_by_scope(f, a):
    """Whether _scopes() finds this stream."""
    return a is f.stream and (f.submits or f.synchronises == "stream")


def _scopes(f, out):
    """What lives around the call: what it waits for before, and does after."""
    if f.drains:
        out.append("const DrainScope drain_(session_, context_);")
    if f.synchronises:
        stream = f", {f.stream.name}" if f.synchronises == "stream" else ""
        of = f"Synchronisation::Of::{SYNCHRONISES[f.synchronises]}"
        out.append(f"Synchronisation done_(session_, context_, {of}{stream});")
        out.append("if (done_.result() != CUDA_SUCCESS) return done_.result();")
        if stream and not f.submits:
            out.append(f"const uint64_t {f.stream.name}_id = done_.stream();")
    if f.submits:
        needs = [
            f"Submission::{name}"
            for name, needed in (("kHostMemory", f.works), ("kQueuePlace", f.queues))
            if needed
        ] or ["Submission::kNothing"]
        stream = f.stream.name
        out.append(f"Submission work_(session_, context_, {stream}, {' | '.join(needs)});")
        out.append("if (work_.result() != CUDA_SUCCESS) return work_.result();")
        out.append(f"const uint64_t {stream}_id = work_.stream();")


def _translate_elements(a, out):
    """A struct, or an array of them, with the worker's ordinals and what it points to."""
    n = a.name
    for array in a.members:
        _check_length(array, out)
    _copies(a.members, out)
    count = f"{n}_count" if a.shape == "array" else "1"
    out.append(f"schema::SmallBuffer<{a.base}> {n}_wire({n}, {n} == nullptr ? 0 : {count});")
    out.append(f"for ({a.base}& element : {n}_wire) {{")
    for m in a.members:
        data = f"const_cast<void*>({m.name}_in.data())"
        out.append(f"  element.{m.member} = static_cast<decltype(element.{m.member})>({data});")
    for location in a.locations:
        place = "&element" if location == "." else f"&element.{location}"
        out.append("  " + _or_return(f"location_to_wire(session_, {place})"))
    out.append("}")


def _is_translated(f, a):
    """Whether call_<name> makes a copy of it, with what the worker knows. All that a struct points
    to is read before what lives around the call.
    """
    return a.direction != "out" and bool(a.locations or (a.members and f.has_scopes))


def _translate(f, a, types, out):
    """What the worker knows instead of an argument, for wire::<name>."""
    n = a.name
    if a.shape == "handle" and a.direction == "in" and not _found_by_scope(f, a):
        out.append(f"uint64_t {n}_id = 0;")
        if a.kind == "stream" and not a.destroys:
            get = f"stream_to_wire(session_, {n}, &{n}_id)"
        else:
            get = f"required_to_wire(session_, {_kind(types, a)}, {n}, &{n}_id)"
        out.append(_or_return(get))
    elif a.shape == "device":
        out.append(f"int32_t {n}_ordinal = 0;")
        out.append(_or_return(f"device_to_wire(session_, {n}, &{n}_ordinal)"))
    elif _is_translated(f, a):
        _translate_elements(a, out)
    elif a.shape == "handle" and a.creates:
        out.append(f"NewHandle {n}_new(session_, {_kind(types, a)});")
        out.append(f"const uint64_t {n}_id = {n}_new.id();")
        out.append(f"if ({n}_id == 0) return CUDA_ERROR_OUT_OF_MEMORY;")


def _check_there(a, out):
    needed = a.direction != "in" or a.shape in ("struct", "cstr")
    if needed and not a.optional:
        out.append(f"if ({a.name} == nullptr) return CUDA_ERROR_INVALID_VALUE;")


def _check_length(a, out):
    """Says how long it is, and that the message can hold that."""
    n = a.name
    if a.shape == "cstr" and a.direction == "in":
        out.append(
            f"const size_t {n}_bytes = {n} == nullptr ? 0 : strnlen({n}, schema::kMaxFieldBytes);"
        )
        out.append(f"if ({n}_bytes == schema::kMaxFieldBytes) return CUDA_ERROR_INVALID_VALUE;")
    if a.shape not in ("array", "bytes", "cstr") or not a.length:
        return
    out.append(f"const uint64_t {n}_count = static_cast<uint64_t>({a.length});")
    size = f"sizeof({a.base})" if a.shape == "array" else "1"
    if not a.bulk and not (a.direction == "out" and a.count):
        limit = f"!schema::fits({n}_count, {size})"
        if a.optional and a.direction == "in":
            limit = f"{n} != nullptr && {limit}"
        out.append(f"if ({limit}) return CUDA_ERROR_INVALID_VALUE;")
    if a.direction == "in" and not a.optional:
        out.append(f"if ({a.source} == nullptr && {n}_count != 0) return CUDA_ERROR_INVALID_VALUE;")


def _copies(arguments, out):
    """What is read from the application's memory is ready before what may make others wait."""
    for a in arguments:
        if _is_copied(a):
            size = f"{a.name}_bytes + 1" if a.shape == "cstr" else _bytes(a)
            out.append(f"const Input {a.name}_in({a.source}, {size});")


def _is_copied(a):
    return (
        a.shape in ("cstr", "struct", "array", "bytes")
        and a.direction != "out"
        and not (a.bulk or a.locations or a.members)
    )


def _bytes(a):
    """How many an argument has in the message."""
    if a.shape == "struct":
        return f"sizeof({a.base})"
    return f"{a.name}_count" + (f" * sizeof({a.base})" if a.shape == "array" else "")


def _variable_bytes(a):
    """What this argument adds to the bound of the message."""
    n = a.name
    if a.shape == "cstr":
        return f"schema::padded({n}_bytes + 1)"
    if a.shape == "struct":
        return f"schema::padded(sizeof({a.base}))"
    if a.shape in ("array", "bytes"):
        each = f" * sizeof({a.base})" if a.shape == "array" else ""
        total = f"schema::padded({n}_count{each})"
        return f"({n} == nullptr ? 0 : {total})" if a.optional else total
    return ""


def _set(a, out):
    n, s = a.name, a.accessor
    if a.shape == "address":
        out.append(f"params_.set{s}(reinterpret_cast<uint64_t>({n}));")
    elif a.shape in ("scalar", "enum"):
        value = f"static_cast<int32_t>({n})" if a.shape == "enum" else n
        out.append(f"params_.set{s}({value});")
    elif a.shape == "cstr":
        guard = f"if ({n} != nullptr) " if a.optional else ""
        out.append(f"{guard}params_.set{s}(capnp::Text::Reader({n}_in.text(), {n}_bytes));")
    elif a.shape in ("struct", "array", "bytes"):
        source = f"{n}_in" if _is_copied(a) else f"{n}_wire"
        guard = f"if ({n} != nullptr) " if a.optional else ""
        out.append(f"{guard}params_.set{s}(as_data({source}.data(), {_bytes(a)}));")


def _counter(f, a):
    """The argument that says how many elements there are; None: all."""
    return next((c for c in f.arguments if c.name == a.count), None) if a.count else None


def _take(f, a, out):
    """One field of the reply into the caller's memory."""
    n, s = a.name, a.accessor
    guard = f"if ({n} != nullptr) " if a.optional else ""
    if a.shape in ("scalar", "enum"):
        value = f"results_.get{s}()"
        if a.shape == "enum":
            value = f"static_cast<{a.base}>({value})"
        out.append(f"{guard}*{n} = {value};")
    elif a.shape == "cstr":
        out.append(f"take_text(results_.get{s}(), {n}, {n}_count);")
    else:
        if a.shape == "struct":
            size = f"sizeof({a.base})"
        elif counter := _counter(f, a):
            out.append(f"const uint64_t {n}_have = results_.get{counter.accessor}();")
            out.append(f'if ({n}_have > {n}_count) return malformed("{f.name}");')
            size = f"{n}_have" + (f" * sizeof({a.base})" if a.shape == "array" else "")
        else:
            size = f"{n}_count" + (f" * sizeof({a.base})" if a.shape == "array" else "")
        out.append(f'if (!take_data(results_.get{s}(), {n}, {size})) return malformed("{f.name}");')


def _finish(f, types, out):
    """Bookkeeping of the client after a success."""
    for a in f.arguments:
        n = a.name
        parent = f.parent_of(types.kinds[a.kind]) if a.kind and a.creates else None
        if a.shape == "handle" and a.creates:
            out.append(f"{n}_new.created({parent.name + '_id' if parent else ''});")
            out.append(f"*{n} = handle_from<{a.base}>({n}_id);")
        elif a.shape == "handle" and a.destroys:
            out.append(f"handle_destroyed(session_, {n}_id);")
        elif a.creates == "allocation":
            out.append(f"allocation_created(session_, context_, *{n}, {a.size});")
        elif a.locations and a.direction != "in":
            target = n if "." in a.locations else f"&{n}->{a.locations[0]}"
            guard = f"if ({n} != nullptr) " if a.optional else ""
            if a.direction == "inout":
                out.append(f"{guard}std::memcpy({n}, {n}_wire.data(), {n}_wire.bytes());")
            out.append(f"{guard}location_from_wire(session_, {target});")


def _is_fixed(f):
    """Whether the request is a few numbers: those need no builder and no slot of their own."""
    return not (f.bulk_in or f.bulk_out or any(_variable_bytes(a) for a in f.request_fields))


def _exchange(f, out):
    bulk_in, bulk_out = f.bulk_in, f.bulk_out
    body = f"link_.channel().{{}}_body(schema::op_{f.name}, context_, message_.bytes(), "
    bulk = ""
    if bulk_in:
        data = f"static_cast<const std::byte*>({bulk_in.name})"
        out.append(f"const rpc::Bytes bulk_[] = {{rpc::Bytes({data}, {bulk_in.name}_count)}};")
        bulk = "bulk_"
    if f.wire != "sync":
        out.append("int32_t result_ = 0;")
        send = body.format("send") if _is_fixed(f) else f"call_.send({bulk or '{}'}, "
        out.append(f"const Status status_ = {send}&result_);")
        out.append(_or_return("sent(status_, result_)"))
        return
    out.append("rpc::Reply reply_;")
    arguments = ["reply_"]
    if bulk_out:
        data = f"reinterpret_cast<std::byte*>({bulk_out.name})"
        target = f"std::span<std::byte>({data}, {bulk_out.name}_count)"
        arguments += [bulk or "{}", target]
    elif bulk:
        arguments.append(bulk)
    call = body.format("call") if _is_fixed(f) else "call_.call("
    call += f"{', '.join(arguments)})"
    out.append(f"if (Status status_ = {call}; !status_.ok()) return from_status(status_);")
    out.append("if (reply_.result != CUDA_SUCCESS) return static_cast<CUresult>(reply_.result);")
    if f.reply_fields:
        out.append(f"auto results_ = reply_.root<schema::{f.results_type}>();")
        order = sorted(f.reply_fields, key=lambda a: a.shape not in ("scalar", "enum"))
        for a in order:
            _take(f, a, out)
    if bulk_out:
        counter = _counter(f, bulk_out)
        here = f"results_.get{counter.accessor}()" if counter else f"{bulk_out.name}_count"
        out.append(f'if (reply_.bulk_bytes != {here}) return malformed("{f.name}");')


def _sent_value(f, a):
    """An argument of call_<name> as wire::<name> takes it."""
    n = a.name
    if a.shape == "handle":
        return f"{n}_id"
    if a.shape == "device":
        return f"{n}_ordinal"
    if _is_translated(f, a):
        return f"{n} == nullptr ? nullptr : {n}_wire.data()" if a.optional else f"{n}_wire.data()"
    if not (f.has_scopes and _is_copied(a)):
        return n
    data = f"{n}_in.data()" if a.ctype.startswith("const ") else f"const_cast<void*>({n}_in.data())"
    return f"static_cast<{a.ctype}>({data})"


def _check_values(f, out):
    for condition, result in f.valid.items():
        out.append(f"if (!({condition})) return {result};")


def policy(f, types):
    """Lines of the body of call_<name>(Session& session_, uint16_t context_, ...) around
    wire::<name>. What lives around the call comes after the application's memory was read: that may
    wait.
    """
    out = []
    for a in f.arguments:
        _check_there(a, out)
        if (f.has_scopes and _is_copied(a)) or (a.shape == "array" and _is_translated(f, a)):
            _check_length(a, out)
        _translate(f, a, types, out)
    _check_values(f, out)
    if f.has_scopes:
        _copies(f.arguments, out)
    _scopes(f, out)
    values = ", ".join(["session_", "context_"] + [_sent_value(f, a) for a in f.arguments])
    sent = f"wire::{f.name}({values})"
    if f.submits:
        sent = f"work_.ended({sent})"
    after = []
    _finish(f, types, after)
    if f.synchronises:
        after.append("return done_.finish();")
    if not after:
        return [*out, f"return {sent};"]
    end = [] if f.synchronises else ["return CUDA_SUCCESS;"]
    return [*out, _or_return(sent), *after, *end]


def message(f):
    """Lines of the body of wire::<name>(Link& link_, uint16_t context_, ...), where f is the
    message of a function (Function.message).

    Order: checks, then the Call that holds the send lock, then the reply.
    """
    out = []
    for a in f.arguments:
        _check_there(a, out)
        _check_length(a, out)
        for array in a.members:
            _check_length(array, out)
        if a.members:
            out.append(f"schema::SmallBuffer<{a.base}> {a.name}_wire({a.name}, 1);")
            out += [f"{a.name}_wire.data()->{array.member} = nullptr;" for array in a.members]
    _check_values(f, out)
    _copies(f.request_fields, out)
    _message(f, out)
    for a in f.request_fields:
        _set(a, out)
    _exchange(f, out)
    out.append("return CUDA_SUCCESS;")
    return out


def _message(f, out):
    """What the arguments are put into."""
    params = "auto params_ = " if f.request_fields else ""
    if _is_fixed(f):
        out.append(f"wire::FixedMessage<schema::{f.params_type}> message_;")
        if params:
            out.append(f"{params}message_.root();")
        return
    bound = [f"schema::fixed_bytes<schema::{f.params_type}>()"]
    bound += [piece for piece in (_variable_bytes(a) for a in f.request_fields) if piece]
    out.append(f"rpc::Channel::Call call_(link_.channel(), schema::op_{f.name}, context_,")
    out.append("                        " + " + ".join(bound) + ");")
    out.append(f"{params}call_.init<schema::{f.params_type}>();")
