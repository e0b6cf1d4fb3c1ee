"""The description as objects: Api -> Chapter -> Function -> Argument.

Made by describe.py; judged there, only read elsewhere.
"""

from dataclasses import dataclass, field, replace

from . import names
from .prototype import Signature


@dataclass
class Argument:
    """One parameter with what the description says about it.

    shape: scalar enum device handle address struct array bytes cstr, or opaque (no message may
    hold it).
    direction: in, out or inout.
    length and count are C expressions over the parameters."""

    name: str
    ctype: str
    base: str
    shape: str
    direction: str = "in"
    capnp: str = ""
    kind: str = ""
    length: str = ""
    count: str = ""
    creates: str = ""
    destroys: str = ""
    size: str = ""
    optional: bool = False
    bulk: str = ""  # own room beside the message: see arguments.BULK; empty: in the message
    locations: list = field(default_factory=list)
    clear: list = field(default_factory=list)
    members: list = field(default_factory=list)  # of a struct: Arguments for its arrays
    pointer: str = ""  # C++ of the array, where it is not the parameter itself
    member: str = ""  # in its struct

    @property
    def source(self):
        return self.pointer or self.name

    @property
    def declaration(self):
        return f"{self.ctype} {self.name}"

    @property
    def accessor(self):
        return names.accessor(self.name)

    @property
    def as_number(self):
        """As it is on the wire: an id for a handle, the worker's ordinal for a device."""
        if self.shape in ("handle", "device"):
            ctype = "uint64_t" if self.shape == "handle" else "int32_t"
            return Argument(self.name, ctype, ctype, "scalar", capnp=self.capnp)
        return replace(self, locations=[], creates="")

    @property
    def in_request(self):
        return not self.bulk and (self.direction != "out" or self.shape == "handle")

    @property
    def in_reply(self):
        return not self.bulk and self.direction != "in" and self.shape != "handle"

    @property
    def is_pointer_field(self):
        """Takes a pointer in the message (Data, Text)."""
        return self.capnp in ("Data", "Text")


