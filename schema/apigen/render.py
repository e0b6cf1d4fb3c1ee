"""C++ files from templates: each lies with the code that its text belongs to (TEMPLATES).

Everything that depends on the description is computed here; the templates only lay it out.
"""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from . import cpp_call, cpp_dispatch, cpp_trace, manual, names, registry, render_tests
from .describe import CAPTURES
from .nvml import render as render_nvml

_CAPTURE_CLASSES = {
    name: "k" + "".join(word.capitalize() for word in name.split("-")) for name in CAPTURES
}
_NEEDS = {"nothing": "kNothing", "init": "kInit", "context": "kContext", "handle": "kHandle"}

# Names that cuda.h turns into those of a later version: no member of a struct can be called so.
_MACROS = (
    "cuDeviceTotalMem",
    "cuGetProcAddress",
    "cuMemAdvise",
    "cuMemPrefetchAsync",
    "cuIpcOpenMemHandle",
    "cuMemcpyBatchAsync",
    "cuMemcpy3DBatchAsync",
    "cuStreamGetCaptureInfo",
    "cuGraphInstantiate",
    "cuGraphExecUpdate",
    "cuGraphAddKernelNode",
    "cuGraphKernelNodeGetParams",
    "cuGraphKernelNodeSetParams",
    "cuGraphExecKernelNodeSetParams",
    "cuGraphGetEdges",
    "cuGraphNodeGetDependencies",
    "cuGraphNodeGetDependentNodes",
    "cuGraphAddDependencies",
    "cuGraphRemoveDependencies",
    "cuGraphAddNode",
    "cuStreamBeginCapture",
    "cuStreamUpdateCaptureDependencies",
)

# Of these, what the worker calls on drivers that lack the later version: members called ..._v1.
_FORMER = ("cuGraphAddDependencies", "cuGraphRemoveDependencies")

_ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = {  # folder of generated files -> where their templates are
    "schema": _ROOT / "schema/apigen/templates",
    "rpc": _ROOT / "common/rpc/templates",
    "client": _ROOT / "client/templates",
    "client/wire": _ROOT / "client/wire/templates",
    "client/work": _ROOT / "client/work/templates",
    "client/exports": _ROOT / "client/exports/templates",
    "client/nvml": _ROOT / "client/nvml/templates",
    "client/nvml/exports": _ROOT / "client/nvml/exports/templates",
    "server": _ROOT / "server/templates",
    "server/dispatch": _ROOT / "server/templates",
    "server/nvml": _ROOT / "server/nvml/templates",
    "server/nvml/serve": _ROOT / "server/nvml/templates",
    "tests": _ROOT / "tests/wire_roundtrip/templates",
}


def environment(folder):
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _action(f, by_name):
    """What an entry does once the state is right."""
    if f.client_manual:
        return f"manual_{f.name}({f.values})"
    if f.via:
        values, given = f.values_for(by_name[f.via])
        checks = "".join(
            f"{a.name} == nullptr ? CUDA_ERROR_INVALID_VALUE : "
            for a in given
            if a.ctype.endswith("*")
        )
        return f"{checks}manual_{f.via}({', '.join(values)})"
    values = "".join(f", {a.name}" for a in f.arguments)
    call = f"call_{f.name}" if f.has_policy else f"wire::{f.name}"
    return (
        f"[&] {{ const CallTarget target_ = {f.target}; "
        f"return {call}(target_.session, target_.context{values}); }}()"
    )


def proc_entries(api):
    """Rows of the cuGetProcAddress table: dicts name, version, per_thread, symbol, function (C++
    expression).
    """
    rows = []
    for f in api.functions:
        if f.internal or f.header == "none":
            continue
        found = [(f.name, "", f.since)] + [
            (f"{f.name}_{t}", t, max(f.since, 7000)) for t in f.twins
        ]
        found += [
            (alias, names.per_thread_suffix(alias), version) for alias, version in f.aliases.items()
        ]
        for symbol, twin, version in found:
            rows.append(
                {
                    "name": names.proc_name(symbol),
                    "version": version,
                    "per_thread": bool(twin),
                    "symbol": symbol,
                    "function": f"::{symbol}",
                }
            )
    return sorted(rows, key=lambda r: (r["name"], r["per_thread"], r["version"]))


def support_tables(api):
    """Two sorted lists of (name, why it is not supported or ""): the exported symbols, and the
    names that programs may ask for."""
    functions = [f for f in api.functions if not f.internal]
    works = {f.name: f.supported or f.retired for f in functions}
    symbols = {s: "" if works[f.name] else f.why for f in functions for s, _ in f.symbols}
    by_name = dict(symbols)
    for f in functions:
        for symbol, _ in f.symbols:
            name = names.proc_name(symbol)
            why = "" if works[f.name] else f.why
            by_name[name] = why and by_name.get(name, why)
    return sorted(symbols.items()), sorted(by_name.items())


def driver_functions(api):
    return [f for f in api.functions if f.supported and not f.internal and f.name not in _MACROS]


def _lookup(f):
    candidates = [f.name] + [a for a in f.aliases if not names.per_thread_suffix(a)]
    return ", ".join(f'"{c}"' for c in candidates)


def _opcode_rows(entries):
    by_number = {entry.opcode: registry.function_name(name) for name, entry in entries.items()}
    end = max(by_number) + 1
    return [by_number.get(n, "?") for n in range(registry.FIRST, end)], end