@dataclass
class Function(Signature):
    """One function of the API, with its exported names and the way it is forwarded."""

    name: str
    chapter: str
    where: str
    arguments: list
    call: str
    since: int = 0
    why: str = ""
    needs: str = "context"
    twins: list = field(default_factory=list)
    aliases: dict = field(default_factory=dict)
    via: str = ""
    maker: str = ""  # of the last parameter of `via`, in client/graph/typed_params.h
    header: str = ""  # declared there, not in cuda.h: a symbol that is refused, without an opcode
    internal: bool = False
    client_manual: bool = False
    server_manual: bool = False
    wire: str = ""  # sync, async, deferred; empty: no message
    drains: bool = False  # the driver may wait in it for all streams of the context
    queues: bool = False  # its work takes a place in the driver's queue of its stream
    works: bool = False  # its work may use host memory of the application
    several: bool = False  # its work goes into streams that are not its argument (key submits)
    synchronises: str = ""  # what a success says is done (describe.SYNCHRONISES)
    meaning: int = 0  # raised when the same message comes to mean something else
    opcode: int = 0
    handle: str = ""  # with needs: handle, whose context counts when none is current
    session: str = ""  # the device address whose session counts, or "current"
    valid: dict = field(default_factory=dict)  # C++ condition -> the error when it does not hold
    capture: str = "free"  # what becomes of a call during a capture (describe.CAPTURES)

    @property
    def handle_expression(self):
        """The handle whose context counts when none is current: a stream if there is one."""
        if self.handle:
            return self.handle
        handles = [a.name for a in self.arguments if a.ctype == "CUstream"] or [
            a.name
            for a in self.arguments
            if a.ctype in ("CUevent", "CUfunction", "CUmodule", "CUlinkState")
        ]
        return handles[0] if handles else ""

    @property
    def target(self):
        """The C++ expression that finds the session of a call: its operands decide."""
        if self.session == "current":
            return "CallTarget::of_current()"
        if self.session:
            return f"CallTarget::of_memory({self.session})"
        inputs = [a for a in self.arguments if a.direction == "in"]
        handles = [a for a in inputs if a.shape == "handle"]
        streams = [a for a in handles if a.kind == "stream"]
        for a in streams[:1] or handles[:1]:
            is_number = a.ctype == "CUmemGenericAllocationHandle"
            value = f"reinterpret_cast<const void*>({a.name})" if is_number else a.name
            return f"CallTarget::of({value})"
        for a in inputs:
            if a.shape == "device":
                return f"CallTarget::of_device({a.name})"
        for a in inputs:
            if a.shape == "struct" and a.locations:
                if a.locations[0] == ".":
                    return f"CallTarget::of_location({a.name})"
                member = f"&{a.name}->{a.locations[0]}"
                return f"CallTarget::of_location({a.name} == nullptr ? nullptr : {member})"
        return "CallTarget::of_current()"

    def values_for(self, other):
        """(our parameters as those of `other`, those that it lacks). What it has besides is 0; with
        a maker, its last one is made of those that it lacks.
        """
        own, values = list(self.arguments), []
        for a in other.arguments:
            is_next = own and own[0].ctype == a.ctype
            values.append(own.pop(0).name if is_next else "{}")
        if self.maker:
            given = ", ".join(("*" if a.ctype.endswith("*") else "") + a.name for a in own)
            values[-1] = f"address_of({self.maker}({given}))"
        return values, own

    @property
    def supported(self):
        return self.call not in ("retired", "unsupported")

    @property
    def retired(self):
        """Answered as by every driver of today, which has kept no more than the name."""
        return self.call == "retired"

    @property
    def retired_outputs(self):
        """Those that a driver clears before it refuses."""
        cleared = ("unsigned int*", "CUdeviceptr_v1*", "void**")
        return [a.name for a in self.arguments if a.ctype in cleared]

    @property
    def params_type(self):
        return names.camel(self.name) + "Params"

    @property
    def arguments_type(self):
        return names.camel(self.name) + "Arguments"

    @property
    def results_type(self):
        return names.camel(self.name) + "Results"

    @property
    def request_fields(self):
        """Parameters in their order, then the arrays of structs."""
        fields = [a for a in self.arguments if a.in_request]
        return fields + self.struct_arrays

    @property
    def struct_arrays(self):
        return [member for a in self.arguments for member in a.members]

    @property
    def reply_fields(self):
        return [a for a in self.arguments if a.in_reply]

    @property
    def bulk_in(self):
        """The input beside the message, or None."""
        return next((a for a in self.arguments if a.bulk and a.direction == "in"), None)

    @property
    def bulk_out(self):
        return next((a for a in self.arguments if a.bulk and a.direction == "out"), None)

    @property
    def created(self):
        return next((a for a in self.arguments if a.shape == "handle" and a.creates), None)

    @property
    def stream(self):
        """The one stream that the call is about, or None."""
        streams = [
            a
            for a in self.arguments
            if a.shape == "handle" and a.kind == "stream" and a.direction == "in" and not a.destroys
        ]
        return streams[0] if len(streams) == 1 else None

    @property
    def is_captured(self):
        """Whether it becomes part of a graph in a captured stream: a hand-written half does it."""
        return self.capture in ("captured", "captured-unsafe")

    @property
    def is_judged(self):
        """Whether captures may have to do with it. The legacy stream waits for captured ones."""
        of_stream = any(a.ctype == "CUstream" and a.direction == "in" for a in self.arguments)
        return self.capture not in ("free", "own") or (self.capture == "free" and of_stream)

    @property
    def capture_operand(self):
        """The C++ expression that decides what becomes of the call during a capture."""
        kinds = {"unsafe": "CUevent", "forbidden-everywhere": "CUcontext"}
        kind = kinds.get(self.capture, "CUstream")
        found = [a.name for a in self.arguments if a.ctype == kind and a.direction == "in"]
        if found:
            return found[0]
        configs = [a.name for a in self.arguments if "CUlaunchConfig" in a.ctype]
        if configs and kind == "CUstream":
            return f"{configs[0]} == nullptr ? nullptr : {configs[0]}->hStream"
        return "nullptr"

    @property
    def submits(self):
        """Whether its message is work on its way into a stream."""
        return bool(self.wire and self.stream) and (self.works or self.queues or self.is_captured)

    @property
    def has_policy(self):
        """Whether the client does more for it than to send its message: tables, streams, waits."""
        return self.has_scopes or any(a != a.as_number for a in self.arguments)

    @property
    def has_scopes(self):
        """Whether something lives around the sending (client/transfer/submission.h)."""
        return bool(self.drains or self.synchronises or self.submits)

    @property
    def message(self):
        """The same without anything but the message: with numbers for handles and devices."""
        return replace(
            self,
            arguments=[a.as_number for a in self.arguments],
            drains=False,
            queues=False,
            works=False,
            synchronises="",
            capture="free",
            valid={} if self.has_policy else self.valid,
        )

    @property
    def enters_streams(self):
        """Whether a server whose gate is closed keeps it."""
        return self.submits or self.several

    def parent_of(self, kind):
        """The argument that an object of this kind is made from, or None."""
        inputs = (a for a in self.arguments if a.shape == "handle" and a.direction == "in")
        return next((a for a in inputs if a.kind in kind.parents), None)

    @property
    def symbols(self):
        """Every exported name of this function; (name, per-thread suffix)."""
        if self.internal:
            return []
        result = [(self.name, "")]
        result += [(f"{self.name}_{twin}", twin) for twin in self.twins]
        result += [(alias, names.per_thread_suffix(alias)) for alias in self.aliases]
        return result


@dataclass
class Chapter:
    """A file of the description."""

    name: str
    title: str
    functions: list

    @property
    def messages(self):
        return [f for f in self.functions if f.wire]

    @property
    def internal(self):
        return any(f.internal for f in self.functions)

    @property
    def with_policy(self):
        return [f for f in self.messages if f.has_policy]


@dataclass
class Api:
    """The whole description."""

    chapters: list
    types: object
    symbols: list
    results: dict = field(default_factory=dict)
    nvml: object = None  # nvml/model.Library

    @property
    def functions(self):
        return [f for chapter in self.chapters for f in chapter.functions]

    def function(self, name):
        """The function that is called, or exports, `name`; None if there is none."""
        for f in self.functions:
            if f.name == name or any(name == symbol for symbol, _ in f.symbols):
                return f
        return None