def _put_calls(put, chapter, types):
    """What sends a chapter's messages: the message alone, and what else a call does."""
    messages = [f.message for f in chapter.messages]
    put(f"client/wire/{chapter.name}.h", "wire.h.j2", chapter=chapter, functions=messages)
    put(
        f"client/wire/{chapter.name}.cc",
        "wire.cc.j2",
        chapter=chapter,
        functions=messages,
        body=cpp_call.message,
    )
    functions = chapter.with_policy
    if not functions:
        return
    put(f"client/work/{chapter.name}.h", "work.h.j2", chapter=chapter, functions=functions)
    put(
        f"client/work/{chapter.name}.cc",
        "work.cc.j2",
        chapter=chapter,
        functions=functions,
        body=lambda f: cpp_call.policy(f, types),
    )


def render(api, entries, nvml_entries=None):
    """path below generated/ -> text. entries: the registry; nvml_entries: that of NVML."""
    environments = {room: environment(folder) for room, folder in TEMPLATES.items()}
    rows, end = _opcode_rows(entries)
    wired = {f.opcode: f for f in api.functions if f.wire}
    files = {}

    def put(path, template, **values):
        folder = path.rpartition("/")[0]
        files[path] = environments[folder].get_template(template).render(**values)

    put(
        "schema/opcodes.h",
        "opcodes.h.j2",
        first=registry.FIRST,
        end=end,
        functions=sorted((f for f in api.functions if not f.header), key=lambda f: f.opcode),
    )
    put("schema/opcodes.cc", "opcodes.cc.j2", names=rows, messages=sorted(wired))
    symbols, by_name = support_tables(api)
    put("schema/support_table.h", "support_table.h.j2")
    put("schema/support_table.cc", "support_table.cc.j2", symbols=symbols, by_name=by_name)
    kinds = list(api.types.kinds.values())
    put("rpc/handle_rules.h", "handle_rules.h.j2", kinds=kinds, types=api.types)
    put("server/object_ends.h", "object_ends.h.j2", kinds=kinds)
    put("client/make_record.h", "make_record.h.j2", kinds=kinds)
    put("client/object_ends.h", "object_ends.h.j2", kinds=kinds)
    put("schema/result_names.h", "result_names.h.j2")
    put("schema/result_names.cc", "result_names.cc.j2", results=api.results.items())
    with_messages = [c for c in api.chapters if c.messages]
    for chapter in with_messages:
        _put_calls(put, chapter, api.types)
        generated = [f for f in chapter.messages if not f.server_manual]
        if generated:
            put(
                f"server/{chapter.name}_dispatch.cc",
                "dispatch.cc.j2",
                chapter=chapter,
                functions=generated,
                body=lambda f: cpp_dispatch.body(f, api.types),
            )
        by_hand = [f for f in chapter.messages if f.server_manual]
        if by_hand:
            put(
                f"server/{chapter.name}_decode.h",
                "decode.h.j2",
                chapter=chapter,
                functions=by_hand,
                body=lambda f: cpp_dispatch.decoding(f, api.types),
                members=cpp_dispatch.members,
                values=cpp_dispatch.member_values,
            )
    put("client/work/calls.h", "calls.h.j2", chapters=with_messages)
    by_hand = manual.expected(api, "client")
    by_name = {f.name: f for f in api.functions}
    groups = [(c.title, [f for f in by_hand if f.chapter == c.name]) for c in api.chapters]
    put(
        "client/manual.h",
        "client_manual.h.j2",
        groups=[g for g in groups if g[1]],
        captured=[f for f in api.functions if f.is_captured],
    )
    for chapter in api.chapters:
        functions = [f for f in chapter.functions if not f.header and not f.internal]
        if functions:
            put(
                f"client/exports/{chapter.name}.cc",
                "exports.cc.j2",
                chapter=chapter,
                functions=functions,
                needs=_NEEDS,
                classes=_CAPTURE_CLASSES,
                action=lambda f: _action(f, by_name),
                items=cpp_trace.items,
            )
    elsewhere = [f for f in api.functions if f.header]
    put("client/proc_table.h", "proc_table.h.j2")
    put(
        "client/proc_table.cc",
        "proc_table.cc.j2",
        entries=proc_entries(api),
        elsewhere=elsewhere,
    )
    put("client/exports/elsewhere.cc", "elsewhere.cc.j2", functions=elsewhere)
    former = [f for f in api.functions if f.name in _FORMER]
    put(
        "server/driver_table.h", "driver_table.h.j2", functions=driver_functions(api), former=former
    )
    put(
        "server/driver_table.cc",
        "driver_table.cc.j2",
        functions=driver_functions(api),
        former=former,
        lookup=_lookup,
        structs=api.types.structs,
    )
    put("server/manual.h", "server_manual.h.j2", functions=manual.expected(api, "server"))
    put(
        "server/dispatch.h",
        "dispatch.h.j2",
        functions=[f for f in api.functions if f.wire and not f.server_manual],
    )
    table = []
    for opcode, name in enumerate(rows, registry.FIRST):
        f = wired.get(opcode)
        handler = (
            "nullptr" if f is None else f"&{'manual' if f.server_manual else 'dispatch'}_{name}"
        )
        bulk = f.bulk_in.bulk.capitalize() if f and f.bulk_in else "Nowhere"
        submits = "true" if f and f.enters_streams else "false"
        table.append({"name": name, "handler": handler, "bulk": f"k{bulk}", "submits": submits})
    put("server/dispatch/table.cc", "dispatch_table.cc.j2", table=table)
    render_tests.add(api, put)
    render_nvml.add(api.nvml, nvml_entries or {}, put)
    return files
